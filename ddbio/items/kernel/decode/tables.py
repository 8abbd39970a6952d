"""Compilation of a schema to the tables of the loops, and to the tree of nodes for the assembly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import field as item_of
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.kernel import codes, memory
from ddbio.items.kernel.tape import columns as tape_columns
from ddbio.items.kernel.tape import paths
from ddbio.items.kernel.tape.walker import first_walk
from ddbio.items.kernel.text import hash_text_plainly
from ddbio.items.schema.arrow import SETS, is_decimal, name_of_field, tag_of_field
from ddbio.items.schema.shape import MAX_STRUCT_FIELDS

if TYPE_CHECKING:
    from ddbio.items.kernel.decode.inference import Observed

_NO_COLUMN = -1
_ESCAPED = re.compile(rb'[\x00-\x1f"\\\\]')


@dataclass(slots=True)
class Node:
    """Field of the schema, or key of a map."""

    name: str
    kind: int
    arrow_type: Any
    field: Any = None
    tag: int = -1
    children: list[Node] = item_of(default_factory=list)
    number: int = 0
    parent: int = 0
    stored_type: Any = None
    is_image: bool = False
    """Whether its members are the attributes of an item in a change."""


def plan_nodes(schema: pa.Schema) -> list[Node]:
    """Return the nodes of a normalised schema: the root, then level by level, with adjacent children."""
    return _number_nodes([_node(schema.field(index)) for index in range(len(schema) - 1)])


def plan_change_nodes(images: list[pa.Field[Any]]) -> list[Node]:
    """Return the nodes of a change: the time of its write, a struct for each image, and whether it is a deletion."""
    time = Node("write_time", codes.INTEGER, pa.int64(), tag=codes.N, stored_type=pa.int64())
    structs = [
        Node(
            *(image.name, codes.STRUCT, image.type, image),
            tag=codes.M,
            children=[_node(member) for member in image.type],
            is_image=True,
        )
        for image in images
    ]
    deleted = Node("deleted", codes.BOOLEAN, pa.bool_(), tag=codes.BOOL, stored_type=pa.bool_())
    return _number_nodes([time, *structs, deleted])


def _number_nodes(columns: list[Node]) -> list[Node]:
    """Return the root of the columns and all nodes below it: level by level, with adjacent children."""
    root = Node("", codes.STRUCT, None, children=columns)
    nodes = [root]
    for node in nodes:
        for child in node.children:
            child.number, child.parent = len(nodes), node.number
            nodes.append(child)
    return nodes


def _node(arrow_field: pa.Field[Any]) -> Node:
    tag, arrow_type = tag_of_field(arrow_field), arrow_field.type
    name = name_of_field(arrow_field)
    node = Node(name, _kind(name, tag, arrow_type), arrow_type, arrow_field)
    node.tag = codes.TAGS.index(tag) if tag in codes.TAGS else -1
    match node.kind:
        case codes.STRUCT:
            node.children = [_node(arrow_type.field(index)) for index in range(arrow_type.num_fields)]
        case codes.LIST | codes.SET:
            node.children = [_node(arrow_type.field(0))]
        case codes.MAP:
            key = Node("key", codes.TEXT, arrow_type.key_type, arrow_type.key_field, stored_type=pa.string())
            node.children = [_node(arrow_type.item_field), key]
    node.stored_type = _stored_type(node)
    return node


def _kind(name: str, tag: str, arrow_type: Any) -> int:
    if tag in SETS:
        return codes.SET
    if tag == "M":
        return codes.MAP if pa.types.is_map(arrow_type) else codes.STRUCT
    if tag != "N":
        return {
            "S": codes.TEXT,
            "B": codes.BINARY,
            "BOOL": codes.BOOLEAN,
            "NULL": codes.NOTHING,
            "JSON": codes.JSON,
            "L": codes.LIST,
        }[tag]
    if pa.types.is_integer(arrow_type):
        return codes.INTEGER
    if is_decimal(arrow_type) and not 0 <= arrow_type.scale <= arrow_type.precision:
        raise SchemaError(f"{name}: no column is read as {arrow_type}: declare a scale from 0 to the precision")
    return codes.DECIMAL if pa.types.is_decimal128(arrow_type) else codes.NUMBER_TEXT


def _stored_type(node: Node) -> pa.DataType:
    """Return the type in which the loops fill a leaf. The cast to the type of the field is free or rare."""
    match node.kind:
        case codes.INTEGER:
            return pa.uint64() if node.arrow_type == pa.uint64() else pa.int64()
        case codes.TEXT | codes.NUMBER_TEXT | codes.JSON | codes.NOTHING:
            return pa.string()
        case codes.BINARY:
            return pa.binary()
    same: pa.DataType = node.arrow_type
    return same


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a schema: a path and a column for each node, and one path for all other names."""

    walk: paths.Walk
    columns: npt.NDArray[np.int64]
    column_of: npt.NDArray[np.int64]


