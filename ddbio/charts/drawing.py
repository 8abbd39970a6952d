"""Draw bars and lines by matplotlib, without its global state of figures."""

from __future__ import annotations

import io
import itertools
import textwrap
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROW_INCHES, _FRAME_INCHES, _WIDTH_INCHES, _FACT_INCHES, _LINES_INCHES = 0.3, 0.9, 8.0, 0.2, 3.6
# Characters of a line of facts, beside the labels of the charts.
_FACT_WIDTH = 80
# Lines are told apart by their dashes, which readers see who do not see colours.
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (8, 2, 1, 2, 1, 2)), (0, (1, 4)))
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


@dataclass(frozen=True)
class Lines:
    """Hold lines under their title: names and values, over common places on the other axis.

    Attributes
    ----------
    over, unit
        What the places and the values are.
    is_log
        Whether both axes are of ratios.
    """

    title: str
    over: str
    unit: str
    places: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float, ...]], ...]
    is_log: bool = False


Chart = Bars | Lines


def svg_of(chart: Chart) -> str:
    """Return a chart as an SVG element whose colours are variables of the page.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    with _matplotlib() as make_figure:
        figure = make_figure(figsize=(_WIDTH_INCHES, _height(chart)), layout="constrained")
        figure.patch.set_visible(False)
        _draw(figure.subplots(), chart, _SVG_COLOURS)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    return text[text.index("<svg") :]


def png_of(title: str, facts: Sequence[tuple[str, str]], charts: Sequence[Chart]) -> bytes:
    """Return charts below each other as a PNG, under a title and some facts.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    with _matplotlib() as make_figure:
        lines = [line for name, value in facts for line in textwrap.wrap(f"{name}: {value}", _FACT_WIDTH)]
        heights = [_FACT_INCHES * (len(lines) + 3), *map(_height, charts)]
        figure = make_figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
        head, *places = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
        head.axis("off")
        head.text(0, 1, title, fontsize="x-large", va="top", transform=head.transAxes, in_layout=False)
        # From the left edge, beside the labels of charts below.
        head.text(0, 0.8, "\n".join(lines), va="top", fontsize="small", transform=head.transAxes, in_layout=False)
        for place, chart in zip(places, charts, strict=True):
            _draw(place, chart, _PNG_COLOURS)
            place.set_title(chart.title, loc="left")
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def _height(chart: Chart) -> float:
    if isinstance(chart, Lines):
        return _LINES_INCHES
    return _FRAME_INCHES + _ROW_INCHES * max(1, len(chart.labels))


def _draw(place: Any, chart: Chart, colours: dict[str, str]) -> None:
    if isinstance(chart, Lines):
        _draw_lines(place, chart, colours)
    else:
        _draw_bars(place, chart, colours)
    place.set_facecolor("none")
    place.tick_params(colors=colours["ink"], which="both")
    place.set_axisbelow(True)
    for spine in place.spines.values():
        spine.set_visible(False)


def _draw_lines(place: Any, chart: Lines, colours: dict[str, str]) -> None:
    for (name, values), dashes in zip(chart.lines, itertools.cycle(_DASHES)):
        place.plot(chart.places, values, label=name, color=colours["bar"], linestyle=dashes, linewidth=1.4)
    if chart.is_log:
        place.set_xscale("log")
        place.set_yscale("log")
        for axis in (place.xaxis, place.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
    else:
        place.set_ylim(bottom=0)
    place.set_xlabel(chart.over, color=colours["ink"])
    place.set_ylabel(chart.unit, color=colours["ink"])
    place.grid(color=colours["line"], linewidth=0.6)
    place.legend(frameon=False, labelcolor=colours["ink"], fontsize="small")


def _draw_bars(place: Any, bars: Bars, colours: dict[str, str]) -> None:
    # By number: two bars may have one label.
    rows = range(len(bars.labels))
    place.barh(rows, bars.values, color=colours["bar"], height=0.7)
    place.set_yticks(rows, bars.labels, color=colours["ink"])
    place.set_ylim(len(bars.labels) - 0.4, -0.6)
    place.set_xlabel(bars.unit, color=colours["ink"])
    place.grid(axis="x", color=colours["line"], linewidth=0.6)
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
