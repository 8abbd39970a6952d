"""Compile a schema to the flat tables that the decoding loops read, and to the tree of nodes for the assembly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import field as item_of
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.capacity import ELEMENT_BYTES
from ddbio.items.kernel import codes
from ddbio.items.kernel.text import HASH_HIGH_BITS, hash_text_plainly
from ddbio.items.schema.arrow import SETS, is_decimal, name_of_field, tag_of_field

_PREFIX_WIDTH = 32
_ESCAPED = re.compile(rb'[\x00-\x1f"\\\\]')


@dataclass(slots=True)
class Node:
    """Hold one field of the schema, or a map's key, and where the loops store its values."""

    name: str
    kind: int
    arrow_type: Any
    field: Any = None
    tag: int = -1
    children: list[Node] = item_of(default_factory=list)
    number: int = 0
    parent: int = 0
    space: int = 0
    stored_type: Any = None


class Tables(NamedTuple):
    """Hold what the loops know of a schema: an entry per node, the root first, sisters side by side."""

    kind: npt.NDArray[np.int64]
    tag: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    child: npt.NDArray[np.int64]
    space: npt.NDArray[np.int64]
    inner_space: npt.NDArray[np.int64]
    first_space: npt.NDArray[np.int64]
    last_space: npt.NDArray[np.int64]
    first_below: npt.NDArray[np.int64]
    last_below: npt.NDArray[np.int64]
    below: npt.NDArray[np.int64]
    prefix: npt.NDArray[np.uint8]
    prefix_mask: npt.NDArray[np.int64]
    prefix_length: npt.NDArray[np.int64]
    tag_word: npt.NDArray[np.int64]
    tag_mask: npt.NDArray[np.int64]
    tag_length: npt.NDArray[np.int64]
    most: npt.NDArray[np.uint64]
    least: npt.NDArray[np.uint64]
    precision: npt.NDArray[np.int64]
    scale: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]
    name_place: npt.NDArray[np.int64]
    name_length: npt.NDArray[np.int64]
    name_hash: npt.NDArray[np.int64]
    lookup: npt.NDArray[np.int64]
    overhead_bytes: npt.NDArray[np.int64]


def plan_nodes(schema: pa.Schema) -> list[Node]:
    """Return the nodes of a normalised schema: the root, then level by level, children side by side."""
    return _number_nodes([_node(schema.field(index)) for index in range(len(schema) - 1)])


def plan_change_nodes(images: list[pa.Field[Any]]) -> list[Node]:
    """Return the nodes of a change: the time of its write, a struct for each image, and whether it deleted."""
    time = Node("write_time", codes.INTEGER, pa.int64(), stored_type=pa.int64())
    structs = [
        Node(image.name, codes.STRUCT, image.type, image, children=[_node(member) for member in image.type])
        for image in images
    ]
    deleted = Node("deleted", codes.BOOLEAN, pa.bool_(), stored_type=pa.bool_())
    return _number_nodes([time, *structs, deleted])


def _number_nodes(columns: list[Node]) -> list[Node]:
    """Return the root of the columns and all nodes below it: level by level, children side by side."""
    root = Node("", codes.STRUCT, None, children=columns)
    nodes = [root]
    for node in nodes:
        for child in node.children:
            child.number, child.parent = len(nodes), node.number
            nodes.append(child)
    _number_spaces(root, [0])
    return nodes


def _number_spaces(node: Node, counter: list[int]) -> None:
    space = node.space
    if node.kind in {codes.LIST, codes.SET, codes.MAP}:
        counter[0] += 1
        space = counter[0]
    for child in node.children:
        child.space = space
        _number_spaces(child, counter)


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
    """Return the type in which a leaf leaves the loops; a cast to the field's own type costs nothing or is rare."""
    match node.kind:
        case codes.INTEGER:
            return pa.uint64() if node.arrow_type == pa.uint64() else pa.int64()
        case codes.TEXT | codes.NUMBER_TEXT | codes.JSON | codes.NOTHING:
            return pa.string()
        case codes.BINARY:
            return pa.binary()
    same: pa.DataType = node.arrow_type
    return same


