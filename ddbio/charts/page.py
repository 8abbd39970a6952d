"""Report as one HTML file without references to other hosts, or its charts as a PNG.

A report provides its charts: bars and lines with their titles, units and values. Facts and tables follow from its
fields. Charts are embedded as SVG, in colours that follow the reader's light or dark scheme.
"""

from __future__ import annotations

import dataclasses
import html
import io
import itertools
import json
import os
import textwrap
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError, TargetError
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_STYLE = (
    ":root{color-scheme:light dark;--ink:#1f2328;--paper:#fff;--line:#d0d7de;--bar:#3f51b5}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--line:#30363d;--bar:#8c9eff}}"
    "body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top;"
    "overflow-wrap:anywhere;min-width:4.2rem}th{overflow-wrap:normal}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.5rem}dt{opacity:.7}dd{margin:0}"
    "figure{margin:0;overflow-x:auto}svg{max-width:100%;height:auto}svg text{font-family:inherit!important}"
)
_WIDTH_INCHES, _ROW_INCHES, _FRAME_INCHES, _LINES_INCHES, _FACT_INCHES = 8.0, 0.3, 0.9, 3.6, 0.2
# Maximum characters of a line of facts, which must not overlap the labels of the charts.
_FACT_WIDTH = 80
# Lines have different dashes, which readers can distinguish without seeing colours.
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (8, 2, 1, 2, 1, 2)), (0, (1, 4)))
_PNG_COLOURS = {"ink": "#1f2328", "line": "#d0d7de", "bar": "#3f51b5"}
# Placeholders that the page's own colours replace.
_SVG_COLOURS = {"ink": "#010203", "line": "#040506", "bar": "#070809"}
# matplotlib's settings are global to the process.
_SETTINGS = threading.Lock()
_MAX_ROWS = 300
# Larger numbers are shown without decimals.
_ROUNDED_FROM = 1000.0


@dataclass(frozen=True)
class Bars:
    """Horizontal bars under a title: a label and a value each, in one unit."""

    title: str
    unit: str
    labels: Sequence[str]
    values: Sequence[float]

    @property
    def inches(self) -> float:
        """Return the height."""
        return _FRAME_INCHES + _ROW_INCHES * max(1, len(self.labels))

    def draw(self, axes: Any, colours: Mapping[str, str]) -> None:
        """Draw the bars on matplotlib's axes."""
        # By number: two bars may have the same label.
        rows = range(len(self.labels))
        axes.barh(rows, self.values, color=colours["bar"], height=0.7)
        axes.set_yticks(rows, self.labels, color=colours["ink"])
        axes.set_ylim(len(self.labels) - 0.4, -0.6)
        axes.set_xlabel(self.unit, color=colours["ink"])
        axes.grid(axis="x", color=colours["line"], linewidth=0.6)
        for number, value in zip(rows, self.values, strict=True):
            text = f" {_text(self.unit, value)}"
            axes.annotate(text, (value, number), va="center", color=colours["ink"], fontsize="small")
        # Space for the numbers after the bars.
        axes.set_xlim(0, 1.15 * max([*self.values, 0]) or 1)


@dataclass(frozen=True)
class Lines:
    """Lines under a title: names and values, over common positions on the other axis.

    Attributes
    ----------
    over, unit
        The quantities of the positions and of the values.
    is_log
        Whether both axes are logarithmic.
    """

    title: str
    over: str
    unit: str
    positions: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    is_log: bool = False

    @property
    def inches(self) -> float:
        """Return the height."""
        return _LINES_INCHES

    def draw(self, axes: Any, colours: Mapping[str, str]) -> None:
        """Draw the lines on matplotlib's axes."""
        for (name, values), dashes in zip(self.lines.items(), itertools.cycle(_DASHES)):
            axes.plot(self.positions, values, label=name, color=colours["bar"], linestyle=dashes, linewidth=1.4)
        if self.is_log:
            axes.loglog()
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(lambda value, _: f"{value:,g}")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(self.over, color=colours["ink"])
        axes.set_ylabel(self.unit, color=colours["ink"])
        axes.grid(color=colours["line"], linewidth=0.6)
        axes.legend(frameon=False, labelcolor=colours["ink"], fontsize="small")


Chart = Bars | Lines


