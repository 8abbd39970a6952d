"""Decode DynamoDB JSON to record batches by the compiled loops, a few megabytes at a time.

What the loops do not take goes through the plain reference, which decides whether it is broken and says where.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ddbio.core.capacity import item_size_bytes
from ddbio.core.field import ITEM_BYTES_NAME
from ddbio.core.framing import Framing, checked_items
from ddbio.core.kernel import scratch as scratch_module
from ddbio.core.kernel import state as st
from ddbio.core.kernel.assemble import Assembly, sparse_texts
from ddbio.core.kernel.cache import announce_compilation
from ddbio.core.kernel.gather import fill_output, plan_output
from ddbio.core.kernel.measure import measure
from ddbio.core.kernel.memory import PAD
from ddbio.core.kernel.misfits import Rescuer, respell
from ddbio.core.kernel.scan import scan
from ddbio.core.kernel.scratch import Scratch, Work
from ddbio.core.kernel.tables import Node, compile_tables, plan_nodes
from ddbio.core.page import ITEMS_MEMBER, Page, split_page
from ddbio.core.reference import RowBuilder
from ddbio.core.rescue import Misfit, MisfitLog, OnMisfit
from ddbio.core.schema import normalize_schema
from ddbio.errors import DecodeError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

SLICE_BYTES = 4 << 20
"""Lines are decoded this much at a time: fresh buffers of far more cost page faults, far less costs assembly."""

MAX_PIECE_BYTES = 1 << 30
"""Places in a piece and beside it are kept in 31 bits."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_ROWS_RATIO = 1.25
_FIRST_ITEM = re.compile(rb"\s*(?=\{)")
_NO_ITEMS = b'{"Items":[]}'


