"""Declare columns by rules: which attributes are times, which have another type, and what all numbers become.

A rule for one attribute goes before the rule for all numbers. What a rule does not concern stays as it was inferred,
or as a schema says.
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
from ddbio.items.schema.times import TimeForm, is_time_column, parse_forms, with_form

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Numbers = Literal["exact", "float64", "text"]

_TYPE = re.compile(r"(?:(?P<tag>S|N|B|BOOL|NULL|JSON) )?(?P<arrow>\S.*)")
_DECIMAL = re.compile(r"decimal(?=\()")
# Types by the words of DynamoDB's own documentation, and by its letters.
_WORDS = {
    "number": "N string",
    "N": "N string",
    "string": "S string",
    "S": "S string",
    "boolean": "BOOL bool",
    "BOOL": "BOOL bool",
    "B": "B binary",
}
_USUAL_FORM = TimeForm("iso", "us")


@dataclass(frozen=True)
class ColumnRules:
    """Hold the rules by which columns are declared."""

    timestamps: Mapping[str, TimeForm | None] = field(default_factory=dict)
    """The forms of time columns by attribute; None is the form that a sample shows."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Arrow types by attribute, as text; DynamoDB's type may stand before."""
    numbers: Numbers = "exact"
    """``float64``: numbers that are not all whole become the nearest double; ``text``: all numbers become text."""

    @classmethod
    def of(cls, options: Any) -> ColumnRules:
        """Return the rules of the options ``timestamps``, ``types`` and ``numbers``.

        Raises
        ------
        OptionError
            A time has no such form.
        """
        return cls(time_forms(options.timestamps), dict(options.types or ()), options.numbers)

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self.timestamps or self.types or self.numbers != "exact")

    @property
    def sampled(self) -> list[str]:
        """Return the attributes whose form a sample shows."""
        return [name for name, form in self.timestamps.items() if form is None]

    def require(self, known: Collection[str]) -> None:
        """Check that the rules name attributes that there are, as far as a sample or a schema shows any.

        Raises
        ------
        SchemaError
            A name is unknown; the message has the nearest known one.
        """
        if known:
            problem = "neither the sample nor a schema has such an attribute"
            advice = "raise sample_items, or give a schema that has it"
            require_names((*self.timestamps, *self.types), known, problem, advice)

    def apply(
        self, schema: pa.Schema, sampled: Mapping[str, TimeForm] | None = None, exact: Collection[str] = ()
    ) -> pa.Schema:
        """Return a normalised schema with the columns that the rules declare.

        Parameters
        ----------
        sampled
            The forms that a sample shows.
        exact
            Attributes that the rule for numbers leaves as they are: keys.

        Raises
        ------
        SchemaError
            A type is unknown, or has no exact form in DynamoDB.
        """
        if not self:
            return schema
        columns = {name_of_field(each): each for each in schema if each.name != RESCUE_NAME}
        if self.numbers != "exact":
            columns |= {name: _number_rule(each, self.numbers) for name, each in columns.items() if name not in exact}
        missing = [name for name in (*self.types, *self.timestamps) if name not in columns]
        names = column_names([*columns, *missing])
        columns |= {name: tagged_field(names[name], pa.string(), "NULL", attribute=name) for name in missing}
        columns |= {name: _retyped(columns[name], text) for name, text in self.types.items()}
        for name, given in self.timestamps.items():
            form = given or (sampled or {}).get(name, _USUAL_FORM)
            own = tagged_field(columns[name].name, form.arrow_type, form.tag, attribute=name)
            columns[name] = with_form(own, form)
        return normalize_schema(pa.schema([*columns.values(), RESCUE_FIELD]))

    def declare(
        self, schema: ItemSchema, sampled: Mapping[str, TimeForm] | None = None, exact: Collection[str] = ()
    ) -> ItemSchema:
        """Return a schema in which the rules' columns are declared, as if a person had edited its file.

        Raises
        ------
        SchemaError
            A type is unknown, or another one is declared already.
        """
        before = schema.to_arrow()
        known = {each.name: each for each in before}
        after = self.apply(before, sampled, exact)
        changed = [each for each in after if each.name not in known or not each.equals(known[each.name], check_metadata=True)]  # fmt: skip # noqa: E501
        return schema.merge(ItemSchema.from_arrow(pa.schema(changed))) if changed else schema


def declared_fields(schema: Any, types: Iterable[tuple[str, str]] | None) -> dict[str, pa.Field[Any]]:
    """Return the columns by attribute that the options ``schema`` and ``types`` of a load declare.

    Raises
    ------
    SchemaError
        There is no such type, or the schema is none.
    """
    given = pa.schema([RESCUE_FIELD]) if schema is None else arrow_schema_of(schema)
    found = ColumnRules(types=dict(types or ())).apply(given)
    return {name_of_field(field): field for field in found if field.name != RESCUE_NAME}


def time_forms(given: Iterable[tuple[str, str]] | None) -> dict[str, TimeForm | None]:
    """Return the forms that the option ``timestamps`` names.

    Raises
    ------
    OptionError
        A text names no form.
    """
    try:
        return parse_forms(given or ())
    except ValueError as error:
        raise OptionError(f"option 'timestamps': {error}") from None


def _retyped(column: pa.Field[Any], text: str) -> pa.Field[Any]:
    name, own = name_of_field(column), tag_of_field(column)
    found = _TYPE.fullmatch(_WORDS.get(text.strip(), text.strip()))
    try:
        if text.strip() == "json":
            return tagged_field(column.name, pa.string(), "JSON", attribute=name)
        arrow_type = type_of_text(_DECIMAL.sub("decimal128", found["arrow"] if found else ""), ())
    except (ValueError, TypeError, pa.ArrowException):
        raise SchemaError(
            f"{name}: {text!r} is no type of a column: write an Arrow type as in 'decimal(38, 9)' or 'string', "
            "perhaps after DynamoDB's as in 'N string', or json"
        ) from None
    if is_time_column(arrow_type):
        raise SchemaError(f"{name}: declare a time by timestamps, which say how it is written, instead of types")
    tag = found["tag"] if found else None
    if tag is None and is_text(arrow_type) and own in {"N", "S", "JSON"}:
        # Text holds the values of such a column as they are.
        tag = own
    bare = pa.field(column.name, arrow_type)
    (normal, _) = normalize_schema(pa.schema([bare if tag is None else tagged_field(column.name, arrow_type, tag)]))
    return tagged_field(column.name, normal.type, tag_of_field(normal), attribute=name)


def _number_rule(column: pa.Field[Any], numbers: Numbers) -> pa.Field[Any]:
    """Return the column with the rule for numbers within it, but not for those of sets."""
    given = column.type
    tag = tag_of_field(column)
    if tag == "N":
        is_kept = numbers == "float64" and pa.types.is_integer(given)
        wanted = given if is_kept or is_time_column(given) else pa.string() if numbers == "text" else pa.float64()
        return column.with_type(wanted)
    inside = [_number_rule(each, numbers) for each in fields_within(given)] if tag in {"L", "M"} else []
    if not inside:
        return column
    if is_list(given):
        return column.with_type(pa.list_(inside[0].with_name(ELEMENT)))
    if pa.types.is_map(given):
        value: Any = inside[0]
        return column.with_type(pa.map_(pa.string(), value))
    return column.with_type(pa.struct(inside))
