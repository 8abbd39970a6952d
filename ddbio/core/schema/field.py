"""Tie Arrow fields to DynamoDB's types, kept in field metadata; refuses Arrow types DynamoDB has no exact form for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

DDB_TYPE = b"ddb:type"
"""The metadata key under which a field keeps DynamoDB's own type."""

DDB_NAME = b"ddb:name"
"""The metadata key under which a field keeps its attribute's name, where the column has another."""

RESCUE_NAME = "_rescue"
"""The last column of every schema: per row one JSON object of what no column could hold."""

RESCUE_FIELD = pa.field(RESCUE_NAME, pa.string(), metadata={DDB_TYPE: b"RESCUE"})

ITEM_BYTES_NAME = "_item_bytes"
"""The column before the last, where it is asked for: what DynamoDB bills for the item, in bytes."""

_ITEM_BYTES = {DDB_TYPE: b"ITEM_BYTES"}
ITEM_BYTES_FIELD = pa.field(ITEM_BYTES_NAME, pa.int64(), metadata=_ITEM_BYTES)

SETS = {"SS": "S", "NS": "N", "BS": "B"}
"""The type of a set's elements."""

MAX_FLOAT32 = 3.4028234663852886e38
"""The largest magnitude that is taken for a declared ``float32``."""

ELEMENT = "element"
"""Parquet's own name for what a list holds, so that files give the same Arrow type back."""


def tagged_field(name: str, arrow_type: pa.DataType, tag: str, *, attribute: str | None = None) -> pa.Field[Any]:
    """Return a nullable field that knows its DynamoDB type, and its attribute's name where that is another."""
    metadata = {DDB_TYPE: tag.encode()}
    if attribute is not None and attribute != name:
        metadata[DDB_NAME] = attribute.encode()
    return pa.field(name, arrow_type, metadata=metadata)


def is_item_bytes(field: pa.Field[Any]) -> bool:
    """Return whether the field was added by the decoder, and is no attribute."""
    return (field.metadata or {}).get(DDB_TYPE) == _ITEM_BYTES[DDB_TYPE]


def list_of(element: pa.Field[Any]) -> pa.DataType:
    """Return the list type whose element field is ``element``, under Parquet's name for it."""
    return pa.list_(element.with_name(ELEMENT))


def tag_of_field(field: pa.Field[Any]) -> str:
    """Return the DynamoDB type of a normalised field: one of the ten, ``JSON`` or ``RESCUE``."""
    return (field.metadata or {})[DDB_TYPE].decode()


def name_of_field(field: pa.Field[Any]) -> str:
    """Return the name of the attribute that the field holds."""
    kept = (field.metadata or {}).get(DDB_NAME)
    return field.name if kept is None else kept.decode()


def set_attribute_name(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    """Return the field under the name of another attribute."""
    kept: dict[bytes | str, bytes | str] = {k: v for k, v in (field.metadata or {}).items() if k != DDB_NAME}
    return field.with_name(name).with_metadata(kept)


def fields_within(arrow_type: pa.DataType) -> list[pa.Field[Any]]:
    """Return the fields that a struct, a list or a map's values have."""
    if pa.types.is_map(arrow_type):
        return [arrow_type.item_field]
    if is_list(arrow_type) or pa.types.is_struct(arrow_type):
        return [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    return []


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether Arrow keeps the type as a list."""
    return pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether Arrow keeps the type as UTF-8."""
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)


def is_binary(arrow_type: pa.DataType) -> bool:
    """Return whether Arrow keeps the type as bytes."""
    return pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type)


def is_decimal(arrow_type: pa.DataType) -> bool:
    """Return whether the type is one of Arrow's wide decimals."""
    return pa.types.is_decimal128(arrow_type) or pa.types.is_decimal256(arrow_type)


def is_float(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a binary floating-point number, which holds most decimals inexactly."""
    return pa.types.is_float32(arrow_type) or pa.types.is_float64(arrow_type)


def is_number(arrow_type: pa.DataType) -> bool:
    """Return whether Arrow keeps the type as a number."""
    return pa.types.is_integer(arrow_type) or is_float(arrow_type) or is_decimal(arrow_type)


def normalize_field(field: pa.Field[Any], path: str) -> pa.Field[Any]:
    """Return the field nullable and with its DynamoDB type in its metadata, nested fields too.

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
