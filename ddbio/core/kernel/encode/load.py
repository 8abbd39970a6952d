"""Lay the columns of a batch out as the printing loop reads them; refuses nothing but arrays of another schema.

What Arrow keeps in many ways becomes a few: a word or two a value, texts as a place and a length in one array, and a
byte a value that says whether there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.kernel.encode import state as st
from ddbio.core.kernel.encode.compact import Texts, check_texts, make_checker
from ddbio.core.kernel.encode.fields import plain_array
from ddbio.core.kernel.encode.json_values import RefusedValueError, read_members, read_value
from ddbio.core.kernel.encode.number import LONGEST
from ddbio.core.kernel.encode.text import LONGEST_ESCAPE
from ddbio.core.kernel.encode.times import time_array
from ddbio.core.kernel.encode.unfit import NOT_UTF8, broken_texts, unfit_times
from ddbio.core.kernel.memory import PAD
from ddbio.core.rescue import twice_reason
from ddbio.core.schema.arrow import name_of_field
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.core.kernel.encode.compact import Checker
    from ddbio.core.kernel.encode.keys import KeyRule
    from ddbio.core.kernel.encode.plan import Node, Program, Tables

MAX_PIECE_BYTES = 1 << 30
"""Places in a piece are kept in 31 bits."""

_LEAST_BYTES, _LEAST_WORDS = 1 << 16, 1 << 13
_GROWTH = 2
_DIGITS_ROOM = 128
_NULL_BYTES = 16
"""More than what DynamoDB's NULL is printed as."""

_SHIFT = 32
_QUOTE = ord('"')
_NOTHING: npt.NDArray[np.uint8] = np.frombuffer(b"", np.uint8)

Live = npt.NDArray[np.bool_] | None
"""Which values have a parent; None if all."""


