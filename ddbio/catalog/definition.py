"""Describe a folder of files as a table: columns in Hive's types, partition columns, location and format."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import OptionError, SchemaError
from ddbio.items.schema.arrow import RESCUE_NAME, fields_within, is_binary, is_list, is_text
from ddbio.items.schema.folded import MOST_NAME_BYTES, fold
from ddbio.items.schema.own_names import column_name
from ddbio.items.schema.times import is_time_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# https://docs.aws.amazon.com/glue/latest/webapi/API_Column.html, and DatabaseInput and TableInput there
_MOST_TYPE_CHARS = 131_072
_GLUE = re.compile(r"glue://(?P<database>[^/.]+)[./](?P<table>[^/.]+)")
HIVE = "hive://"
"""Begins the names of tables in the metastore of a session of Spark."""
_HIVE = re.compile(rf"{HIVE}(?P<database>[a-z0-9_]+)\.(?P<table>[a-z0-9_]+)")
_LEGAL_NAME = re.compile(r"[a-z0-9_-]{1,255}")
# Characters with a meaning in the text of a Hive type, which has no quotes.
_IN_TYPES = re.compile(r"[:,<>()`\s]")
_MOST_DIGITS = 38
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NOTHING: Mapping[str, str | None] = MappingProxyType({})

_INTEGERS = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
}  # fmt: skip
_FLOATS = {pa.float16(): "float", pa.float32(): "float", pa.float64(): "double"}


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a catalog."""

    database: str
    table: str
    catalog: str = "glue"

    def __str__(self) -> str:
        """Return the name as the option ``catalog`` takes it."""
        return f"{self.catalog}://{self.database}.{self.table}"


def parse_table_name(text: str) -> TableName:
    """Return the name that ``glue://database.table`` says.

    Raises
    ------
    OptionError
        It says none, or one that Glue or Athena would not take as it is.
    """
    found = _GLUE.fullmatch(text)
    if found is None:
        raise OptionError(f"catalog: {text!r} names no table: write glue://database.table")
    for name in found.groups():
        if not _LEGAL_NAME.fullmatch(name):
            raise OptionError(
                f"catalog: {name!r} is no name that Glue keeps and Athena reads: use lower case letters, digits and _"
            )
    return TableName(found["database"], found["table"])


def parse_hive_name(text: str) -> TableName:
    """Return the name that ``hive://database.table`` says.

    Raises
    ------
    OptionError
        It says none that Hive keeps as it is.
    """
    found = _HIVE.fullmatch(text)
    if found is None:
        raise OptionError(
            f"catalog: {text!r} names no table of Hive: write {HIVE}database.table in lower case letters, digits and _"
        )
    return TableName(found["database"], found["table"], "hive")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    part
        Of a column of partitions, the part of a time that it is: ``year``, ``month``, ``day`` or ``hour``.
    folder
        Of a column of partitions, its name in the folders, if that is another.
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
            Hive has none, or cannot name a member of it.
        """
        hive = hive_type(self.arrow_type, self.name)
        if len(hive) > _MOST_TYPE_CHARS:
            raise SchemaError(
                f"{self.name}: its type has {len(hive)} characters of at most {_MOST_TYPE_CHARS}: declare it as json"
            )
        return hive


@dataclass(frozen=True)
class TableDefinition:
    """Describe the files of a folder as a table.

    Attributes
    ----------
    location
        URI of the folder, without a slash at its end.
    format
        Name of the files' format.
    partition_columns
        The columns that folders say, in their order.
    partitions
        The values of all partitions, as folders say them unescaped; None is null.
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
    """Return the columns of files, and those of partitions, of a schema.

    Parameters
    ----------
    names
        The columns of partitions; one that the schema lacks is a part of a time, a whole number.
    parts
        Which part of a time the columns of partitions are that are one.
    are_attributes
        Whether a column of the files is an attribute even if it is called as a column of partitions, as in a log. The
        latter gets a checksum behind its name then.

    Raises
    ------
    SchemaError
        A name is too long, or two names differ only by case, which catalogs fold.
    """
    fields = {} if are_attributes else {field.name: field for field in schema}
    columns = tuple(Column(field.name, field.type) for field in schema if are_attributes or field.name not in names)
    used = {fold(each.name) for each in columns} if are_attributes else set()
    partitions = tuple(_partition_column(name, fields.get(name), parts.get(name), used) for name in names)
    for each in columns:
        if not _is_name(each.name):
            raise SchemaError(
                f"{each.name[:40]!r}…: a catalog takes names of 1 to {MOST_NAME_BYTES} characters: give the attribute "
                "another column_name in a schema"
            )
    _require_apart([each.name for each in (*columns, *partitions)], "")
    return columns, partitions


