"""Conversion of legacy parameters of requests to expressions, so that all other modules handle only expressions.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/LegacyConditionalParameters.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.testing.refusal import constraint, invalid, invalid_values, malformed
from ddbio.testing.request import Request

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue

_CONDITIONS = {
    "Expected": "ConditionExpression",
    "KeyConditions": "KeyConditionExpression",
    "QueryFilter": "FilterExpression",
    "ScanFilter": "FilterExpression",
}
LEGACY_MEMBERS = frozenset({*_CONDITIONS, "AttributeUpdates", "AttributesToGet", "ConditionalOperator"})
"""The parameters that expressions replace."""
# The expression of each operator, and its number of values. None is any number.
_OPERATORS: dict[str, tuple[str, int | None]] = {
    "EQ": ("{name} = {first}", 1),
    "NE": ("{name} <> {first}", 1),
    "LE": ("{name} <= {first}", 1),
    "LT": ("{name} < {first}", 1),
    "GE": ("{name} >= {first}", 1),
    "GT": ("{name} > {first}", 1),
    "NOT_NULL": ("attribute_exists({name})", 0),
    "NULL": ("attribute_not_exists({name})", 0),
    "CONTAINS": ("contains({name}, {first})", 1),
    "NOT_CONTAINS": ("NOT contains({name}, {first})", 1),
    "BEGINS_WITH": ("begins_with({name}, {first})", 1),
    "IN": ("{name} IN ({all})", None),
    "BETWEEN": ("{name} BETWEEN {first} AND {last}", 2),
}
_SECTIONS = {"PUT": "SET {name} = {value}", "ADD": "ADD {name} {value}", "DELETE": "DELETE {name} {value}"}


class Aliases:
    """Placeholders of an expression that is generated from other parameters."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, AttributeValue] = {}

    def name(self, attribute: str) -> str:
        """Return the placeholder of an attribute."""
        alias = f"#a{len(self.names)}"
        self.names[alias] = attribute
        return alias

    def value(self, value: AttributeValue) -> str:
        """Return the placeholder of a value."""
        alias = f":v{len(self.values)}"
        self.values[alias] = value
        return alias

    def members(self) -> dict[str, Any]:
        """Return the request members with the placeholders."""
        return {
            **({"ExpressionAttributeNames": self.names} if self.names else {}),
            **({"ExpressionAttributeValues": self.values} if self.values else {}),
        }


def with_expressions(request: Request) -> Request:
    """Return a request with expressions instead of its legacy parameters, except AttributesToGet."""
    members = {name: value for name, value in request.members.items() if name not in LEGACY_MEMBERS}
    if "AttributesToGet" in request.members:
        members["AttributesToGet"] = request.members["AttributesToGet"]
    for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        if name in members:
            raise invalid(f"{name} can only be specified when using expressions")
    aliases = Aliases()
    operator = request.text("ConditionalOperator") or "AND"
    conditions = {
        name: members_of_condition
        for name in _CONDITIONS
        if (members_of_condition := request.mapping(name)) is not None
    }
    if request.text("ConditionalOperator") and all(name == "KeyConditions" for name in conditions):
        raise invalid("ConditionalOperator cannot be used without Filter or Expected")
    for name, asked in conditions.items():
        if asked:
            joined = f" {'AND' if name == 'KeyConditions' else operator} "
            members[_CONDITIONS[name]] = joined.join(
                _condition(aliases, attribute, condition) for attribute, condition in asked.items()
            )
    updates = request.mapping("AttributeUpdates")
    if updates:
        members["UpdateExpression"] = _update(aliases, updates)
    return Request({**members, **aliases.members()}, is_sent=False)


def _condition(aliases: Aliases, attribute: str, condition: Any) -> str:
    if type(condition) is not dict:
        raise malformed()
    operator, values = condition.get("ComparisonOperator"), condition.get("AttributeValueList") or []
    if operator is None:
        operator, values = _expected(attribute, condition)
    elif not values and condition.get("Value") is not None:
        values = [condition["Value"]]
    if operator not in _OPERATORS:
        raise constraint(operator, "comparisonOperator", f"satisfy enum value set: [{', '.join(_OPERATORS)}]")
    text, count = _OPERATORS[operator]
    if type(values) is not list or (len(values) != count if count is not None else not values):
        raise invalid_values(f"Invalid number of argument(s) for the {operator} ComparisonOperator")
    operands = [aliases.value(value) for value in values]
    first, last = (operands[0], operands[-1]) if operands else ("", "")
    return text.format(name=aliases.name(attribute), first=first, last=last, all=", ".join(operands))


def _expected(attribute: str, condition: dict[str, Any]) -> tuple[str, list[AttributeValue]]:
    """Return the operator and the values of a condition that only checks whether an attribute exists."""
    exists, value = condition.get("Exists"), condition.get("Value")
    if exists is False and value is not None:
        raise invalid_values(f"Value cannot be used when Exists is set to false for Attribute: {attribute}")
    if exists is False:
        return "NULL", []
    if value is None:
        raise invalid_values(
            f"Value must be provided when Exists is {'true' if exists else 'null'} for Attribute: {attribute}"
        )
    return "EQ", [value]


def _update(aliases: Aliases, updates: dict[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    for attribute, update in updates.items():
        if type(update) is not dict:
            raise malformed()
        action, value = update.get("Action", "PUT"), update.get("Value")
        if action not in _SECTIONS:
            path = f"attributeUpdates.{attribute}.member.action"
            raise constraint(action, path, f"satisfy enum value set: [{', '.join(_SECTIONS)}]")
        if value is None and action != "DELETE":
            raise invalid_values("Only DELETE action is allowed when no attribute value is specified")
        text = "REMOVE {name}" if value is None else _SECTIONS[action]
        section, _, clause = text.partition(" ")
        filled = clause.format(name=aliases.name(attribute), value="" if value is None else aliases.value(value))
        sections.setdefault(section, []).append(filled)
    return " ".join(f"{section} {', '.join(clauses)}" for section, clauses in sections.items())
