"""Files of a scan as they are measured, on very little data."""

from __future__ import annotations

import pytest

from bench import figures
from bench.e2e import files
from bench.files import batches_of

ITEMS = 300


@pytest.mark.parametrize("name", files.FORMATS)
def test_files_that_are_measured_are_read_again(name, tmp_path):
    """Before a format is measured its file is read and compared, and nothing of it stays."""
    files.check(name, batches_of("orders", ITEMS), str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_row_of_files_has_its_figures(tmp_path):
    """What is measured and laid out is what the page shows."""
    batches = batches_of("orders", ITEMS)
    writing = {name: files.measure(name, batches, str(tmp_path), rounds=1) for name in files.FORMATS}
    layout = {name: {"1": files.layout(name, batches * 2, files.MIB, 1)} for name in files.FORMATS}
    assert all(each["stored_bytes"] > 0 for each in writing.values())
    assert all(each["1"]["files"] == 1 for each in layout.values())
    row = {"figures": {"writing": writing, "layout": layout}, "parameters": {"target_bytes": files.MIB}}
    assert list(figures.CASES["files"](row))
