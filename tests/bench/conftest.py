"""Leave the process of tests as benchmarks found it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from bench import serving


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays() -> Iterator[None]:
    """Stop the servers of tables, and give the environment back, which benchmarks replace.

    Benchmarks collect garbage again and again: they do not look through the objects of the whole test run.
    """
    found = dict(os.environ)
    gc.collect()
    gc.freeze()
    yield
    serving.stop()
    os.environ.clear()
    os.environ.update(found)
