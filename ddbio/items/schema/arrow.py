"""Arrow schemas of items: one column per attribute, with DynamoDB's type in the metadata of each field.

The metadata key ``ddb:type`` is one of the ten types, or ``JSON`` for text that can be any attribute value.
``ddb:name`` is the attribute's name if the column has another name. The last column is always ``_rescue``. An Arrow
type without an exact encoding in DynamoDB is a SchemaError.
"""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.schema.times import is_time_column, normalize_time
from ddbio.items.schema.vectors import is_vector, normalize_vector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

DDB_TYPE = b"ddb:type"
"""The metadata key of a field's DynamoDB type."""

DDB_NAME = b"ddb:name"
"""The metadata key of the attribute's name, if the column has another name."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
MAX_NAME_BYTES = 65_535

RESCUE_NAME = "_rescue"
"""The last column of every schema: one JSON object per row with the values that fit no column."""

RESCUE_FIELD = pa.field(RESCUE_NAME, pa.string(), metadata={DDB_TYPE: b"RESCUE"})

ITEM_BYTES_NAME = "_item_bytes"
"""The optional column before the last: the item's size in bytes, as DynamoDB bills it."""

_ITEM_BYTES = {DDB_TYPE: b"ITEM_BYTES"}
ITEM_BYTES_FIELD = pa.field(ITEM_BYTES_NAME, pa.int64(), metadata=_ITEM_BYTES)

_NULLS = {DDB_TYPE: b"NULLS"}

SETS = {"SS": "S", "NS": "N", "BS": "B"}
"""The set types, each with the type of its elements."""

MAX_FLOAT32 = 3.4028234663852886e38
"""The largest magnitude of a ``float32`` column."""

ELEMENT = "element"
"""Parquet's name for a list's elements, so that reading a file returns the same Arrow type."""


def tagged_field(name: str, arrow_type: pa.DataType, tag: str, *, attribute: str | None = None) -> pa.Field[Any]:
    """Return a nullable field with its DynamoDB type, and its attribute's name if that differs, in the metadata."""
    metadata = {DDB_TYPE: tag.encode()}
    if attribute is not None and attribute != name:
        metadata[DDB_NAME] = attribute.encode()
    return pa.field(name, arrow_type, metadata=metadata)


def is_item_bytes(field: pa.Field[Any]) -> bool:
    """Return whether the field is the decoder's column of item sizes, not an attribute."""
    return (field.metadata or {}).get(DDB_TYPE) == _ITEM_BYTES[DDB_TYPE]


def nulls_field(schema: pa.Schema) -> pa.Field[Any]:
    """Return the column with the names of each row's NULL attributes. Its other null columns mean missing attributes.

    An update removes the named attributes, and does not change attributes that are null but not named.
    """
    used, name = {*schema.names, *map(name_of_field, schema)}, "_nulls"
    while name in used:
        name += "_"
    return pa.field(name, pa.list_(pa.string()), metadata=_NULLS)


def is_nulls(field: pa.Field[Any]) -> bool:
    """Return whether the field is the column of :func:`nulls_field`, not an attribute."""
    return (field.metadata or {}).get(DDB_TYPE) == _NULLS[DDB_TYPE]


def list_of(element: pa.Field[Any]) -> pa.DataType:
    """Return the list type with this element field, renamed as in Parquet."""
    return pa.list_(element.with_name(ELEMENT))


def tag_of_field(field: pa.Field[Any]) -> str:
    """Return the DynamoDB type of a normalised field: one of the ten, ``JSON`` or ``RESCUE``."""
    return (field.metadata or {})[DDB_TYPE].decode()


def name_of_field(field: pa.Field[Any]) -> str:
    """Return the name of the field's attribute."""
    attribute = (field.metadata or {}).get(DDB_NAME)
    return field.name if attribute is None else attribute.decode()


def attributes_of(schema: pa.Schema) -> list[str]:
    """Return the attributes that have columns in a normalised schema."""
    return [name_of_field(field) for field in schema if tag_of_field(field) != "RESCUE"]


def set_attribute_name(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    """Return the field with a new name for both column and attribute."""
    metadata: dict[bytes | str, bytes | str] = {k: v for k, v in (field.metadata or {}).items() if k != DDB_NAME}
    return field.with_name(name).with_metadata(metadata)


def fields_within(arrow_type: pa.DataType) -> list[pa.Field[Any]]:
    """Return the members of a struct, the element of a list, or the value of a map."""
    if pa.types.is_map(arrow_type):
        return [arrow_type.item_field]
    if is_list(arrow_type) or pa.types.is_struct(arrow_type):
        return [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    return []


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a list, of either offset width."""
    return pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a string, of either offset width."""
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)


def is_binary(arrow_type: pa.DataType) -> bool:
    """Return whether the type is binary, of either offset width."""
    return pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type)


