"""Definition of a folder of files as a table: columns in Hive's types, partition columns, location and format."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import OptionError, SchemaError
from ddbio.items.schema.arrow import RESCUE_NAME, fields_within, is_binary, is_list, is_text
from ddbio.items.schema.folded import MAX_COLUMN_NAME_BYTES, fold
from ddbio.items.schema.own_names import column_name
from ddbio.items.schema.times import is_time_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# https://docs.aws.amazon.com/glue/latest/webapi/API_Column.html, and DatabaseInput and TableInput there
_MAX_TYPE_CHARS = 131_072
_GLUE = re.compile(r"glue://(?P<database>[^/.]+)[./](?P<table>[^/.]+)")
HIVE = "hive://"
"""Prefix of the names of tables in the metastore of a Spark session."""
_HIVE = re.compile(rf"{HIVE}(?P<database>[a-z0-9_]+)\.(?P<table>[a-z0-9_]+)")
_LEGAL_NAME = re.compile(r"[a-z0-9_-]{1,255}")
# Characters with a meaning in Hive's type syntax, which has no quotes.
_IN_TYPES = re.compile(r"[:,<>()`\s]")
_MAX_DIGITS = 38
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NOTHING: Mapping[str, str | None] = MappingProxyType({})

_INTEGERS = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
}  # fmt: skip
_FLOATS = {pa.float16(): "float", pa.float32(): "float", pa.float64(): "double"}


@dataclass(frozen=True, slots=True)
class TableName:
    """Name of a table in a catalog."""

    database: str
    table: str
    catalog: str = "glue"

    def __str__(self) -> str:
        """Return the name in the syntax of the option ``catalog``."""
        return f"{self.catalog}://{self.database}.{self.table}"


def parse_table_name(text: str) -> TableName:
    """Return the table name in ``glue://database.table``.

    Raises
    ------
    OptionError
        If the text has no such name, or one that Glue or Athena would change or refuse.
    """
    match = _GLUE.fullmatch(text)
    if match is None:
        raise OptionError(f"catalog: {text!r} names no table: write glue://database.table")
    for name in match.groups():
        if not _LEGAL_NAME.fullmatch(name):
            raise OptionError(
                f"catalog: {name!r} is no name that Glue keeps and Athena reads: use lower case letters, digits and _"
            )
    return TableName(match["database"], match["table"])


def parse_hive_name(text: str) -> TableName:
    """Return the table name in ``hive://database.table``.

    Raises
    ------
    OptionError
        If the text has no such name, or one that Hive would change.
    """
    match = _HIVE.fullmatch(text)
    if match is None:
        raise OptionError(
            f"catalog: {text!r} names no table of Hive: write {HIVE}database.table in lower case letters, digits and _"
        )
    return TableName(match["database"], match["table"], "hive")


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    Attributes
    ----------
    part
        For partition columns that are parts of a time: ``year``, ``month``, ``day`` or ``hour``.
    folder
        For partition columns: the name in the folders, if it differs.
    """

    name: str
    arrow_type: pa.DataType
    part: str | None = None
    folder: str | None = None

    @property
    def type(self) -> str:
        """Return Hive's type.

        Raises
        ------
        SchemaError
            If Hive has no such type, or cannot name a member of it.
        """
        hive = hive_type(self.arrow_type, self.name)
        if len(hive) > _MAX_TYPE_CHARS:
            raise SchemaError(
                f"{self.name}: its type has {len(hive)} characters of at most {_MAX_TYPE_CHARS}: declare it as json"
            )
        return hive


@dataclass(frozen=True)
class TableDefinition:
    """Files of a folder as a table.

    Attributes
    ----------
    location
        URI of the folder, without a slash at its end.
    format
        Name of the files' format.
    partition_columns
        The columns in the folder names, in their order.
    partitions
        The values of all partitions, unescaped; None is null.
    folders
        The folder of each partition, relative to the location.
    """

    location: str
    format: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...] = ()
    partitions: tuple[tuple[str | None, ...], ...] = ()
    folders: tuple[str, ...] = ()


