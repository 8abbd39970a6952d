"""Bring the parts that tasks yield to the task that wants them, through Spark's shuffle; look into none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import DdbioError
from ddbio.spark.task import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import RDD
    from pyspark.accumulators import Accumulator

    from ddbio.engine import Shuffle


@dataclass(frozen=True)
class Splitter:
    """Split tasks into parts; what cannot succeed is reported as a value, and the job then stopped by the driver."""

    split: Callable[[Any], Iterable[tuple[tuple[int, ...], bytes]]]
    failures: Accumulator[list[Failure]]

    def __call__(self, tasks: Iterator[Any]) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Yield the parts of every task of a partition."""
        try:
            for task in tasks:
                yield from self.split(task)
        except DdbioError as error:
            if error.retryable:
                raise
            self.failures.add([Failure(error, "")])


@dataclass(frozen=True)
class Gather:
    """Make the one task of a partition out of what arrived there."""

    make: Callable[[int, Iterable[bytes]], Any]

    def __call__(self, partition: int, parts: Iterator[tuple[tuple[int, ...], bytes]]) -> Iterator[Any]:
        """Yield the task."""
        yield self.make(partition, (data for _, data in parts))


def shuffled(tasks: RDD[Any], shuffle: Shuffle, failures: Accumulator[list[Failure]]) -> RDD[Any]:
    """Return an RDD with one task in each partition, made of all the parts that are for it."""
    parts = tasks.mapPartitions(Splitter(shuffle.split, failures))
    ordered = parts.repartitionAndSortWithinPartitions(shuffle.partitions, _partition_of)
    return ordered.mapPartitionsWithIndex(Gather(shuffle.gather))


def _partition_of(key: tuple[int, ...]) -> int:
    return key[0]
