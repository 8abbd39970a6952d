"""Faults of reads and writes of items, chosen by a seed.

Faults are drawn in the order in which requests arrive: one client with one connection gets the same faults every time.
Calls of the control plane have no faults.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ddbio.errors import OptionError
from ddbio.testing.refusal import Refusal, throttled

if TYPE_CHECKING:
    from collections.abc import Iterator

FaultKind: TypeAlias = Literal["error_before", "error_after", "reset_before", "reset_after"]

READS = frozenset({"BatchGetItem", "GetItem", "GetRecords", "Query", "Scan", "SubscribeToShard", "TransactGetItems"})
# A PartiQL statement that only reads counts as a write too: only its text shows which one it is.
WRITES = frozenset(
    {
        "BatchExecuteStatement", "BatchWriteItem", "DeleteItem", "ExecuteStatement", "ExecuteTransaction", "PutItem",
        "TransactWriteItems", "UpdateItem",
    }
)  # fmt: skip
_LIMITS = (
    "ProvisionedThroughputExceeded",
    "KeyRangeThroughputExceeded",
    "AccountLimitExceeded",
    "MaxOnDemandThroughputExceeded",
)
_RATIOS = (
    "unprocessed_ratio",
    "error_before_ratio",
    "error_after_ratio",
    "reset_ratio",
    "merge_ratio",
    "duplicate_ratio",
    "late_ratio",
)
_STORM = re.compile(r"([0-9.]+)-([0-9.]+)(?::(\w+))?")


class Storm(NamedTuple):
    """Period in which every read and write is throttled, in seconds since the server's start, and the reason."""

    start_seconds: float
    end_seconds: float
    limit: str = "ProvisionedThroughputExceeded"

    @classmethod
    def parse(cls, text: str) -> Storm:
        """Return the storm in ``START-END[:LIMIT]``, like ``5-7.5:AccountLimitExceeded``."""
        match = _STORM.fullmatch(text)
        if match is None or (match[3] or _LIMITS[0]) not in _LIMITS:
            raise OptionError(f"Not a storm: {text}; use START-END or START-END:LIMIT with one of {', '.join(_LIMITS)}")
        return cls(float(match[1]), float(match[2]), match[3] or _LIMITS[0])

    def __str__(self) -> str:
        return f"{self.start_seconds}-{self.end_seconds}:{self.limit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Configuration of faults: ratios of the requests that read or write items, and the seed that chooses them.

    Attributes
    ----------
    unprocessed_ratio
        Ratio of the items of batches that are left unprocessed.
    error_before_ratio, error_after_ratio
        Ratio of requests that get an HTTP 500 before they are executed, and after they are executed.
    reset_ratio
        Ratio of requests whose connection is reset: half of them before they are executed, half after.
    merge_ratio
        Ratio of changes that a stream merges with the preceding unread change of the same item.
    duplicate_ratio, late_ratio
        Ratio of changes that a Kinesis data stream delivers twice, and after later ones.
    latest_slack
        Number of records before the end at which an iterator of type LATEST of a stream starts.
    storms
        Periods in which all reads and writes are throttled.
    seed
        Chooses the requests and items that fail.
    job_failure
        The FailureCode with which every export, import and bulk put ends.
    """

    unprocessed_ratio: float = 0.0
    error_before_ratio: float = 0.0
    error_after_ratio: float = 0.0
    reset_ratio: float = 0.0
    merge_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    late_ratio: float = 0.0
    latest_slack: int = 0
    storms: tuple[Storm, ...] = ()
    seed: int = 0
    job_failure: str | None = None

    def __post_init__(self) -> None:
        for name in _RATIOS:
            if not 0 <= getattr(self, name) <= 1:
                raise OptionError(f"{name} is {getattr(self, name)}: give a share from 0 to 1")

    def arguments(self) -> Iterator[str]:
        """Yield the command line flags of this configuration."""
        for name in (*_RATIOS, "latest_slack", "seed"):
            yield f"--{name.replace('_', '-')}={getattr(self, name)}"
        if self.job_failure is not None:
            yield f"--job-failure={self.job_failure}"
        yield from (f"--storm={storm}" for storm in self.storms)


class FaultInjector:
    """State of the faults of one server. It is not safe for concurrent use."""

    def __init__(self, faults: Faults, now: float) -> None:
        self._faults = faults
        self._started_at = now
        self._random = Random(faults.seed)
        self.random = Random(faults.seed + 1)
        """Chooses which changes are merged."""
        self._ratios: tuple[tuple[FaultKind, float], ...] = (
            ("error_before", faults.error_before_ratio),
            ("error_after", faults.error_after_ratio),
            ("reset_before", faults.reset_ratio / 2),
            ("reset_after", faults.reset_ratio / 2),
        )
        self._has_ratios = any(ratio for _, ratio in self._ratios)
        self.counts: Counter[str] = Counter()

    def draw(self, operation: str) -> FaultKind | None:
        """Return the fault of one request, or None."""
        if not self._has_ratios or operation not in READS | WRITES:
            return None
        chance = self._random.random()
        for fault, ratio in self._ratios:
            if chance < ratio:
                self.counts[fault] += 1
                return fault
            chance -= ratio
        return None

    def leaves_unprocessed(self) -> bool:
        """Return whether one item of a batch is returned unprocessed."""
        if self._faults.unprocessed_ratio and self._random.random() < self._faults.unprocessed_ratio:
            self.counts["unprocessed"] += 1
            return True
        return False

    def storm(self, operation: str, resource: str, now: float) -> Refusal | None:
        """Return the refusal of a request to a table (its ARN) during a storm, or None if there is no storm."""
        for storm in self._faults.storms:
            if storm.start_seconds <= now - self._started_at < storm.end_seconds and operation in READS | WRITES:
                self.counts["throttled"] += 1
                return throttled(f"Table{'Read' if operation in READS else 'Write'}{storm.limit}", resource)
        return None
