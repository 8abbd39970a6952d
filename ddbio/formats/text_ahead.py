"""Read a large file of text by ranges of bytes, side by side on threads, and yield its rows in their order."""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from ddbio.formats.file_format import BATCH_ROWS
from ddbio.formats.registry import FORMATS
from ddbio.formats.text_ranges import byte_ranges, count_csv, csv_starts
from ddbio.formats.text_rows import joined_columns
from ddbio.items.schema.arrow import normalize_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ddbio.formats.file_format import FileFormat, ReadOptions
    from ddbio.formats.text_reader import TextReader
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

AHEAD_BYTES = 8 * 1024 * 1024
"""Text that a thread reads at once: all of them together hold no more than one reader of the whole file does."""

_THREADS = 4
_GivenT = TypeVar("_GivenT")
_MadeT = TypeVar("_MadeT")


class TextAhead:
    """Read one file by its ranges.

    The ranges of a load are its units, so their size is fixed; these are only read ahead, and may be smaller.
    """

    def __init__(
        self, store: ObjectStore, entry: StoredObject, form: FileFormat, options: ReadOptions, range_bytes: int
    ) -> None:
        self._store, self._entry, self._form = store, entry, form
        self._options = replace(options, splits_text=True, range_bytes=range_bytes)
        self._ranges = byte_ranges(entry.size_bytes, range_bytes)

    @property
    def is_split(self) -> bool:
        """Return whether the file has ranges: it is large, and not compressed."""
        return (
            len(self._ranges) > 1 and self._form.name in {"json", "csv"} and len(self._open().parts().sizes_bytes) > 1
        )

    @property
    def has_items(self) -> bool:
        """Return whether the file begins with DynamoDB JSON."""
        return self._open().has_item_ranges

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the order of the file; all batches have one schema.

        Raises
        ------
        DecodeError
            If the file is no such text; lines are those of the file.
        """
        parts, is_json = range(len(self._ranges)), self._form is FORMATS["json"]
        if not is_json:
            counts = side_by_side(lambda part: count_csv(self._store, self._entry, *self._ranges[part]), parts)
            self._options = replace(self._options, starts=csv_starts(list(counts), self._entry.size_bytes))
        if self._options.schema is None:
            found = side_by_side(lambda part: self._open().columns(part), parts)
            columns = functools.reduce(joined_columns, (each for each in found if each is not None))
            # Those of CSV are as they are read.
            self._options = replace(self._options, columns=normalize_schema(columns) if is_json else columns)
        for read in side_by_side(lambda part: list(self._open().read(part, BATCH_ROWS)), parts):
            yield from read

    def made(self, make: Callable[[bytes, bytes], _MadeT]) -> Iterator[_MadeT]:
        """Yield what is made, on threads, of the documents of each range of JSON, and of what the file begins with."""

        def of_range(part: int) -> _MadeT:
            with self._open().range_of(part) as (text, head):
                return make(text, text if head is None else head)

        return side_by_side(of_range, range(len(self._ranges)))

    def _open(self) -> TextReader:
        # For each range one of its own: readers are for one thread.
        return cast("TextReader", self._form.open_reader(self._store, self._entry, self._options))


def side_by_side(make: Callable[[_GivenT], _MadeT], given: Iterable[_GivenT]) -> Iterator[_MadeT]:
    """Yield what is made of each, in order; threads make a few ahead, and have ended when the iteration has."""
    count = min(_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    waiting = deque[Future[_MadeT]]()
    left = iter(given)
    pool = ThreadPoolExecutor(count, thread_name_prefix="ddbio-text")
    try:
        while True:
            waiting += [pool.submit(make, each) for each in itertools.islice(left, count - len(waiting))]
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