def is_decimal(arrow_type: pa.DataType) -> bool:
    """Return whether the type is one of Arrow's wide decimals."""
    return pa.types.is_decimal128(arrow_type) or pa.types.is_decimal256(arrow_type)


def is_float(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a binary floating-point number, which represents most decimals inexactly."""
    return pa.types.is_float32(arrow_type) or pa.types.is_float64(arrow_type)


def is_number(arrow_type: pa.DataType) -> bool:
    """Return whether the type is an integer, a float or a decimal."""
    return pa.types.is_integer(arrow_type) or is_float(arrow_type) or is_decimal(arrow_type)


def normalize_field(field: pa.Field[Any], path: str) -> pa.Field[Any]:
    """Return the field and its nested fields, made nullable and tagged with their DynamoDB types.

    Raises
    ------
    SchemaError
        Its Arrow type has no DynamoDB type, or not the declared one.
    """
    declared = (field.metadata or {}).get(DDB_TYPE, b"").decode(errors="replace") or _default_tag(field.type, path)
    arrow_type = _normal_type(field.type, declared, path)
    metadata = {**(field.metadata or {}), DDB_TYPE: declared.encode()}
    return pa.field(field.name, arrow_type, nullable=True, metadata=metadata)


def require_unique(fields: Sequence[pa.Field[Any]], path: str) -> None:
    """Raise SchemaError if a column or an attribute occurs twice."""
    attributes = [name_of_field(field) for field in fields if field.name != RESCUE_NAME]
    for names in ([field.name for field in fields], attributes):
        for name, count in Counter(names).items():
            if count > 1:
                raise SchemaError(f"{path}: the name {name!r} occurs twice in the schema: keep one of them")


_SIMPLE_TAGS = ((is_text, "S"), (is_number, "N"), (is_binary, "B"), (pa.types.is_boolean, "BOOL"), (is_list, "L"))
_STRUCTURED_TAGS = ((pa.types.is_struct, "M"), (pa.types.is_map, "M"), (pa.types.is_null, "NULL"))


def _default_tag(arrow_type: pa.DataType, path: str) -> str:
    for is_kind, tag in (*_SIMPLE_TAGS, *_STRUCTURED_TAGS):
        if is_kind(arrow_type):
            return tag
    if is_vector(arrow_type):
        raise SchemaError(f"{path}: only an attribute of the item itself can be an Arrow {arrow_type}: use a list")
    raise SchemaError(
        f"{path}: no DynamoDB type is an Arrow {arrow_type}: use string, a number type, binary, bool, list, struct or "
        f"map<string, …> and convert after reading"
    )


def _normal_type(arrow_type: pa.DataType, tag: str, path: str) -> pa.DataType:  # noqa: PLR0911 - one line a type
    match tag:
        case "S" | "JSON" if is_text(arrow_type):
            return arrow_type
        case "N" if is_text(arrow_type) or is_number(arrow_type):
            return arrow_type
        case "B" if is_binary(arrow_type):
            return arrow_type
        case "BOOL" if pa.types.is_boolean(arrow_type):
            return arrow_type
        case "NULL" if is_text(arrow_type) or pa.types.is_null(arrow_type):
            return pa.string()
        case "SS" | "NS" | "BS" | "L" if is_list(arrow_type):
            return _normal_list(arrow_type, tag, path)
        case "M" if pa.types.is_struct(arrow_type) and arrow_type.num_fields:
            children = fields_within(arrow_type)
            require_unique(children, path)
            return pa.struct([normalize_field(child, f"{path}.{child.name}") for child in children])
        case "M" if pa.types.is_map(arrow_type) and is_text(arrow_type.key_type):
            value = normalize_field(arrow_type.item_field, f"{path}.*")
            return pa.map_(arrow_type.key_type, value)  # type: ignore[call-overload, no-any-return] # stubs lack fields
    raise SchemaError(
        f"{path}: an Arrow {arrow_type} does not hold DynamoDB's {tag}: change one of them, or declare string with "
        f"ddb:type JSON, which holds any value"
    )


def _normal_list(arrow_type: pa.DataType, tag: str, path: str) -> pa.DataType:
    element = arrow_type.field(0).with_name(ELEMENT)
    if tag in SETS:
        element = element.with_metadata({DDB_TYPE: SETS[tag].encode()})
    element = normalize_field(element, f"{path}[]")
    return pa.large_list(element) if pa.types.is_large_list(arrow_type) else pa.list_(element)


def normalize_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with a DynamoDB type on every field and ``_rescue`` as its last column. Idempotent.

    A column of item sizes that a decoder added is removed.

    Raises
    ------
    SchemaError
        A name occurs twice, or a field has an Arrow type without an exact encoding in DynamoDB.
    """
    require_unique(list(schema), "schema")
    attributes = [field for field in schema if field.name != RESCUE_NAME and not is_item_bytes(field)]
    columns = [_normalize_column(field) for field in attributes]
    if RESCUE_NAME in schema.names and not is_text(schema.field(RESCUE_NAME).type):
        raise SchemaError(
            f"{RESCUE_NAME}: this name is reserved for the rescue column, a string: rename or drop the field"
        )
    return pa.schema([*columns, RESCUE_FIELD])


def _normalize_column(field: pa.Field[Any]) -> pa.Field[Any]:
    if is_time_column(field.type):
        return normalize_time(field)
    if is_vector(field.type) and (field.metadata or {}).get(DDB_TYPE, b"L") == b"L":
        return normalize_vector(field)
    return normalize_field(field, field.name)


def is_attribute_name(name: Any) -> bool:
    """Return whether DynamoDB accepts this as the name of an attribute."""
    try:
        return isinstance(name, str) and 0 < len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def has_attribute_names(fields: Iterable[pa.Field[Any]]) -> bool:
    """Return whether DynamoDB accepts the names of all fields and nested fields."""
    return all(
        is_attribute_name(name_of_field(field))
        and (not field.type.num_fields or has_attribute_names(fields_within(field.type)))
        for field in fields
    )


def require_names(names: Iterable[str], known_names: Collection[str], problem: str, advice: str | None = None) -> None:
    """Check the names of an option against the known names.

    Raises
    ------
    SchemaError
        A name is unknown. The message contains the problem, and the nearest known name, the advice or all known names.
    """
    for name in names:
        if name not in known_names:
            near = difflib.get_close_matches(name, known_names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else advice or f"known are {', '.join(sorted(known_names))}"
            raise SchemaError(f"{name}: {problem}: {hint}")


def project_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the named attributes, in their order, and ``_rescue``.

    Raises
    ------
    SchemaError
        The schema has no such attribute.
    """
    fields = {name_of_field(field): field for field in schema if tag_of_field(field) != "RESCUE"}
    require_names(columns, fields, "the schema has no such attribute", "give a schema that has it")
    return normalize_schema(pa.schema([fields[name] for name in columns]))


def format_schema(schema: pa.Schema) -> str:
    """Return the schema as a printed table: attribute, DynamoDB type, Arrow type. Nested fields are indented.

    A column with another name than its attribute is shown as ``attribute as column``.
    """
    rows = [("attribute", "DynamoDB", "Arrow"), *_rows(schema, "")]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {tag:<{widths[1]}}  {arrow}" for name, tag, arrow in rows)


def _rows(fields: Iterable[pa.Field[Any]], indent: str) -> Iterator[tuple[str, str, str]]:
    for field in fields:
        children = fields_within(field.type)
        arrow = str(field.type) if not children else _container_name(field.type)
        attribute, column = _printable(name_of_field(field)), _printable(field.name)
        yield indent + (attribute if attribute == column else f"{attribute} as {column}"), tag_of_field(field), arrow
        yield from _rows(children, indent + "  ")


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _container_name(arrow_type: pa.DataType) -> str:
    if pa.types.is_map(arrow_type):
        return f"map<{arrow_type.key_type}, …>"
    return str(arrow_type).partition("<")[0]


def declare_types(batch: pa.RecordBatch, declared: Iterable[pa.Field[Any]]) -> pa.RecordBatch:
    """Return the batch with DynamoDB's types of the declared fields with the same names, also for nested fields.

    Values and Arrow types stay as they are.
    """
    by_name = {field.name: field for field in declared}
    fields = [_declare(field, by_name.get(field.name)) for field in batch.schema]
    # Arrow treats types that differ only in their metadata as equal.
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def _declare(field: pa.Field[Any], declared: pa.Field[Any] | None) -> pa.Field[Any]:
    if declared is None:
        return field
    metadata = {**(field.metadata or {}), **(declared.metadata or {})}
    return pa.field(field.name, _declare_type(field.type, declared.type), field.nullable, metadata)


def _declare_type(arrow_type: Any, declared: pa.DataType) -> pa.DataType:
    children = fields_within(declared)
    if pa.types.is_struct(arrow_type) and pa.types.is_struct(declared):
        by_name = {field.name: field for field in children}
        return pa.struct([_declare(field, by_name.get(field.name)) for field in fields_within(arrow_type)])
    if is_list(arrow_type) and is_list(declared):
        element = _declare(arrow_type.value_field, children[0])
        return pa.large_list(element) if pa.types.is_large_list(arrow_type) else pa.list_(element)
    if pa.types.is_map(arrow_type) and pa.types.is_map(declared):
        value: Any = _declare(arrow_type.item_field, children[0])
        return pa.map_(arrow_type.key_type, value)
    return arrow_type  # type: ignore[no-any-return]