class Work(NamedTuple):
    """Hold what one run of the loop reads and writes."""

    data: npt.NDArray[np.uint8]
    words: npt.NDArray[np.int64]
    states: npt.NDArray[np.uint8]
    index: npt.NDArray[np.int64]  # type: ignore[assignment] # not the method of tuples
    first: npt.NDArray[np.int64]
    limit: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    refusals: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class TooLargeError(Exception):
    """Say that a piece has more bytes than places can name."""


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes, whatever they are."""
    return np.empty(n_bytes, np.uint8)


def allocate_words(count: int) -> npt.NDArray[np.int64]:
    """Return as many words, whatever they are."""
    return allocate(8 * count).view(np.int64)


class Loader:
    """Lay out one batch after the other in the same arrays, grown to what they needed so far."""

    def __init__(self, program: Program, tables: Tables, rules: Mapping[str, KeyRule], options: Any) -> None:
        self._program, self._tables, self._rules, self._options = program, tables, rules, options
        self._null_code = st.NULL if options.nulls == "null" else st.ABSENT
        self._by_name = {name_of_field(column.field): column for column in program.columns if column.kind != st.MEMBERS}
        self._beside_bytes = [
            max(len(node.head.encode()) + len(node.tail), len(node.name_text.encode()) + _NULL_BYTES)
            for node in program.nodes
        ]
        self._data, self._states = allocate(_LEAST_BYTES), allocate(_LEAST_BYTES)
        self._words = allocate_words(_LEAST_WORDS)
        self._data_end = self._words_end = self._states_end = 0
        self._most_elements = 1
        self._checker: tuple[Checker, dict[str, int]] | None = None
        self.room = 0
        self.messages: dict[tuple[int, int], tuple[str, str]] = {}
        """The rule and the message of each value known to be refused, by node and entry."""

    @property
    def kept_bytes(self) -> int:
        """Return how much memory is kept for the next batch."""
        return len(self._data) + len(self._states) + self._words.nbytes

    def load(self, batch: pa.RecordBatch) -> Work:
        """Lay out all columns; afterwards ``room`` is how many bytes the rows take at most beside their frames."""
        self._data_end = self._words_end = self._states_end = 0
        self._most_elements, self.room = 1, 2 * batch.num_rows
        self.messages.clear()
        for column in self._program.columns:
            self._load(column, batch.column(column.field.name), None)
        n_rows = batch.num_rows
        n_spaces = self._program.n_spaces
        size = 1 << (2 * self._most_elements).bit_length()
        return Work(
            data=self._data,
            words=self._words,
            states=self._states,
            index=np.zeros(n_spaces, np.int64),
            first=np.zeros(n_spaces, np.int64),
            limit=np.zeros(n_spaces, np.int64),
            marks=allocate_words(self._most_elements),
            slots=allocate_words(size),
            digits=np.zeros(_DIGITS_ROOM, np.uint8),
            refusals=allocate_words(n_rows * st.REFUSAL_WIDTH),
            ends=allocate_words(n_rows),
            sizes=allocate_words(n_rows),
        )

    def text(self, node: int, entry: int) -> str:
        """Return the text of a value that was refused."""
        span = int(self._words[self._tables.words[node] + entry])
        place, length = span >> _SHIFT, span & 0xFFFFFFFF
        return self._data[place : place + length].tobytes().decode(errors="replace")

    def _take_data(self, count: int) -> int:
        place, self._data_end = self._data_end, self._data_end + count
        if self._data_end + PAD > MAX_PIECE_BYTES:
            raise TooLargeError
        if self._data_end + PAD > len(self._data):
            grown = allocate(_GROWTH * self._data_end + PAD)
            grown[:place] = self._data[:place]
            self._data = grown
        return place

    def _take_words(self, count: int) -> int:
        place, self._words_end = self._words_end, self._words_end + count
        if self._words_end > len(self._words):
            grown = allocate_words(_GROWTH * self._words_end)
            grown[:place] = self._words[:place]
            self._words = grown
        return place

    def _take_states(self, count: int) -> npt.NDArray[np.uint8]:
        place, self._states_end = self._states_end, self._states_end + count
        if self._states_end > len(self._states):
            grown = allocate(_GROWTH * self._states_end)
            grown[:place] = self._states[:place]
            self._states = grown
        return self._states[place : self._states_end]

    def _load(self, node: Node, given: Any, live: Live) -> None:
        array = plain_array(given)
        length = len(array)
        self.room += length * self._beside_bytes[node.number]
        self._tables.states[node.number] = self._states_end
        states = self._take_states(length)
        self._set_states(states, node, array, live)
        if node.misfit:
            for row in np.flatnonzero(states == st.VALUE).tolist():
                self._refuse(states, node, row, "key_type", node.misfit)
        match node.kind:
            case st.STRUCT:
                inside = _live(states)
                for index, child in enumerate(node.children):
                    self._load(child, array.field(index), inside)
            case st.LIST | st.MAP:
                self._load_container(node, array, states)
            case _:
                self._load_leaf(node, array, states)

    def _set_states(self, states: npt.NDArray[np.uint8], node: Node, array: Any, live: Live) -> None:
        missing = st.NULL if node.place in {"value", "element"} else self._null_code
        if node.kind == st.MEMBERS:
            missing = st.ABSENT
        if array.null_count == 0:
            states[:] = st.VALUE
        elif array.null_count == len(array):
            states[:] = missing
        else:
            states[:] = np.where(valid_of(array), st.VALUE, missing)
        if live is not None:
            states[~live] = st.ABSENT

    def _load_container(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> None:
        offsets = offsets_of(array)
        place = self._tables.words[node.number] = self._take_words(len(offsets))
        np.subtract(offsets, offsets[0], out=self._words[place : place + len(offsets)])
        lengths = np.diff(offsets)
        if (node.is_set or node.kind == st.MAP) and len(lengths):
            self._most_elements = max(self._most_elements, int(lengths.max()))
        inside = _live(states)
        if inside is not None:
            inside = np.repeat(inside, lengths)
        start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        parts = [array.keys, array.items] if node.kind == st.MAP else [array.values]
        for child, values in zip(node.children, parts, strict=True):
            self._load(child, values.slice(start, count), inside)

    def _load_leaf(self, node: Node, given: Any, states: npt.NDArray[np.uint8]) -> None:
        array = time_array(self._without_unfit(node, given, states), self._options)
        length = len(array)
        match node.kind:
            case st.TEXT | st.KEY | st.BINARY | st.NUMBER:
                self._load_spans(node, bytes_array(array, node.kind), states)
            case st.INTEGER | st.UNSIGNED:
                self.room += length * (LONGEST + max(-node.scale, node.scale))
                self._load_words(node, as_type(array, pa.uint64() if node.kind == st.UNSIGNED else pa.int64()), 1)
            case st.WIDE:
                self.room += length * (LONGEST + node.scale)
                self._load_words(node, as_type(array, pa.decimal128(array.type.precision, array.type.scale)), 2)
            case st.BOOLEAN:
                place = self._tables.words[node.number] = self._take_data(length)
                self.room += 8 * length
                if length:
                    self._data[place : place + length] = bits_of(array.buffers()[1], array.offset, length)
            case st.NOTHING:
                for row in np.flatnonzero(states == st.VALUE).tolist():
                    text = array[row].as_buffer().to_pybytes().decode(errors="replace")
                    self._refuse(states, node, row, "null", f"{text!r} in a column of NULL")
            case _:
                self._load_parsed(node, array, states)

    def _without_unfit(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> Any:
        unfit, message = unfit_times(array, self._options)
        if not unfit:
            return array
        for entry in unfit:
            if states[entry] == st.VALUE:
                self._refuse(states, node, entry, "time", message)
        fit = np.ones(len(array), np.bool_)
        fit[unfit] = False
        return pc.if_else(pa.array(fit), array, None)

    def _load_words(self, node: Node, array: Any, width: int) -> None:
        place = self._tables.words[node.number] = self._take_words(len(array) * width)
        if len(array):
            values = view_of(array.buffers()[1], np.int64)
            self._words[place : place + len(array) * width] = values[array.offset * width :][: len(array) * width]

    def _load_spans(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> None:
        length = len(array)
        data, texts = self._copy_texts(array)
        n_bytes = self._data_end - data
        place = self._tables.words[node.number] = self._take_words(length)
        spans = self._words[place : place + length]
        spans[:] = texts
        if node.kind in {st.TEXT, st.KEY}:
            for entry in broken_texts(array, offsets_of(array), self._data[data : data + n_bytes]):
                if states[entry] == st.VALUE:
                    self._refuse(states, node, entry, "text", NOT_UTF8)
                    # A key has no state: without a length it is refused as well.
                    spans[entry] = 0
        self.room += LONGEST * length if node.kind == st.NUMBER else LONGEST_ESCAPE * n_bytes + 4 * length

    def _copy_texts(self, array: Any) -> tuple[int, npt.NDArray[np.int64]]:
        """Return where the bytes of an array of texts were copied to, and each text's place there and length."""
        offsets = offsets_of(array)
        start, n_bytes = int(offsets[0]), int(offsets[-1] - offsets[0])
        data = self._take_data(n_bytes)
        if n_bytes:
            self._data[data : data + n_bytes] = np.frombuffer(array.buffers()[2], np.uint8)[start : start + n_bytes]
        return data, np.subtract(offsets[:-1], start - data, dtype=np.int64) << _SHIFT | np.diff(offsets)

    def _load_parsed(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> None:
        """Lay out JSON text: as it stands where the loop finds it so, else read and written anew."""
        if not (states == st.VALUE).any():
            return
        texts = bytes_array(array, st.TEXT)
        place = self._lay_out(node, texts)
        rule = self._rules.get(name_of_field(node.field)) if node.depth == 1 else None
        for row in self._other_rows(node, place, states, rule).tolist():
            text = texts[row].as_buffer().to_pybytes()
            try:
                if node.kind == st.MEMBERS:
                    parsed = read_members(text, self._rules)
                    self._take_over(parsed.names, row)
                else:
                    parsed = read_value(text, node.depth, rule)
            except RefusedValueError as refused:
                self._refuse(states, node, row, refused.rule, refused.message)
                continue
            except DecodeError as error:
                self._refuse(states, node, row, "json", str(error))
                continue
            if not parsed.text:
                states[row] = st.ABSENT
            data = self._take_data(len(parsed.text))
            self._data[data : data + len(parsed.text)] = np.frombuffer(parsed.text, np.uint8)
            self.room += len(parsed.text)
            entry = place + row * st.RAW_WORDS
            self._words[entry : entry + st.RAW_WORDS] = data << _SHIFT | len(parsed.text), parsed.weight, parsed.keys

    def _lay_out(self, node: Node, texts: Any) -> int:
        """Copy texts as they stand, quotes behind them; return where the words of their spans begin."""
        data, spans = self._copy_texts(texts)
        end = self._data_end
        self._data[end : end + PAD] = _QUOTE
        for row in broken_texts(texts, offsets_of(texts), self._data[data:end]):
            # Without a length it is left to the reference, which knows what to tell.
            spans[row] = 0
        self.room += end - data
        place = self._tables.words[node.number] = self._take_words(len(texts) * st.RAW_WORDS)
        self._words[place : self._words_end : st.RAW_WORDS] = spans
        return int(place)

    def _other_rows(
        self, node: Node, place: int, states: npt.NDArray[np.uint8], rule: KeyRule | None
    ) -> npt.NDArray[np.int64]:
        """Return the rows whose texts the loop leaves to the reference."""
        if self._checker is None:
            nodes = {name: column.number for name, column in self._by_name.items()}
            self._checker = make_checker(nodes, self._rules)
        checker, places = self._checker
        texts = Texts(self._data, self._words, states, self._states, self._tables.states, allocate_words(len(states)))
        key = -1 if rule is None else places[name_of_field(node.field)]
        return texts.others[: check_texts(texts, checker, place, node.depth, node.kind == st.MEMBERS, key)]

    def _take_over(self, names: list[str], row: int) -> None:
        """Leave the columns out whose value in this row is in the rescue column."""
        for name in names:
            column = self._by_name.get(name)
            if column is None:
                continue
            place = self._tables.states[column.number] + row
            if self._states[place] in {st.VALUE, st.BAD}:
                raise RefusedValueError("duplicate", twice_reason(name))
            self._states[place] = st.ABSENT

    def _refuse(self, states: npt.NDArray[np.uint8], node: Node, entry: int, rule: str, message: str) -> None:
        states[entry] = st.BAD
        self.messages[node.number, entry] = (rule, message)


def as_type(array: Any, arrow_type: pa.DataType) -> Any:
    """Return an array cast, or itself where its type is that already: a cast is dear for a few rows."""
    return array if array.type == arrow_type else array.cast(arrow_type)


def bytes_array(array: Any, kind: int) -> Any:
    """Return an array of texts, bytes or numbers as one that has offsets."""
    arrow_type = array.type
    if kind == st.BINARY:
        return (
            array
            if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type)
            else array.cast(pa.large_binary())
        )
    if pa.types.is_float16(arrow_type) or pa.types.is_float32(arrow_type):
        array = array.cast(pa.float32()).cast(pa.float64())
    return (
        array
        if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
        else array.cast(pa.large_string())
    )


