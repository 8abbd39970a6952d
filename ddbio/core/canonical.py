"""Print the rows of record batches as canonical texts by compiled loops, a column at a time.

The texts are those of ``digest.canonical_text``. Refuses Arrow types without an exact DynamoDB form, numbers that
DynamoDB could not hold, and null in a set.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from json.encoder import encode_basestring as _quoted
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.attribute import canonical_number
from ddbio.core.digest import canonical_value
from ddbio.core.field import RESCUE_NAME, is_text, name_of_field, tag_of_field
from ddbio.core.kernel import joining, printing
from ddbio.core.kernel.memory import PAD
from ddbio.core.schema import normalize_schema
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    # The stubs lack what the classes of arrays have of their own.
    _Array: TypeAlias = Any
    _Ends: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
    _Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

_FIRST_BYTES = 1 << 20
_BYTES_A_ROW = 64
_NULL = b'{"NULL":true}'
_NOTHING = np.zeros(0, np.uint8)
_PLAIN, _ESCAPED = True, False
_MAP, _SET = True, False
_SIGNED = True
_NO_EXTRAS = (np.zeros(0, np.int64),) * 4


class Printer:
    """Print columns into one buffer that grows and is used again; keep one per thread."""

    def __init__(self) -> None:
        self.out: _Bytes = np.zeros(_FIRST_BYTES + PAD, np.uint8)
        self.used = 0

    def print_rows(self, batch: pa.RecordBatch) -> _Ends:
        """Return where in ``out`` each row's canonical text begins, and where the last one ends.

        Raises
        ------
        SchemaError
            A column has an Arrow type that DynamoDB has no exact form for, or a set holds a null.
        DecodeError
            A number is beyond 38 digits or out of range.
        """
        self.used = 0
        schema = normalize_schema(batch.schema)
        fields = sorted((field for field in schema if field.name != RESCUE_NAME), key=name_of_field)
        extras = self._print_rescued(batch, [name_of_field(field) for field in fields])
        members = self._print_members([batch.column(field.name) for field in fields], fields, batch.num_rows)
        return self._call(joining.join_members, batch.num_rows, members, *extras, *_frame(None, b"{", b"}", b""))

    def print_numbers(self, column: _Array, arrow_type: pa.DataType) -> _Ends:
        """Return where the canonical texts of a column of numbers lie; null has an empty one.

        Raises
        ------
        DecodeError
            A number is beyond 38 digits or out of range.
        """
        return self._print_numbers(column, arrow_type, _frame(column, b"", b"", b""))

    def print_plain(self, column: _Array) -> _Ends:
        """Return where the bytes of a column of texts or binaries lie; null has none."""
        return self._call(printing.print_texts, len(column), *_spans(column), _PLAIN, *_frame(column, b"", b"", b""))

    def reserve(self, n_bytes: int) -> None:
        """Make room for so many bytes after what is printed, and padding."""
        if self.used + n_bytes + PAD > len(self.out):
            grown = np.zeros(2 * (self.used + n_bytes) + PAD, np.uint8)
            grown[: self.used] = self.out[: self.used]
            self.out = grown

    def _call(self, loop: Callable[..., Any], n_rows: int, *arguments: Any) -> _Ends:
        ends = np.empty(n_rows + 1, np.int64)
        self.reserve(n_rows * _BYTES_A_ROW)
        while True:
            # What a smaller buffer held is read from the larger one.
            stop = loop(*arguments, self.out, self.used, len(self.out) - PAD, ends)
            if stop >= 0:
                self.used = stop
                return ends
            if stop != printing.FULL:
                raise _RefusedError(int(printing.REFUSED - stop))
            self.reserve(len(self.out))

    def _print_members(self, columns: Sequence[_Array], fields: Sequence[pa.Field[Any]], n_rows: int) -> _Ends:
        members = np.empty((len(fields), n_rows + 1), np.int64)
        for index, (column, field) in enumerate(zip(columns, fields, strict=True)):
            members[index] = self._print(column, field, f",{_quoted(name_of_field(field))}:".encode(), b"")
        return members

    def _print(self, column: _Array, field: pa.Field[Any], before: bytes, absent: bytes) -> _Ends:  # noqa: PLR0911 - one line a type
        """Print ``before`` and the value for each row, or ``absent`` for null."""
        tag, n_rows = tag_of_field(field), len(column)
        opening = b'%b{"%b":' % (before, tag.encode())
        match tag:
            case "JSON":
                values = [None if text is None else canonical_value(json.loads(text)) for text in column.to_pylist()]
                texts: _Array = pa.array(values, pa.large_string())
                frame = _frame(texts, before, b"", absent)
                return self._call(printing.print_texts, n_rows, *_spans(texts), _PLAIN, *frame)
            case "NULL":
                valid, *_, absent_text = _frame(column, b"", b"", absent)
                yes = _padded(b'%b{"NULL":true}' % before)
                return self._call(printing.print_choices, n_rows, _zeros(n_rows), valid, yes, yes, absent_text)
            case "BOOL":
                valid, *_, absent_text = _frame(column, b"", b"", absent)
                no, yes = _padded(opening + b"false}"), _padded(opening + b"true}")
                choices = _bits(column.buffers()[1], column.offset, n_rows)
                return self._call(printing.print_choices, n_rows, choices, valid, no, yes, absent_text)
            case "L":
                return self._print_list(column, field, _frame(column, opening + b"[", b"]}", absent))
            case "SS" | "NS" | "BS":
                return self._print_set(column, field, _frame(column, opening + b"[", b"]}", absent))
            case "M" if pa.types.is_map(column.type):
                return self._print_map(column, field, _frame(column, opening + b"{", b"}}", absent))
            case "M":
                return self._print_struct(column, field, _frame(column, opening + b"{", b"}}", absent))
        return self._print_scalar(column, field, opening + b'"', b'"}', absent)

    def _print_scalar(self, column: _Array, field: pa.Field[Any], before: bytes, after: bytes, absent: bytes) -> _Ends:
        frame = _frame(column, before, after, absent)
        match tag_of_field(field):
            case "N":
                return self._print_numbers(column, field.type, frame)
            case "B":
                return self._call(printing.print_binaries, len(column), *_spans(column), *frame)
        return self._call(printing.print_texts, len(column), *_spans(column), _ESCAPED, *frame)

    def _print_numbers(self, column: _Array, arrow_type: pa.DataType, frame: tuple[Any, ...]) -> _Ends:
        n_rows = len(column)
        if pa.types.is_integer(arrow_type):
            signed = pa.types.is_signed_integer(arrow_type)
            words = _view(_cast(column, pa.int64() if signed else pa.uint64()), np.uint64)
            return self._call(printing.print_numbers, n_rows, words, 1, signed, 0, *frame)
        if pa.types.is_decimal128(arrow_type) and arrow_type.scale >= 0:
            data = column.buffers()[1]
            words = _view(data, np.uint64)[2 * column.offset : 2 * (column.offset + n_rows)]
            return self._call(printing.print_numbers, n_rows, words, 2, _SIGNED, arrow_type.scale, *frame)
        if not is_text(arrow_type):
            texts = [None if number is None else canonical_number(str(number)) for number in column.to_pylist()]
            column = pa.array(texts, pa.large_string())
        try:
            return self._call(printing.print_number_texts, n_rows, *_spans(column), *frame)
        except _RefusedError as refused:
            canonical_number(column[refused.row].as_py())
            raise

    def _print_list(self, column: _Array, field: pa.Field[Any], frame: tuple[Any, ...]) -> _Ends:
        bounds, elements = _elements(column)
        texts = self._print(elements, field.type.field(0), b",", b"," + _NULL)
        return self._call(joining.join_lists, len(column), bounds, texts, *frame)

    def _print_set(self, column: _Array, field: pa.Field[Any], frame: tuple[Any, ...]) -> _Ends:
        bounds, elements = _elements(column)
        if elements.null_count:
            raise SchemaError(f"{field.name}: a set of DynamoDB holds no null: drop it, or make the column a list")
        texts = self._print_scalar(elements, field.type.field(0), b',"', b'"', b"")
        if tag_of_field(field) == "SS":
            keys, offsets = _spans(elements)
        else:
            # No character of a number or of base64 comes before the quote at its end.
            keys, offsets = self.out, texts
        keys = keys if len(keys) else np.zeros(1, np.uint8)
        values = np.zeros(len(elements) + 1, np.int64)
        return self._call(joining.join_sorted, len(column), bounds, keys, offsets, texts, values, _SET, *frame)

    def _print_map(self, column: _Array, field: pa.Field[Any], frame: tuple[Any, ...]) -> _Ends:
        bounds = _view(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        bounds = bounds.astype(np.int64)
        first, count = bounds[0], bounds[-1] - bounds[0]
        keys = column.keys.slice(first, count)
        names = self._call(printing.print_texts, count, *_spans(keys), _ESCAPED, *_frame(keys, b',"', b'":', b""))
        values = self._print(column.items.slice(first, count), field.type.item_field, b"", _NULL)
        return self._call(
            joining.join_sorted, len(column), bounds - first, *_spans(keys), names, values, _MAP, *frame
        )  # fmt: skip

    def _print_struct(self, column: _Array, field: pa.Field[Any], frame: tuple[Any, ...]) -> _Ends:
        children = list(zip(field.type, column.flatten(), strict=True))
        children.sort(key=lambda child: name_of_field(child[0]))
        members = self._print_members([array for _, array in children], [child for child, _ in children], len(column))
        return self._call(joining.join_members, len(column), members, *_NO_EXTRAS, *frame)

    def _print_rescued(self, batch: pa.RecordBatch, names: list[str]) -> tuple[_Ends, ...]:
        """Print the members of the rescue column; return each row's first and last, their ends and their ranks."""
        if RESCUE_NAME not in batch.schema.names or batch.column(RESCUE_NAME).null_count == batch.num_rows:
            return _NO_EXTRAS
        # Few texts are different where they only keep NULLs.
        rescued = batch.column(RESCUE_NAME).dictionary_encode()
        texts, ranks, bounds = list[str](), list[int](), [0]
        dictionary: Any = rescued.dictionary
        for text in dictionary.to_pylist():
            for name, value in sorted(json.loads(text).items()):
                place = bisect_left(names, name)
                ranks.append(2 * place + (place < len(names) and names[place] == name))
                texts.append(f",{_quoted(name)}:{canonical_value(value)}")
            bounds.append(len(texts))
        # A row without any has the number of the empty one.
        numbers = rescued.indices.fill_null(len(bounds) - 1).to_numpy()
        places = np.array([*bounds, bounds[-1]], np.int64)
        return (
            places[numbers],
            places[numbers + 1],
            self.print_plain(pa.array(texts, pa.string())),
            np.array(ranks, np.int64),
        )


