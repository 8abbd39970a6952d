"""Print a page of figures, charts and tables as one HTML file, which asks no other host for anything, or as a PNG.

The charts lie in the page as SVG, in colours that follow the reader's light or dark scheme.
"""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.charts import drawing
from ddbio.charts.drawing import Bars, Chart, Lines
from ddbio.errors import TargetError
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@dataclass(frozen=True)
class Table:
    """Hold a table under its title; every cell is text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Page:
    """Hold what a page shows: a title, facts as names and values, then charts and tables in their order."""

    title: str
    facts: tuple[tuple[str, str], ...]
    parts: tuple[Chart | Table, ...]


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


def page_png(page: Page) -> bytes:
    """Return the title, the facts and the charts of a page as a PNG.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    return drawing.png_of(page.title, page.facts, [part for part in page.parts if isinstance(part, (Bars, Lines))])


def write_page(page: Page, html_path: str | os.PathLike[str] | None, png_path: str | os.PathLike[str] | None) -> None:
    """Write a page to the files that are given.

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


def _section(part: Chart | Table) -> str:
    title = f"<h2>{html.escape(part.title)}</h2>\n"
    if isinstance(part, (Bars, Lines)):
        return f"{title}<figure>{drawing.svg_of(part)}</figure>\n"
    rows = "".join(_row("td", row) for row in part.rows)
    return f"{title}<table>{_row('th', part.columns)}{rows}</table>\n"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"
