"""Encoder of record batches by the compiled loop, a few megabytes at a time, with the reasons of refused rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.items.batch_size import batch_bytes, value_bytes
from ddbio.items.kernel.encode import codes
from ddbio.items.kernel.encode.fields import plain_fields
from ddbio.items.kernel.encode.load import Loader, TooLargeError, allocate
from ddbio.items.kernel.encode.printing import print_rows
from ddbio.items.kernel.encode.program import compile_tables, plan_program
from ddbio.items.kernel.encode.rules import key_rules
from ddbio.items.kernel.memory import PAD
from ddbio.items.number import canonical_number
from ddbio.items.schema.arrow import name_of_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from ddbio.items.kernel.encode.rules import KeyRule

PIECE_BYTES = 2 << 20
"""The size of a piece of columns, so that its layout and its print stay in the processor's caches."""

_MAX_CELLS = 1 << 22
"""The most cells of sparse rows, which have few values, that are loaded at a time: each takes nine bytes."""

_AHEAD = 1
_KEY_TYPES = {"S", "N", "B"}
_MAX_KEYS = 2


class Printed(NamedTuple):
    """Printed rows of a batch."""

    text: npt.NDArray[np.uint8]
    """Valid until the next batch is printed."""
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    refused: list[Refused]


class Refused(NamedTuple):
    """Refusal of a row that is not a valid item."""

    row: int
    attribute: str
    rule: str
    message: str
    item_bytes: int = 0
    """The size of an item that is too large; 0 for other rules, and for a row of gigabytes."""


