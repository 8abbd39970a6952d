"""Decode DynamoDB JSON to record batches: Scan and Query pages, export lines, bare item lines.

The fast path parses by columns. Whatever it refuses goes, by page or by slice of lines, through the plain reference.
Refuses bytes that are not DynamoDB JSON; never rounds, never turns a value silently into null.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ddbio.core.column_parser import ColumnParser
from ddbio.core.framing import Framing, checked_items, framing_of, slices
from ddbio.core.inference import infer_schema_of_items
from ddbio.core.page import split_page
from ddbio.core.reference import RowBuilder
from ddbio.core.rescue import Misfit, MisfitLog
from ddbio.core.schema import normalize_schema
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

SLICE_BYTES = 4 << 20
"""Lines are decoded this much at a time: fresh buffers of far more cost page faults, far less costs assembly."""

_BLANK_OR_MARKED = re.compile(rb"\xef\xbb\xbf|\s*\Z")
# No null is legal in DynamoDB JSON: pyarrow.json takes one inside an item for a missing value, and dies of one outside.
_NULL_LITERAL = re.compile(rb"(?:\A|[:\[,}])\s*null")


class Decoder:
    """Decode DynamoDB JSON to record batches of exactly ``schema``; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    on_misfit
        ``rescue`` puts a value that fits no column into ``_rescue``; ``fail`` raises SchemaError at the first.
    nulls
        ``merge`` turns NULL into null; ``keep`` puts it into ``_rescue`` too, so that it is told from a missing value.

    Raises
    ------
    SchemaError
        The schema names types that DynamoDB has no exact form for.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        on_misfit: Literal["rescue", "fail"] = "rescue",
        nulls: Literal["merge", "keep"] = "merge",
    ) -> None:
        self.schema = normalize_schema(schema)
        self._columns = ColumnParser(self.schema, keep_nulls=nulls == "keep")
        self._rows = RowBuilder(self.schema, keep_nulls=nulls == "keep")
        self._on_misfit = on_misfit
        self._log = MisfitLog()

    @property
    def log(self) -> MisfitLog:
        """Return the count of what fitted no column so far; it grows with every call."""
        return self._log

    @property
    def misfits(self) -> list[Misfit]:
        """Return what fitted no column so far, by path and kind."""
        return self._log.misfits()

    def decode(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return a row per item, in their order.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing; the message has the line, and the item's place in a page.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        body = data if isinstance(data, bytes) else bytes(data)
        log = MisfitLog()
        try:
            batches = [self._decode_slice(body, bounds, framing, log) for bounds in slices(body, framing, SLICE_BYTES)]
        except DecodeError:
            # The slices may have cut an item that spans lines; and only the whole body knows its line numbers.
            log = MisfitLog()
            batches = [self._decode_plainly(body, framing, log)]
        if self._on_misfit == "fail":
            log.require_empty()
        self._log.merge(log)
        return self._one_batch(batches)

    def _one_batch(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        combined = table.to_batches()
        if len(combined) > 1:
            raise DecodeError(f"{table.nbytes} bytes do not fit one record batch: decode the data in several pieces")
        return combined[0]

    def _decode_slice(self, body: bytes, bounds: slice, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        if self._columns.usable and _is_plain(body, bounds):
            try:
                return self._columns.batch(pa.py_buffer(body).slice(bounds.start, bounds.stop - bounds.start), framing)
            except (DecodeError, pa.ArrowException):
                # The reference decides what this is: a misfit, another spelling, or broken.
                pass
        return self._decode_plainly(body[bounds], framing, log)

    def _decode_plainly(self, body: bytes, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        return self._rows.batch(list(checked_items(body, framing)), log)


def from_dynamodb_json(data: Buffer, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Return a row per item of one Scan or Query page, of export lines, or of bare item lines.

    Parameters
    ----------
    data
        UTF-8 JSON; nothing but white space gives an empty batch.
    schema
        The columns; inferred from all items if None.

    Raises
    ------
    DecodeError
        The bytes are none of these; the message has the line.
    SchemaError
        The schema names types that DynamoDB has no exact form for.
    """
    body = data if isinstance(data, bytes) else bytes(data)
    framing = framing_of(body)
    if framing == "page":
        body = split_page(body).items
    if schema is None:
        schema = infer_schema_of_items(checked_items(body, framing))
    return Decoder(schema).decode(body, framing)


def _is_plain(body: bytes, bounds: slice) -> bool:
    """Return whether ``pyarrow.json`` reads the piece as the reference does: UTF-8, not empty, without a null."""
    piece = memoryview(body)[bounds]
    if body.find(b"null", bounds.start, bounds.stop) >= 0 and _NULL_LITERAL.search(piece):
        return False
    try:
        codecs.utf_8_decode(piece)
    except UnicodeDecodeError:
        return False
    return not _BLANK_OR_MARKED.match(piece)
