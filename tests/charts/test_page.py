"""Pages of charts: one file that needs nothing beside it."""

import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from ddbio.charts.page import Bars, Page, Table, page_html, page_png, write_page
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
    """The page refers to nothing outside, escapes what it shows, and draws in colours of its own style."""
    text = page_html(PAGE)
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert "Layout of &lt;there&gt;" in text
    assert "<td>&lt;i&gt;</td>" in text
    svg = text[text.index("<svg") : text.index("</svg>") + 6]
    texts = ["".join(each.itertext()).strip() for each in ET.fromstring(svg).iter() if each.tag.endswith("text")]
    assert {"0–1 MiB", "$x$ <b>", "files"} <= set(texts)
    assert "var(--bar)" in svg
    assert not re.search("#0[147]0[258]0[369]", svg)


def test_png_shows_the_bars():
    """The same bars make a picture."""
    assert page_png(PAGE).startswith(b"\x89PNG")


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    """The error names the file."""
    with pytest.raises(TargetError, match="nowhere"):
        write_page(Page("t", (), ()), tmp_path / "nowhere" / "page.html", None)


def test_the_missing_extra_is_named():
    """Without matplotlib tables are shown, and bars say what to install."""
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
