"""Rules that declare columns: the attributes that are times, those with another type, and the type of all numbers.

A rule for one attribute has priority over the rule for all numbers. Columns without a rule keep their inferred or
declared type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.errors import OptionError, SchemaError
from ddbio.items.schema.arrow import (
    ELEMENT,
    RESCUE_FIELD,
    RESCUE_NAME,
    fields_within,
    is_list,
    is_text,
    name_of_field,
    normalize_schema,
    require_names,
    tag_of_field,
    tagged_field,
)
from ddbio.items.schema.column import column_names, type_of_text
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.items.schema.times import TimeFormat, is_time_column, parse_formats, with_format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Numbers = Literal["exact", "float64", "text"]

_TYPE = re.compile(r"(?:(?P<tag>S|N|B|BOOL|NULL|JSON) )?(?P<arrow>\S.*)")
_DECIMAL = re.compile(r"decimal(?=\()")
# Types by the words of DynamoDB's documentation, and by its letters.
_WORDS = {
    "number": "N string",
    "N": "N string",
    "string": "S string",
    "S": "S string",
    "boolean": "BOOL bool",
    "BOOL": "BOOL bool",
    "B": "B binary",
}
_DEFAULT_FORMAT = TimeFormat("iso", "us")


@dataclass(frozen=True)
class ColumnRules:
    """Rules by which columns are declared."""

    timestamps: Mapping[str, TimeFormat | None] = field(default_factory=dict)
    """The formats of time columns by attribute; None is the format that a sample shows."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Arrow types by attribute, as text, optionally after DynamoDB's type."""
    numbers: Numbers = "exact"
    """``float64``: numbers other than integers become the nearest double; ``text``: all numbers become text."""

    @classmethod
    def of(cls, options: Any) -> ColumnRules:
        """Return the rules of the options ``timestamps``, ``types`` and ``numbers``.

        Raises
        ------
        OptionError
            A time has no such format.
        """
        return cls(time_formats(options.timestamps), dict(options.types or ()), options.numbers)

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self.timestamps or self.types or self.numbers != "exact")

    @property
    def sampled(self) -> list[str]:
        """Return the attributes whose format is taken from a sample."""
        return [name for name, time_format in self.timestamps.items() if time_format is None]

    def require(self, attributes: Collection[str]) -> None:
        """Check that the rules name attributes of the sample or the schema, if there are any.

        Raises
        ------
        SchemaError
            A name is unknown. The message contains the nearest known one.
        """
        if attributes:
            problem = "neither the sample nor a schema has such an attribute"
            advice = "raise sample_items, or give a schema that has it"
            require_names((*self.timestamps, *self.types), attributes, problem, advice)

    def apply(
        self, schema: pa.Schema, sampled: Mapping[str, TimeFormat] | None = None, exact: Collection[str] = ()
    ) -> pa.Schema:
        """Return a normalised schema with the columns that the rules declare.

        Parameters
        ----------
        sampled
            The formats that a sample shows.
        exact
            Attributes to which the rule for numbers does not apply: keys.

        Raises
        ------
        SchemaError
            A type is unknown, or has no exact encoding in DynamoDB.
        """
        if not self:
            return schema
        columns = {name_of_field(column): column for column in schema if column.name != RESCUE_NAME}
        if self.numbers != "exact":
            columns |= {
                name: _number_rule(column, self.numbers) for name, column in columns.items() if name not in exact
            }
        missing = [name for name in (*self.types, *self.timestamps) if name not in columns]
        names = column_names([*columns, *missing])
        columns |= {name: tagged_field(names[name], pa.string(), "NULL", attribute=name) for name in missing}
        columns |= {name: _retyped(columns[name], text) for name, text in self.types.items()}
        for name, declared in self.timestamps.items():
            time_format = declared or (sampled or {}).get(name, _DEFAULT_FORMAT)
            own = tagged_field(columns[name].name, time_format.arrow_type, time_format.tag, attribute=name)
            columns[name] = with_format(own, time_format)
        return normalize_schema(pa.schema([*columns.values(), RESCUE_FIELD]))

    def declare(
        self, schema: ItemSchema, sampled: Mapping[str, TimeFormat] | None = None, exact: Collection[str] = ()
    ) -> ItemSchema:
        """Return a schema in which the rules' columns are declared, as if its file had been edited.

        Raises
        ------
        SchemaError
            A type is unknown, or the column is already declared with another type.
        """
        before = schema.to_arrow()
        attributes = {column.name: column for column in before}
        after = self.apply(before, sampled, exact)
        changed = [column for column in after if column.name not in attributes or not column.equals(attributes[column.name], check_metadata=True)]  # fmt: skip # noqa: E501
        return schema.merge(ItemSchema.from_arrow(pa.schema(changed))) if changed else schema


