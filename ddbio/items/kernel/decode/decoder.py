"""Decoder of DynamoDB JSON to record batches by the compiled loops, a few megabytes at a time.

The plain reference decodes the documents that the loops refuse, or reports the error and its line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.capacity import item_size_bytes
from ddbio.items.framing import Framing, bytes_of, checked_items
from ddbio.items.kernel import codes, memory
from ddbio.items.kernel.base64 import PAIRS
from ddbio.items.kernel.decode.assembly import Assembler
from ddbio.items.kernel.decode.output import row_texts
from ddbio.items.kernel.decode.rescue import Rescuer, name_paths
from ddbio.items.kernel.decode.tables import ColumnPaths, Node, column_paths, compile_tables, plan_nodes
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.tape import columns
from ddbio.items.kernel.tape.columns import Fill, clear_counts, fill_columns, plan_columns
from ddbio.items.kernel.tape.fit import Fit, find_misfits
from ddbio.items.kernel.tape.sizes import measure_items
from ddbio.items.kernel.tape.walker import Walker
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import Misfit, MisfitLog, OnMisfit
from ddbio.items.schema.arrow import ITEM_BYTES_FIELD, ITEM_BYTES_NAME, RESCUE_FIELD, normalize_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

    from ddbio.items.kernel.decode.inference import Observed
    from ddbio.items.kernel.decode.output import RowTexts
    from ddbio.items.kernel.tape.paths import Walk

SLICE_BYTES = 4 << 20
"""The size of a slice of lines: much larger fresh buffers cost page faults, much smaller ones assembly."""

MAX_PIECE_BYTES = 1 << 30
"""Positions in a piece, and in the unescaped texts before it, have 31 bits."""

_WITHIN_RECORDS, _NOT_UTF8 = -1, -2
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_SAMPLE_BYTES = 1 << 16
_BATCH_BYTES = 64 << 20
_WINDOW_BYTES = 1 << 14
_ALL_ROWS = 1 << 62
_FIXED_BYTES = {codes.STRUCT: 0, codes.INTEGER: 8, codes.DECIMAL: 16, codes.BOOLEAN: 0}
_OFFSET_BYTES = 4
_NEWLINE = re.compile(b"\n")
_LINE_END = ord("\n")


class KernelDecoder:
    """Decoder of DynamoDB JSON to record batches with exactly ``schema``; use one per thread.

    Parameters
    ----------
    schema
        A schema of items. It is normalised.
    on_misfit
        ``rescue`` writes a value that does not fit its column to ``_rescue``; ``fail`` raises SchemaError at the first
        such value; ``drop`` is ``rescue`` for all attributes except those of ``drop``.
    nulls
        ``merge`` turns NULL into null; ``keep`` also writes it to ``_rescue``, unlike a missing value.
    drop
        Attributes whose misfits are counted but not rescued.
    item_size
        Whether the column before the last is ``_item_bytes``, the item's size by DynamoDB's rule.

    Raises
    ------
    SchemaError
        The schema has types that DynamoDB cannot represent exactly.
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
        self._walker = Walker(self._tables.walk)
        self._stack = memory.allocate_words(columns.FRAME_WIDTH * (codes.MAX_SKIPPED_DEPTH + 2))
        self._pending = memory.allocate(8 * columns.PENDING_WORDS * len(nodes)).view(np.int64)
        self._misfits = np.empty(0, np.int64)
        self._paths = name_paths(nodes)
        self._row_bytes = sum(_FIXED_BYTES.get(node.kind, _OFFSET_BYTES) for node in nodes[1:] if _is_flat(node, nodes))
        self._assembler = Assembler(nodes[0].children)
        self._rows = rows
        self._rescuer = Rescuer(nodes, rows)
        self.log = MisfitLog()

    def column_paths(self, observed: Observed) -> ColumnPaths | None:
        """Return the path of each column, or None if a column has several: then the items must be walked again."""
        return column_paths(self._nodes, observed)

    @property
    def misfits(self) -> list[Misfit]:
        """Return the misfits so far, by path and kind."""
        return self.log.misfits()

    @property
    def retained_bytes(self) -> int:
        """Return the bytes of memory that are retained for the next data."""
        return self._walker.retained_bytes + self._pending.nbytes + self._misfits.nbytes

    def forget(self) -> None:
        """Clear the log of misfits."""
        self.log = MisfitLog()

    def decode(self, data: Buffer, framing: Framing) -> pa.RecordBatch:
        """Return one row per item, in the order of the items.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing; the message has the line, and the item's number in a page.
        SchemaError
            A value does not fit its column, and ``on_misfit`` is ``fail``.
        """
        return self.combine(self._decode(data, framing, in_one=True))

    def decode_batches(self, data: Buffer, framing: Framing) -> list[pa.RecordBatch]:
        """Return the rows of ``decode`` in batches of a few megabytes.

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
            batches = [self._decode_in_python(bytes(body), framing, log)]
        self._add_log(log)
        return batches

    def decode_walked(self, walker: Walker, column_map: ColumnPaths) -> pa.RecordBatch | None:
        """Return one row per item of a walk without a schema, or None if the items must be walked again."""
        log = MisfitLog()
        batch = self._batch(log, walker, has_images=False, column_map=column_map)
        if batch is not None:
            self._add_log(log)
        return batch

    def decode_documents(self, piece: memoryview, framing: Framing) -> tuple[list[pa.RecordBatch], int | None]:
        """Return the batches of the documents before the first refused one, and the position of that one or None.

        Parameters
        ----------
        piece
            UTF-8 text of at most ``SLICE_BYTES``, or one document.
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
        """Combine the rows of all batches in one batch.

        Raises
        ------
        DecodeError
            The rows do not fit one batch.
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
        """Return the batches of the body, or None if the reference needs the whole body to report the error."""
        batches: list[pa.RecordBatch] = []
        start = len(_BYTE_ORDER_MARK) if body[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK else 0
        # Batches that will be combined are copied: with slices twice as large there are fewer.
        whole_bytes = 2 * SLICE_BYTES if in_one else SLICE_BYTES
        if in_one and len(body) > whole_bytes and self._is_sparse(body):
            whole_bytes = MAX_PIECE_BYTES
        slice_bytes = whole_bytes
        while start < len(body):
            stop = len(body) if framing == "page" else cut_lines(body, start, slice_bytes)
            if stop - start > MAX_PIECE_BYTES:
                raise DecodeError(f"{stop - start} bytes are too many for one piece: decode the data in several pieces")
            piece_batches, found_log = list[pa.RecordBatch](), MisfitLog()
            refused = self._decode_piece(memoryview(body)[start:stop], framing, found_log, piece_batches, in_one=in_one)
            if refused == _NOT_UTF8:
                return None
            if refused == _WITHIN_RECORDS:
                if stop == len(body):
                    return None
                slice_bytes *= 2
                continue
            log.merge(found_log)
            batches += piece_batches
            if refused is None:
                start, slice_bytes = stop, whole_bytes
            elif stop < len(body):
                # The item may continue after the cut.
                start, slice_bytes = start + refused, 2 * slice_bytes
            else:
                body = bytes(body)
                line = body.rfind(b"\n", 0, start + refused) + 1
                if framing == "page" or body[line : start + refused].strip(_BLANKS):
                    return None
                last_lines = b"\n" * body.count(b"\n", 0, line) + body[line:]
                batches.append(self._decode_in_python(last_lines, framing, log))
                break
        return batches

    def _is_sparse(self, body: bytes | memoryview) -> bool:
        """Return whether the columns are larger than the data, so that combining several batches would be costly."""
        sample = np.frombuffer(body, np.uint8, min(len(body), _SAMPLE_BYTES))
        return self._row_bytes * int(np.count_nonzero(sample == _LINE_END)) > len(sample)

    def _decode_piece(
        self, piece: memoryview, framing: Framing, log: MisfitLog, batches: list[pa.RecordBatch], *, in_one: bool
    ) -> int | None:
        """Append the batches of a piece; return None, or the position of the document that the loops refuse.

        The result is negative within an array of records, where the start of a document is unknown, and if the piece is
        not UTF-8.
        """
        walker, n_batches = self._walker, len(batches)
        if not walker.load(piece):
            return _NOT_UTF8
        max_rows = _ALL_ROWS if in_one else max(1, _BATCH_BYTES // max(1, self._row_bytes))
        piece_log = MisfitLog()
        while True:
            walker.restart()
            status = walker.resume_walk(framing, max_rows)
            batch = None
            if status != codes.GROW_UNESCAPED:
                if not walker.n_rows and (status != codes.DONE or len(batches) > n_batches):
                    break
                batch = self._batch(piece_log, walker, has_images=framing == "changes")
            if batch is None:
                # Unescaped texts and canonical JSON need more space: restart the walk.
                walker.widen()
                clear_counts(walker.walk.nodes)
                del batches[n_batches:]
                return self._decode_piece(piece, framing, log, batches, in_one=in_one)
            batches.append(batch)
            if status != codes.FULL:
                break
        log.merge(piece_log)
        if status == codes.DONE:
            return None
        return _WITHIN_RECORDS if walker.is_inside_records else walker.position

    def _batch(
        self, log: MisfitLog, walker: Walker, *, has_images: bool, column_map: ColumnPaths | None = None
    ) -> pa.RecordBatch | None:
        """Return the batch of the items on a tape, or None if the space for the texts of misfits is too small."""
        columns_of, column_of = (
            self._tables.columns,
            self._tables.column_of if column_map is None else column_map.column_of,
        )
        walk, n_words, n_rows = walker.walk, walker.n_words, walker.n_rows
        sizes = memory.allocate_words(n_rows if self._with_sizes else 0)
        if self._with_sizes:
            measure_items(walk, n_words, sizes)

        def plan(*, may_doubt: bool) -> int:
            nodes = walk.nodes if column_map is None else column_map.nodes_of(walk.nodes)
            return int(plan_columns(columns_of, nodes, n_rows, self._keep_nulls, may_doubt))

        n_bytes = plan(may_doubt=True)
        fit = None
        if n_bytes == columns.DOUBTFUL:
            fit = self._fit(walk, column_of, n_words)
            if find_misfits(fit, n_words, self._keep_nulls, has_images) != codes.DONE:
                return None
            n_bytes = plan(may_doubt=False)
        texts = self._rescued(fit, log)
        self._log_nulls(log)
        clear_counts(walk.nodes)
        head_bytes = self._assembler.head_bytes
        output = memory.allocate(head_bytes + n_bytes + PAD)
        body = output[head_bytes:]
        fill = Fill(
            *(walk.data, walk.tape, self._pending, column_of, columns_of, self._stack, walk.digits),
            *(PAIRS, body, body.view(np.int32), body.view(np.int64)),
        )
        fill_columns(fill, n_words)
        batch = self._columns(self._assembler.batch(output, columns_of, n_rows))
        if self._with_sizes:
            batch = batch.append_column(ITEM_BYTES_FIELD, pa.array(sizes))
        return batch.append_column(RESCUE_FIELD, row_texts(texts, n_rows))

    def _fit(self, walk: Walk, column_of: npt.NDArray[np.int64], n_words: int) -> Fit:
        if len(self._misfits) < n_words // 2 * codes.MISFIT_WIDTH:
            self._misfits = memory.allocate(n_words // 2 * codes.MISFIT_WIDTH * 8).view(np.int64)
        return Fit(
            *(walk.data, walk.tape, column_of, self._tables.columns, self._stack, walk.digits),
            *(walk.nodes, self._misfits, walk.state),
        )

    def _rescued(self, fit: Fit | None, log: MisfitLog) -> list[RowTexts]:
        """Return the rescue texts of rows, and count the misfits; ``fit`` is None if all values fit."""
        return [] if fit is None or not fit.state[codes.MISFITS] else [self._rescuer.texts(fit, log)]

    def _log_nulls(self, log: MisfitLog) -> None:
        """Count the NULLs that became missing values, by attribute."""
        if not self._tables.columns[columns.MERGED_NULLS]:
            return
        counts = self._tables.columns[columns.MERGED_NULLS :: columns.COLUMN_WIDTH]
        for node in counts[1:].nonzero()[0].tolist():
            log.add_merged_nulls(self._paths[node + 1], counts.item(node + 1))

    def _columns(self, scanned: pa.RecordBatch) -> pa.RecordBatch:
        """Convert the scanned columns to the columns of items."""
        return scanned

    def _decode_in_python(self, body: bytes, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        items = list(checked_items(body, framing))
        batch = self._rows[0].batch(items, log)
        if not self._with_sizes:
            return batch
        *columns, rescue = batch.columns
        sizes = pa.array([item_size_bytes(item) for item in items], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, sizes, rescue], schema=self.schema)


def _is_flat(node: Node, nodes: list[Node]) -> bool:
    """Return whether a column has an entry for each row."""
    while node.parent and nodes[node.parent].kind == codes.STRUCT:
        node = nodes[node.parent]
    return node.parent == 0


def _with_item_bytes(schema: pa.Schema) -> pa.Schema:
    if ITEM_BYTES_NAME in schema.names:
        raise SchemaError(f"{ITEM_BYTES_NAME}: the schema has an attribute of this name: rename it, or ask for no size")
    return schema.insert(len(schema) - 1, ITEM_BYTES_FIELD)


def cut_lines(body: bytes | memoryview, start: int, slice_bytes: int) -> int:
    """Return the end of the last line within ``slice_bytes``, or else the end of the first line after that."""
    stop = start + slice_bytes
    if stop >= len(body):
        return len(body)
    # A memoryview has no rfind: search windows before the end until one has a line end.
    end, window_bytes = stop, _WINDOW_BYTES
    while end > start:
        first = max(start, end - window_bytes)
        newline = bytes(body[first:end]).rfind(b"\n") + 1
        if newline:
            return first + newline
        end, window_bytes = first, 2 * window_bytes
    next_newline = _NEWLINE.search(body, stop)
    return next_newline.end() if next_newline else len(body)
