"""Decode a column in which each row is one item of DynamoDB JSON, framed or bare.

Refuses a row that holds no item, or more than one, and says which.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.decode import Decoder
from ddbio.core.kernel.decode.decoder import SLICE_BYTES
from ddbio.core.kernel.encode.load import offsets_of
from ddbio.core.kernel.memory import PAD
from ddbio.core.kernel.rows import Rows, join_rows
from ddbio.core.kernel.utf8 import is_utf8
from ddbio.core.text.framing import Framing, framing_of
from ddbio.errors import DecodeError

__all__ = ["RowDecoder", "warm"]

_NOTHING = b"{}"
_EMPTY: dict[Framing, str] = {"items": "{}", "export": '{"Item":{}}'}


class RowDecoder:
    """Decode columns of DynamoDB JSON to record batches of one schema, row by row; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    nulls
        As for ``Decoder``.
    """

    def __init__(self, schema: pa.Schema, *, nulls: Literal["merge", "keep"] = "merge") -> None:
        self._decoder = Decoder(schema, nulls=nulls)
        self._joined = np.empty(SLICE_BYTES + PAD, np.uint8)

    def decode(self, texts: pa.Array[Any], *, strict: bool = True) -> pa.RecordBatch:
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
        plain = _plain(texts)
        rows = self._rows(plain)
        batches: list[pa.RecordBatch] = []
        row, step = 0, len(plain)
        while row < len(plain):
            taken, is_refused = self._decode_together(plain, rows, row, step, batches)
            row, step = row + taken, 2 * step
            if is_refused:
                batches.append(self._decode_alone(_text(rows, row), row, strict=strict))
                # Where one row is refused the next may be: what is joined in vain stays small beside what is decoded.
                row, step = row + 1, max(taken, 1)
        return self._decoder.combine(batches)

    def _rows(self, texts: Any) -> Rows:
        offsets = offsets_of(texts).astype(np.int64)
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
        return Rows(data, offsets, self._joined, np.empty(len(texts), np.int64))

    def _decode_together(
        self, texts: Any, rows: Rows, start: int, most: int, batches: list[pa.RecordBatch]
    ) -> tuple[int, bool]:
        """Add the batches of rows that are one item each; return how many, and whether the next is refused."""
        stop, n_bytes = join_rows(rows, start, most, SLICE_BYTES)
        joined = rows.joined[:n_bytes].data
        if stop == start or not is_utf8(joined):
            return 0, True
        found, refused = self._decoder.decode_documents(joined, _framing(_text(rows, start)))
        count = sum(batch.num_rows for batch in found)
        next_row = start + count
        # Each row begins and ends a document: as many documents as rows are one in each.
        if next_row == stop if refused is None else next_row < stop and refused == rows.places[next_row]:
            batches.extend(found)
            return count, refused is not None
        return self._decode_together(texts, rows, start, (stop - start) // 2, batches)

    def _decode_alone(self, text: bytes, row: int, *, strict: bool) -> pa.RecordBatch:
        try:
            return self._decode_one(text)
        except DecodeError as error:
            if strict:
                raise DecodeError(f"row {row}: {error}") from None
        return self._decoder.decode(_NOTHING, "items")

    def _decode_one(self, text: bytes) -> pa.RecordBatch:
        batch = self._decoder.decode(text, _framing(text))
        if batch.num_rows != 1:
            raise DecodeError(f"expected one item, found {batch.num_rows}")
        return batch


def _plain(texts: Any) -> Any:
    """Return the texts as Arrow keeps strings, with an empty item in the place of null."""
    # Rows that are not UTF-8 are told later.
    if pa.types.is_binary(texts.type):
        texts = texts.view(pa.string())
    elif not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        texts = texts.cast(pa.large_string(), safe=False)
    if not texts.null_count:
        return texts
    present = texts.drop_null()
    framing = _framing(present[0].as_buffer().to_pybytes()) if len(present) else "items"
    return pc.fill_null(texts, pa.scalar(_EMPTY[framing], texts.type))


def _text(rows: Rows, row: int) -> bytes:
    return rows.data[rows.offsets[row] : rows.offsets[row + 1]].tobytes()


def _framing(text: bytes) -> Framing:
    """Return how a row is framed; decoding tells what is wrong with one that is not."""
    try:
        return "export" if framing_of(text) == "export" else "items"
    except DecodeError:
        return "items"


def warm() -> None:
    """Compile the loop that joins rows, or load it from where it is kept."""
    RowDecoder(pa.schema([("a", pa.string())])).decode(pa.array(["{}"]))
