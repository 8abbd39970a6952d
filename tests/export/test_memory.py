"""Memory of a task that reads an export, which is bounded for files of any size."""

import sys
from multiprocessing import get_context

import pytest

from bench import data
from bench.e2e.export_memory import grown, measure
from ddbio.testing.export import ExportWriter


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_task_s_memory_does_not_grow_with_the_file(tmp_path):
    """The peak is at most 256 MiB above the start, and about the same for eight times the file size."""
    growth = {}
    for copies in (2, 16):
        home = grown(ExportWriter(tmp_path / str(copies), files=1).full(data.items("orders", 20_000)), copies)
        with get_context("spawn").Pool(1) as pool:
            measured = pool.apply(measure, (home,))
        assert measured["items"] == 20_000 * copies
        growth[copies] = measured["growth_mebibytes"]
    assert growth[16] <= 256
    assert growth[16] - growth[2] <= 64
