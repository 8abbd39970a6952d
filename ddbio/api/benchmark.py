"""Measure ddbio on this machine and against this endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import benchmark
from ddbio.options import BenchOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from ddbio.api.keywords import BenchKeywords
    from ddbio.core.benchmark import BenchReport


@takes(BenchOptions)
def bench(
    table: str | None = None, *, master: str | None = None, conf: Mapping[str, str] | None = None,
    **options: Unpack[BenchKeywords],
) -> BenchReport:  # fmt: skip
    """Return how fast ddbio is on this machine, beside the figures that come with it; nothing is written unless asked.

    Parameters
    ----------
    table
        A table to scan, of which at most ``items`` are read; without one only functions in memory are measured.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        ``write_to`` names a table that takes generated orders; see :class:`ddbio.BenchKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return benchmark.run_bench(parse_options(BenchOptions, {**options, "table": table}), master=master, conf=conf)
