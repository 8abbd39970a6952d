"""Self-contained pages of charts."""

import re
import subprocess
import sys
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pytest

from ddbio.charts.page import Bars, Page, Table, page_html, page_png, report_page, write_page
from ddbio.errors import TargetError

PAGE = Page(
    "Layout of <there>",
    (("files", "2 & more"),),
    (
        Bars("By size", "files", ("0–1 MiB", "$x$ <b>"), (1, 2.5)),
        Table("Columns", ("name", "bytes"), (("<i>", "12"),)),
    ),
)


def test_html_is_one_file_in_the_readers_colours():
    """The page has no external references, escapes its texts, and draws in its own colours."""
    text = page_html(PAGE)
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert "Layout of &lt;there&gt;" in text
    assert "<td>&lt;i&gt;</td>" in text
    svg = text[text.index("<svg") : text.index("</svg>") + 6]
    texts = [
        "".join(element.itertext()).strip() for element in ET.fromstring(svg).iter() if element.tag.endswith("text")
    ]
    assert {"0–1 MiB", "$x$ <b>", "files"} <= set(texts)
    assert "var(--bar)" in svg
    assert not re.search("#0[147]0[258]0[369]", svg)


@dataclass(frozen=True)
class Part:
    """Part of a report, which has further parts."""

    name: str
    usd: float
    is_there: bool | None = None
    texts: tuple[str, ...] = ()
    values: dict[str, int] | None = None
    parts: tuple["Part", ...] = ()


@dataclass(frozen=True)
class Report:
    """Report with a field of each kind."""

    file_count: int
    size: float
    nothing: None
    why: tuple[str, ...]
    rates: tuple[float, ...]
    counts: dict[str, int]
    total: Part
    parts: tuple[Part, ...]


def test_fields_of_a_report_become_facts_and_tables():
    """Values become facts, mappings and sequences of dataclasses tables; those of a part are another table."""
    first = Part("a", 1.0, True, ("x", "y"), {"k": 1}, (Part("inner", 0.5),))
    report = Report(1234, 1e12, None, ("one", "two"), (1.0, 2.0), {"n": 5}, Part("w", 2.0), (first, Part("b", 1234.5)))
    page = report_page("Title", report, [Bars("b", "files", ("a",), (1,))], [("result", "passed")])
    assert page.facts == [
        ("result", "passed"), ("file count", "1,234"), ("size", "1,000,000,000,000"), ("why", "one"), ("why", "two"),
        ("total: name", "w"), ("total: usd", "2.00"),
    ]  # fmt: skip
    bars, counts, parts, inner = page.parts
    assert (bars.title, counts.title, counts.rows) == ("b", "Counts", (("n", "5"),))
    assert parts.columns == ("name", "usd", "is there", "texts", "values")
    assert parts.rows == (("a", "1.00", "yes", "x; y", '{"k": 1}'), ("b", "1,234.50", "", "", ""))
    assert (inner.title, inner.rows) == ("Parts: parts", (("a", "inner", "0.50"),))
    many = report_page("t", Part("m", 0.0, parts=tuple(Part(str(number), 0.0) for number in range(301))))
    assert (many.parts[0].title, len(many.parts[0].rows)) == ("Parts: the first 300 of 301", 300)


def test_png_shows_the_bars():
    """The same bars become a picture."""
    assert page_png(PAGE).startswith(b"\x89PNG")


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    """The error names the file."""
    with pytest.raises(TargetError, match="nowhere"):
        write_page(Page("t", (), ()), tmp_path / "nowhere" / "page.html", None)


def test_the_missing_extra_is_named():
    """Without matplotlib tables are shown, and bars name the package to install."""
    script = """
import sys
sys.modules["matplotlib"] = None
from ddbio.charts.page import Bars, Page, page_html
page_html(Page("t", (), ()))
try:
    page_html(Page("t", (), (Bars("b", "files", ("a",), (1,)),)))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "charts need matplotlib: pip install 'ddbio[charts]'"