def nameable(schema: pa.Schema) -> pa.Schema:
    """Return what a catalog can name of some columns: names that it takes, each once, and types that Hive has.

    A struct lacks the members that cannot be named.
    """
    return pa.schema(_nameable_fields(schema, ""))


def _nameable_fields(fields: Iterable[pa.Field[Any]], path: str) -> list[pa.Field[Any]]:
    kept: dict[str, pa.Field[Any]] = {}
    for field in fields:
        found = field
        if pa.types.is_struct(field.type):
            found = field.with_type(pa.struct(_nameable_fields(fields_within(field.type), field.name)))
        with contextlib.suppress(SchemaError):
            if _is_name(field.name) and (_member(found, path) if path else Column(found.name, found.type).type):
                kept.setdefault(fold(field.name), found)
    return [*kept.values()]


def _is_name(name: str) -> bool:
    return 0 < len(name.encode()) <= MOST_NAME_BYTES and bool(name.strip()) and not _CONTROL.search(name)


def _partition_column(name: str, field: pa.Field[Any] | None, part: str | None, used: set[str]) -> Column:
    if field is None:
        # year, month, day or hour.
        shown = column_name(name, used)
        return Column(shown, pa.int32(), part, None if shown == name else name)
    is_said = any(is_kind(field.type) for is_kind in (pa.types.is_integer, pa.types.is_date, pa.types.is_boolean))
    return Column(name, field.type if is_said else pa.string(), part)


def _require_apart(names: Iterable[str], path: str) -> None:
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
    """Return Hive's type that holds all values of an Arrow type.

    Raises
    ------
    SchemaError
        There is none, or a member of a struct cannot be named.
    """
    if simple := _INTEGERS.get(arrow_type) or _FLOATS.get(arrow_type) or _simple_type(arrow_type, path):
        return simple
    inside = fields_within(arrow_type)
    if is_list(arrow_type) and inside:
        return f"array<{hive_type(inside[0].type, f'{path}[]')}>"
    if pa.types.is_map(arrow_type):
        return f"map<{hive_type(arrow_type.key_type, path)},{hive_type(inside[0].type, f'{path}.*')}>"
    if pa.types.is_struct(arrow_type) and inside:
        _require_apart((each.name for each in inside), path)
        return f"struct<{','.join(_member(each, path) for each in inside)}>"
    raise SchemaError(f"{path}: Hive has no type for an Arrow {arrow_type}: declare string, a number or json")


def _simple_type(arrow_type: Any, path: str) -> str | None:
    types = pa.types
    if types.is_decimal(arrow_type):
        if arrow_type.precision > _MOST_DIGITS or not 0 <= arrow_type.scale <= arrow_type.precision:
            raise SchemaError(f"{path}: Hive has no {arrow_type}: declare a decimal of at most 38 digits, or string")
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if is_time_column(arrow_type):
        return "timestamp" if types.is_timestamp(arrow_type) else "date"
    known = ((is_text, "string"), (is_binary, "binary"), (types.is_boolean, "boolean"), (types.is_null, "string"))
    return next((hive for is_kind, hive in known if is_kind(arrow_type)), None)


def _member(field: pa.Field[Any], path: str) -> str:
    if _IN_TYPES.search(field.name):
        raise SchemaError(
            f"{path}.{field.name}: a catalog cannot name a member with such characters: declare the attribute as "
            "json by types, or leave the catalog out"
        )
    return f"{field.name}:{hive_type(field.type, f'{path}.{field.name}')}"


def merge_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the columns of several jobs, the oldest first: later ones add theirs at the end, ``_rescue`` is the last.

    Raises
    ------
    SchemaError
        One column has two types.
    """
    fields: dict[str, pa.Field[Any]] = {}
    for schema in schemas:
        for field in schema:
            known = fields.setdefault(field.name, field)
            if known.type != field.type and hive_type(known.type, field.name) != hive_type(field.type, field.name):
                raise SchemaError(
                    f"{field.name}: files of the folder hold it as {known.type} and as {field.type}: write them into "
                    "folders of their own, or give one type to all by a schema"
                )
    rescue = fields.pop(RESCUE_NAME, None)
    return pa.schema([*fields.values(), *([] if rescue is None else [rescue])])


def partition_values(files: Iterable[Mapping[str, str | None]], names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Return the distinct values of partitions, in the order of their text."""
    found = {tuple(each.get(name) for name in names) for each in files}
    return sorted(found, key=lambda values: tuple((value is not None, value or "") for value in values))
