"""Schema of a table's items: the types that samples showed, and the columns that a person declared instead.

An ``ItemSchema`` can be merged, compared, saved and edited. ``to_arrow`` returns its columns. Values that fit no column
are rescued when items are read.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.attribute import TAGS
from ddbio.items.schema.arrow import RESCUE_FIELD, format_schema, normalize_schema
from ddbio.items.schema.column import column_of, declared_by, fields_of, names_of, values_of
from ddbio.items.schema.file import (
    ARROW_VERSION,
    item_schema_from_json,
    item_schema_to_json,
    parse_schema,
    schema_from_json,
)
from ddbio.items.schema.shape import (
    NOTHING_DECLARED,
    NOTHING_SEEN,
    Declared,
    Shape,
    infer_shape,
    join_declared,
    join_items,
    join_shapes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Attribute: TypeAlias = tuple[Shape, Declared]
    from collections.abc import Iterable, Sequence

    from ddbio.items.attribute import Item

NEW_ATTRIBUTE, GONE_ATTRIBUTE, NEW_TYPE = "new attribute", "gone attribute", "new type"
WIDENED, CHANGED = "widened", "changed"
DECLARED, MIXED = "declared", "mixed"


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one attribute."""

    path: str
    """``name``, ``map.name``, ``list[]``, or ``map.*`` for the values of a map whose names are data."""
    kind: str
    """``new attribute``, ``gone attribute``, ``new type``, ``widened`` (all values that fitted still fit), ``changed``,
    ``declared`` (all values fit the declared column) or ``mixed`` (another of the existing types is now the most
    frequent)."""
    before: str | None
    """The column before; None for a new_tags attribute."""
    after: str | None
    """The column after; None for an attribute that is gone."""
    new_types: tuple[str, ...] = ()
    """The DynamoDB types that the attribute did not have before."""

    def __str__(self) -> str:
        """Return the change as a line."""
        columns = " -> ".join(column for column in (self.before, self.after) if column is not None)
        if self.before == self.after:
            columns = f"{self.after} as before"
        types = f" (now also {', '.join(self.new_types)})" if self.new_types else ""
        return f"{self.kind:<15} {self.path}: {columns}{types}"


@dataclass(frozen=True, slots=True)
class Evolution:
    """Changes from one schema to another, in the order of the columns."""

    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self.changes)

    @property
    def is_drift(self) -> bool:
        """Whether the data changed, not only the types that a sample shows for a declared or mixed attribute."""
        return any(change.kind not in {DECLARED, MIXED} for change in self.changes)

    def __str__(self) -> str:
        """Return one line per change."""
        return "\n".join(map(str, self.changes)) or "no change"

    def to_dict(self) -> dict[str, Any]:
        """Return the changes as plain values."""
        names = Change.__dataclass_fields__
        return {"changes": [{name: getattr(change, name) for name in names} for change in self.changes]}


def compare(before: Attribute, after: Attribute) -> Evolution:
    """Return the changes of attributes from one schema to another."""
    return Evolution(tuple(_compare_members(before, after, "")))


def _compare_members(before: Attribute, after: Attribute, path: str) -> Iterator[Change]:
    names_before, names_after = names_of(*before), names_of(*after)
    for name in dict.fromkeys([*names_after, *names_before]):
        child_path = f"{path}.{name}" if path else name
        if name not in names_before:
            yield Change(child_path, NEW_ATTRIBUTE, None, _format_column(_member(after, name)))
        elif name not in names_after:
            yield Change(child_path, GONE_ATTRIBUTE, _format_column(_member(before, name)), None)
        else:
            yield from _compare(_member(before, name), _member(after, name), child_path)


