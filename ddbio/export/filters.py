"""Filters of the service's exports: from a condition and columns to a FilterSpecification, and back to text.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Filtered.html
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError
from ddbio.items.attribute import decode_base64, encode_base64
from ddbio.scan.conditions import (
    ConditionText,
    Expressions,
    check_key_tests,
    format_condition,
    key_query,
    parse_condition,
    tests_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.aws.table_description import TableDescription
    from ddbio.items.attribute import AttributeValue

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Filtered.html
MAX_EXPRESSION_BYTES = 4096
_PLACEHOLDER = re.compile(r"[#:][A-Za-z0-9_]+")
_SCALARS = frozenset({"S", "N", "B", "BOOL", "NULL"})


@dataclass(frozen=True)
class ExportFilter:
    """Filter of an export.

    Attributes
    ----------
    key_condition
        The condition of the key, in the syntax of ``where``. It limits the items that the export reads.
    filter
        The condition of the items that were read, in the same syntax.
    columns
        The exported attributes. None means all.
    warnings
        Effects that the caller may not expect.
    """

    key_condition: str | None = None
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()

    def specification(self) -> dict[str, Any]:
        """Return the FilterSpecification of a request. It is empty if the export is not filtered.

        Raises
        ------
        OptionError
            If an expression is longer than the service allows.
        """
        expressions, members = Expressions(), dict[str, str]()
        if self.key_condition is not None:
            members["KeyConditionExpression"] = parse_condition(self.key_condition).write(expressions)
        if self.filter is not None:
            members["FilterExpression"] = parse_condition(self.filter).write(expressions)
        if self.columns is not None:
            members["ProjectionExpression"] = ", ".join(map(expressions.name, self.columns))
        for name, text in members.items():
            if len(text) > MAX_EXPRESSION_BYTES:
                option = "columns" if name == "ProjectionExpression" else "where"
                raise OptionError(
                    f"{option}: its {name} has {len(text):,} bytes, but an export takes at most "
                    f"{MAX_EXPRESSION_BYTES:,}: test fewer values, or filter when reading the export"
                )
        return {**members, **expressions.members()}


def plan_filter(table: TableDescription, where: str | None, columns: Sequence[str] | None) -> ExportFilter:
    """Return the filter of an export of the items that match a condition.

    An export takes one value of the partition key and one test of the sort key as a key condition. If a condition has
    them, the filter has only its other tests, since the service allows no tests of the key in both.

    Raises
    ------
    OptionError
        If ``where`` is not a condition, or compares a key with a constant of another type.
    """
    names = tuple(name for name, _ in table.key_types)
    missing = () if columns is None else tuple(name for name in names if name not in columns)
    warnings = [f"columns omit {', '.join(missing)} of the key: the items cannot be loaded"] if missing else []
    chosen = None if columns is None else tuple(columns)
    if where is None:
        return ExportFilter(None, None, chosen, tuple(warnings))
    condition = parse_condition(where)
    check_key_tests(tests_of(condition), dict(table.key_types))
    query = key_query(condition, names)
    queries = () if query is None else query.queries()
    if query is None or len(queries) != 1:
        if names[0] in condition.names():
            warnings.append(
                f"the condition names the partition key {names[0]!r}, but a key condition of an export takes one value "
                "of it, and one test of the sort key: the export reads the whole table"
            )
        return ExportFilter(None, format_condition(condition), chosen, tuple(warnings))
    remainder = None if query.remainder is None else format_condition(query.remainder)
    return ExportFilter(queries[0].write(ConditionText()), remainder, chosen, tuple(warnings))


def expression_text(specification: Mapping[str, Any], member: str) -> str | None:
    """Return an expression of a FilterSpecification with its names and values, or None if there is none."""
    expression = specification.get(member)
    if not expression:
        return None
    names = specification.get("ExpressionAttributeNames", {})
    values = specification.get("ExpressionAttributeValues", {})
    text = ConditionText()

    def replaced(match: re.Match[str]) -> str:
        token = match[0]
        if token in names:
            return text.name(names[token])
        return _value_text(text, values[token]) if token in values else token

    return _PLACEHOLDER.sub(replaced, expression)


def with_bytes(specification: dict[str, Any]) -> dict[str, Any]:
    """Return a FilterSpecification with its binary constants as bytes, as botocore requires."""
    name = "ExpressionAttributeValues"
    if name not in specification:
        return specification
    values = {
        placeholder: {"B": decode_base64(value["B"])} if "B" in value else value
        for placeholder, value in specification[name].items()
    }
    return {**specification, name: values}


def _value_text(text: ConditionText, value: AttributeValue) -> str:
    if isinstance(value.get("B"), bytes):
        value = {"B": encode_base64(value["B"])}
    return text.value(value) if value.keys() <= _SCALARS else json.dumps(value, default=encode_base64)
