"""An iterator of record batches that knows its schema and can be read as a stream of Arrow data."""

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
    """Iterate over record batches of one schema, which is known before the first batch.

    Every library that reads Arrow's C stream takes it as it takes a ``pyarrow.RecordBatchReader``: DuckDB, polars,
    Delta. Closing the stream ends what feeds it, as does leaving a ``with`` block or dropping the last reference.

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
        """End the stream: no further batch comes."""
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
        """Return a ``pyarrow.RecordBatchReader`` of the batches that are left."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def read_all(self) -> pa.Table:
        """Return the batches that are left as one table."""
        return pa.Table.from_batches(list(self), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return Arrow's C stream of the batches that are left."""
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)
