"""Values as readable text."""

from ddbio.cli.show import file_rows, format_values
from ddbio.jobs.report import FileReport


def test_empty_values_are_omitted():
    """Lists are separated by commas, counts by thousands. Empty or disabled values have no line."""
    shown = format_values({"items": 1200, "indexes": ("a=b:S", "c=d:N"), "none": None, "off": False, "left": ()})
    assert shown == "items    1,200\nindexes  a=b:S, c=d:N"


def test_thousands_of_files_are_not_all_shown():
    """The first files are named, the others counted with their size; --json has all of them."""
    rows = file_rows([FileReport(f"out/t={number}/part.parquet", 1024, 1) for number in range(1020)])
    assert len(rows) == 21
    assert rows[-1] == ("files", "1,000 more files of 1000.0 KiB, which --json lists")
    assert file_rows([FileReport("out/part.parquet", 10, 1)]) == [("file", "out/part.parquet  10 B  1 row")]