def _compare(before: Attribute, after: Attribute, path: str) -> Iterator[Change]:
    columns, texts = (_column(before), _column(after)), (_format_column(before), _format_column(after))
    new_tags = after[0].tags.keys() - before[0].tags.keys() - {"NULL"} if before[0].tags else set()
    if new_tags:
        yield Change(path, NEW_TYPE, *texts, tuple(tag for tag in TAGS if tag in new_tags))
    elif texts[0] != texts[1]:
        yield Change(path, _kind_of(before, after), *texts)
    match [column.partition(" ")[::2] for column in columns]:
        case [("M", "struct"), ("M", "struct")]:
            yield from _compare_members(before, after, path)
        case [("M", "map"), ("M", "map")]:
            yield from _compare(_values(before), _values(after), f"{path}.*")
        case [("L", _), ("L", _)]:
            yield from _compare(_element(before), _element(after), f"{path}[]")


def _kind_of(before: Attribute, after: Attribute) -> str:
    if after[1].column is None and after[1].column_name is None:
        declared = before[1].column
        if _column(before) == _column(after) or (declared is not None and _fits(declared, after[0])):
            return DECLARED
    is_declared = before[1].column is not None or after[1].column is not None
    tags = [_column(attribute).partition(" ")[0] for attribute in (before, after)]
    if not is_declared and tags[0] != tags[1] and {*tags} <= before[0].tags.keys():
        return MIXED
    return WIDENED if _is_wider(before, after) else CHANGED


def _fits(column: str, shape: Shape) -> bool:
    """Return whether all values of the samples fit a scalar column."""
    tag, _, kind = column.partition(" ")
    if not shape.tags.keys() <= {tag, "NULL"}:
        return False
    if tag == "N" and kind == "int64":
        return shape.fits_int64
    if decimal := re.fullmatch(r"decimal128\((\d+), (\d+)\)", kind):
        precision, scale = map(int, decimal.groups())
        return shape.scale <= scale and shape.whole_digits <= precision - scale
    return tag in {"S", "N", "B", "BOOL"} and kind in {"string", "binary", "bool", "double"}


def _is_wider(before: Attribute, after: Attribute) -> bool:
    if any(attribute[1].column is not None for attribute in (before, after)) or _column(before) == _column(after):
        return False
    return column_of(join_shapes(before[0], after[0])) == column_of(after[0])


def _column(attribute: Attribute) -> str:
    return attribute[1].column or column_of(attribute[0])


def _format_column(attribute: Attribute) -> str:
    name = attribute[1].column_name
    return _column(attribute) if name is None else f"{_column(attribute)}, called {name}"


def _member(attribute: Attribute, name: str) -> Attribute:
    return attribute[0].members.get(name, NOTHING_SEEN), attribute[1].members.get(name, NOTHING_DECLARED)


def _values(attribute: Attribute) -> Attribute:
    return values_of(attribute[0]), attribute[1].inner or NOTHING_DECLARED


def _element(attribute: Attribute) -> Attribute:
    return attribute[0].element or NOTHING_SEEN, attribute[1].inner or NOTHING_DECLARED


_MAX_CACHED = 16


