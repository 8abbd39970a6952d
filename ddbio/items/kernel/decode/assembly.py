"""Assembly of record batches from filled buffers, without a copy: the buffers are the body of an Arrow IPC message.

The head of the message has the lengths of all columns and the positions of their buffers. Arrow writes it once per
schema. From batch to batch only numbers change, and Arrow makes all columns from it in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.items.kernel import codes
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.tape import columns

if TYPE_CHECKING:
    import numpy.typing as npt

    from ddbio.items.kernel.decode.tables import Node

# https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format: a mark and the length of the metadata.
_PREFIX_BYTES = 8
# https://github.com/apache/arrow/blob/main/format/Message.fbs: the numbers of the members in their tables.
_HEADER, _BODY_LENGTH = 2, 3
_LENGTH, _NODES, _BUFFERS = 0, 1, 2
_TABLE_BYTES, _WORD_BYTES = 4, 8

_NOTHING = (0, 0)
"""Entries of the root in the plan, which are always zero."""

_ENTRIES = (columns.LENGTH, columns.NULLS)
_BITS = (columns.BITS, columns.BITS_BYTES)
_FIRST = (columns.FIRST, columns.FIRST_BYTES)
_SECOND = (columns.SECOND, columns.SECOND_BYTES)
_FIXED_WIDTH = {codes.INTEGER, codes.DECIMAL, codes.BOOLEAN}


class Assembler:
    """Factory of the record batches of one schema, given the nodes of its columns."""

    def __init__(self, nodes: list[Node]) -> None:
        fields = [node.field or pa.field(node.name, node.arrow_type) for node in nodes]
        self._declared = pa.schema(fields)
        stored = [field.with_type(_stored_type(node)) for field, node in zip(fields, nodes, strict=True)]
        self._stored = pa.schema(stored)
        # Columns whose types differ from those that the loops fill.
        self._cast = [(index, node) for index, node in enumerate(nodes) if not _is_as_stored(node)]
        self._head = _MessageHead(self._stored)
        lengths, buffers = _sources(nodes)
        self._lengths, self._buffers = np.array(lengths, np.int64), np.array(buffers, np.int64)
        self.head_bytes = len(self._head.data)

    def batch(self, output: npt.NDArray[np.uint8], plan: npt.NDArray[np.int64], n_rows: int) -> pa.RecordBatch:
        """Return the batch of the filled columns.

        Parameters
        ----------
        output
            Space for the head, followed by the buffers at the positions in the plan.
        """
        if not self._declared.names:
            rows: Any = pa.Array.from_buffers(pa.struct([]), n_rows, [None])
            return pa.RecordBatch.from_struct_array(rows)
        head = self._head
        head.n_rows[0], head.body_bytes[0] = n_rows, len(output) - len(head.data)
        plan.take(self._lengths, out=head.lengths, mode="clip")
        plan.take(self._buffers, out=head.buffers, mode="clip")
        output[: len(head.data)] = head.data
        batch: pa.RecordBatch = pa.ipc.read_record_batch(pa.py_buffer(output.data), self._stored)
        if not self._cast:
            return batch
        arrays = batch.columns
        for index, node in self._cast:
            arrays[index] = _as_declared(arrays[index], node)
        return pa.RecordBatch.from_arrays(arrays, schema=self._declared)


class _MessageHead:
    """Head of a record batch message, with views of its numbers."""

    def __init__(self, schema: pa.Schema) -> None:
        # Flatbuffers omit members that are zero: this batch has a row and a body, so that none is omitted.
        row = [pa.nulls(1, field.type) for field in schema]
        message = bytes(pa.RecordBatch.from_arrays(row, schema=schema).serialize()) if row else b""
        written = message[: _PREFIX_BYTES + int.from_bytes(message[4:8], "little")]
        self.data = np.zeros(-(-len(written) // PAD) * PAD, np.uint8)
        self.data[: len(written)] = np.frombuffer(written, np.uint8)
        if not written:
            return
        words = self.data.view(np.uint32)
        words[1] = len(self.data) - _PREFIX_BYTES
        message_at = self._follow(_PREFIX_BYTES)
        batch_at = self._follow(self._member(message_at, _HEADER))
        self.body_bytes = self._numbers(self._member(message_at, _BODY_LENGTH), 1)
        self.n_rows = self._numbers(self._member(batch_at, _LENGTH), 1)
        self.lengths = self._pairs(self._follow(self._member(batch_at, _NODES)))
        self.buffers = self._pairs(self._follow(self._member(batch_at, _BUFFERS)))

    def _word(self, position: int, dtype: str) -> int:
        return int(np.frombuffer(self.data, dtype, 1, position)[0])

    def _follow(self, position: int) -> int:
        return position + self._word(position, "<u4")

    def _member(self, table: int, number: int) -> int:
        """Return the position of a member of a flatbuffers table, from its vtable."""
        listed = table - self._word(table, "<i4")
        return table + self._word(listed + _TABLE_BYTES + 2 * number, "<u2")

    def _pairs(self, vector: int) -> npt.NDArray[np.int64]:
        return self._numbers(vector + _TABLE_BYTES, 2 * self._word(vector, "<u4"))

    def _numbers(self, position: int, count: int) -> npt.NDArray[np.int64]:
        return self.data[position : position + count * _WORD_BYTES].view(np.int64)


def _sources(nodes: list[Node]) -> tuple[list[int], list[int]]:
    """Return the indices in the plan of the lengths and the buffers of all columns, in the order of the message."""
    lengths, buffers = list[int](), list[int]()

    def add(node: Node) -> None:
        first = node.number * columns.COLUMN_WIDTH
        lengths.extend(first + field_index for field_index in _ENTRIES)
        buffer_fields = [_BITS]
        if node.kind != codes.STRUCT:
            buffer_fields.append(_FIRST)
        if node.kind > codes.MAP and node.kind not in _FIXED_WIDTH:
            buffer_fields.append(_SECOND)
        buffers.extend(first + field_index for pair in buffer_fields for field_index in pair)
        if node.kind == codes.MAP:
            # The struct of its entries has no node.
            lengths.extend((node.children[0].number * columns.COLUMN_WIDTH + columns.LENGTH, 0))
            buffers.extend(_NOTHING)
        for child in reversed(node.children) if node.kind == codes.MAP else node.children:
            add(child)

    for node in nodes:
        add(node)
    return lengths, buffers


def _is_as_stored(node: Node) -> bool:
    """Return whether the loops fill a column in its declared type."""
    if node.kind > codes.MAP:
        return bool(node.stored_type == node.arrow_type)
    is_plain = node.kind in {codes.STRUCT, codes.MAP} or pa.types.is_list(node.arrow_type)
    return is_plain and all(map(_is_as_stored, node.children))


def _stored_type(node: Node) -> Any:
    """Return the type in which the loops fill a column."""
    if _is_as_stored(node):
        return node.arrow_type
    types = [_stored_type(child) for child in node.children]
    match node.kind:
        case codes.STRUCT:
            return pa.struct(
                [field.with_type(stored_type) for field, stored_type in zip(node.arrow_type, types, strict=True)]
            )
        case codes.LIST | codes.SET:
            return pa.list_(node.arrow_type.field(0).with_type(types[0]))
        case codes.MAP:
            return pa.map_(
                node.arrow_type.key_field.with_type(types[1]), node.arrow_type.item_field.with_type(types[0])
            )
    return node.stored_type


def _as_declared(array: Any, node: Node) -> Any:
    if array.type == node.arrow_type:
        return array
    if node.kind > codes.MAP:
        return _cast(array, node.arrow_type)
    validity, *offsets = array.buffers()[: 1 if node.kind == codes.STRUCT else 2]
    if node.kind == codes.STRUCT:
        stored, children = (
            node.arrow_type,
            [_as_declared(array.field(index), child) for index, child in enumerate(node.children)],
        )
    elif node.kind == codes.MAP:
        item, key = node.children
        fields = [node.arrow_type.key_field, node.arrow_type.item_field]
        entries = [_as_declared(array.keys, key), _as_declared(array.items, item)]
        stored, children = node.arrow_type, [pa.StructArray.from_arrays(entries, fields=fields)]
    else:
        stored, children = pa.list_(node.arrow_type.field(0)), [_as_declared(array.values, node.children[0])]
    built = pa.Array.from_buffers(stored, len(array), [validity, *offsets], array.null_count, children=children)
    return built if node.kind in {codes.STRUCT, codes.MAP} else _cast(built, node.arrow_type)


def _cast(array: Any, arrow_type: pa.DataType) -> Any:
    if array.type == arrow_type:
        return array
    # Round to a double first and then to a float, as Python does.
    return array.cast(pa.float64()).cast(arrow_type) if arrow_type == pa.float32() else array.cast(arrow_type)
