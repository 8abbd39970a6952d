"""Decode a column in which each row is one item of DynamoDB JSON, framed or bare.

Refuses a row that holds no item, or more than one, and says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.decode import Decoder
from ddbio.core.framing import Framing, framing_of
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BLANKS = " \t\r\n"
_NOTHING = b"{}"
_EMPTY: dict[Framing, str] = {"items": "{}", "export": '{"Item":{}}'}


class RowDecoder:
    """Decode columns of DynamoDB JSON to record batches of one schema, row by row; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._decoder = Decoder(schema)

    def decode(self, texts: pa.StringArray, *, strict: bool = True) -> pa.RecordBatch:
        """Return a row per text: ``{"Item":{…}}`` or bare ``{…}``; a null text is a row of nulls.

        Parameters
        ----------
        strict
            Whether a malformed row is an error, or a row of nulls.

        Raises
        ------
        DecodeError
            A row is not exactly one item; the message begins with its number, from 0.
        """
        present: Any = texts.drop_null() if texts.null_count else texts
        batch = self._decode_together(texts, _framing(present)) if len(present) and _are_documents(present) else None
        return batch if batch is not None else self._decode_apart(texts.to_pylist(), strict=strict)

    def _decode_together(self, texts: Any, framing: Framing) -> pa.RecordBatch | None:
        rows: Any = pc.fill_null(texts, _EMPTY[framing]) if texts.null_count else texts
        joined: Any = pc.binary_join(pa.ListArray.from_arrays([0, len(rows)], rows), "\n")
        try:
            batch = self._decoder.decode(joined[0].as_buffer().to_pybytes(), framing)
        except DecodeError:
            return None
        # Every row begins and ends a document: as many documents as rows are one in each.
        return batch if batch.num_rows == len(rows) else None

    def _decode_apart(self, rows: Iterable[str | None], *, strict: bool) -> pa.RecordBatch:
        batches = [pa.RecordBatch.from_pylist([], self._decoder.schema)]
        for number, row in enumerate(rows):
            try:
                batches.append(self._one(_NOTHING if row is None else row.encode()))
            except DecodeError as error:
                if strict:
                    raise DecodeError(f"row {number}: {error}") from None
                batches.append(self._decoder.decode(_NOTHING, "items"))
        table = pa.Table.from_batches(batches).combine_chunks()
        return table.to_batches()[0] if table.num_rows else batches[0]

    def _one(self, row: bytes) -> pa.RecordBatch:
        batch = self._decoder.decode(row, "export" if framing_of(row) == "export" else "items")
        if batch.num_rows != 1:
            raise DecodeError(f"expected one item, found {batch.num_rows}")
        return batch


def _are_documents(rows: Any) -> bool:
    return _begin_and_end(rows) or _begin_and_end(pc.utf8_trim(rows, _BLANKS))


def _begin_and_end(rows: Any) -> bool:
    return bool(pc.all(pc.and_(pc.starts_with(rows, "{"), pc.ends_with(rows, "}"))).as_py())


def _framing(rows: Any) -> Framing:
    """Return how the first row is framed; where others are framed otherwise, all are decoded apart."""
    return "export" if framing_of(rows[0].as_py().encode()) == "export" else "items"