def declared_fields(schema: Any, types: Iterable[tuple[str, str]] | None) -> dict[str, pa.Field[Any]]:
    """Return the columns that the options ``schema`` and ``types`` of a load declare, by attribute.

    Raises
    ------
    SchemaError
        A type is unknown, or the schema is invalid.
    """
    base = pa.schema([RESCUE_FIELD]) if schema is None else arrow_schema_of(schema)
    columns = ColumnRules(types=dict(types or ())).apply(base)
    return {name_of_field(field): field for field in columns if field.name != RESCUE_NAME}


def time_formats(options: Iterable[tuple[str, str]] | None) -> dict[str, TimeFormat | None]:
    """Return the formats that the option ``timestamps`` names.

    Raises
    ------
    OptionError
        A text is not the name of a format.
    """
    try:
        return parse_formats(options or ())
    except ValueError as error:
        raise OptionError(f"option 'timestamps': {error}") from None


def _retyped(column: pa.Field[Any], text: str) -> pa.Field[Any]:
    name, own = name_of_field(column), tag_of_field(column)
    match = _TYPE.fullmatch(_WORDS.get(text.strip(), text.strip()))
    try:
        if text.strip() == "json":
            return tagged_field(column.name, pa.string(), "JSON", attribute=name)
        arrow_type = type_of_text(_DECIMAL.sub("decimal128", match["arrow"] if match else ""), ())
    except (ValueError, TypeError, pa.ArrowException):
        raise SchemaError(
            f"{name}: {text!r} is no type of a column: write an Arrow type as in 'decimal(38, 9)' or 'string', "
            "perhaps after DynamoDB's as in 'N string', or json"
        ) from None
    if is_time_column(arrow_type):
        raise SchemaError(f"{name}: declare a time by timestamps, which define its format, instead of types")
    tag = match["tag"] if match else None
    if tag is None and is_text(arrow_type) and own in {"N", "S", "JSON"}:
        # Text columns contain the values of such an attribute exactly.
        tag = own
    bare = pa.field(column.name, arrow_type)
    (normal, _) = normalize_schema(pa.schema([bare if tag is None else tagged_field(column.name, arrow_type, tag)]))
    return tagged_field(column.name, normal.type, tag_of_field(normal), attribute=name)


def _number_rule(column: pa.Field[Any], numbers: Numbers) -> pa.Field[Any]:
    """Return the column with the rule for numbers applied to it and to nested columns, but not to sets."""
    arrow_type = column.type
    tag = tag_of_field(column)
    if tag == "N":
        is_kept = numbers == "float64" and pa.types.is_integer(arrow_type)
        new_type = (
            arrow_type if is_kept or is_time_column(arrow_type) else pa.string() if numbers == "text" else pa.float64()
        )
        return column.with_type(new_type)
    children = [_number_rule(child, numbers) for child in fields_within(arrow_type)] if tag in {"L", "M"} else []
    if not children:
        return column
    if is_list(arrow_type):
        return column.with_type(pa.list_(children[0].with_name(ELEMENT)))
    if pa.types.is_map(arrow_type):
        value: Any = children[0]
        return column.with_type(pa.map_(pa.string(), value))
    return column.with_type(pa.struct(children))
