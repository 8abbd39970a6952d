"""Iterator of record batches with a schema, which can be read as a stream of Arrow data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Self

__all__ = ["RecordBatchStream"]


class RecordBatchStream(Iterator[pa.RecordBatch]):
    """Iterator of record batches of one schema, which is available before the first batch.

    Every library that reads Arrow's C stream accepts it like a ``pyarrow.RecordBatchReader``: DuckDB, polars, Delta.
    Closing the stream stops its source. Leaving a ``with`` block and dropping the last reference also close it.

    Parameters
    ----------
    schema
        The schema of all batches.
    batches
        The generator of the batches.
    """

    def __init__(self, schema: pa.Schema, batches: Generator[pa.RecordBatch, None, None]) -> None:
        self.schema = schema
        self._batches = batches

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""
        return next(self._batches)

    def close(self) -> None:
        """End the stream. It returns no further batch."""
        self._batches.close()

    def __enter__(self) -> Self:
        """Return the stream, which is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        self.close()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a ``pyarrow.RecordBatchReader`` of the remaining batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def read_all(self) -> pa.Table:
        """Return the remaining batches as one table."""
        return pa.Table.from_batches(list(self), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return Arrow's C stream of the remaining batches."""
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)
