"""Checks of the members of requests before their operations run, in the order of the service.

First comes the name of the table, then every other constraint of the service's model, all in one reply, then the
combinations of expressions with legacy parameters.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Operations_Amazon_DynamoDB.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.testing.expressions.legacy import LEGACY_MEMBERS, with_expressions
from ddbio.testing.refusal import invalid, required_parameter, violations
from ddbio.testing.request import name_problems
from ddbio.testing.tables.vectors import MAX_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.testing.request import Request

_EXPRESSIONS = (
    "ProjectionExpression",
    "UpdateExpression",
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
)


class Rule(NamedTuple):
    """One constraint of the service's model.

    Attributes
    ----------
    path
        The members that lead to the value. ``*`` is every element of a list.
    choices
        The allowed values of the member.
    least, most
        Bounds of a number, or of the length of a text or list.
    shape
        The type of a list's elements, which the service shows in messages.
    is_required
        Whether the member is required.
    hides_value
        Whether the service's message shows the member as sent, without its value.
    """

    path: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    shape: str = ""
    is_required: bool = False
    hides_value: bool = False

    def is_satisfied(self, members: dict[str, Any]) -> bool:
        """Return whether a request satisfies this constraint."""
        if "." in self.path:
            return members.get(self.path.partition(".")[0]) is None or not any(self.problems(members))
        value = members.get(self.path)
        return not self.is_required if value is None else self._broken_rule(value) is None

    def problems(self, members: dict[str, Any]) -> Iterator[str]:
        """Yield a text for each value that breaks this constraint."""
        for path, value in _values(members, self.path.split("."), ""):
            if value is None:
                if self.is_required:
                    yield f"Value null at '{path}' failed to satisfy constraint: Member must not be null"
                continue
            broken = self._broken_rule(value)
            if broken:
                where = f"'{self.path}'" if self.hides_value else f"'{path}'"
                shown = "" if self.hides_value else f"'{shown_value(value, self.shape)}' "
                yield f"Value {shown}at {where} failed to satisfy constraint: Member must {broken}"

    def _broken_rule(self, value: Any) -> str | None:
        if self.choices:
            if type(value) is not str or value in self.choices:
                return None
            return f"satisfy enum value set: [{', '.join(self.choices)}]"
        if type(value) is int:
            size, noun = value, "value"
        elif type(value) in {str, list, dict}:
            size, noun = len(value), "length"
        else:
            return None
        if self.least is not None and size < self.least:
            return f"have {noun} greater than or equal to {self.least}"
        if self.most is not None and size > self.most:
            return f"have {noun} less than or equal to {self.most}"
        return None


def _values(value: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values at a path, each with its path in the service's notation."""
    if not steps:
        yield path, value
        return
    step, *remaining = steps
    if step == "*":
        for number, element in enumerate(value if type(value) is list else (), start=1):
            yield from _values(element, remaining, f"{path}.{number}.member")
    elif type(value) is dict:
        name = step[:1].lower() + step[1:]
        yield from _values(value.get(step), remaining, f"{path}.{name}" if path else name)


def shown_value(value: Any, shape: str = "") -> str:
    """Return a value in the notation of the service's messages."""
    if type(value) is list:
        return f"[{', '.join(shown_value(element, shape) for element in value)}]"
    if type(value) is dict and shape:
        members = (f"{name[:1].lower()}{name[1:]}={shown_value(member)}" for name, member in value.items())
        return f"{shape}({', '.join(members)})"
    if type(value) is dict:
        return f"{{{', '.join(f'{name}={shown_value(member)}' for name, member in value.items())}}}"
    return str(value)


RETURN_CONSUMED = ("INDEXES", "TOTAL", "NONE")
RETURN_VALUES = ("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW")
SELECTS = ("SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES")
BILLING_MODES = ("PROVISIONED", "PAY_PER_REQUEST")
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html
MAX_SEGMENTS = 1_000_000
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
MAX_TRANSACTION = 100
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html
MAX_STATEMENTS = 25