class KernelDecoder:
    """Decode DynamoDB JSON to record batches of exactly ``schema``; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    on_misfit
        ``rescue`` puts a value that fits no column into ``_rescue``; ``fail`` raises SchemaError at the first; ``drop``
        is ``rescue`` but for the attributes of ``drop``.
    nulls
        ``merge`` turns NULL into null; ``keep`` puts it into ``_rescue`` too, so that it is told from a missing value.

    drop
        Attributes whose values are counted but not kept where they do not fit.
    item_size
        Whether the column before the last is ``_item_bytes``: the item's size by DynamoDB's rule.

    Raises
    ------
    SchemaError
        The schema names types that DynamoDB has no exact form for.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        on_misfit: OnMisfit = "rescue",
        nulls: Literal["merge", "keep"] = "merge",
        drop: Sequence[str] = (),
        item_size: bool = False,
    ) -> None:
        self._on_misfit = on_misfit
        self._keep_nulls = nulls == "keep"
        schema = normalize_schema(schema)
        self._with_sizes = item_size
        rows = RowBuilder(schema, keep_nulls=self._keep_nulls, drop=drop)
        self._prepare(_with_item_bytes(schema) if item_size else schema, plan_nodes(schema), {0: rows})

    def _prepare(self, schema: pa.Schema, nodes: list[Node], rows: dict[int, RowBuilder]) -> None:
        announce_compilation()
        self.schema = schema
        self._nodes = nodes
        self._tables = compile_tables(nodes)
        self._scratch = Scratch(nodes)
        self._plan = np.zeros(len(nodes) * st.PLAN_WIDTH, np.int64)
        self._levels = np.zeros(len(nodes) + st.MAX_SKIPPED_DEPTH, np.int64)
        self._rows = rows
        self._rescuer = Rescuer(nodes, rows)
        self.log = MisfitLog()

    @property
    def misfits(self) -> list[Misfit]:
        """Return what fitted no column so far, by path and kind."""
        return self.log.misfits()

    def decode(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return a row per item, in their order.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing; the message has the line, and the item's place in a page.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        return self.combine(self.decode_batches(data, framing))

    def decode_batches(self, data: Buffer, framing: Framing) -> list[pa.RecordBatch]:
        """Return what ``decode`` returns in pieces, which saves a copy of large or sparse data.

        Beyond what it returns it takes at most three times the memory of the data, or of a slice of longer lines, once
        the data is a megabyte and the schema has no more than 300 fields.

        Raises
        ------
        DecodeError, SchemaError
            As ``decode``.
        """
        body = data if isinstance(data, bytes) else bytes(data)
        log = MisfitLog()
        batches = self._decode_all(body, framing, log) if _is_utf8(body) else None
        if batches is None:
            log = MisfitLog()
            batches = [self._decode_plainly(body, framing, log)]
        self._add_log(log)
        return batches

    def decode_documents(self, piece: memoryview, framing: Framing) -> tuple[list[pa.RecordBatch], int | None]:
        """Return the batches of the documents before the first that the loops refuse, and where that begins, or None.

        Parameters
        ----------
        piece
            UTF-8, of at most ``SLICE_BYTES`` or one document.
        """
        log, batches = MisfitLog(), list[pa.RecordBatch]()
        refused = self._decode_piece(piece, framing, log, batches)
        self._add_log(log)
        return batches, refused

    def decode_response(self, body: bytes) -> tuple[pa.RecordBatch, Page]:
        """Return a row per item of the body of a Scan or Query response, and the page without its items.

        Raises
        ------
        DecodeError
            The body is no such response.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        found = ITEMS_MEMBER.search(body)
        log, batches = MisfitLog(), list[pa.RecordBatch]()
        if found is not None and len(body) <= MAX_PIECE_BYTES and _is_utf8(body):
            first = _FIRST_ITEM.match(body, found.end())
            if first is not None:
                refused, stop = self._scan_piece(memoryview(body)[first.end() :], "response", log, batches)
                if not refused:
                    page = split_page(body[: found.end()] + body[first.end() + stop :])
                    self._add_log(log)
                    return self.combine(batches), dataclasses.replace(page, wire_bytes=len(body))
        page = split_page(body)
        return self.decode(page.items, "page"), dataclasses.replace(page, items=_NO_ITEMS)

    def _add_log(self, log: MisfitLog) -> None:
        if self._on_misfit == "fail":
            log.require_empty()
        self.log.merge(log)

    def combine(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the rows of all batches as one.

        Raises
        ------
        DecodeError
            They are too large for one.
        """
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        combined = table.to_batches()
        if len(combined) > 1:
            raise DecodeError(f"{table.nbytes} bytes do not fit one record batch: decode the data in several pieces")
        return combined[0] if combined else pa.RecordBatch.from_pylist([], self.schema)

    def _decode_all(self, body: bytes, framing: Framing, log: MisfitLog) -> list[pa.RecordBatch] | None:
        """Return the batches of the body, or None where the reference needs the whole body to say what is wrong."""
        batches: list[pa.RecordBatch] = []
        start, slice_bytes = (len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0), SLICE_BYTES
        while start < len(body):
            stop = len(body) if framing == "page" else _cut(body, start, slice_bytes)
            if stop - start > MAX_PIECE_BYTES:
                raise DecodeError(f"{stop - start} bytes in one piece: decode the data in several pieces")
            refused = self._decode_piece(memoryview(body)[start:stop], framing, log, batches)
            if refused is None:
                start, slice_bytes = stop, SLICE_BYTES
            elif stop < len(body):
                # The item may go on after the cut.
                start, slice_bytes = start + refused, 2 * slice_bytes
            else:
                line = body.rfind(b"\n", 0, start + refused) + 1
                if framing == "page" or body[line : start + refused].strip(_BLANKS):
                    return None
                rest = b"\n" * body.count(b"\n", 0, line) + body[line:]
                batches.append(self._decode_plainly(rest, framing, log))
                break
        return batches

    def _decode_piece(
        self, piece: memoryview, framing: Framing, log: MisfitLog, batches: list[pa.RecordBatch]
    ) -> int | None:
        """Add the piece's batches; return None, or the place of the document that the loops refuse."""
        refused, stop = self._scan_piece(piece, framing, log, batches)
        return stop if refused else None

    def _scan_piece(
        self, piece: memoryview, framing: str, log: MisfitLog, batches: list[pa.RecordBatch]
    ) -> tuple[bool, int]:
        """Add the piece's batches; return whether the loops refuse a document, and where they stopped."""
        scratch = self._scratch
        scratch.load(piece)
        place, max_rows, is_refused = 0, scratch.max_rows, False
        inside = st.WITHIN if framing == "response" else st.OUTSIDE
        while True:
            work = scratch.begin(place, inside, max_rows)
            end = scratch.origin + len(piece)
            status = scan(self._tables, work, end, st.FRAMINGS[framing], self._keep_nulls)
            sizes = None
            if status in {st.DONE, st.FULL}:
                if not respell(work):
                    status = st.GROW_SIDE
                elif self._with_sizes:
                    sizes = np.empty(int(work.state[st.ROWS]), np.int64)
                    start = scratch.origin + place
                    measured = measure(work, self._levels, sizes, start, inside, st.FRAMINGS[framing])
                    status = status if measured == st.DONE else measured
            n_rows, stop = int(work.state[st.ROWS]), int(work.state[st.PLACE]) - scratch.origin
            if status == st.ERROR and n_rows:
                # Once more up to the item that is refused, for it has left traces.
                max_rows, is_refused = n_rows, True
            elif status == st.ERROR:
                return True, stop
            elif status in {st.DONE, st.FULL}:
                batches.append(self._finish(work, sizes, log))
                if status == st.DONE or is_refused:
                    return is_refused, stop
                inside = int(work.state[st.INSIDE])
                del work
                scratch.grow_rows(int((len(piece) - stop) * n_rows / (stop - place) * _ROWS_RATIO))
                place, max_rows = stop, scratch.max_rows
            else:
                del work
                scratch.grow(status)
                max_rows = max_rows if is_refused else scratch.max_rows

    def _finish(self, work: Work, sizes: npt.NDArray[np.int64] | None, log: MisfitLog) -> pa.RecordBatch:
        n_rows = int(work.state[st.ROWS])
        size = plan_output(self._tables, work, self._plan)
        output = scratch_module.allocate(size + PAD)
        fill_output(self._tables, work, self._plan, output, output.view(np.int32), output.view(np.int64))
        assembly = Assembly(self._plan, pa.py_buffer(output.data))
        arrays = self._arrays(assembly)
        if sizes is not None:
            arrays.append(pa.array(sizes))
        texts = self._rescuer.texts(work, log) if work.state[st.MISFITS] else {}
        return pa.RecordBatch.from_arrays([*arrays, sparse_texts(texts, n_rows)], schema=self.schema)

    def _arrays(self, assembly: Assembly) -> list[Any]:
        return [assembly.array(node) for node in self._nodes[0].children]

    def _decode_plainly(self, body: bytes, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        items = list(checked_items(body, framing))
        batch = self._rows[0].batch(items, log)
        if not self._with_sizes:
            return batch
        *columns, rescue = batch.columns
        sizes = pa.array([item_size_bytes(item) for item in items], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, sizes, rescue], schema=self.schema)


def _with_item_bytes(schema: pa.Schema) -> pa.Schema:
    if ITEM_BYTES_NAME in schema.names:
        raise SchemaError(f"{ITEM_BYTES_NAME}: the schema has an attribute of this name: rename it, or ask for no size")
    return schema.insert(len(schema) - 1, pa.field(ITEM_BYTES_NAME, pa.int64()))


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    offsets = np.array([0, len(body)], np.int64)
    text: Any = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(offsets.data), pa.py_buffer(body)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _cut(body: bytes, start: int, slice_bytes: int) -> int:
    stop = start + slice_bytes
    if stop >= len(body):
        return len(body)
    return body.rfind(b"\n", start, stop) + 1 or body.find(b"\n", stop) + 1 or len(body)


def warm() -> None:
    """Compile all loops, or load them from where they are kept."""
    schema = pa.schema([pa.field("a", pa.string())])
    KernelDecoder(schema).decode(b'{"a":{"S":"a"}}', "items")