def view_of(buffer: Any, dtype: Any) -> Any:
    """Return what a buffer holds, not to be written: the loops that take it are compiled for no other."""
    if buffer is None or not buffer.size:
        return _NOTHING.view(dtype)
    width = np.dtype(dtype).itemsize
    view: npt.NDArray[Any] = np.frombuffer(buffer, dtype, buffer.size // width)
    if not view.flags.aligned:
        view = view.copy()
    view.flags.writeable = False
    return view


def spans_of(array: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of an array of texts or bytes, and where each entry's begin and end."""
    return view_of(array.buffers()[2], np.uint8), offsets_of(array).astype(np.int64)


def words_of(array: Any, width: int) -> npt.NDArray[np.uint64]:
    """Return the words of an array of whole numbers or decimals, so many each."""
    words: npt.NDArray[np.uint64] = view_of(array.buffers()[1], np.uint64)
    return words[width * array.offset : width * (array.offset + len(array))]


def offsets_of(array: Any) -> npt.NDArray[Any]:
    """Return the offsets of the array's own entries."""
    is_wide = (
        pa.types.is_large_list(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_large_binary(array.type)
    )
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, np.int64)
    offsets = view_of(buffer, np.int64 if is_wide else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]  # type: ignore[no-any-return]


def bits_of(buffer: pa.Buffer, offset: int, length: int) -> npt.NDArray[np.uint8]:
    """Return a byte, 0 or 1, for each of Arrow's bits."""
    first = offset // 8
    packed: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload] # any buffer will do
    packed = packed[first : (offset + length + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[offset - 8 * first :][:length]


def valid_of(array: Any) -> npt.NDArray[Any]:
    """Return which entries are not null."""
    buffer = array.buffers()[0]
    if buffer is None:
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return bits_of(buffer, array.offset, len(array)).view(np.bool_)


def _live(states: npt.NDArray[np.uint8]) -> Live:
    live = states == st.VALUE
    return None if live.all() else live
