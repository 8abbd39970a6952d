"""Decode a column in which each row is one item of DynamoDB JSON, framed or bare.

Refuses a row that holds no item, or more than one, and says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.decode import Decoder
from ddbio.core.framing import Framing, framing_of
from ddbio.core.kernel.decoder import SLICE_BYTES
from ddbio.core.kernel.encode_load import offsets_of
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    import numpy.typing as npt

_BLANKS = " \t\r\n"
_NOTHING = b"{}"
_EMPTY: dict[Framing, str] = {"items": "{}", "export": '{"Item":{}}'}
_OPEN, _CLOSE = ord("{"), ord("}")


class RowDecoder:
    """Decode columns of DynamoDB JSON to record batches of one schema, row by row; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._decoder = Decoder(schema)

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
        rows = _Rows(texts)
        batches: list[pa.RecordBatch] = []
        row, step = 0, len(rows)
        while row < len(rows):
            stop = rows.end_of_piece(row, step)
            taken = self._decode_together(rows, row, stop, batches)
            row += taken
            step *= 2
            if not taken or row < stop:
                batches.append(self._decode_alone(rows.text(row), row, strict=strict))
                # Where one row is refused the next may be: what is joined in vain stays small beside what is decoded.
                row, step = row + 1, max(taken, 1)
        return self._decoder.combine(batches)

    def _decode_together(self, rows: _Rows, start: int, stop: int, batches: list[pa.RecordBatch]) -> int:
        """Add the batches of rows that are one item each; return how many these are."""
        if start == stop:
            return 0
        found, refused = self._decoder.decode_documents(rows.joined(start, stop), _framing(rows.text(start)))
        count = sum(batch.num_rows for batch in found)
        next_row = start + count
        # Each row begins and ends a document: as many documents as rows are one in each.
        if next_row == stop if refused is None else next_row < stop and refused == rows.place(start, next_row):
            batches.extend(found)
            return count
        return self._decode_together(rows, start, (start + stop) // 2, batches)

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


class _Rows:
    """Hold texts without nulls, and tell which of them begin and end as a document does."""

    def __init__(self, texts: Any) -> None:
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            texts = texts.cast(pa.large_string(), safe=False)
        if texts.null_count:
            texts = pc.fill_null(texts, pa.scalar(_EMPTY[_framing_of_first(texts)], texts.type))
        fit = _begin_and_end(texts)
        if not fit.all():
            texts = pc.ascii_trim(texts, _BLANKS)
            fit = _begin_and_end(texts)
        self._texts = texts
        self._offsets = offsets_of(texts)
        self._unfit = np.append(np.flatnonzero(~(fit & _are_utf8(texts))), len(texts))

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, row: int) -> bytes:
        return _bytes_of(self._texts[row])

    def end_of_piece(self, start: int, most: int) -> int:
        """Return the end of the rows from ``start`` on that can be decoded together, at most so many."""
        unfit = int(self._unfit[np.searchsorted(self._unfit, start)])
        fitting = int(np.searchsorted(self._offsets, self._offsets[start] + SLICE_BYTES, "right")) - 1
        return min(unfit, fitting, start + most)

    def joined(self, start: int, stop: int) -> memoryview:
        """Return rows with line ends between them, which no text within JSON can hold."""
        rows = self._texts.slice(start, stop - start).cast(pa.string())
        whole: Any = pa.array([0, len(rows)], pa.int32())
        joined: Any = pc.binary_join(pa.ListArray.from_arrays(whole, rows), "\n")
        return memoryview(joined.buffers()[2])

    def place(self, start: int, row: int) -> int:
        """Return where a row begins in what is joined from ``start`` on."""
        return int(self._offsets[row] - self._offsets[start]) + row - start


def _begin_and_end(texts: Any) -> npt.NDArray[np.bool_]:
    offsets = offsets_of(texts)
    if offsets[-1] == offsets[0]:
        return np.zeros(len(texts), np.bool_)
    data: npt.NDArray[np.uint8] = np.frombuffer(texts.buffers()[2], np.uint8)
    # An empty text is looked at beside itself, where nothing is both.
    begin, end = data[np.minimum(offsets[:-1], offsets[-1] - 1)] == _OPEN, data[offsets[1:] - 1] == _CLOSE
    fit: npt.NDArray[np.bool_] = begin & end & (np.diff(offsets) > 1)
    return fit


def _are_utf8(texts: Any) -> npt.NDArray[np.bool_]:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([_is_utf8(_bytes_of(text)) for text in texts])
    return np.ones(len(texts), np.bool_)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes_of(text: Any) -> bytes:
    buffer: pa.Buffer | None = text.as_buffer()
    return b"" if buffer is None else buffer.to_pybytes()


def _framing_of_first(texts: Any) -> Framing:
    present = texts.drop_null()
    return _framing(_bytes_of(present[0])) if len(present) else "items"


def _framing(text: bytes) -> Framing:
    """Return how a row is framed; decoding tells what is wrong with one that is not."""
    try:
        return "export" if framing_of(text) == "export" else "items"
    except DecodeError:
        return "items"
