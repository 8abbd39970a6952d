"""Read the rows of JSON, plain or DynamoDB's, piece by piece."""

from __future__ import annotations

import functools
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.declared_rows import read_json_as, read_json_by_columns
from ddbio.formats.file_format import BATCH_ROWS
from ddbio.formats.json_forms import is_answer, starts_with_item
from ddbio.formats.named_nulls import with_named_nulls
from ddbio.formats.row_lines import lines_of_json
from ddbio.formats.text_ranges import last_document
from ddbio.formats.text_rows import joined_columns, json_items, read_json
from ddbio.items.decode import from_dynamodb_json, infer_schema_of_body
from ddbio.items.framing import check_object, checked_items, framing_of
from ddbio.items.python_rows import item_columns
from ddbio.items.schema.arrow import has_attribute_names, is_nulls, name_of_field, normalize_schema
from ddbio.items.schema.item_schema import ItemSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.formats.file_format import ReadOptions
    from ddbio.formats.row_lines import Lines

_NO_ROWS = pa.schema([])


class JsonRows:
    """Read JSON: plain rows, or DynamoDB JSON."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._is_typed = None if options.json_format == "auto" else options.json_format == "dynamodb"

    @property
    def given_columns(self) -> pa.Schema | None:
        """Return the columns that were chosen by more than what is read at once."""
        return None if self._options.schema is not None else self._options.columns

    def begin(self, head: bytes) -> None:
        """Learn from a file's beginning whether it is DynamoDB JSON."""
        self._begins_typed(head)

    def cut(self, text: bytes) -> int:
        """Return where the last document begins that is known to follow another one."""
        return last_document(text)

    def whole(self, text: bytes) -> Iterable[pa.RecordBatch]:
        """Return the rows of a file that is one piece."""
        return self._rows(text, None) if text.strip() else []

    def columns(self, pieces: Iterator[bytes]) -> pa.Schema:
        """Return columns that hold the rows of all pieces."""
        first = next(pieces, b"")
        pieces = itertools.chain([first], pieces)
        if self._begins_typed(first):
            if self._options.takes_illegal:
                # A write takes each piece in columns of its own.
                return normalize_schema(pa.schema([]))
            seen = functools.reduce(ItemSchema.merge, map(infer_schema_of_body, pieces))
            return seen.to_arrow()
        found = functools.reduce(joined_columns, map(self._schema_of, pieces))
        return normalize_schema(found)

    def rows(self, piece: bytes, columns: pa.Schema) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next piece as these columns."""
        return self._rows(piece, columns)

    def _rows(self, text: bytes, columns: pa.Schema | None) -> Iterable[pa.RecordBatch]:
        """Return rows as columns that are given, or chosen by them; what no item may have is in columns of JSON."""
        is_typed = self._options.schema is None and self._begins_typed(text)
        if not self._options.takes_illegal:
            return self._legal_rows(text, columns, is_typed=is_typed)
        with suppress(DecodeError):
            batches = list(self._legal_rows(text, None if is_typed else columns, is_typed=is_typed))
            if has_attribute_names(batches[0].schema if batches else ()):
                return batches
        if is_typed:
            return self._with_nulls(item_columns(list(checked_items(text, framing_of(text), check_object))), b"")
        fields = {each.name: each for each in self._options.schema or ()} or self._options.types
        read = list(json_items(text, self._options.types, fields))
        # An attribute that is null in every row is a column too: an update removes it.
        named = (name_of_field(fields[name]) if name in fields else name for _, row, _ in read for name in row)
        return self._with_nulls(item_columns([item for _, _, item in read], named), text)

    def _legal_rows(self, text: bytes, columns: pa.Schema | None, *, is_typed: bool) -> Iterable[pa.RecordBatch]:
        options = self._options
        if is_typed:
            found = from_dynamodb_json(text) if columns is None else from_dynamodb_json(text, columns, nulls="keep")
            return self._with_nulls(found, b"")
        if options.schema is not None:
            table = read_json_as(text, options.schema, options.types)
        elif columns is not None:
            table = read_json_by_columns(text, columns, options.types)
        else:
            table = read_json(text, options.types)
        return self._with_nulls(table, text)

    def _schema_of(self, text: bytes) -> pa.Schema:
        batches = self._rows(text, None)
        return next((pa.schema([field for field in each.schema if not is_nulls(field)]) for each in batches), _NO_ROWS)

    def _with_nulls(self, rows: pa.Table | pa.RecordBatch, text: bytes) -> Iterable[pa.RecordBatch]:
        """Return rows, with their named nulls if those are asked for; the text is plain JSON."""
        batches = rows.to_batches(BATCH_ROWS) if isinstance(rows, pa.Table) else [rows]
        fields = {**self._options.types, **{each.name: each for each in self._options.schema or ()}}
        return with_named_nulls(batches, text, fields) if self._options.names_nulls else batches

    def lines(self, piece: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the lines on which documents begin."""
        return lines_of_json(piece, rows, first_line)

    def _begins_typed(self, text: bytes) -> bool:
        # The first row decides for all: a later piece may begin with one whose first value looks typed.
        if self._is_typed is None:
            self._is_typed = starts_with_item(text) or is_answer(text)
        return self._is_typed
