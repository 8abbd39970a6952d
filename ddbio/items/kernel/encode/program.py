"""Compilation of a schema to the program that prints a row: its nodes, steps and constant texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from dataclasses import field as made_by
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.encode import codes
from ddbio.items.kernel.encode.rules import INDEX_BIT
from ddbio.items.schema.arrow import SETS, is_float, name_of_field, tag_of_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.items.kernel.encode.rules import KeyRule

_NARROW_SCALE = 100
_BRACES, _BRACKETS, _QUOTES, _NOTHING = ("{", "}"), ("[", "]"), ('"', '"'), ("", "")
_EDGES = {
    **dict.fromkeys((codes.STRUCT, codes.MAP), _BRACES),
    codes.LIST: _BRACKETS,
    **dict.fromkeys((codes.BOOLEAN, codes.RAW, codes.MEMBERS), _NOTHING),
}
"""The text around the content of a value, apart from its type; other kinds have quotes."""

_NUMBERS = {codes.NUMBER, codes.INTEGER, codes.UNSIGNED, codes.WIDE}
_WIDTH = 32


@dataclass(slots=True)
class Node:
    """Field of the schema or key of a map, with the texts around its values."""

    field: pa.Field[Any]
    path: str
    kind: int
    tag: str
    depth: int
    role: str
    """``member``, ``value`` of a list or map, ``element`` of a set, ``key`` of a map."""
    children: list[Node] = made_by(default_factory=list)
    number: int = 0
    space: int = 0
    inner_space: int = 0
    scale: int = 0
    key: int = 0
    longest: int = 0
    misfit: str = ""
    """Why no value of the column can be the index key that it should be."""
    is_plain: bool = False
    """Whether values are printed without types, as in plain JSON."""

    @property
    def is_set(self) -> bool:
        """Return whether it is one of the three set types."""
        return self.tag in SETS and self.kind == codes.LIST

    @property
    def name_text(self) -> str:
        """Return the member's name in JSON, and the colon after it."""
        named = self.role == "member" and self.kind != codes.MEMBERS
        return f"{compact_json(name_of_field(self.field))}:" if named else ""

    @property
    def head(self) -> str:
        """Return the text before the content of a value."""
        return self.name_text + (f'{{"{self.tag}":' if self._has_type else "") + self._edges[0]

    @property
    def tail(self) -> str:
        """Return the text after the content of a value."""
        return self._edges[1] + ("}," if self._has_type else ",")

    @property
    def null(self) -> str:
        """Return the text of a null."""
        return self.name_text + ("null," if self.is_plain else '{"NULL":true},')

    @property
    def _has_type(self) -> bool:
        return not self.is_plain and self.role != "element" and self.kind not in {codes.RAW, codes.MEMBERS}

    @property
    def _edges(self) -> tuple[str, str]:
        return _NOTHING if self.is_plain and self.kind in _NUMBERS else _EDGES.get(self.kind, _QUOTES)

    @property
    def fixed_size(self) -> int:
        """Return the bytes that each value adds to the size of an item apart from its content."""
        name = len(name_of_field(self.field).encode()) if self.role == "member" and self.kind != codes.MEMBERS else 0
        return name + (self.depth > 1 and self.role != "element")


class Tables(NamedTuple):
    """Tables of a schema for the loop: the steps, and an entry per node."""

    step: npt.NDArray[np.int64]
    step_node: npt.NDArray[np.int64]
    jump: npt.NDArray[np.int64]
    text: npt.NDArray[np.uint8]
    frame: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    head_length: npt.NDArray[np.int64]
    tail: npt.NDArray[np.int64]
    tail_length: npt.NDArray[np.int64]
    null: npt.NDArray[np.int64]
    null_length: npt.NDArray[np.int64]
    fixed_size: npt.NDArray[np.int64]
    scale: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    key: npt.NDArray[np.int64]
    longest: npt.NDArray[np.int64]
    space: npt.NDArray[np.int64]
    inner_space: npt.NDArray[np.int64]
    is_set: npt.NDArray[np.int64]
    in_set: npt.NDArray[np.int64]
    key_node: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    states: npt.NDArray[np.int64]


class Program(NamedTuple):
    """Columns of a schema, all their nodes, and the steps that print a row."""

    columns: list[Node]
    nodes: list[Node]
    steps: list[tuple[int, int, int]]
    n_spaces: int


def plan_program(fields: Iterable[pa.Field[Any]], rules: Mapping[str, KeyRule], scales: Mapping[str, int]) -> Program:
    """Return the program that prints normalised fields.

    Parameters
    ----------
    scales
        The decimal places of the counts of time, by path.

    Raises
    ------
    SchemaError
        A name is empty or longer than DynamoDB allows, or a key's column has another type.
    """
    columns = [_node(field, field.name, 1, "member") for field in fields]
    program = Program(columns, [], [], 1)
    counter = [0]
    for column in columns:
        _number(column, 0, program.nodes, counter)
        _check_key(column, rules)
        _emit(column, program.steps)
    program.steps.append((codes.END, 0, 0))
    for node in program.nodes:
        node.scale = scales.get(node.path, node.scale)
    return program._replace(n_spaces=counter[0] + 1)