@dataclass(frozen=True)
class Table:
    """Table under a title; every cell is text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Page:
    """Contents of a page: a title, facts as names and values, then charts and tables in their order."""

    title: str
    facts: Sequence[tuple[str, str]]
    parts: Sequence[Chart | Table]


def report_page(title: str, report: Any, charts: Iterable[Chart] = (), facts: Iterable[tuple[str, str]] = ()) -> Page:
    """Return the page of a report: some facts, its charts, and all of its fields as facts and tables.

    Texts and numbers become facts; mappings and sequences of dataclasses become tables; sequences of numbers are only
    in
    the charts.
    """
    shown, inner_facts, tables = list(facts), [], []
    for name, value in _fields(report):
        if isinstance(value, Mapping):
            tables.append(_table(name, ("name", "value"), ((key, _text(key, item)) for key, item in value.items())))
        elif _are_dataclasses(value):
            tables += _tables(name, [("", item) for item in value])
        elif isinstance(value, tuple):
            shown += [(name, text) for text in value if isinstance(text, str)]
        elif dataclasses.is_dataclass(value):
            inner_facts += [(f"{name}: {inner}", _text(inner, inner_value)) for inner, inner_value in _fields(value)]
        else:
            shown.append((name, _text(name, value)))
    return Page(title, [*shown, *inner_facts], [*charts, *tables])


def _fields(report: Any) -> list[tuple[str, Any]]:
    """Return the non-empty fields, with names for people."""
    values = ((field.name.replace("_", " "), getattr(report, field.name)) for field in dataclasses.fields(report))
    return [(name, value) for name, value in values if value is not None and value not in ((), "", {})]


def _are_dataclasses(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and dataclasses.is_dataclass(value[0])


def _tables(title: str, items: Sequence[tuple[str, Any]]) -> list[Table]:
    """Return dataclasses, each with its owner, as a table, and the dataclasses in their fields as further tables."""
    rows: list[dict[str, str]] = []
    owned: dict[str, list[tuple[str, Any]]] = {}
    for owner, item in items:
        row = {"of": owner} if owner else {}
        for name, value in _fields(item):
            if _are_dataclasses(value):
                owned.setdefault(f"{title}: {name}", []).extend((next(iter(row.values())), child) for child in value)
            else:
                row[name] = _text(name, value)
        rows.append(row)
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    table = _table(title, columns, (tuple(row.get(name, "") for name in columns) for row in rows))
    return [table, *(table for name, values in owned.items() for table in _tables(name, values))]


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    cells = tuple(rows)
    title = title.capitalize()
    if len(cells) > _MAX_ROWS:
        title = f"{title}: the first {_MAX_ROWS} of {len(cells):,}"
    return Table(title, columns, cells[:_MAX_ROWS])


def _text(name: str, value: Any) -> str:
    """Return a value as text for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        digits = ".2f" if "usd" in name.lower() else ".0f" if abs(value) >= _ROUNDED_FROM else ".4g"
        return format(value, f",{digits}")
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return "; ".join(_text(name, item) for item in value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def page_html(page: Page) -> str:
    """Return a page as HTML.

    Raises
    ------
    OptionError
        If it has charts and matplotlib is not installed.
    """
    title = html.escape(page.title)
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in page.facts)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>{_STYLE}</style>\n<h1>{title}</h1>\n<dl>{facts}</dl>\n"
        + "".join(_section(part) for part in page.parts)
        + "</html>\n"
    )


def _section(part: Chart | Table) -> str:
    title = f"<h2>{html.escape(part.title)}</h2>\n"
    if not isinstance(part, Table):
        return f"{title}<figure>{_svg_of(part)}</figure>\n"
    rows = "".join(_row("td", row) for row in part.rows)
    return f"{title}<table>{_row('th', part.columns)}{rows}</table>\n"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"


def _svg_of(chart: Chart) -> str:
    """Return a chart as an SVG element whose colours are variables of the page."""
    with _matplotlib() as make_figure:
        figure = make_figure(figsize=(_WIDTH_INCHES, chart.inches), layout="constrained")
        figure.patch.set_visible(False)
        _draw(figure.subplots(), chart, _SVG_COLOURS)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    for name, colour in _SVG_COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return text[text.index("<svg") :]


def page_png(page: Page) -> bytes:
    """Return the title, the facts and the charts of a page below each other as a PNG.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    charts = [part for part in page.parts if not isinstance(part, Table)]
    lines = [line for name, value in page.facts for line in textwrap.wrap(f"{name}: {value}", _FACT_WIDTH)]
    heights = [_FACT_INCHES * (len(lines) + 3), *(chart.inches for chart in charts)]
    with _matplotlib() as make_figure:
        figure = make_figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
        head, *all_axes = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
        head.axis("off")
        head.text(0, 1, page.title, fontsize="x-large", va="top", transform=head.transAxes, in_layout=False)
        # From the left edge, next to the labels of the charts below.
        head.text(0, 0.8, "\n".join(lines), va="top", fontsize="small", transform=head.transAxes, in_layout=False)
        for axes, chart in zip(all_axes, charts, strict=True):
            _draw(axes, chart, _PNG_COLOURS)
            axes.set_title(chart.title, loc="left")
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def _draw(axes: Any, chart: Chart, colours: Mapping[str, str]) -> None:
    chart.draw(axes, colours)
    axes.set_facecolor("none")
    axes.tick_params(colors=colours["ink"], which="both")
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


@contextmanager
def _matplotlib() -> Iterator[Any]:
    """Yield the class of figures, with settings that print text as text."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError("charts need matplotlib: pip install 'ddbio[charts]'") from error
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "ddbio", "text.parse_math": False}
    with _SETTINGS, mpl.rc_context(settings):
        yield Figure


def write_page(page: Page, html_path: str | os.PathLike[str] | None, png_path: str | os.PathLike[str] | None) -> None:
    """Write a page to the requested files.

    Raises
    ------
    OptionError
        If matplotlib is needed and not installed.
    TargetError
        If a file cannot be written.
    """
    if html_path is not None:
        _write(html_path, page_html(page).encode())
    if png_path is not None:
        _write(png_path, page_png(page))


def _write(path: str | os.PathLike[str], data: bytes) -> None:
    try:
        local_path(os.fspath(path)).write_bytes(data)
    except OSError as error:
        raise TargetError(f"{path} cannot be written: {error.strerror}", str(path)) from error