_CONSUMED = Rule("ReturnConsumedCapacity", RETURN_CONSUMED)
_METRICS = Rule("ReturnItemCollectionMetrics", ("SIZE", "NONE"))
_CONDITIONAL = Rule("ConditionalOperator", ("AND", "OR"))
_ON_FAILURE = Rule("ReturnValuesOnConditionCheckFailure", ("ALL_OLD", "NONE"))
_WRITE = (_CONSUMED, _METRICS, Rule("ReturnValues", RETURN_VALUES), _CONDITIONAL, _ON_FAILURE)
_KEY = Rule("Key", is_required=True)
_PAGE = (_CONSUMED, Rule("Select", SELECTS), _CONDITIONAL, Rule("IndexName", least=3, most=255))
_STATEMENT = (Rule("Statement", least=1, most=8192, is_required=True), Rule("Parameters", least=1))
_THROUGHPUT = tuple(
    Rule(f"{prefix}ProvisionedThroughput.{member}", least=1)
    for prefix in ("", "GlobalSecondaryIndexes.*.", "GlobalSecondaryIndexUpdates.*.Update.")
    for member in ("ReadCapacityUnits", "WriteCapacityUnits")
)
_DEFINITIONS = Rule("AttributeDefinitions.*.AttributeType", ("B", "N", "S"))
_VECTOR_INDEX = (
    Rule("IndexName", least=3, most=255, is_required=True),
    Rule("VectorAttribute", is_required=True),
    Rule("VectorAttribute.AttributeName", least=1, most=255, is_required=True),
    Rule("SearchSchema", least=1, shape="SearchSchemaElement"),
    Rule("SearchSchema.*.SearchSchemaElementType", ("HASH", "INLINE_FILTER"), is_required=True),
    Rule("Projection", is_required=True),
    Rule("Projection.ProjectionType", ("ALL", "KEYS_ONLY", "INCLUDE"), is_required=True),
    Rule("Dimensions", least=1, most=MAX_DIMENSIONS, is_required=True),
    Rule("DistanceFunction", ("COSINE", "DOT_PRODUCT", "EUCLIDEAN"), is_required=True),
)
_TAG = (Rule("Tags.*.Key", least=1, most=128, is_required=True), Rule("Tags.*.Value", most=256, is_required=True))
_CREATE = (
    Rule("AttributeDefinitions", is_required=True),
    Rule("KeySchema", least=1, most=2, shape="KeySchemaElement", is_required=True),
    _DEFINITIONS,
    Rule("KeySchema.*.KeyType", ("HASH", "RANGE")),
    Rule("GlobalSecondaryIndexes.*.KeySchema", least=1, most=8, shape="KeySchemaElement"),
    Rule("LocalSecondaryIndexes.*.KeySchema", least=1, most=2, shape="KeySchemaElement"),
    *_THROUGHPUT,
    Rule("BillingMode", BILLING_MODES),
    *(rule._replace(path=f"VectorIndexes.*.{rule.path}") for rule in _VECTOR_INDEX),
    *_TAG,
)
_ARN = Rule("ResourceArn", least=1, most=1283, is_required=True)