class _RefusedError(Exception):
    """Say that a loop refuses a row."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def _frame(column: _Array | None, before: bytes, after: bytes, absent: bytes) -> tuple[Any, ...]:
    valid = _NOTHING
    if column is not None and column.null_count:
        bits = column.buffers()[0]
        valid = _zeros(len(column)) if bits is None else _bits(bits, column.offset, len(column))
    return valid, _padded(before), _padded(after), _padded(absent)


def _padded(text: bytes) -> _Bytes:
    return np.frombuffer(text + bytes(PAD), np.uint8)


def _view(buffer: Any, dtype: Any) -> Any:
    return np.frombuffer(buffer, dtype)


def _zeros(count: int) -> _Bytes:
    return np.zeros(count, np.uint8)


def _bits(bits: pa.Buffer | None, offset: int, count: int) -> _Bytes:
    if bits is None:
        return _zeros(count)
    first = offset // 8
    packed = _view(bits, np.uint8)[first : (offset + count + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[offset - 8 * first : offset - 8 * first + count]


def _spans(column: _Array) -> tuple[_Bytes, _Ends]:
    """Return the bytes of a column of texts or binaries, and where each row's begin and end."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, places, data = column.buffers()
    if places is None or not places.size:
        return _NOTHING, np.zeros(len(column) + 1, np.int64)
    offsets = _view(places, np.int64 if wide else np.int32)[column.offset : column.offset + len(column) + 1]
    return _view(data, np.uint8) if data is not None else _NOTHING, offsets.astype(np.int64)


def _elements(column: _Array) -> tuple[_Ends, _Array]:
    """Return where each row's elements begin and end, and the elements that the rows have."""
    bounds = column.offsets.to_numpy().astype(np.int64)
    if not len(bounds):
        bounds = np.zeros(1, np.int64)
    return bounds - bounds[0], column.values.slice(bounds[0], bounds[-1] - bounds[0])


def _cast(column: _Array, arrow_type: pa.DataType) -> Any:
    wide = column if column.type == arrow_type else column.cast(arrow_type)
    return wide.buffers()[1].slice(8 * wide.offset, 8 * len(wide))
