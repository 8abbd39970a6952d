"""Layout of the columns of a batch for the printing loop.

Arrow's many layouts become a few: one or two words a value, texts as offset and length in one array, and one byte a
value for its state. Values that can be refused before printing are marked with their reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import DecodeError
from ddbio.items.kernel.arrays import (
    as_type,
    binary_array,
    bits_of,
    offsets_of,
    plain_array,
    text_array,
    valid_of,
    view_of,
)
from ddbio.items.kernel.encode import codes
from ddbio.items.kernel.encode.fields import time_array, unfit_times
from ddbio.items.kernel.encode.json_columns import Texts, check_texts, make_checker
from ddbio.items.kernel.encode.printing import LONGEST_ESCAPE, Work, list_present
from ddbio.items.kernel.encode.rules import RefusedValueError, read_members, read_value
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.number import LONGEST_NUMBER
from ddbio.items.kernel.text import NOT_UTF8, broken_texts
from ddbio.items.rescue import twice_reason
from ddbio.items.schema.arrow import name_of_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.items.kernel.encode.json_columns import Checker
    from ddbio.items.kernel.encode.program import Node, Program, Tables
    from ddbio.items.kernel.encode.rules import KeyRule

MAX_PIECE_BYTES = 1 << 30
"""Positions in a piece have 31 bits."""

_MIN_BYTES, _MIN_WORDS = 1 << 16, 1 << 13
_GROWTH = 2
_SPARSE_RATIO = 4
"""If rows have a value in at most one of this many columns, the columns of each row are listed first."""
_DIGITS_BYTES = 128

_SHIFT = 32
_LEAVES = {
    *(codes.TEXT, codes.NUMBER, codes.INTEGER, codes.UNSIGNED, codes.WIDE),
    *(codes.BOOLEAN, codes.BINARY, codes.RAW, codes.MEMBERS, codes.NOTHING),
}
_QUOTE = ord('"')

Live = npt.NDArray[np.bool_] | None
"""Whether each value has a parent; None if all have."""


class TooLargeError(Exception):
    """A piece has more bytes than positions can address."""


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return ``n_bytes`` uninitialised bytes."""
    return np.empty(n_bytes, np.uint8)


def allocate_words(count: int) -> npt.NDArray[np.int64]:
    """Return ``count`` uninitialised words."""
    return allocate(8 * count).view(np.int64)


