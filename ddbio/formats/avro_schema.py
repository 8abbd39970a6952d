"""Translation between Arrow's columns and Avro's: schemas, names, and the records that fastavro returns."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, is_binary, is_decimal, is_list, is_text, normalize_schema
from ddbio.items.schema.file import schema_from_json, schema_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# The stubs lack attributes of nested arrays.
_Array: TypeAlias = Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSIGNED_DIGITS = 20
_SIMPLE: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
}
_TIMES = {"ms": "timestamp-millis", "us": "timestamp-micros"}
_OF_AVRO: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# Keyed by the stored type as well as the logical one: Avro ignores a logical type on any other stored type.
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_UNWRITTEN = {
    ("string", "uuid"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-nanos"),
}
# Their bytes have no meaning without the logical type.
_UNSUPPORTED = {("fixed", "duration"), ("bytes", "big-decimal")}


def columns_to_json(schema: pa.Schema) -> str:
    """Return the JSON text that stores the columns in a file."""
    return schema_to_json(normalize_schema(schema))


def avro_names(schema: pa.Schema) -> pa.Schema:
    """Return the columns as Avro allows them: legal names and supported types. Metadata is unchanged."""
    return pa.schema(_legal_fields(list(schema)))


def avro_schema_of(schema: pa.Schema, columns: pa.Schema) -> dict[str, Any]:
    """Return Avro's schema of a row; every value may be null.

    Parameters
    ----------
    columns
        The result of :func:`avro_names` for the schema.

    Raises
    ------
    SchemaError
        If Avro has no type for a column.
    """
    return _record("row", list(schema), list(columns))


def as_stored(described: Any) -> Any:
    """Return an Avro schema that reads all values except decimals in their stored type."""
    if isinstance(described, list):
        return [as_stored(branch) for branch in described]
    if isinstance(described, dict):
        is_kept = _is_decimal(described)
        return {key: as_stored(value) for key, value in described.items() if key != "logicalType" or is_kept}
    return described


def unwritable_type(described: Any) -> str:
    """Return the first type in an Avro schema that ddbio reads but would write as another one, or an empty text."""
    if isinstance(described, list):
        return next(filter(None, map(unwritable_type, described)), "")
    if not isinstance(described, dict):
        return ""
    kind, logical = described.get("type"), described.get("logicalType")
    if kind in ("enum", "fixed") or (isinstance(kind, str) and (kind, logical) in _UNWRITTEN):
        return f"{kind} {logical or described.get('name')}"
    inner = [described.get(key) for key in ("type", "items", "values")]
    return unwritable_type([*inner, *(field["type"] for field in described.get("fields", ()))])


def require_bytes(described: Any) -> None:
    """Check that the elements of all arrays take at least one byte, so that the file's size bounds their number.

    Raises
    ------
    DecodeError
        An array has elements that take none.
    """
    _takes_bytes(described, {})


def _takes_bytes(described: Any, named: dict[str, bool]) -> bool:
    """Return whether every value takes at least one byte; ``named`` has the result for named types."""
    if isinstance(described, list):
        # A union starts with the number of its branch.
        return bool([_takes_bytes(branch, named) for branch in described])
    if isinstance(described, str):
        return named.get(described, named.get(described.rpartition(".")[2], described != "null"))
    kind = described["type"]
    if kind == "record":
        # A record that contains itself is refused elsewhere.
        takes_bytes = any([_takes_bytes(field["type"], named) for field in described["fields"]])  # noqa: C419 - each may name types
    elif kind == "fixed":
        takes_bytes = described["size"] > 0
    elif kind in ("array", "map"):
        inner = _takes_bytes(described["items" if kind == "array" else "values"], named)
        if kind == "array" and not inner:
            raise DecodeError(
                "the elements of an array take no bytes, so nothing bounds their number: write them as a count"
            )
        return True
    else:
        return True if kind == "enum" else _takes_bytes(kind, named)
    if "name" in described:
        named[described["name"]] = takes_bytes
    return takes_bytes


def _is_decimal(described: Mapping[str, Any]) -> bool:
    return described.get("type") in ("bytes", "fixed") and described.get("logicalType") == "decimal"


def from_records(records: list[dict[str, Any]], columns: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    """Return fastavro's records as columns of ``schema``; ``columns`` are the same columns under Avro's names."""
    for field in columns:
        if _has_map(field.type):
            convert = _pairs(field.type)
            for record in records:
                record[field.name] = convert(record[field.name])
    batch = pa.RecordBatch.from_pylist(records, columns)
    return pa.RecordBatch.from_arrays(renamed(batch.columns, schema), schema=schema)


def renamed(columns: Iterable[_Array], schema: pa.Schema) -> list[_Array]:
    """Return columns with the types of a schema whose fields have other names, at every depth."""
    return [_renamed(values, field.type) for values, field in zip(columns, schema, strict=True)]


def arrow_schema_of_avro(described: Any, stored: bytes | None) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of records under the names in Avro's schema, and the same with their own names and types.

    Parameters
    ----------
    stored
        The text of :func:`columns_to_json`, if the file has it.

    Raises
    ------
    DecodeError
        If a value may have several types or contains itself, or if ``stored`` describes other columns.
    """
    if not isinstance(described, dict) or described.get("type") != "record":
        raise DecodeError("its rows are not records")
    if stored is not None:
        own = schema_from_json(stored.decode())
        names = {field["name"] for field in described["fields"]}
        if RESCUE_NAME not in names:
            own = pa.schema([field for field in own if field.name != RESCUE_NAME])
        columns = avro_names(own)
        if _types_by_name(described) != _types_by_name(avro_schema_of(own, columns)):
            raise DecodeError("its header has two descriptions of its columns, which differ: it is damaged")
        return columns, own
    kinds = _TypeTranslator()
    schema = pa.schema([pa.field(field["name"], kinds.of(field["type"])) for field in described["fields"]])
    return schema, schema


