"""Time and memory of each pure kernel that the gate counts, and of the planner, which is also pure."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from bench import data, orders
from bench.gate import kernels
from bench.pairs import interleave
from ddbio.aws.table_description import TableDescription
from ddbio.options import parse_options
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import Resources, Sample, ScanPlan, plan_scan

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 20_000
ROUNDS = 5
TERABYTE = 1024**4


class Kernels:
    params = (list(kernels.NAMES),)
    param_names = ("kernel",)
    timer = time.process_time
    timeout = 300

    def setup(self, kernel: str) -> None:
        self.call = self.check()[kernel]

    @staticmethod
    @functools.cache
    def check() -> dict[str, Callable[[], Any]]:
        return kernels.kernels(data.scaled(ITEMS))

    def time_kernel(self, _: str) -> None:
        self.call()

    def peakmem_kernel(self, _: str) -> None:
        self.call()

    def track_items_per_second(self, _: str) -> float:
        return data.scaled(ITEMS) / min(interleave({"kernel": self.call}, ROUNDS)["kernel"])

    track_items_per_second.unit = "items/s"  # type: ignore[attr-defined]


class Planner:
    """Plan of a scan of a terabyte, without requests."""

    timer = time.process_time

    def setup(self) -> None:
        self.check()

    def check(self) -> None:
        assert self.plan().segments >= TERABYTE // (512 * 1024**2)

    def time_plan_scan(self) -> None:
        self.plan()

    def track_segments(self) -> float:
        return self.plan().segments

    def plan(self) -> ScanPlan:
        """Return the plan."""
        keys = tuple((name, "S") for name in orders.KEYS)
        table = TableDescription("orders", "", "", "ACTIVE", keys, TERABYTE // 600, TERABYTE, on_demand=True)
        sample = Sample(orders.schema_of("mixed"), 2_000, 600.0, 150.0, complete=False)
        return plan_scan(table, sample, parse_options(ScanOptions, {"table": "orders"}), Resources(2))

    track_segments.unit = "segments"  # type: ignore[attr-defined]
