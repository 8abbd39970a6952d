"""Leave the process of tests as benchmarks found it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench import serving


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays() -> Iterator[None]:
    """Stop the servers of tables, and give the environment back, which benchmarks replace."""
    found = dict(os.environ)
    yield
    serving.stop()
    os.environ.clear()
    os.environ.update(found)
