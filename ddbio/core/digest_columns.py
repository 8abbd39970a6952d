"""Digest the rows of record batches by compiled loops, to the very value that ``digest`` has for their items.

Refuses what ``canonical`` refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.core.canonical import Printer
from ddbio.core.digest import Digest
from ddbio.core.kernel.blake2 import sum_digests

if TYPE_CHECKING:
    import pyarrow as pa

_SLICE_BYTES = 4 << 20
_LEAST_ROWS = 256


class ColumnDigest:
    """Sum the digests of rows in ``digest``, which equals the digest of their items; keep one per thread."""

    def __init__(self) -> None:
        self.digest = Digest()
        self._printer = Printer()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add the item of each row.

        Raises
        ------
        SchemaError
            A column has an Arrow type that DynamoDB has no exact form for, or a set holds a null.
        DecodeError
            A number is beyond 38 digits or out of range.
        """
        if not batch.num_rows:
            return
        n_rows = max(_LEAST_ROWS, _SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, n_rows):
            part = batch.slice(start, n_rows)
            ends = self._printer.print_rows(part)
            high, low = sum_digests(self._printer.out, ends)
            self.digest.merge(Digest(part.num_rows, int(high) << 64 | int(low)))


def digest_of_batch(batch: pa.RecordBatch) -> Digest:
    """Return the digest of a batch's rows.

    Raises
    ------
    SchemaError, DecodeError
        As ``ColumnDigest.add_batch``.
    """
    columns = ColumnDigest()
    columns.add_batch(batch)
    return columns.digest