def compile_tables(nodes: list[Node]) -> Tables:
    """Return the tables of the nodes of a schema."""
    count = len(nodes)
    words = memory.allocate_words((count + 1) * paths.NODE_WIDTH)
    table = words.reshape(-1, paths.NODE_WIDTH)
    column_words = memory.allocate_words(count * tape_columns.COLUMN_WIDTH)
    columns = column_words.reshape(-1, tape_columns.COLUMN_WIDTH)
    names = bytearray()
    for node in nodes:
        path, column = table[node.number], columns[node.number]
        name = node.name.encode() if nodes[node.parent].kind == codes.STRUCT else b""
        _fill_path(path, node, nodes, len(names), count)
        _fill_column(column, node)
        column[tape_columns.ATTRIBUTE] = _attribute(node, nodes) * tape_columns.COLUMN_WIDTH
        prefix = _prefix(node, nodes)
        path[paths.NAME_BYTES] = len(name) if nodes[node.parent].kind == codes.STRUCT else _nameless(node, nodes)
        if prefix:
            path[[paths.PREFIX_LENGTH, paths.PREFIX_MASK]] = len(prefix), (1 << len(prefix)) - 1
            opened = prefix + _opening(node)
            if len(opened) > len(prefix) and len(opened) <= paths.PREFIX_BYTES:
                path[[paths.WHOLE_LENGTH, paths.WHOLE_MASK]] = len(opened), (1 << len(opened)) - 1
                prefix = opened
        names += name
        path[: paths.PREFIX_BYTES // 8] = np.frombuffer(prefix.ljust(paths.PREFIX_BYTES, b"\0"), np.int64)
    _fill_others(table[count], count)
    walk = first_walk()
    texts = memory.allocate_zeros(len(names) + 2 * paths.PREFIX_BYTES)
    texts[: len(names)] = np.frombuffer(names, np.uint8)
    lookup = memory.allocate_words(1 << (4 * count).bit_length())
    walk = walk._replace(nodes=words, texts=texts, lookup=lookup)
    walk.state[[codes.N_PATHS, codes.TEXTS]] = count + 1, len(names)
    column_of = memory.allocate_words(count + 1)
    column_of[:] = np.append(np.arange(count) * tape_columns.COLUMN_WIDTH, _NO_COLUMN)
    return Tables(walk, column_words, column_of)


@dataclass(frozen=True, slots=True)
class ColumnPaths:
    """Mapping between the paths of a walk without a schema and the columns of the resulting schema."""

    column_of: npt.NDArray[np.int64]
    rows: npt.NDArray[np.intp]
    """The path of each column; the number of paths if there is no path."""

    def nodes_of(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the nodes of a walk in the order of the columns."""
        table = nodes.reshape(-1, paths.NODE_WIDTH)
        reordered = table.take(self.rows, axis=0, mode="clip")
        reordered[self.rows == len(self.column_of)] = 0
        return reordered.reshape(-1)


def column_paths(nodes: list[Node], observed: Observed) -> ColumnPaths | None:
    """Return the path of each column, or None if a column has several paths: a map has one per name."""
    seen = observed.path_numbers()
    n_paths = len(observed.nodes) // (8 * paths.NODE_WIDTH)
    rows = np.full(len(nodes) + 1, n_paths)
    column_of = np.full(n_paths, _NO_COLUMN, np.int64)
    rows[0] = 0
    for node in nodes[1:]:
        parent = nodes[node.parent]
        if node.kind == codes.MAP:
            return None
        if parent.kind == codes.SET:
            continue
        path = seen.get((int(rows[node.parent]), node.name if parent.kind == codes.STRUCT else None))
        if path is not None:
            rows[node.number], column_of[path] = path, node.number * tape_columns.COLUMN_WIDTH
    column_of[0] = 0
    return ColumnPaths(column_of, rows)


def _fill_path(path: npt.NDArray[np.int64], node: Node, nodes: list[Node], name_at: int, others: int) -> None:
    path[[paths.TAG_WORD, paths.PREFIX_MASK, paths.WHOLE_MASK]] = -1
    path[paths.HEAD] = node.number << paths.NODE_BITS
    opening = _opening(node)
    if opening:
        tag = node.tag
        path[paths.HEAD] |= tag
        path[paths.TAG_WORD] = paths.OPENING_WORDS[tag]
        path[paths.TAG_MASK], path[paths.TAG_LENGTH] = paths.OPENING_MASKS[tag], paths.OPENING_LENGTHS[tag]
    path[paths.KEEPS_TEXT] = node.kind == codes.NUMBER_TEXT or (
        node.kind == codes.SET and node.children[0].kind == codes.NUMBER_TEXT
    )
    path[paths.WHOLE] = -path[paths.KEEPS_TEXT]
    path[paths.PARENT], path[paths.NAME] = node.parent, name_at
    path[paths.NAME_HASH] = np.uint64(hash_text_plainly(node.name.encode())).astype(np.int64)
    # Names without a column share the last path, with all values in them.
    path[paths.MEMBERS], path[paths.OTHERS_NODE], path[paths.ELEMENT] = MAX_STRUCT_FIELDS, others, others
    numbers = [child.number for child in node.children]
    if node.kind in {codes.LIST, codes.SET}:
        path[paths.ELEMENT] = numbers[0]
    elif node.kind == codes.MAP:
        path[paths.OTHERS_NODE] = numbers[0]
    elif numbers:
        path[paths.FIRST] = numbers[0] * paths.NODE_WIDTH
    siblings = nodes[node.parent].children
    if node.number and nodes[node.parent].kind == codes.STRUCT:
        following = node.number + 1
        following = following if following <= siblings[-1].number else siblings[0].number
        path[paths.FOLLOWER] = following * paths.NODE_WIDTH
    elif node.number:
        path[paths.FOLLOWER] = node.number * paths.NODE_WIDTH


def _fill_others(path: npt.NDArray[np.int64], others: int) -> None:
    path[[paths.TAG_WORD, paths.PREFIX_MASK, paths.WHOLE_MASK]] = -1
    path[[paths.OTHERS_NODE, paths.ELEMENT]] = others
    path[paths.HEAD], path[paths.FOLLOWER] = others << paths.NODE_BITS, others * paths.NODE_WIDTH
    path[paths.MEMBERS], path[paths.NAME_BYTES] = MAX_STRUCT_FIELDS, paths.OTHERS


def _nameless(node: Node, nodes: list[Node]) -> int:
    """Return the substitute for a name's length: ``OTHERS`` for the values of a map, ``ELEMENTS`` for other nodes."""
    parent = nodes[node.parent]
    return paths.OTHERS if parent.kind == codes.MAP and node is parent.children[0] else paths.ELEMENTS


def _prefix(node: Node, nodes: list[Node]) -> bytes:
    """Return the JSON before the type of a value, if it can be predicted."""
    parent = nodes[node.parent]
    if not node.number or parent.kind in {codes.SET, codes.MAP}:
        return b""
    if parent.kind == codes.LIST:
        return b'{"'
    name = node.name.encode()
    # Names that JSON escapes, and long names, are looked up instead.
    prefix = b'"' + name + b'":{"'
    return b"" if _ESCAPED.search(name) or len(prefix) > paths.PREFIX_BYTES else prefix


def _opening(node: Node) -> bytes:
    """Return the JSON that opens the content of a value, if its type is known."""
    if node.tag < 0 or node.kind in {codes.JSON, codes.NOTHING}:
        return b""
    return paths.openings()[node.tag]


def _fill_column(column: npt.NDArray[np.int64], node: Node) -> None:
    width = tape_columns.COLUMN_WIDTH
    column[tape_columns.KIND], column[tape_columns.PARENT], column[tape_columns.TAG] = node.kind, node.parent, node.tag
    if node.children:
        column[tape_columns.CHILD] = node.children[0].number * width
    if node.kind == codes.MAP:
        column[tape_columns.KEY] = node.children[1].number * width
    precision, scale = _digits(node)
    min_magnitude, max_magnitude = _bounds(node)
    column[tape_columns.PRECISION], column[tape_columns.SCALE_OF] = precision, scale
    column[[tape_columns.MIN_MAGNITUDE, tape_columns.MAX_MAGNITUDE]] = np.array(
        [min_magnitude, max_magnitude], np.uint64
    ).view(np.int64)
    # In an unsigned column no number fits for certain, since it may be negative.
    column[tape_columns.SAFE_DIGITS] = len(str(max_magnitude)) - 1 if min_magnitude else 0
    if min_magnitude == 1 << 63:
        column[tape_columns.SAFE_DIGITS] = len(str(max_magnitude))


def _attribute(node: Node, nodes: list[Node]) -> int:
    """Return the number of the attribute that contains a node; the members of images of changes are attributes."""
    while node.parent and not nodes[node.parent].is_image:
        node = nodes[node.parent]
    return node.number


def _bounds(node: Node) -> tuple[int, int]:
    if node.kind != codes.INTEGER:
        return 0, 0
    bits = node.arrow_type.bit_width
    if pa.types.is_signed_integer(node.arrow_type):
        return 1 << (bits - 1), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def _digits(node: Node) -> tuple[int, int]:
    """Return the precision and the scale that a number must fit: 0 if any number fits, -1 for ``float32``."""
    if node.arrow_type is not None and is_decimal(node.arrow_type):
        return node.arrow_type.precision, node.arrow_type.scale
    return (-1 if node.arrow_type == pa.float32() else 0), 0
