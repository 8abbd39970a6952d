"""Decode DynamoDB JSON to record batches by the compiled loops, a few megabytes at a time.

What the loops refuse goes to the plain reference, which decides whether it is broken and says where.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.capacity import item_size_bytes
from ddbio.items.framing import Framing, bytes_of, checked_items
from ddbio.items.kernel import codes
from ddbio.items.kernel.decode import scratch as scratch_module
from ddbio.items.kernel.decode.assembly import Assembler
from ddbio.items.kernel.decode.item_size import add_item_sizes
from ddbio.items.kernel.decode.output import fill_output, row_texts
from ddbio.items.kernel.decode.rescue import Rescuer
from ddbio.items.kernel.decode.scan import scan, scan_changes
from ddbio.items.kernel.decode.scratch import Block, Scratch, Work
from ddbio.items.kernel.decode.sparse import SparseRows
from ddbio.items.kernel.decode.tables import Node, compile_tables, plan_nodes
from ddbio.items.kernel.memory import PAD
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import Misfit, MisfitLog, OnMisfit
from ddbio.items.schema.arrow import ITEM_BYTES_FIELD, ITEM_BYTES_NAME, RESCUE_FIELD, normalize_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

    from ddbio.items.kernel.decode.output import RowTexts

SLICE_BYTES = 4 << 20
"""Lines are decoded this much at a time: fresh buffers of far more cost page faults, far less costs assembly."""

MAX_PIECE_BYTES = 1 << 30
"""Places in a piece and in the unescaped texts before it have 31 bits."""

_WITHIN_RECORDS, _NOT_UTF8 = -1, -2
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_ROWS_RATIO = 1.25
_SAMPLE_BYTES = 1 << 16
_BATCH_BYTES = 64 << 20
_WINDOW_BYTES = 1 << 14
_NEWLINE = re.compile(b"\n")
_LINE_END = ord("\n")


class KernelDecoder:
    """Decode DynamoDB JSON to record batches of exactly ``schema``; keep one per thread.

    Parameters
    ----------
    schema
        A schema of items; it is normalised.
    on_misfit
        ``rescue`` puts a value that fits no column into ``_rescue``; ``fail`` raises SchemaError at the first; ``drop``
        is ``rescue`` for all attributes but those of ``drop``.
    nulls
        ``merge`` turns NULL into null; ``keep`` also puts it into ``_rescue``, where a missing value has nothing.

    drop
        Attributes whose misfits are counted but not rescued.
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
        self.schema = schema
        self._nodes = nodes
        self._tables = compile_tables(nodes)
        self._scratch = Scratch(nodes)
        self._sparse = SparseRows(nodes, self._tables)
        self._plan = np.zeros(len(nodes) * codes.PLAN_WIDTH, np.int64)
        self._assembler = Assembler(nodes[0].children)
        self._rows = rows
        self._rescuer = Rescuer(nodes, rows)
        self.log = MisfitLog()

    @property
    def misfits(self) -> list[Misfit]:
        """Return what fitted no column so far, by path and kind."""
        return self.log.misfits()

    @property
    def retained_bytes(self) -> int:
        """Return how much memory is retained for the next data."""
        return self._scratch.retained_bytes + self._sparse.retained_bytes

    def forget(self) -> None:
        """Forget what fitted no column so far."""
        self.log = MisfitLog()

    def decode(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return a row per item, in their order.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing; the message has the line, and the item's place in a page.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        return self.combine(self._decode(data, framing, in_one=True))

    def decode_plainly(self, data: bytes, framing: Framing) -> pa.RecordBatch:
        """Return what ``decode`` returns, by the plain reference.

        Raises
        ------
        DecodeError, SchemaError
            As ``decode``.
        """
        log = MisfitLog()
        batch = self._decode_plainly(data, framing, log)
        self._add_log(log)
        return batch

    def decode_batches(self, data: Buffer, framing: Framing) -> list[pa.RecordBatch]:
        """Return what ``decode`` returns in pieces of a few megabytes.

        Raises
        ------
        DecodeError, SchemaError
            As ``decode``.
        """
        return self._decode(data, framing, in_one=False)

    def _decode(self, data: Buffer, framing: Framing, *, in_one: bool) -> list[pa.RecordBatch]:
        body = bytes_of(data)
        log = MisfitLog()
        batches = self._decode_all(body, framing, log, in_one=in_one)
        if batches is None:
            log = MisfitLog()
            batches = [self._decode_plainly(bytes(body), framing, log)]
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
        refused = self._decode_piece(piece, framing, log, batches, in_one=False)
        self._add_log(log)
        return batches, refused

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

    def _decode_all(
        self, body: bytes | memoryview, framing: Framing, log: MisfitLog, *, in_one: bool
    ) -> list[pa.RecordBatch] | None:
        """Return the batches of the body, or None where the reference needs the whole body to say what is wrong."""
        batches: list[pa.RecordBatch] = []
        start = len(_BYTE_ORDER_MARK) if body[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK else 0
        # Batches that will be one are copied: of twice the slice, fewer are.
        whole_bytes = 2 * SLICE_BYTES if in_one else SLICE_BYTES
        if in_one and len(body) > whole_bytes and self._is_sparse(body):
            whole_bytes = MAX_PIECE_BYTES
        slice_bytes = whole_bytes
        while start < len(body):
            stop = len(body) if framing == "page" else cut_lines(body, start, slice_bytes)
            if stop - start > MAX_PIECE_BYTES:
                raise DecodeError(f"{stop - start} bytes in one piece: decode the data in several pieces")
            found, found_log = list[pa.RecordBatch](), MisfitLog()
            refused = self._decode_piece(memoryview(body)[start:stop], framing, found_log, found, in_one=in_one)
            if refused == _NOT_UTF8:
                return None
            if refused == _WITHIN_RECORDS:
                if stop == len(body):
                    return None
                slice_bytes *= 2
                continue
            log.merge(found_log)
            batches += found
            if refused is None:
                start, slice_bytes = stop, whole_bytes
            elif stop < len(body):
                # The item may go on after the cut.
                start, slice_bytes = start + refused, 2 * slice_bytes
            else:
                body = bytes(body)
                line = body.rfind(b"\n", 0, start + refused) + 1
                if framing == "page" or body[line : start + refused].strip(_BLANKS):
                    return None
                rest = b"\n" * body.count(b"\n", 0, line) + body[line:]
                batches.append(self._decode_plainly(rest, framing, log))
                break
        return batches

    def _is_sparse(self, body: bytes | memoryview) -> bool:
        """Return whether the columns are larger than the data, so that joining several batches would be costly."""
        sample = np.frombuffer(body, np.uint8, min(len(body), _SAMPLE_BYTES))
        return self._sparse.row_bytes * int(np.count_nonzero(sample == _LINE_END)) > len(sample)

    def _decode_piece(  # noqa: C901 - one state machine
        self, piece: memoryview, framing: Framing, log: MisfitLog, batches: list[pa.RecordBatch], *, in_one: bool
    ) -> int | None:
        """Add the piece's batches; return None, or the place of the document that the loops refuse.

        The place is negative within an array of records, where the start of a document cannot be found again, and where
        the piece is not UTF-8.
        """
        scratch, sparse = self._scratch, self._sparse
        if not scratch.load(piece):
            return _NOT_UTF8
        sparse.clear()
        first = block = Block()
        max_rows, is_refused = scratch.max_rows, False
        while True:
            work = scratch.begin(block, max_rows)
            status = self._scan(work, scratch.origin + len(piece), framing)
            n_rows, stop = int(work.state[codes.ROWS]), int(work.state[codes.PLACE]) - scratch.origin
            if status == codes.ERROR and n_rows:
                # Once more up to the item that is refused, since it has filled slots.
                max_rows, is_refused = n_rows, True
            elif status == codes.ERROR:
                if sparse.n_rows:
                    batches.append(self._finish_sparse(work, log))
                return _place_refused(work, stop)
            elif status in {codes.DONE, codes.FULL}:
                is_last = status == codes.DONE or is_refused
                if not sparse.n_rows and is_last:
                    batches.append(self._finish(work, log))
                    return _place_refused(work, stop) if is_refused else None
                rows_left = (len(piece) - block.place) * n_rows / (stop - block.place)
                if not sparse.n_rows and scratch.grow_rows(int(rows_left * _ROWS_RATIO)):
                    # Once more: with a slot for every row there is one block.
                    max_rows = scratch.max_rows
                    continue
                sparse.add(work, self._rescued(work, sparse.log))
                block = Block(stop, int(work.state[codes.INSIDE]), int(work.state[codes.UNESCAPED]))
                if is_last or (not in_one and sparse.column_bytes > _BATCH_BYTES):
                    batches.append(self._finish_sparse(work, log))
                    if is_last:
                        return _place_refused(work, stop) if is_refused else None
                    first = block = block._replace(unescaped=0)
            else:
                del work
                scratch.grow(status)
                if status == codes.GROW_UNESCAPED:
                    # The texts have moved.
                    sparse.clear()
                    block, is_refused = first, False
                max_rows = max_rows if is_refused else scratch.max_rows

    def _scan(self, work: Work, end: int, framing: Framing) -> int:
        loop = scan_changes if framing == "changes" else scan
        status = int(loop(self._tables, work, self._plan, end, codes.FRAMINGS[framing], self._keep_nulls))
        if self._with_sizes and status in {codes.DONE, codes.FULL}:
            places = np.concatenate([[0], np.cumsum(work.count)])
            measured = int(add_item_sizes(self._tables, work, np.empty(places[-1], np.int64), places))
            return status if measured == codes.DONE else measured
        return status

    def _finish(self, work: Work, log: MisfitLog) -> pa.RecordBatch:
        n_rows = int(work.state[codes.ROWS])
        head_bytes = self._assembler.head_bytes
        output = scratch_module.allocate(head_bytes + int(work.state[codes.OUTPUT_BYTES]) + PAD)
        body = output[head_bytes:]
        fill_output(self._tables.kind, work, self._plan, body, body.view(np.int32), body.view(np.int64))
        return self._assemble(output, work.sizes[:n_rows].copy(), self._rescued(work, log), n_rows)

    def _finish_sparse(self, work: Work, log: MisfitLog) -> pa.RecordBatch:
        sparse = self._sparse
        head_bytes = self._assembler.head_bytes
        output = scratch_module.allocate_zeros(head_bytes + sparse.plan(self._plan) + PAD)
        sparse.fill(work, self._plan, output[head_bytes:])
        log.merge(sparse.log)
        batch = self._assemble(output, np.concatenate(sparse.sizes), sparse.texts, sparse.n_rows)
        sparse.clear()
        return batch

    def _assemble(
        self, output: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], texts: Sequence[RowTexts], n_rows: int
    ) -> pa.RecordBatch:
        batch = self._columns(self._assembler.batch(output, self._plan, n_rows))
        if self._with_sizes:
            batch = batch.append_column(ITEM_BYTES_FIELD, pa.array(sizes))
        return batch.append_column(RESCUE_FIELD, row_texts(texts, n_rows))

    def _rescued(self, work: Work, log: MisfitLog) -> list[RowTexts]:
        if work.state[codes.HAS_MERGED_NULLS]:
            self._rescuer.count_merged_nulls(work, log)
        return [self._rescuer.texts(work, log)] if work.state[codes.MISFITS] else []

    def _columns(self, scanned: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of items, made of those that were scanned."""
        return scanned

    def _decode_plainly(self, body: bytes, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        items = list(checked_items(body, framing))
        batch = self._rows[0].batch(items, log)
        if not self._with_sizes:
            return batch
        *columns, rescue = batch.columns
        sizes = pa.array([item_size_bytes(item) for item in items], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, sizes, rescue], schema=self.schema)


def _place_refused(work: Work, stop: int) -> int:
    return stop if work.state[codes.INSIDE] >= 0 else _WITHIN_RECORDS


def _with_item_bytes(schema: pa.Schema) -> pa.Schema:
    if ITEM_BYTES_NAME in schema.names:
        raise SchemaError(f"{ITEM_BYTES_NAME}: the schema has an attribute of this name: rename it, or ask for no size")
    return schema.insert(len(schema) - 1, ITEM_BYTES_FIELD)


def cut_lines(body: bytes | memoryview, start: int, slice_bytes: int) -> int:
    """Return the end of the last line within so many bytes, or else of the first line that ends after them."""
    stop = start + slice_bytes
    if stop >= len(body):
        return len(body)
    # A view has no rfind: windows before the end are looked at until one has the end of a line.
    end, window_bytes = stop, _WINDOW_BYTES
    while end > start:
        first = max(start, end - window_bytes)
        newline = bytes(body[first:end]).rfind(b"\n") + 1
        if newline:
            return first + newline
        end, window_bytes = first, 2 * window_bytes
    newline_behind = _NEWLINE.search(body, stop)
    return newline_behind.end() if newline_behind else len(body)