def columns_of(
    schema: pa.Schema, names: Sequence[str], parts: Mapping[str, str | None] = _NOTHING, *, are_attributes: bool = False
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Return the file columns and the partition columns of a schema.

    Parameters
    ----------
    names
        The partition columns; a column that the schema lacks is a part of a time, an integer.
    parts
        The part of a time for each partition column that is one.
    are_attributes
        Whether a column of the files is an attribute even if a partition column has the same name, as in a log. The
        partition column then gets a checksum suffix.

    Raises
    ------
    SchemaError
        If a name is too long, or two names differ only in case, which catalogs ignore.
    """
    fields = {} if are_attributes else {field.name: field for field in schema}
    columns = tuple(Column(field.name, field.type) for field in schema if are_attributes or field.name not in names)
    used = {fold(column.name) for column in columns} if are_attributes else set()
    partitions = tuple(_partition_column(name, fields.get(name), parts.get(name), used) for name in names)
    for column in columns:
        if not _is_name(column.name):
            raise SchemaError(
                f"{column.name[:40]!r}…: a catalog takes names of 1 to {MAX_COLUMN_NAME_BYTES} characters: give the "
                "attribute another column_name in a schema"
            )
    _require_unique([column.name for column in (*columns, *partitions)], "")
    return columns, partitions


def nameable(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a catalog can name: with accepted and unique names, and types that Hive has.

    Members of structs that cannot be named are omitted.
    """
    return pa.schema(_nameable_fields(schema, ""))


def _nameable_fields(fields: Iterable[pa.Field[Any]], path: str) -> list[pa.Field[Any]]:
    fields_by_name: dict[str, pa.Field[Any]] = {}
    for field in fields:
        nameable_field = field
        if pa.types.is_struct(field.type):
            nameable_field = field.with_type(pa.struct(_nameable_fields(fields_within(field.type), field.name)))
        with contextlib.suppress(SchemaError):
            if _is_name(field.name) and (
                _member(nameable_field, path) if path else Column(nameable_field.name, nameable_field.type).type
            ):
                fields_by_name.setdefault(fold(field.name), nameable_field)
    return [*fields_by_name.values()]


def _is_name(name: str) -> bool:
    return 0 < len(name.encode()) <= MAX_COLUMN_NAME_BYTES and bool(name.strip()) and not _CONTROL.search(name)


def _partition_column(name: str, field: pa.Field[Any] | None, part: str | None, used: set[str]) -> Column:
    if field is None:
        # The column is a year, month, day or hour.
        shown = column_name(name, used)
        return Column(shown, pa.int32(), part, None if shown == name else name)
    has_text_type = any(is_kind(field.type) for is_kind in (pa.types.is_integer, pa.types.is_date, pa.types.is_boolean))
    return Column(name, field.type if has_text_type else pa.string(), part)


def _require_unique(names: Iterable[str], path: str) -> None:
    owners: dict[str, str] = {}
    for name in names:
        owner = owners.setdefault(name.lower(), name)
        if owner is not name:
            where = f" of {path}" if path else ""
            raise SchemaError(
                f"{name}: a catalog folds names to lower case, where {owner!r} and {name!r}{where} are one: give one "
                "of them another column_name in a schema"
            )


def hive_type(arrow_type: Any, path: str) -> str:
    """Return Hive's type that can store all values of an Arrow type.

    Raises
    ------
    SchemaError
        If there is none, or a member of a struct cannot be named.
    """
    if simple := _INTEGERS.get(arrow_type) or _FLOATS.get(arrow_type) or _simple_type(arrow_type, path):
        return simple
    inside = fields_within(arrow_type)
    if is_list(arrow_type) and inside:
        return f"array<{hive_type(inside[0].type, f'{path}[]')}>"
    if pa.types.is_map(arrow_type):
        return f"map<{hive_type(arrow_type.key_type, path)},{hive_type(inside[0].type, f'{path}.*')}>"
    if pa.types.is_struct(arrow_type) and inside:
        _require_unique((member.name for member in inside), path)
        return f"struct<{','.join(_member(member, path) for member in inside)}>"
    raise SchemaError(f"{path}: Hive has no type for an Arrow {arrow_type}: declare string, a number or json")


def _simple_type(arrow_type: Any, path: str) -> str | None:
    types = pa.types
    if types.is_decimal(arrow_type):
        if arrow_type.precision > _MAX_DIGITS or not 0 <= arrow_type.scale <= arrow_type.precision:
            raise SchemaError(f"{path}: Hive has no {arrow_type}: declare a decimal of at most 38 digits, or string")
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if is_time_column(arrow_type):
        return "timestamp" if types.is_timestamp(arrow_type) else "date"
    types_of_kinds = (
        (is_text, "string"),
        (is_binary, "binary"),
        (types.is_boolean, "boolean"),
        (types.is_null, "string"),
    )
    return next((hive for is_kind, hive in types_of_kinds if is_kind(arrow_type)), None)


def _member(field: pa.Field[Any], path: str) -> str:
    if _IN_TYPES.search(field.name):
        raise SchemaError(
            f"{path}.{field.name}: a catalog cannot name a member with such characters: declare the attribute as "
            "json by types, or leave the catalog out"
        )
    return f"{field.name}:{hive_type(field.type, f'{path}.{field.name}')}"


def merge_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the columns of several jobs, the oldest first: later jobs add theirs at the end; ``_rescue`` is the last.

    Raises
    ------
    SchemaError
        If a column has two types.
    """
    fields: dict[str, pa.Field[Any]] = {}
    for schema in schemas:
        for field in schema:
            previous = fields.setdefault(field.name, field)
            if previous.type != field.type and hive_type(previous.type, field.name) != hive_type(
                field.type, field.name
            ):
                raise SchemaError(
                    f"{field.name}: files of the folder hold it as {previous.type} and as {field.type}: write them "
                    "into separate folders, or give one type to all by a schema"
                )
    rescue = fields.pop(RESCUE_NAME, None)
    return pa.schema([*fields.values(), *([] if rescue is None else [rescue])])


def partition_values(files: Iterable[Mapping[str, str | None]], names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Return the distinct values of partitions, in the order of their text."""
    distinct = {tuple(file.get(name) for name in names) for file in files}
    return sorted(distinct, key=lambda values: tuple((value is not None, value or "") for value in values))
