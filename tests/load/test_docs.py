"""The page of the load has every option and every key of the report."""

import re
from pathlib import Path

from ddbio.jobs.report import WriteReport
from ddbio.load.options import LoadOptions
from ddbio.options import ConnectionOptions, descriptions_of

PAGE = (Path(__file__).parents[2] / "docs/load.md").read_text("utf-8")


def test_the_page_lists_every_option():
    """Each option of the load is on the page with its docstring. The others are on other pages."""
    described = descriptions_of(LoadOptions)
    elsewhere = descriptions_of(ConnectionOptions)
    listed = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", PAGE, re.MULTILINE))
    wanted = {name: text for name, text in described.items() if name not in elsewhere}
    assert {name: listed.get(name) for name in wanted} == wanted


def test_the_page_lists_every_key():
    """Each key of the report is on the page."""
    assert [name for name in WriteReport.__dataclass_fields__ if f"| `{name}` |" not in PAGE] == []