class KernelEncoder:
    """Printer of the rows in batches of one schema; use one per thread.

    Parameters
    ----------
    frame
        The text before and after each item.
    is_plain
        Whether values are printed without types, as in plain JSON, which cannot represent sets and columns of JSON.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Mapping[str, str],
        options: Any,
        frame: tuple[bytes, bytes] = (b"", b""),
        *,
        is_plain: bool = False,
    ) -> None:
        if len(keys) > _MAX_KEYS or not set(keys.values()) <= _KEY_TYPES:
            raise OptionError(f"keys {dict(keys)!r}: give the partition key and perhaps the sort key, each S, N or B")
        self.schema = schema
        self._keys = dict(keys)
        fields, scales = plain_fields(schema, options)
        self._rules = key_rules(keys, options.index_keys)
        self._program = plan_program(fields, self._rules, scales)
        for node in self._program.nodes:
            node.is_plain = is_plain
        self._tables = compile_tables(self._program, len(keys), *frame)
        self._frame_bytes = sum(map(len, frame))
        self._loader = Loader(self._program, self._tables, self._rules, options)
        self._out = allocate(0)
        self._touched = 0
        """The bytes of ``_out`` that were ever written to. The other pages take no memory yet."""

    @property
    def retained_bytes(self) -> int:
        """Return the bytes of memory that are retained for the next batch."""
        return self._touched + self._loader.retained_bytes

    def print_batch(self, batch: pa.RecordBatch, first_row: int = 0) -> Printed:
        """Print the rows one after the other; return them and the refused rows.

        Parameters
        ----------
        first_row
            The number of the batch's first row, for messages.

        Raises
        ------
        SchemaError
            The batch does not have the schema of the encoder.
        """
        if not batch.schema.equals(self.schema):
            raise SchemaError(f"the batch has another schema than its encoder: {batch.schema} is not {self.schema}")
        n_rows = batch.num_rows
        offsets, sizes, refused = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows, np.int64), list[Refused]()
        printed = Printed(self._out, offsets, sizes, refused)
        step = n_rows * PIECE_BYTES // max(value_bytes(batch), 1)
        step = max(1, min(n_rows, step, _MAX_CELLS // max(batch.num_columns, 1)))
        for start in range(0, n_rows, step):
            self._print_rows(batch.slice(start, step), start, first_row, printed)
        self._touched = max(self._touched, int(offsets[n_rows]))
        return printed._replace(text=self._out[: int(offsets[n_rows])])

    def _print_rows(self, rows: pa.RecordBatch, start: int, first_row: int, printed: Printed) -> None:
        """Print the rows of a batch from number ``start`` on after those before it."""
        loader, n_rows, at = self._loader, rows.num_rows, int(printed.offsets[start])
        try:
            work = loader.load(rows)
        except TooLargeError:
            if n_rows > 1:
                half = n_rows // 2
                self._print_rows(rows.slice(0, half), start, first_row, printed)
                self._print_rows(rows.slice(half), start + half, first_row, printed)
                return
            row = first_row + start
            printed.offsets[start + 1] = at
            message = self._message(row, codes.LARGE, -1, batch_bytes(rows))[1]
            printed.refused.append(Refused(row, "", "item_size", message))
            return
        # Reserve the size that the earlier rows predict, so that the output is moved only once.
        expected = at * len(printed.sizes) // start if start else 0
        self._ensure_space(at, _AHEAD * (expected - at) + loader.output_bytes + n_rows * self._frame_bytes + PAD)
        n_refused = print_rows(self._tables, work, self._out[at:], n_rows, len(work.stops) > 0)
        np.add(work.ends, at, out=printed.offsets[start + 1 : start + n_rows + 1])
        printed.sizes[start : start + n_rows] = work.sizes
        for index, rule, node, entry in work.refusals.reshape(-1, codes.REFUSAL_WIDTH)[:n_refused].tolist():
            row = first_row + start + index
            name, message = self._message(row, rule, node, entry)
            too_large_bytes = entry if rule == codes.LARGE else 0
            printed.refused.append(Refused(row, self._path(rule, node, entry), name, message, too_large_bytes))

    def _ensure_space(self, at: int, n_bytes: int) -> None:
        """Grow the output if it has less than ``n_bytes`` after ``at``."""
        if len(self._out) < at + n_bytes:
            grown = allocate(at + n_bytes)
            grown[:at] = self._out[:at]
            self._out = grown

    def _path(self, rule: int, node: int, entry: int) -> str:
        if rule == codes.NO_KEY:
            return list(self._keys)[entry - 1]
        return self._program.nodes[node].path if node >= 0 else ""

    def _message(self, row: int, rule: int, node: int, entry: int) -> tuple[str, str]:
        """Return the name of the rule and the message."""
        path = self._path(rule, node, entry)
        name, message = self._explain(rule, node, entry)
        return name, f"row {row}: {path}: {message}" if path else f"row {row}: {message}"

    def _explain(self, rule: int, node: int, entry: int) -> tuple[str, str]:  # noqa: C901, PLR0911 - one line a rule
        match rule:
            case codes.PREPARED:
                return self._loader.messages[node, entry]
            case codes.NOT_A_NUMBER:
                return "number", self._number_message(node, entry)
            case codes.NO_KEY:
                return "key_missing", "the key is missing: every item needs it"
            case codes.EMPTY_KEY:
                return "key_empty", f"{self._rule(node).owner} is empty: DynamoDB takes no empty key"
            case codes.LONG_KEY:
                return "key_length", self._rule(node).length_message
            case codes.LARGE:
                return "item_size", f"the item has {entry:,} bytes, DynamoDB takes {codes.MAX_ITEM_BYTES:,}"
            case codes.DEEP:
                return "depth", f"it is nested deeper than {codes.MAX_DEPTH} levels"
            case codes.EMPTY_SET:
                return "empty_set", "the set is empty: make it null, or a list"
            case codes.NULL_IN_SET:
                return "null_in_set", "the set has a null: DynamoDB's sets hold values only"
            case codes.NAME if (node, entry) in self._loader.messages:
                return self._loader.messages[node, entry]
            case codes.NAME:
                return "name", f"an attribute's name has 1 to {codes.MAX_NAME_BYTES:,} bytes"
        what = "an element is twice in the set" if self._program.nodes[node].is_set else "a name is twice in the map"
        return "duplicate", what

    def _rule(self, node: int) -> KeyRule:
        return self._rules[name_of_field(self._program.nodes[node].field)]

    def _number_message(self, node: int, entry: int) -> str:
        text = self._loader.text(node, entry)
        try:
            canonical_number(text)
        except DecodeError as error:
            return str(error)
        return f"{text!r} is not a DynamoDB number"