_RULES: dict[str, tuple[Rule, ...]] = {
    "BatchExecuteStatement": (
        Rule("Statements", least=1, most=MAX_STATEMENTS, shape="BatchStatementRequest", is_required=True),
        _CONSUMED,
        *(rule._replace(path=f"Statements.*.{rule.path}") for rule in _STATEMENT),
    ),
    "BatchGetItem": (_CONSUMED,),
    "BatchWriteItem": (_CONSUMED, _METRICS),
    "CreateTable": _CREATE,
    "DeleteItem": (*_WRITE, _KEY),
    "ExecuteStatement": (*_STATEMENT, _CONSUMED, Rule("Limit", least=1)),
    "ExecuteTransaction": (
        Rule("TransactStatements", least=1, most=MAX_TRANSACTION, shape="ParameterizedStatement", is_required=True),
        Rule("ClientRequestToken", least=1, most=36),
        _CONSUMED,
        *(rule._replace(path=f"TransactStatements.*.{rule.path}") for rule in _STATEMENT),
    ),
    "GetItem": (_CONSUMED, _KEY),
    "ImportTable": tuple(rule._replace(path=f"TableCreationParameters.{rule.path}") for rule in _CREATE),
    "ListTables": (Rule("Limit", least=1, most=100),),
    "ListTagsOfResource": (_ARN,),
    "SearchVectors": (
        _CONSUMED,
        Rule("IndexName", least=3, most=255, is_required=True),
        Rule("SearchVector", least=1, most=MAX_DIMENSIONS, is_required=True),
        Rule("TopK", least=1, is_required=True),
    ),
    "PutItem": (*_WRITE, Rule("Item", is_required=True)),
    "Query": (*_PAGE, Rule("Limit", least=1, hides_value=True)),
    "Scan": (
        *_PAGE,
        Rule("Limit", least=1),
        Rule("TotalSegments", least=1, most=MAX_SEGMENTS),
        Rule("Segment", least=0, most=MAX_SEGMENTS - 1),
    ),
    "TagResource": (_ARN, Rule("Tags", is_required=True), *_TAG),
    "TransactGetItems": (
        Rule("TransactItems", least=1, most=MAX_TRANSACTION, shape="TransactGetItem", is_required=True),
        _CONSUMED,
    ),
    "TransactWriteItems": (
        Rule("TransactItems", least=1, most=MAX_TRANSACTION, shape="TransactWriteItem", is_required=True),
        Rule("ClientRequestToken", least=1, most=36),
        _CONSUMED,
        _METRICS,
        *(
            Rule(f"TransactItems.*.{action}.ReturnValuesOnConditionCheckFailure", _ON_FAILURE.choices)
            for action in ("ConditionCheck", "Put", "Delete", "Update")
        ),
        Rule("TransactItems.*.Update.UpdateExpression", is_required=True),
    ),
    "UntagResource": (_ARN, Rule("TagKeys", is_required=True)),
    "UpdateItem": (*_WRITE, _KEY),
    "UpdateTable": (
        _DEFINITIONS,
        *_THROUGHPUT,
        Rule("BillingMode", BILLING_MODES),
        *(rule._replace(path=f"VectorIndexUpdates.*.Create.{rule.path}") for rule in _VECTOR_INDEX),
        Rule("VectorIndexUpdates.*.Delete.IndexName", least=3, most=255, is_required=True),
    ),
    "UpdateTimeToLive": (
        Rule("TimeToLiveSpecification", is_required=True),
        Rule("TimeToLiveSpecification.AttributeName", least=1, most=255),
    ),
}
# For a missing name, the operations on items return the model's message. The others have their own text.
_ITEM_OPERATIONS = frozenset({"DeleteItem", "GetItem", "PutItem", "Query", "Scan", "SearchVectors", "UpdateItem"})
_TABLE_OPERATIONS = frozenset({"CreateTable", "DeleteTable", "DescribeTable", "UpdateTable"})
_MIN_NAME_LENGTH, _MIN_NEW_NAME_LENGTH = 1, 3


_REQUIRED = {
    operation: tuple(rule.path for rule in rules if rule.is_required and "." not in rule.path)
    for operation, rules in _RULES.items()
}
# By the first member of the path, so that a request pays only for its own members.
_BY_MEMBER = {
    operation: {
        name: tuple(rule for rule in rules if rule.path.partition(".")[0] == name)
        for name in {rule.path.partition(".")[0] for rule in rules}
    }
    for operation, rules in _RULES.items()
}


def _are_satisfied(operation: str, members: dict[str, Any]) -> bool:
    """Return whether a request satisfies all constraints of its operation."""
    by_member = _BY_MEMBER.get(operation)
    if by_member is None:
        return True
    for name in members:
        for rule in by_member.get(name, ()):
            if not rule.is_satisfied(members):
                return False
    return all(members.get(name) is not None for name in _REQUIRED[operation])


def validated(operation: str, request: Request) -> Request:
    """Return a request with legacy parameters converted to expressions. Raise if a constraint is broken."""
    members = request.members
    if operation in _ITEM_OPERATIONS or operation in _TABLE_OPERATIONS:
        _check_table_name(operation, members)
    if not _are_satisfied(operation, members):
        raise violations([problem for rule in _RULES[operation] for problem in rule.problems(members)])
    if LEGACY_MEMBERS.isdisjoint(members):
        return request
    older = [name for name in sorted(LEGACY_MEMBERS) if members.get(name) is not None]
    newer = [name for name in _EXPRESSIONS if members.get(name) is not None]
    if older and newer:
        raise invalid(
            "Can not use both expression and non-expression parameters in the same request: "
            f"Non-expression parameters: {{{', '.join(older)}}} Expression parameters: {{{', '.join(newer)}}}"
        )
    return with_expressions(request)


def _check_table_name(operation: str, members: dict[str, Any]) -> None:
    name = members.get("TableName")
    if name is None:
        if operation in _TABLE_OPERATIONS:
            raise required_parameter("TableName")
        raise violations(["Value null at 'tableName' failed to satisfy constraint: Member must not be null"])
    if type(name) is str:
        problems = name_problems(
            name, "tableName", _MIN_NEW_NAME_LENGTH if operation in _TABLE_OPERATIONS else _MIN_NAME_LENGTH
        )
        if problems:
            raise violations(problems)
