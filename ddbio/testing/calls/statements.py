"""ExecuteStatement, BatchExecuteStatement and ExecuteTransaction, run as the equivalent calls.

A SELECT is a Query if its condition sets the partition key, otherwise a Scan.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.reads import Source, read_query, scan
from ddbio.testing.calls.transactions import Action, parsed_check, read_all, reason_code, run_once, write_all
from ddbio.testing.calls.writes import delete_item, parsed_delete, parsed_put, parsed_update, put_item, update_item
from ddbio.testing.expressions.conditions import value_at
from ddbio.testing.expressions.partiql import Statement, joined, parse_statement
from ddbio.testing.refusal import Refusal, duplicate_item, invalid, lacking, malformed
from ddbio.testing.request import Request, canonical_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.items.attribute import Item
    from ddbio.testing.calls.writes import Planner
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Table

_WRITES: dict[str, Callable[[Database, Request], dict[str, Any]]] = {
    "DELETE": delete_item,
    "INSERT": put_item,
    "UPDATE": update_item,
}
_PARSED: dict[str, Callable[[Request], Planner]] = {
    "DELETE": parsed_delete,
    "INSERT": parsed_put,
    "SELECT": parsed_check,
    "UPDATE": parsed_update,
}
_PASSED_ON = ("ReturnConsumedCapacity", "ReturnValuesOnConditionCheckFailure", "ConsistentRead", "Limit")


def execute_statement(database: Database, request: Request) -> dict[str, Any]:
    """Run one statement."""
    return _executed(database, request, _parsed(request))


def batch_execute_statement(database: Database, request: Request) -> dict[str, Any]:
    """Run up to 25 statements on single items, which all read or all write. Each succeeds or fails separately."""
    consumed = {"ReturnConsumedCapacity": request.text("ReturnConsumedCapacity") or "NONE"}
    responses: list[dict[str, Any]] = []
    capacities: list[Any] = []
    parts = _parts(request, "Statements")
    statements = [_parsed_or_refused(part) for part in parts]
    reading = {statement.kind == "SELECT" for statement in statements if isinstance(statement, Statement)}
    if len(reading) > 1:
        raise invalid("A batch of statements can only read or only write")
    for part, statement in zip(parts, statements, strict=True):
        try:
            if isinstance(statement, Refusal):
                raise statement
            table = database.named(statement.table)
            if statement.kind == "SELECT":
                _full_key(statement, table, "Select statements within BatchExecuteStatement")
            reply = _executed(database, Request({**part.members, **consumed}), statement)
        except Refusal as refusal:
            message = str(refusal.body.get("message", ""))
            responses.append({"Error": {"Code": reason_code(refusal), "Message": message}})
            continue
        items = reply["Items"]
        responses.append({"TableName": statement.table, **({"Item": items[0]} if items else {})})
        capacities += [reply["ConsumedCapacity"]] if "ConsumedCapacity" in reply else []
    return {"Responses": responses, **({"ConsumedCapacity": capacities} if capacities else {})}


def execute_transaction(database: Database, request: Request) -> dict[str, Any] | Chunks:
    """Run up to 100 statements on single items, all or none of them. They all read or all write."""
    asked = request.required("TransactStatements")
    parts = _parts(request, "TransactStatements")
    statements = [_parsed(part) for part in parts]
    reading = [statement.kind == "SELECT" and not statement.is_check for statement in statements]
    if any(reading) and not all(reading):
        raise invalid("A transaction of statements can only read or only write")
    if any(reading):
        return read_all(database, request, [_get_request(database, statement) for statement in statements])

    def run() -> tuple[dict[str, Any], list[Any]]:
        actions = [_action(database, part, statement) for part, statement in zip(parts, statements, strict=True)]
        reply, done = write_all(database, request, actions)
        return {"Responses": [{} for _ in actions], **reply}, done

    return run_once(database, request, asked, run)


def _parts(request: Request, member: str) -> list[Request]:
    parts = request.required(member)
    if type(parts) is not list or any(type(part) is not dict for part in parts):
        raise malformed()
    return [Request(part) for part in parts]


def _parsed(request: Request) -> Statement:
    request.required("Statement")
    parameters = [canonical_value(value) for value in request.listing("Parameters") or ()]
    return parse_statement(request.text("Statement") or "", parameters)


def _parsed_or_refused(request: Request) -> Statement | Refusal:
    try:
        return _parsed(request)
    except Refusal as refusal:
        return refusal


def _executed(database: Database, request: Request, statement: Statement) -> dict[str, Any]:
    if statement.is_check:
        raise invalid("EXISTS() function is only supported in transactions")
    if statement.kind == "SELECT":
        return _selected(database, request, statement)
    try:
        reply = _WRITES[statement.kind](database, _write_request(database, request, statement))
    except Refusal as refusal:
        if statement.kind == "INSERT" and reason_code(refusal) == "ConditionalCheckFailed":
            raise duplicate_item() from None
        raise
    attributes = reply.pop("Attributes", None)
    return {"Items": [] if attributes is None else [attributes], **reply}


def _action(database: Database, request: Request, statement: Statement) -> Action:
    written = _write_request(database, request, statement)
    return Action(written, _PARSED[statement.kind](written), is_insert=statement.kind == "INSERT")


def _write_request(database: Database, request: Request, statement: Statement) -> Request:
    """Return the request equivalent to a statement that writes, or checks, one item."""
    table = database.named(statement.table)
    partition = statement.aliases.name(table.keys.partition.name)
    passed_on = {name: request.members[name] for name in _PASSED_ON if name in request.members}
    returned = {} if statement.returning is None else {"ReturnValues": statement.returning}
    if statement.kind == "INSERT":
        absent = ["attribute_not_exists", "(", partition, ")"]
        members = {"Item": statement.item, **statement.members(ConditionExpression=absent)}
        return Request({**passed_on, **members}, is_sent=False)
    key, others = _full_key(statement, table, "Where clause", strict=False)
    present = ["attribute_exists", "(", partition, ")"]
    conditions = others if statement.kind == "DELETE" else [present, *others]
    update = [
        token
        for section, clauses in statement.changes.items()
        for at, clause in enumerate(clauses)
        for token in ([","] if at else [section]) + clause
    ]
    members = statement.members(ConditionExpression=joined(conditions), UpdateExpression=update)
    return Request({**passed_on, **returned, "Key": key, **members}, is_sent=False)


def _full_key(statement: Statement, table: Table, who: str, *, strict: bool = True) -> tuple[Item, list[list[str]]]:
    """Return the key and the other conjuncts of a condition. Raise if the condition lacks a part of the key."""
    key, others = statement.split_key(table.keys.names)
    if len(key) < len(table.keys.names):
        if strict:
            raise invalid(f"{who} must specify the primary key in the where clause.")
        raise invalid(f"{who} does not contain a mandatory equality on all key attributes")
    return key, others


def _get_request(database: Database, statement: Statement) -> Request:
    table = database.named(statement.table)
    key, others = _full_key(statement, table, "Select statements within ExecuteTransaction")
    if others or any(len(path) > 1 for path in statement.paths or ()):
        raise lacking("A nested path or a further condition in a SELECT of a transaction")
    return Request({"Key": key, **statement.members(ProjectionExpression=_projection(statement))}, is_sent=False)


def _projection(statement: Statement) -> list[str]:
    """Return the tokens of a projection of all attributes that a SELECT names."""
    names = dict.fromkeys(str(path[0]) for path in statement.paths or ())
    return [token for name in names for token in (",", statement.aliases.name(name))][1:]


def _selected(database: Database, request: Request, statement: Statement) -> dict[str, Any]:
    index = {} if statement.index is None else {"IndexName": statement.index}
    source = Source.of(database.named(statement.table), Request({**request.members, **index}))
    names = source.keys.names
    key_parts: dict[str, list[str]] = {}
    others = []
    for conjunct in statement.conjuncts():
        name, operator = statement.comparison(conjunct) or ("", "")
        is_usable = name in names and name not in key_parts and (operator == "=" or name != names[0])
        if is_usable:
            key_parts[name] = conjunct
        else:
            others.append(conjunct)
    is_query = names[0] in key_parts
    if not is_query:
        others = statement.conjuncts()
    if statement.order is not None and not is_query:
        raise invalid("Must have WHERE clause in the statement when using ORDER BY clause.")
    if statement.order is not None and statement.order not in names:
        raise invalid(f"Variable reference {statement.order} in ORDER BY clause must be part of the primary key")
    members = statement.members(
        FilterExpression=joined(others),
        ProjectionExpression=_projection(statement),
        # A key condition cannot have nested parentheses.
        KeyConditionExpression=_all(list(key_parts.values())) if is_query else [],
    )
    read = Request(
        {
            **{name: request.members[name] for name in _PASSED_ON if name in request.members},
            **index,
            **members,
            **({"ScanIndexForward": False} if statement.descending else {}),
            **_start(request),
        },
        is_sent=False,
    )
    chunks = read_query(database, read, filters_keys=True) if is_query else scan(database, read)
    return _shown(json.loads(b"".join(chunks)), statement, request)


def _all(conjuncts: list[list[str]]) -> list[str]:
    return [token for conjunct in conjuncts for token in ("AND", *conjunct)][1:]


def _shown(reply: dict[str, Any], statement: Statement, request: Request) -> dict[str, Any]:
    items = reply["Items"]
    if any(len(path) > 1 for path in statement.paths or ()):
        items = [_picked(statement, item) for item in items]
    shown = {"Items": items}
    if "ConsumedCapacity" in reply:
        shown["ConsumedCapacity"] = reply["ConsumedCapacity"]
    if "LastEvaluatedKey" in reply:
        key = reply["LastEvaluatedKey"]
        token = json.dumps([request.members["Statement"], key]).encode()
        shown |= {"LastEvaluatedKey": key, "NextToken": base64.b64encode(token).decode()}
    return shown


def _picked(statement: Statement, item: Item) -> Item:
    """Return the values that a SELECT projects, each by the last name of its path."""
    named = {}
    for path in statement.paths or ():
        value = value_at(item, path)
        if value is not None:
            named[[step for step in path if isinstance(step, str)][-1]] = value
    return named


def _start(request: Request) -> dict[str, Any]:
    token = request.text("NextToken")
    if token is None:
        return {}
    try:
        statement, key = json.loads(base64.b64decode(token, validate=True))
    except (binascii.Error, TypeError, ValueError):
        raise invalid("Invalid NextToken") from None
    if statement != request.members["Statement"]:
        raise invalid("NextToken does not match request")
    return {"ExclusiveStartKey": key}
