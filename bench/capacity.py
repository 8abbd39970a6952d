"""Cost of the budget per request: acquire and settle, without a rate and with a rate that never waits."""

from __future__ import annotations

import threading
import time

from bench.pairs import interleave, speed_ratio
from ddbio.budget import LocalBudget

REQUESTS = 10_000
NEVER_WAITS = 1e12
ROUNDS = 5


class Budget:
    params = (["no rate", "a rate"],)
    param_names = ("budget",)
    timer = time.process_time

    def setup(self, kind: str) -> None:
        self.rate = NEVER_WAITS if kind == "a rate" else None
        self.lock = threading.Lock()
        self.check(kind)

    def check(self, _: str) -> None:
        usage = self._spend().usage()
        assert (usage.requests, usage.consumed_units, usage.items) == (REQUESTS, 100.0 * REQUESTS, REQUESTS)

    def time_10_000_requests(self, _: str) -> None:
        self._spend()

    def time_floor_20_000_locks(self, _: str) -> None:
        for _number in range(2 * REQUESTS):
            with self.lock:
                pass

    def track_ratio_to_floor(self, _: str) -> float:
        seconds = interleave({"ours": self._spend, "floor": lambda: self.time_floor_20_000_locks(_)}, ROUNDS)
        return speed_ratio(seconds, "ours", "floor")

    track_ratio_to_floor.unit = "x"  # type: ignore[attr-defined]

    def _spend(self) -> LocalBudget:
        budget = LocalBudget(self.rate)
        for _ in range(REQUESTS):
            budget.settle(budget.acquire(128.0), 100.0, items=1, wire_bytes=1_900_000)
        return budget