def compile_tables(nodes: list[Node]) -> Tables:
    """Return the tables of the nodes of a schema."""
    count = len(nodes)
    names = [node.name.encode() for node in nodes]
    places = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int64)
    hashes = [hash_text_plainly(name) for name in names]
    prefixes = [b'"' + name + b'":{"' for name in names]
    tags = [_tag_prefix(node) for node in nodes]
    below = [_below(node) for node in nodes]
    below_ends = np.cumsum([len(numbers) for numbers in below])
    spaces = [
        [nodes[number].space for number in numbers if number != node.number]
        for node, numbers in zip(nodes, below, strict=True)
    ]
    return Tables(
        kind=_words(node.kind for node in nodes),
        tag=_words(node.tag for node in nodes),
        parent=_words(node.parent for node in nodes),
        child=_words(node.children[0].number if node.children else 0 for node in nodes),
        space=_words(node.space for node in nodes),
        inner_space=_words(node.children[0].space if node.children else 0 for node in nodes),
        first_space=_words(
            min((s for s in own if s != node.space), default=0) for node, own in zip(nodes, spaces, strict=True)
        ),
        last_space=_words(
            max((s + 1 for s in own if s != node.space), default=0) for node, own in zip(nodes, spaces, strict=True)
        ),
        first_below=_words(end - len(numbers) for end, numbers in zip(below_ends.tolist(), below, strict=True)),
        last_below=below_ends.astype(np.int64),
        below=_words(number for numbers in below for number in numbers),
        prefix=np.frombuffer(
            bytearray(b"".join(text[:_PREFIX_WIDTH].ljust(_PREFIX_WIDTH, b"\0") for text in prefixes)), np.uint8
        ),
        prefix_mask=_words(_prefix_mask(node, text) for node, text in zip(nodes, prefixes, strict=True)),
        prefix_length=_words(len(text) for text in prefixes),
        tag_word=_signed(int.from_bytes(tag, "little") for tag in tags),
        tag_mask=_signed((1 << 8 * len(tag)) - 1 for tag in tags),
        tag_length=_words(len(tag) for tag in tags),
        most=np.array([_bounds(node)[1] for node in nodes], np.uint64),
        least=np.array([_bounds(node)[0] for node in nodes], np.uint64),
        precision=_words(_digits(node)[0] for node in nodes),
        scale=_words(_digits(node)[1] for node in nodes),
        names=np.frombuffer(bytearray(b"".join(names) + b"\0"), np.uint8),
        name_place=places[:count].copy(),
        name_length=_words(len(name) for name in names),
        name_hash=_signed(hashes),
        lookup=_lookup(nodes, hashes),
        overhead_bytes=_words(_overhead_bytes(nodes, node) for node in nodes),
    )


def _words(values: Any) -> npt.NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)


def _signed(values: Any) -> npt.NDArray[np.int64]:
    return np.array(list(values), dtype=np.uint64).view(np.int64)


def _tag_prefix(node: Node) -> bytes:
    # A tag that is never met sends NULL columns the general way; a JSON column has no tag of its own.
    if node.kind in {codes.JSON, codes.NOTHING} or node.tag < 0:
        return b"" if node.kind == codes.JSON else b"\0" * 8
    opening = {codes.LIST: "[", codes.SET: "[", codes.STRUCT: "{", codes.MAP: "{", codes.BOOLEAN: ""}.get(
        node.kind, '"'
    )
    return f'{codes.TAGS[node.tag]}":{opening}'.encode()


def _below(node: Node) -> list[int]:
    numbers = [node.number]
    for child in node.children:
        numbers += _below(child)
    return numbers


def _prefix_mask(node: Node, text: bytes) -> int:
    # No comparison sets the bits of -1: long names are looked up, and so is what JSON has to escape, since the name's
    # own bytes are no JSON; the root has no name.
    is_predicted = node.number and len(text) <= _PREFIX_WIDTH and not _ESCAPED.search(node.name.encode())
    return (1 << len(text)) - 1 if is_predicted else -1


def _bounds(node: Node) -> tuple[int, int]:
    if node.kind != codes.INTEGER:
        return 0, 0
    bits = node.arrow_type.bit_width
    if pa.types.is_signed_integer(node.arrow_type):
        return 1 << (bits - 1), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def _digits(node: Node) -> tuple[int, int]:
    """Return the precision and the scale that a number is held against: 0 where any fits, -1 for ``float32``."""
    if node.arrow_type is not None and is_decimal(node.arrow_type):
        return node.arrow_type.precision, node.arrow_type.scale
    return (-1 if node.arrow_type == pa.float32() else 0), 0


def _overhead_bytes(nodes: list[Node], node: Node) -> int:
    """Return what a value adds to an item's size apart from its content."""
    parent = nodes[node.parent]
    if parent.kind == codes.SET:
        return 0
    name_bytes = len(node.name.encode()) if parent.kind == codes.STRUCT else 0
    is_key = parent.kind == codes.MAP and node is not parent.children[0]
    return name_bytes + (ELEMENT_BYTES if parent.number and not is_key else 0)


def _lookup(nodes: list[Node], hashes: list[int]) -> npt.NDArray[np.int64]:
    size = 8
    while size < 4 * len(nodes):
        size *= 2
    slots = np.full(size, -1, np.int64)
    for node in nodes[1:]:
        if nodes[node.parent].kind == codes.STRUCT:
            slot = ((hashes[node.number] >> HASH_HIGH_BITS) + node.parent) & (size - 1)
            while slots[slot] >= 0:
                slot = (slot + 1) & (size - 1)
            slots[slot] = node.number
    return slots
