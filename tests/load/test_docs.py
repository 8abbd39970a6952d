"""The page of the load has every key of the report."""

from pathlib import Path

from ddbio.jobs.report import WriteReport

PAGE = (Path(__file__).parents[2] / "docs/load.md").read_text("utf-8")


def test_the_page_lists_every_key():
    """Each key of the report is in its section of the page."""
    section = PAGE.partition("## Report")[2].partition("\n## ")[0]
    assert [name for name in WriteReport.__dataclass_fields__ if f"`{name}`" not in section] == []
