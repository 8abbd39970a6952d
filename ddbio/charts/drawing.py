"""Draw bars by matplotlib, without its global state of figures."""

from __future__ import annotations

import io
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROW_INCHES, _FRAME_INCHES, _WIDTH_INCHES, _FACT_INCHES = 0.3, 0.9, 8.0, 0.2
# Stand-ins that the page's own colours replace.
_INK, _LINE, _BAR = "#010203", "#040506", "#070809"
_COLOURS = {_INK: "var(--ink)", _LINE: "var(--line)", _BAR: "var(--bar)"}
_PNG_COLOURS = {"ink": "#1f2328", "line": "#d0d7de", "bar": "#3f51b5"}
_SVG_COLOURS = {"ink": _INK, "line": _LINE, "bar": _BAR}
# matplotlib's settings belong to the process.
_SETTINGS = threading.Lock()


@dataclass(frozen=True)
class Bars:
    """Hold horizontal bars under their title: a label and a value each, in one unit."""

    title: str
    unit: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


def svg_of(bars: Bars) -> str:
    """Return a chart as an SVG element whose colours are variables of the page.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    with _matplotlib() as make_figure:
        figure = make_figure(figsize=(_WIDTH_INCHES, _height(bars)), layout="constrained")
        figure.patch.set_visible(False)
        _draw(figure.subplots(), bars, _SVG_COLOURS)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    return text[text.index("<svg") :]


def png_of(title: str, facts: Sequence[tuple[str, str]], charts: Sequence[Bars]) -> bytes:
    """Return charts below each other as a PNG, under a title and some facts.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    with _matplotlib() as make_figure:
        heights = [_FACT_INCHES * (len(facts) + 3), *map(_height, charts)]
        figure = make_figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
        head, *places = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
        head.axis("off")
        head.text(0, 1, title, fontsize="x-large", va="top", transform=head.transAxes)
        lines = "\n".join(f"{name}: {value}" for name, value in facts)
        head.text(0, 0.8, lines, va="top", transform=head.transAxes)
        for place, bars in zip(places, charts, strict=True):
            _draw(place, bars, _PNG_COLOURS)
            place.set_title(bars.title, loc="left")
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def _height(bars: Bars) -> float:
    return _FRAME_INCHES + _ROW_INCHES * max(1, len(bars.labels))


def _draw(place: Any, bars: Bars, colours: dict[str, str]) -> None:
    # By number: two bars may have one label.
    rows = range(len(bars.labels))
    place.barh(rows, bars.values, color=colours["bar"], height=0.7)
    place.set_yticks(rows, bars.labels, color=colours["ink"])
    place.set_ylim(len(bars.labels) - 0.4, -0.6)
    place.set_xlabel(bars.unit, color=colours["ink"])
    place.set_facecolor("none")
    place.tick_params(colors=colours["ink"])
    place.grid(axis="x", color=colours["line"], linewidth=0.6)
    place.set_axisbelow(True)
    for spine in place.spines.values():
        spine.set_visible(False)
    for number, value in zip(rows, bars.values, strict=True):
        place.annotate(
            f" {value:,.6g}" if isinstance(value, float) else f" {value:,}",
            (value, number),
            va="center",
            color=colours["ink"],
            fontsize="small",
        )
    # Space for the numbers behind the bars.
    place.set_xlim(0, 1.15 * max([*bars.values, 0]) or 1)


@contextmanager
def _matplotlib() -> Iterator[Any]:
    """Yield the class of figures, under settings that print text as text."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError("charts need matplotlib: pip install 'ddbio[charts]'") from error
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "ddbio", "text.parse_math": False}
    with _SETTINGS, mpl.rc_context(settings):
        yield Figure
