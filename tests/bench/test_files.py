"""Measured files of a scan, on very little data."""

from __future__ import annotations

import pytest

from bench import figures
from bench.e2e import files
from bench.files import batches_of

ITEMS = 300


@pytest.mark.parametrize("name", files.FORMATS)
def test_measured_files_are_checked(name, tmp_path):
    """Before a format is measured, its file is read and compared. No file is left."""
    files.check(name, batches_of("orders", ITEMS), str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_row_of_files_has_its_figures(tmp_path):
    """The page shows the measured figures and layout."""
    batches = batches_of("orders", ITEMS)
    writing = {name: files.measure(name, batches, str(tmp_path), rounds=1) for name in files.FORMATS}
    layout = {name: {"1": files.layout(name, batches * 2, files.MIB, 1)} for name in files.FORMATS}
    assert all(figures["stored_bytes"] > 0 for figures in writing.values())
    assert all(figures["1"]["files"] == 1 for figures in layout.values())
    row = {"figures": {"writing": writing, "layout": layout}, "parameters": {"target_bytes": files.MIB}}
    assert list(figures.CASES["files"](row))
