"""Restoration of the process of tests after benchmarks."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from bench import serving


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays() -> Iterator[None]:
    """Stop the servers of tables, and restore the environment, which benchmarks replace.

    Benchmarks collect garbage often, so the objects of the whole test run are frozen.
    """
    environment = dict(os.environ)
    gc.collect()
    gc.freeze()
    yield
    serving.stop()
    os.environ.clear()
    os.environ.update(environment)