def _types_by_name(described: Any) -> dict[str, Any]:
    return {field["name"]: _without_dynamodb_types(field) for field in described["fields"]}


def _without_dynamodb_types(described: Any) -> Any:
    """Return an Avro schema without DynamoDB's types."""
    if isinstance(described, list):
        return [_without_dynamodb_types(branch) for branch in described]
    if isinstance(described, dict):
        return {key: _without_dynamodb_types(value) for key, value in described.items() if key != "ddb:type"}
    return described


def _legal_fields(fields: Sequence[pa.Field[Any]]) -> list[pa.Field[Any]]:
    names = [re.sub(r"[^A-Za-z0-9_]", "_", field.name) for field in fields]
    names = [name if _NAME.fullmatch(name) else f"_{name}" for name in names]
    counts, used = Counter(names), set[str]()
    legal = []
    for number, (name, field) in enumerate(zip(names, fields, strict=True)):
        chosen = name
        if name != field.name and counts[name] > 1:
            chosen = f"{name}_{number}"
        while chosen in used or (chosen != field.name and chosen in counts and counts[chosen] > (chosen == name)):
            chosen += "_"
        used.add(chosen)
        legal.append(pa.field(chosen, _legal_type(field.type), metadata=field.metadata))
    return legal


def _legal_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct(_legal_fields(list(kind)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), kind.item_field.with_type(_legal_type(kind.item_type)))
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(_legal_type(kind.value_type)))
    if kind == pa.uint64():
        return pa.decimal128(_UNSIGNED_DIGITS, 0)
    if pa.types.is_timestamp(kind) and kind.unit not in _TIMES:
        # Avro's shortest unit of times is a microsecond: finer times are text.
        return pa.timestamp("ms", kind.tz) if kind.unit == "s" else pa.string()
    return {pa.float16(): pa.float32(), pa.date64(): pa.date32()}.get(kind, kind)


def _record(name: str, fields: Sequence[pa.Field[Any]], legal: Sequence[pa.Field[Any]]) -> dict[str, Any]:
    members = []
    for field, column in zip(fields, legal, strict=True):
        member = {
            "name": column.name,
            "type": ["null", _avro_type(f"{name}_{column.name}", field, column)],
            "default": None,
        }
        tag = (field.metadata or {}).get(DDB_TYPE)
        if tag is not None:
            member["ddb:type"] = tag.decode()
        if column.name != field.name:
            member["ddb:name"] = field.name
        members.append(member)
    return {"type": "record", "name": name, "fields": members}


