"""README's picture of speed compared with peers, from the newest rows: an SVG for light and dark mode."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from bench import decoders, encode, scanners
from bench.e2e import record
from bench.e2e.export import SPARK as SPARK_JSON
from bench.rows import newest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Figures = dict[str, Any]

PICTURE = record.ROOT / "docs/assets/speed.svg"
TITLE = "Work per second of client CPU, as a multiple of the peer's"

# Bars: work, peer, case of the row, and the ratio in the row.
BARS: list[tuple[str, str, str, Callable[[Figures], float]]] = [
    ("read a table", "awswrangler read_items", "scan", lambda row: row["times_as_fast_as"][scanners.AWSWRANGLER]),
    ("read a table", "boto3 client.scan", "scan", lambda row: row["times_as_fast_as"][scanners.CLIENT]),
    (
        "encode items",
        "TypeSerializer + json.dumps",
        "encode",
        lambda row: min(row[shape]["times_as_fast_as"][encode.BOTO3] for shape in ("orders", "flights")),
    ),
    (
        "decode an export",
        "json.loads + TypeDeserializer",
        "decode",
        lambda row: row["export export"]["times_as_fast_as"][decoders.BOTO3],
    ),
    ("write items", "boto3 batch_writer", "write", lambda row: row["times_as_many_as_boto3"]),
    ("update items", "boto3 update_item", "update", lambda row: row["updates_times_as_many_as_boto3"]),
    ("export to Parquet", "Spark's JSON reader", "export", lambda row: row["spark"]["times_as_fast_as"][SPARK_JSON]),
]

_WIDTH, _LABELS, _VALUES, _TOP, _STEP, _BAR = 760, 300, 60, 54, 38, 18
_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 14px }
  .peer { fill: #59636e; font-size: 12px }
  .bar { fill: #3f51b5 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #3d444d }
    text { fill: #f0f6fc }
    .peer { fill: #9198a1 }
    .bar { fill: #7c8cff }
  }
"""


def render(folder: Path = record.RESULTS) -> str:
    """Return the SVG with a bar for each existing row."""
    bars = [
        (what, peer, ratio(row["figures"]))
        for what, peer, case, ratio in BARS
        if (row := newest(folder / f"{case}.jsonl")) is not None
    ]
    longest = max((value for _, _, value in bars), default=1.0)
    scale = (_WIDTH - _LABELS - _VALUES - 20) / longest
    height = _TOP + _STEP * len(bars) + 8
    summary = "; ".join(f"{what}: {value:.0f} times {peer}" for what, peer, value in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">',
        f"<title>{escape(f'{TITLE}: {summary}')}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="title" x="20" y="32">{escape(TITLE)}</text>',
    ]
    for number, (what, peer, value) in enumerate(bars):
        top = _TOP + _STEP * number
        lines += [
            f'<text x="{_LABELS - 12}" y="{top + 12}" text-anchor="end">{escape(what)}</text>',
            f'<text class="peer" x="{_LABELS - 12}" y="{top + 27}" text-anchor="end">{escape(f"vs {peer}")}</text>',
            f'<rect class="bar" x="{_LABELS}" y="{top + 5}" width="{value * scale:.1f}" height="{_BAR}" rx="3"/>',
            f'<text x="{_LABELS + value * scale + 8:.1f}" y="{top + 19}">{value:.0f}×</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
