"""Make rows the lines of files that the service itself reads; refuses rows that are no items of the table.

The members beside ``Item`` that hold a line's condition are named as in PutItem; no such file has been put by the
service yet.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.csv_lines import CsvColumns, line_offsets
from ddbio.core.encode import EncodeOptions, Encoder
from ddbio.core.ion import ion_to_json_lines
from ddbio.core.ion_items import OPENING, ion_items
from ddbio.core.json_text import compact_json
from ddbio.core.requests import ItemParts, Made, absent_condition
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import numpy.typing as npt

    from ddbio.core.encode import Refusal
    from ddbio.core.facts import IndexKey

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Offsets: TypeAlias = npt.NDArray[np.int64]

_PREFIX, _SUFFIX = b'{"Item":', b"}\n"


@dataclass(frozen=True)
class LineForm:
    """Say what a line is like, and what its item is checked for.

    Attributes
    ----------
    key
        Names and types of the key, the partition key first.
    format
        ``dynamodb_json``, ``ion`` or ``csv``.
    index_keys
        Keys of indexes, which an item either has rightly or not at all.
    if_absent, newer_by
        The condition of each line: no item has its key, or none that is as new by an attribute.
    delimiter, csv_strings
        How CSV is written; see :class:`ddbio.core.csv_lines.CsvColumns`.
    """

    key: tuple[tuple[str, str], ...]
    format: str = "dynamodb_json"
    index_keys: tuple[IndexKey, ...] = ()
    if_absent: bool = False
    newer_by: str | None = None
    delimiter: str = ","
    csv_strings: bool = False

    @property
    def condition(self) -> dict[str, object]:
        """Return the members of a line that are the same in each."""
        if not self.if_absent and self.newer_by is None:
            return {}
        return absent_condition(self.key[0][0], self.newer_by)

    @property
    def tags(self) -> dict[str, str]:
        """Return the types of the attributes of all keys."""
        return {**{key.name: key.tag for key in self.index_keys}, **dict(self.key)}

    def item_of(self, line: bytes, header: bytes) -> dict[str, Any]:
        """Return the item of a line."""
        if self.format == "csv":
            names, values = csv.reader([header.decode(), line.decode()], delimiter=self.delimiter)
            return {name: {self.tags.get(name, "S"): value} for name, value in zip(names, values, strict=True)}
        item: dict[str, Any] = json.loads(ion_to_json_lines(line) if self.format == "ion" else line)["Item"]
        return item


@dataclass(frozen=True)
class MadeLines:
    """Hold the lines of a batch, back to back; good until the next batch is made.

    Attributes
    ----------
    items
        The rows as the table will hold them.
    """

    items: pa.RecordBatch
    text: Bytes
    offsets: Offsets
    refusals: Sequence[Refusal]


class ImportLines:
    """Make the rows of batches of one schema lines.

    Raises
    ------
    OptionError
        If the rows have no column of the name by which they are compared, or one that cannot be told in CSV.

    Attributes
    ----------
    header
        What an object begins with.
    """

    def __init__(self, schema: pa.Schema, form: LineForm) -> None:
        self.schema, self._form = schema, form
        self.header, self._suffix = b"", _SUFFIX
        options = EncodeOptions(index_keys=form.index_keys)
        if form.format == "csv":
            self._csv = CsvColumns(schema, form.tags, form.delimiter, as_text=form.csv_strings)
            self.header = self._csv.header
            self._encoder = Encoder(self._csv.schema, keys=dict(form.key), options=options)
            return
        if form.condition:
            self._suffix = f",{compact_json(form.condition)[1:]}\n".encode()
        if form.newer_by is None:
            self._encoder = Encoder(schema, keys=dict(form.key), options=options)
            return
        if form.newer_by not in schema.names:
            raise OptionError(f"newer_by: the rows have no column {form.newer_by!r}, but {', '.join(schema.names)}")
        self._parts = ItemParts(schema, schema.names, dict(form.key), form.newer_by, form.index_keys)

    def make(self, rows: pa.RecordBatch) -> MadeLines:
        """Return the line of each row, and the rows that are no items of the table."""
        if self._form.format == "csv":
            items = self._csv.items(rows)
            refusals = (*self._encoder.lend(items).refusals, *self._csv.refusals(items))
            return MadeLines(items, *self._csv.lines(items), refusals)
        if self._form.newer_by is not None:
            made = self._parts.make(rows)
            return MadeLines(rows, *_framed(made, _PREFIX, self._suffix), made.refusals)
        if self._form.format == "ion":
            encoded = self._encoder.lend(rows, prefix=OPENING, suffix=self._suffix)
            text = np.frombuffer(ion_items(encoded.buffer.tobytes()), np.uint8)
            return MadeLines(rows, text, line_offsets(text), encoded.refusals)
        encoded = self._encoder.lend(rows, prefix=_PREFIX, suffix=self._suffix)
        return MadeLines(rows, encoded.buffer, encoded.offsets, encoded.refusals)


def _framed(made: Made, prefix: bytes, suffix: bytes) -> tuple[Bytes, Offsets]:
    kind = pa.large_binary()
    parts: Any = pa.Array.from_buffers(
        kind, len(made.offsets) - 1, [None, pa.py_buffer(made.offsets.data), pa.py_buffer(made.texts.data)]
    )
    edges: list[Any] = [pa.scalar(each, kind) for each in (prefix, suffix, b"")]
    lines: Any = pc.binary_join_element_wise(edges[0], parts, *edges[1:])
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(lines) + 1]
    return np.frombuffer(text, np.uint8)[: ends[-1]], ends