def _node(field: pa.Field[Any], path: str, depth: int, role: str) -> Node:
    if role == "member" and not 1 <= len(name_of_field(field).encode()) <= codes.MAX_NAME_BYTES:
        raise SchemaError(
            f"{path[:60]!r}: an attribute's name has 1 to {codes.MAX_NAME_BYTES:,} bytes: rename the field"
        )
    arrow_type: Any = field.type
    tag = tag_of_field(field)
    node = Node(field, path, _kind(tag, arrow_type), tag, depth, role)
    match node.kind:
        case codes.STRUCT:
            members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
            node.children = [_node(member, f"{path}.{member.name}", depth + 1, "member") for member in members]
        case codes.LIST:
            inside = "element" if node.is_set else "value"
            node.children = [_node(arrow_type.field(0), f"{path}[]", depth + 1, inside)]
        case codes.MAP:
            value = _node(arrow_type.item_field, f"{path}.*", depth + 1, "value")
            node.children = [Node(arrow_type.key_field, f"{path}.*", codes.KEY, "S", depth + 1, "key"), value]
        case codes.WIDE:
            node.scale = arrow_type.scale
    return node


def _kind(tag: str, arrow_type: Any) -> int:
    if tag in SETS or tag == "L":
        return codes.LIST
    if tag == "M":
        return codes.MAP if pa.types.is_map(arrow_type) else codes.STRUCT
    if tag != "N":
        return {
            "S": codes.TEXT,
            "B": codes.BINARY,
            "BOOL": codes.BOOLEAN,
            "NULL": codes.NOTHING,
            "JSON": codes.RAW,
        }.get(tag, codes.MEMBERS)
    if pa.types.is_integer(arrow_type):
        return codes.UNSIGNED if arrow_type == pa.uint64() else codes.INTEGER
    if is_float(arrow_type) or not pa.types.is_decimal128(arrow_type):
        return codes.NUMBER
    return codes.WIDE if 0 <= arrow_type.scale <= _NARROW_SCALE else codes.NUMBER


def _number(node: Node, space: int, nodes: list[Node], counter: list[int]) -> None:
    node.number, node.space = len(nodes), space
    nodes.append(node)
    inside = space
    if node.kind in {codes.LIST, codes.MAP}:
        counter[0] += 1
        inside = node.inner_space = counter[0]
    for child in node.children:
        _number(child, inside, nodes, counter)


def _check_key(column: Node, rules: Mapping[str, KeyRule]) -> None:
    name = name_of_field(column.field)
    rule = rules.get(name)
    if rule is None or column.kind in {codes.RAW, codes.MEMBERS}:
        return
    if column.tag == rule.tag:
        column.key, column.longest = rule.bit, rule.longest
    elif rule.bit == INDEX_BIT:
        column.misfit = rule.type_message(column.tag)
    else:
        raise SchemaError(
            f"{name}: a key of type {rule.tag} cannot come from a column of DynamoDB's {column.tag} "
            f"({column.field.type}): cast the column"
        )


def _emit(node: Node, steps: list[tuple[int, int, int]]) -> None:
    begin = len(steps)
    steps.append((node.kind, node.number, begin + 1))
    if node.kind not in {codes.STRUCT, codes.LIST, codes.MAP}:
        return
    for child in node.children:
        _emit(child, steps)
    ending = {codes.STRUCT: codes.STRUCT_END, codes.LIST: codes.LIST_END, codes.MAP: codes.MAP_END}[node.kind]
    steps.append((ending, node.number, begin + 1))
    steps[begin] = (node.kind, node.number, len(steps))


def compile_tables(program: Program, n_keys: int, prefix: bytes, suffix: bytes) -> Tables:
    """Return the tables of a program; ``prefix`` and ``suffix`` are printed around each item."""
    nodes = program.nodes
    text = bytearray(b"true".ljust(8) + b"false".ljust(8))
    offsets: Counter[bytes] = Counter()

    def spans(texts: Iterable[str | bytes]) -> tuple[list[int], list[int]]:
        encoded = [part.encode() if isinstance(part, str) else part for part in texts]
        for part in encoded:
            if part not in offsets:
                offsets[part] = len(text)
                text.extend(part)
        return [offsets[part] for part in encoded], [len(part) for part in encoded]

    heads, tails = spans(node.head for node in nodes), spans(node.tail for node in nodes)
    nulls = spans(node.null for node in nodes)
    frames = spans([prefix, suffix])
    text.extend(bytes(2 * _WIDTH))
    return Tables(
        step=_words(step for step, _, _ in program.steps),
        step_node=_words(node for _, node, _ in program.steps),
        jump=_words(jump for _, _, jump in program.steps),
        text=np.frombuffer(text, np.uint8),
        frame=_words([frames[0][0], frames[1][0], frames[0][1], frames[1][1], (1 << n_keys) - 1]),
        head=_words(heads[0]),
        head_length=_words(heads[1]),
        tail=_words(tails[0]),
        tail_length=_words(tails[1]),
        null=_words(nulls[0]),
        null_length=_words(nulls[1]),
        fixed_size=_words(node.fixed_size for node in nodes),
        scale=_words(node.scale for node in nodes),
        depth=_words(node.depth for node in nodes),
        key=_words(node.key for node in nodes),
        longest=_words(node.longest for node in nodes),
        space=_words(node.space for node in nodes),
        inner_space=_words(node.inner_space for node in nodes),
        is_set=_words(node.is_set for node in nodes),
        in_set=_words(node.role == "element" for node in nodes),
        key_node=_words(node.children[0].number if node.children else 0 for node in nodes),
        words=np.zeros(len(nodes) + 1, np.int64),
        states=np.zeros(len(nodes) + 1, np.int64),
    )


def _words(values: Iterable[Any]) -> npt.NDArray[np.int64]:
    # One more entry, so that no table is empty: a row without columns still reads the first node.
    return np.array([*values, 0], np.int64)