def _avro_type(path: str, field: pa.Field[Any], column: pa.Field[Any]) -> Any:  # noqa: PLR0911 - one line a type
    kind = column.type
    if pa.types.is_struct(kind):
        return _record(path, list(field.type), list(kind))
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _avro_type(path, field.type.item_field, kind.item_field)]}
    if is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(path, field.type.value_field, kind.value_field)]}
    if is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if is_text(kind) or is_binary(kind):
        return "string" if is_text(kind) else "bytes"
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": ("" if kind.tz else "local-") + _TIMES[kind.unit]}
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if kind not in _SIMPLE:
        raise SchemaError(f"{field.name}: Avro has no type for an Arrow {kind}: choose another column or format")
    return _SIMPLE[kind]


def _renamed(values: _Array, kind: Any) -> _Array:
    if values.type.equals(kind):
        return values
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        children = [_renamed(values.field(index), kind.field(index).type) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        offsets = pa.array(values.offsets.to_numpy().copy())
        keys, items = values.keys.cast(kind.key_type), _renamed(values.items, kind.item_type)
        maps: Any = pa.MapArray
        return maps.from_arrays(offsets, keys, items, type=kind, mask=mask)
    if is_list(kind):
        width = "int64" if pa.types.is_large_list(kind) else "int32"
        lists: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        offsets = pa.array(values.offsets.to_numpy().astype(width))
        return lists.from_arrays(offsets, _renamed(values.values, kind.value_type), type=kind, mask=mask)
    return values.cast(kind)


def _has_map(kind: Any) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _pairs(kind: Any) -> Callable[[Any], Any]:
    """Return a converter of dictionaries to lists of pairs, which Arrow accepts as maps."""
    if not _has_map(kind):
        return lambda value: value
    if pa.types.is_map(kind):
        inner = _pairs(kind.item_type)
        return lambda value: None if value is None else [(key, inner(item)) for key, item in value.items()]
    if is_list(kind):
        inner = _pairs(kind.value_type)
        return lambda value: None if value is None else [inner(item) for item in value]
    members = {field.name: _pairs(field.type) for field in kind}
    return lambda value: None if value is None else {name: members[name](item) for name, item in value.items()}


class _TypeTranslator:
    """Translation of the types of an Avro schema, which may refer to types that it defined before."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def of(self, described: Any) -> Any:
        """Return the Arrow type.

        Raises
        ------
        DecodeError
            If :func:`arrow_schema_of_avro` raises it.
        """
        if isinstance(described, list):
            others = [branch for branch in described if branch != "null"]
            if len(others) > 1:
                raise DecodeError("a value of it may have several types: make a file with one type for each column")
            return self.of(others[0]) if others else pa.null()
        if isinstance(described, str):
            return self._of_name(described)
        return self._of_described(described)

    def _of_name(self, name: str) -> Any:
        kind = _OF_AVRO.get(name) or self._named.get(name) or self._named.get(name.rpartition(".")[2])
        if kind is None:
            raise DecodeError(f"its type {name!r} contains itself, or is unknown")
        return kind

    def _of_described(self, described: Mapping[str, Any]) -> Any:
        match described["type"]:
            case "record":
                self._named[described["name"]] = None
                kind: Any = pa.struct(
                    [pa.field(field["name"], self.of(field["type"])) for field in described["fields"]]
                )
            case "array":
                return pa.list_(self.of(described["items"]))
            case "map":
                return pa.map_(pa.string(), self.of(described["values"]))
            case "enum":
                kind = pa.string()
            case "fixed" | "bytes" if _is_decimal(described):
                digits, scale = described["precision"], described.get("scale", 0)
                kind = pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)  # noqa: PLR2004
            case str(simple) if (simple, described.get("logicalType")) in _UNSUPPORTED:
                logical = described["logicalType"]
                raise DecodeError(f"DynamoDB has no type for Avro's {logical}: write it as a string or a number")
            case "fixed":
                kind = pa.binary()
            case str(simple):
                kind = _LOGICAL.get((simple, described.get("logicalType", ""))) or self._of_name(simple)
            case inner:
                return self.of(inner)
        if "name" in described:
            self._named[described["name"]] = kind
        return kind