class Loader:
    """Loader of batches into reused arrays, which grow as needed."""

    def __init__(self, program: Program, tables: Tables, rules: Mapping[str, KeyRule], options: Any) -> None:
        self._program, self._tables, self._rules, self._options = program, tables, rules, options
        self._null_code = codes.NULL if options.nulls == "null" else codes.ABSENT
        self._by_name = {
            name_of_field(column.field): column for column in program.columns if column.kind != codes.MEMBERS
        }
        self._overhead_bytes = [
            max(len(node.head.encode()) + len(node.tail), len(node.null.encode())) for node in program.nodes
        ]
        self._numbers = np.array([column.number for column in program.columns], np.intp)
        steps = [0]
        for _ in program.columns:
            steps.append(program.steps[steps[-1]][2])
        self._columns = np.array(steps[:-1], np.int64)
        self._n_shown = 0
        self._data, self._states = allocate(_MIN_BYTES), allocate(_MIN_BYTES)
        self._words = allocate_words(_MIN_WORDS)
        self._data_end = self._words_end = self._states_end = 0
        self._max_elements = 1
        self._checker: tuple[Checker, dict[str, int]] | None = None
        self.output_bytes = 0
        self.messages: dict[tuple[int, int], tuple[str, str]] = {}
        """The rule and the message of each value that will be refused, by node and entry."""

    @property
    def retained_bytes(self) -> int:
        """Return the bytes of memory that are retained for the next batch."""
        return len(self._data) + len(self._states) + self._words.nbytes

    def load(self, batch: pa.RecordBatch) -> Work:
        """Load all columns, and set ``output_bytes`` to the most bytes of the printed rows without frames."""
        self._data_end = self._words_end = self._states_end = 0
        self._max_elements, self.output_bytes, self._n_shown = 1, 2 * batch.num_rows, 0
        self.messages.clear()
        for column in self._program.columns:
            self._load(column, batch.column(column.field.name), None)
        n_rows = batch.num_rows
        n_spaces = self._program.n_spaces
        stops, present = self._present(n_rows)
        size = 1 << (2 * self._max_elements).bit_length()
        return Work(
            data=self._data,
            words=self._words,
            states=self._states,
            index=np.zeros(n_spaces, np.int64),
            first=np.zeros(n_spaces, np.int64),
            limit=np.zeros(n_spaces, np.int64),
            marks=allocate_words(self._max_elements),
            slots=allocate_words(size),
            digits=np.zeros(_DIGITS_BYTES, np.uint8),
            refusals=allocate_words(n_rows * codes.REFUSAL_WIDTH),
            ends=allocate_words(n_rows),
            sizes=allocate_words(n_rows),
            stops=stops,
            present=present,
        )

    def _present(self, n_rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ends of the rows' lists of columns, and the lists; both are empty if rows have many columns."""
        nothing = allocate_words(0)
        if self._n_shown * _SPARSE_RATIO > n_rows * len(self._columns):
            return nothing, nothing
        stops, positions = np.zeros(n_rows, np.int64), self._tables.states[self._numbers]
        total = list_present(positions, self._columns, self._states, n_rows, stops, nothing)
        present = allocate_words(int(total))
        if total:
            list_present(positions, self._columns, self._states, n_rows, stops, present)
        return stops, present

    def text(self, node: int, entry: int) -> str:
        """Return the text of a refused value."""
        span = int(self._words[self._tables.words[node] + entry])
        position, length = span >> _SHIFT, span & 0xFFFFFFFF
        return self._data[position : position + length].tobytes().decode(errors="replace")

    def _take_data(self, count: int) -> int:
        start, self._data_end = self._data_end, self._data_end + count
        if self._data_end + PAD > MAX_PIECE_BYTES:
            raise TooLargeError
        if self._data_end + PAD > len(self._data):
            grown = allocate(_GROWTH * self._data_end + PAD)
            grown[:start] = self._data[:start]
            self._data = grown
        return start

    def _take_words(self, count: int) -> int:
        start, self._words_end = self._words_end, self._words_end + count
        if self._words_end > len(self._words):
            grown = allocate_words(_GROWTH * self._words_end)
            grown[:start] = self._words[:start]
            self._words = grown
        return start

    def _take_states(self, count: int) -> npt.NDArray[np.uint8]:
        start, self._states_end = self._states_end, self._states_end + count
        if self._states_end + PAD > len(self._states):
            grown = allocate(_GROWTH * self._states_end + PAD)
            grown[:start] = self._states[:start]
            self._states = grown
        return self._states[start : self._states_end]

    def _load(self, node: Node, values: Any, live: Live) -> None:
        array = plain_array(values)
        length = len(array)
        self._tables.states[node.number] = self._states_end
        states = self._take_states(length)
        self._set_states(states, node, array, live)
        shown = length - array.null_count if self._missing(node) == codes.ABSENT else length
        self.output_bytes += shown * self._overhead_bytes[node.number]
        self._n_shown += shown if node.depth == 1 else 0
        if array.null_count == length and node.kind in _LEAVES:
            # Sparse rows have columns without any value.
            return
        if node.misfit:
            for row in np.flatnonzero(states == codes.VALUE).tolist():
                self._refuse(states, node, row, "key_type", node.misfit)
        match node.kind:
            case codes.STRUCT:
                inside = _live(states)
                for index, child in enumerate(node.children):
                    self._load(child, array.field(index), inside)
            case codes.LIST | codes.MAP:
                self._load_container(node, array, states)
            case _:
                self._load_leaf(node, array, states)

    def _set_states(self, states: npt.NDArray[np.uint8], node: Node, array: Any, live: Live) -> None:
        missing = self._missing(node)
        if array.null_count == 0:
            states[:] = codes.VALUE
        elif array.null_count == len(array):
            states[:] = missing
        else:
            states[:] = np.where(valid_of(array), codes.VALUE, missing)
        if live is not None:
            states[~live] = codes.ABSENT

    def _missing(self, node: Node) -> int:
        """Return the state of a null."""
        if node.kind == codes.MEMBERS:
            return codes.ABSENT
        return codes.NULL if node.role in {"value", "element"} else self._null_code

    def _load_container(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> None:
        offsets = offsets_of(array)
        bounds = self._tables.words[node.number] = self._take_words(len(offsets))
        np.subtract(offsets, offsets[0], out=self._words[bounds : bounds + len(offsets)])
        lengths = np.diff(offsets)
        if (node.is_set or node.kind == codes.MAP) and len(lengths):
            self._max_elements = max(self._max_elements, int(lengths.max()))
        inside = _live(states)
        if inside is not None:
            inside = np.repeat(inside, lengths)
        start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        parts = [array.keys, array.items] if node.kind == codes.MAP else [array.values]
        for child, values in zip(node.children, parts, strict=True):
            self._load(child, values.slice(start, count), inside)

    def _load_leaf(self, node: Node, values: Any, states: npt.NDArray[np.uint8]) -> None:
        array = time_array(self._without_unfit(node, values, states), self._options)
        length = len(array)
        present = length - array.null_count
        match node.kind:
            case codes.TEXT | codes.KEY | codes.BINARY | codes.NUMBER:
                self._load_spans(node, binary_array(array) if node.kind == codes.BINARY else text_array(array), states)
            case codes.INTEGER | codes.UNSIGNED:
                self.output_bytes += present * (LONGEST_NUMBER + max(-node.scale, node.scale))
                self._load_words(node, as_type(array, pa.uint64() if node.kind == codes.UNSIGNED else pa.int64()), 1)
            case codes.WIDE:
                self.output_bytes += present * (LONGEST_NUMBER + node.scale)
                self._load_words(node, as_type(array, pa.decimal128(array.type.precision, array.type.scale)), 2)
            case codes.BOOLEAN:
                start = self._tables.words[node.number] = self._take_data(length)
                self.output_bytes += 8 * present
                if length:
                    self._data[start : start + length] = bits_of(array.buffers()[1], array.offset, length)
            case codes.NOTHING:
                for row in np.flatnonzero(states == codes.VALUE).tolist():
                    text = array[row].as_buffer().to_pybytes().decode(errors="replace")
                    self._refuse(states, node, row, "null", f"{text!r} in a column of NULL")
            case _:
                self._load_parsed(node, array, states)

    def _without_unfit(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> Any:
        unfit, message = unfit_times(array, self._options)
        if not unfit:
            return array
        for entry in unfit:
            if states[entry] == codes.VALUE:
                self._refuse(states, node, entry, "time", message)
        fit = np.ones(len(array), np.bool_)
        fit[unfit] = False
        return pc.if_else(pa.array(fit), array, None)

    def _load_words(self, node: Node, array: Any, width: int) -> None:
        start = self._tables.words[node.number] = self._take_words(len(array) * width)
        if len(array):
            values = view_of(array.buffers()[1], np.int64)
            self._words[start : start + len(array) * width] = values[array.offset * width :][: len(array) * width]

    def _load_spans(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> None:
        length, present = len(array), len(array) - array.null_count
        data, texts = self._copy_texts(array)
        n_bytes = self._data_end - data
        start = self._tables.words[node.number] = self._take_words(length)
        spans = self._words[start : start + length]
        spans[:] = texts
        if node.kind in {codes.TEXT, codes.KEY}:
            for entry in broken_texts(array, offsets_of(array), self._data[data : data + n_bytes]):
                if states[entry] == codes.VALUE:
                    self._refuse(states, node, entry, "text", NOT_UTF8)
                    # A key has no state: without a length it is also refused.
                    spans[entry] = 0
        self.output_bytes += (
            LONGEST_NUMBER * present if node.kind == codes.NUMBER else LONGEST_ESCAPE * n_bytes + 4 * present
        )

    def _copy_texts(self, array: Any) -> tuple[int, npt.NDArray[np.int64]]:
        """Copy the bytes of an array of texts. Return the offset of the copy, and each text's offset and length."""
        offsets = offsets_of(array)
        start, n_bytes = int(offsets[0]), int(offsets[-1] - offsets[0])
        data = self._take_data(n_bytes)
        if n_bytes:
            self._data[data : data + n_bytes] = np.frombuffer(array.buffers()[2], np.uint8)[start : start + n_bytes]
        return data, np.subtract(offsets[:-1], start - data, dtype=np.int64) << _SHIFT | np.diff(offsets)

    def _load_parsed(self, node: Node, array: Any, states: npt.NDArray[np.uint8]) -> None:
        """Load JSON text: copy it if the loop finds it canonical, otherwise parse and print it."""
        if not (states == codes.VALUE).any():
            return
        texts = text_array(array)
        first = self._copy_spans(node, texts)
        rule = self._rules.get(name_of_field(node.field)) if node.depth == 1 else None
        for row in self._other_rows(node, first, states, rule).tolist():
            text = texts[row].as_buffer().to_pybytes()
            try:
                if node.kind == codes.MEMBERS:
                    parsed = read_members(text, self._rules)
                    self._clear_columns(parsed.names, row)
                else:
                    parsed = read_value(text, node.depth, rule)
            except RefusedValueError as refused:
                self._refuse(states, node, row, refused.rule, refused.message)
                continue
            except DecodeError as error:
                self._refuse(states, node, row, "json", str(error))
                continue
            if not parsed.text:
                states[row] = codes.ABSENT
            data = self._take_data(len(parsed.text))
            self._data[data : data + len(parsed.text)] = np.frombuffer(parsed.text, np.uint8)
            self.output_bytes += len(parsed.text)
            entry = first + row * codes.RAW_WORDS
            self._words[entry : entry + codes.RAW_WORDS] = data << _SHIFT | len(parsed.text), parsed.size, parsed.keys

    def _copy_spans(self, node: Node, texts: Any) -> int:
        """Copy texts, append quotes, and return the position of the words with their spans."""
        data, spans = self._copy_texts(texts)
        end = self._data_end
        self._data[end : end + PAD] = _QUOTE
        for row in broken_texts(texts, offsets_of(texts), self._data[data:end]):
            # Without a length it is left to the reference, which reports the error.
            spans[row] = 0
        self.output_bytes += end - data
        first = self._tables.words[node.number] = self._take_words(len(texts) * codes.RAW_WORDS)
        self._words[first : self._words_end : codes.RAW_WORDS] = spans
        return int(first)

    def _other_rows(
        self, node: Node, position: int, states: npt.NDArray[np.uint8], rule: KeyRule | None
    ) -> npt.NDArray[np.int64]:
        """Return the rows whose texts the loop leaves to the reference."""
        if self._checker is None:
            nodes = {name: column.number for name, column in self._by_name.items()}
            self._checker = make_checker(nodes, self._rules)
        checker, entry_of = self._checker
        texts = Texts(self._data, self._words, states, self._states, self._tables.states, allocate_words(len(states)))
        key = -1 if rule is None else entry_of[name_of_field(node.field)]
        return texts.others[: check_texts(texts, checker, position, node.depth, node.kind == codes.MEMBERS, key)]

    def _clear_columns(self, names: list[str], row: int) -> None:
        """Remove the values from the columns that the rescue column of this row also has."""
        for name in names:
            column = self._by_name.get(name)
            if column is None:
                continue
            state = self._tables.states[column.number] + row
            if self._states[state] in {codes.VALUE, codes.BAD}:
                raise RefusedValueError("duplicate", twice_reason(name))
            self._states[state] = codes.ABSENT

    def _refuse(self, states: npt.NDArray[np.uint8], node: Node, entry: int, rule: str, message: str) -> None:
        states[entry] = codes.BAD
        self.messages[node.number, entry] = (rule, message)


def _live(states: npt.NDArray[np.uint8]) -> Live:
    live = states == codes.VALUE
    return None if live.all() else live