@dataclass(frozen=True, slots=True, repr=False)
class ItemSchema:
    """Schema of items. It is accepted as ``schema=`` here, and by every library that reads Arrow's C schema."""

    seen: Shape = NOTHING_SEEN
    """The shape of the samples, which is that of a map."""
    declared: Declared = NOTHING_DECLARED
    """The columns that a person or an Arrow schema declared."""
    _arrow: list[pa.Schema] = field(default_factory=list, init=False, compare=False)
    """The cached columns."""

    @classmethod
    def of_items(cls, items: Iterable[Item]) -> ItemSchema:
        """Return the schema of these items.

        Raises
        ------
        DecodeError
            An item is not DynamoDB JSON.
        """
        return cls(infer_shape(items))

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> ItemSchema:
        """Return a schema that declares these columns and has no samples.

        Raises
        ------
        SchemaError
            A field has an Arrow type without an exact encoding in DynamoDB.
        """
        columns = list(normalize_schema(schema))[:-1]
        return cls(NOTHING_SEEN, Declared(members=declared_by(columns)))

    @classmethod
    def from_json(cls, text: str) -> ItemSchema:
        """Return the schema of a file that ``to_json`` wrote or a person edited. Edited columns are declared columns.

        Raises
        ------
        SchemaError
            The text is not such a file, or has another version.
        """
        seen, declared = item_schema_from_json(text)
        schema = cls(seen, declared)
        schema.to_arrow()
        return schema

    @property
    def item_count(self) -> int:
        """Return the number of items in the largest sample."""
        return self.seen.tags.get("M", 0)

    def to_arrow(self) -> pa.Schema:
        """Return a column per attribute, in the order first seen, and ``_rescue`` as the last.

        Raises
        ------
        SchemaError
            A declared column has an unknown type.
        """
        if not self._arrow:
            columns = pa.schema([*fields_of(self.seen, self.declared), RESCUE_FIELD])
            # Inferred columns are already normalised.
            self._arrow.append(columns if self.declared == NOTHING_DECLARED else normalize_schema(columns))
        return self._arrow[0]

    def to_json(self) -> str:
        """Return the JSON text of a file to save, edit and read back. Equal schemas have equal texts."""
        return item_schema_to_json(self.seen, self.declared)

    def merge(self, other: ItemSchema) -> ItemSchema:
        """Combine two schemas. The result does not depend on the order, grouping or number of merges.

        Raises
        ------
        SchemaError
            The schemas declare different columns for one attribute, or the other is not an ItemSchema.
        """
        _require_schema(other)
        return ItemSchema(join_items(self.seen, other.seen), join_declared(self.declared, other.declared))

    def project(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the schema of only these attributes, in this order."""
        seen = {name: replace(self.seen.members[name], place=index)
                for index, name in enumerate(attributes) if name in self.seen.members}  # fmt: skip
        declared = {name: replace(self.declared.members[name], place=index)
                    for index, name in enumerate(attributes) if name in self.declared.members}  # fmt: skip
        return ItemSchema(replace(self.seen, members=seen), replace(self.declared, members=declared))

    def diff(self, other: ItemSchema) -> Evolution:
        """Return the differences of the other schema: new and missing attributes, new types, changed columns.

        Raises
        ------
        SchemaError
            The other is not an ItemSchema.
        """
        _require_schema(other)
        return compare((self.seen, self.declared), (other.seen, other.declared))

    def __arrow_c_schema__(self) -> Any:
        """Return Arrow's C schema of the columns."""
        return self.to_arrow().__arrow_c_schema__()

    def __str__(self) -> str:
        """Return the columns as a printed table."""
        return format_schema(self.to_arrow())

    def __repr__(self) -> str:
        """Return the numbers of attributes and items seen."""
        return f"<ItemSchema of {len(self.to_arrow()) - 1} attributes, {self.item_count} items seen>"


def arrow_schema_of(schema: Any) -> pa.Schema:
    """Return the columns of an ItemSchema, an Arrow schema, an object that exports one, or the JSON text of either.

    Raises
    ------
    SchemaError
        It is none of these, or a column has an unknown type.
    """
    if isinstance(schema, pa.Schema):
        return normalize_schema(schema)
    if isinstance(schema, ItemSchema):
        # Arrow's C schema cuts names at a NUL.
        return schema.to_arrow()
    if isinstance(schema, str):
        return _parse_text(schema)
    if hasattr(schema, "__arrow_c_schema__"):
        return normalize_schema(pa.schema(schema))
    raise SchemaError(f"a {type(schema).__name__} is no schema: give an ItemSchema, a pyarrow.Schema or its JSON text")


@functools.lru_cache(maxsize=_MAX_CACHED)
def _parse_text(text: str) -> pa.Schema:
    return schema_from_json(text) if _is_arrow_text(text) else ItemSchema.from_json(text).to_arrow()


def _require_schema(other: object) -> None:
    if not isinstance(other, ItemSchema):
        raise SchemaError(f"a {type(other).__name__} is no ItemSchema: make one by from_arrow or from_json")


def _is_arrow_text(text: str) -> bool:
    try:
        document = parse_schema(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("version") == ARROW_VERSION
