"""TransactWriteItems and TransactGetItems: all of their items, or none.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.reads import checked_key, picked, requested_tree
from ddbio.testing.calls.writes import Plan, parsed_delete, parsed_put, parsed_update, stored_bytes
from ddbio.testing.expressions.conditions import Guard
from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.pricing import read_units, write_units
from ddbio.testing.refusal import Refusal, canceled, invalid, malformed, service_refusal
from ddbio.testing.request import Request, canonical_map, to_json
from ddbio.testing.tables.capacity import Draw
from ddbio.testing.tables.database import Database, UsedToken, collection_metrics, consumed_list
from ddbio.testing.tables.table import Change, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.testing.calls.writes import Planner
    from ddbio.testing.expressions.parsing import Tree
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.capacity import Kind
    from ddbio.testing.tables.table import Key

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
MAX_TRANSACTION_BYTES = 4 << 20
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-apis-txwriteitems-idempotency
TOKEN_SECONDS = 600
_NONE = {"Code": "None"}
_SUFFIX = "Exception"
_CODES = {"ValidationException": "ValidationError", "RequestLimitExceeded": "ThrottlingError"}


def parsed_check(request: Request) -> Planner:
    """Return the planner of a condition check, which changes nothing."""
    request.required("ConditionExpression")
    placeholders = Placeholders.of(request, "ConditionExpression")
    guard = Guard.of(request, placeholders)
    placeholders.check_all_used()
    key_item = canonical_map(request.required("Key"))

    def plan(table: Table) -> Plan:
        key = checked_key(table, key_item)
        stored = table.store.get(key)
        draw = Draw(table.arn, "Write", table.partition_of(key), write_units(stored.size_bytes if stored else 0))
        change = Change(stored, [draw], [])
        return Plan(table, key_item, change, None, stored_bytes(change), guard.refusal(change.old))

    return plan


_PARSED: dict[str, Callable[[Request], Planner]] = {
    "ConditionCheck": parsed_check,
    "Delete": parsed_delete,
    "Put": parsed_put,
    "Update": parsed_update,
}


@dataclass(frozen=True, slots=True)
class Action:
    """One item of a transaction of writes, after the checks that do not need its table."""

    request: Request
    planner: Planner
    is_insert: bool = False
    """Whether a false condition means that the item exists."""


def transact_write_items(database: Database, request: Request) -> dict[str, Any]:
    """Execute up to 100 writes and conditions, or none of them."""
    asked = _items(request)
    return run_once(database, request, asked, lambda: write_all(database, request, _actions(asked)))


def _items(request: Request) -> list[Any]:
    request.required("TransactItems")
    return request.listing("TransactItems") or []


def _actions(asked: list[Any]) -> list[Action]:
    actions = []
    for item in asked:
        if type(item) is not dict or any(type(members) is not dict for members in item.values()):
            raise malformed()
        if len(item) != 1 or not item.keys() <= _PARSED.keys():
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((kind, members),) = item.items()
        action = Request(members)
        actions.append(Action(action, _PARSED[kind](action)))
    return actions


def run_once(
    database: Database, request: Request, asked: Any, run: Callable[[], tuple[dict[str, Any], list[Plan]]]
) -> dict[str, Any]:
    """Run a transaction. If the same one already used its token, read the written items and return the same reply."""
    token = request.text("ClientRequestToken")
    if token is None:
        return run()[0]
    now, used = database.wall_clock.now(), database.transactions
    while used and next(iter(used.values())).until <= now:
        del used[next(iter(used))]
    digest = hashlib.sha256(to_json(asked)).digest()
    if token in used:
        if used[token].digest != digest:
            raise service_refusal(
                "IdempotentParameterMismatchException",
                "The parameters are not those of the transaction that had this token before",
            )
        draws: dict[str, list[Draw]] = {}
        for name, key, units in used[token].reads:
            table = database.named(name)
            draws.setdefault(name, []).append(Draw(table.arn, "Read", table.partition_of(key), units))
        database.take([draw for drawn in draws.values() for draw in drawn])
        return {**used[token].reply, **_with_units_per_kind(consumed_list(request, draws, database), "Read")}
    reply, plans = run()
    first_reply = {name: member for name, member in reply.items() if name != "ConsumedCapacity"}
    reads: list[tuple[str, Key, float]] = [
        (plan.table.name, plan.table.keys.key_of(plan.key), 2 * read_units(plan.size_bytes, consistent=True))
        for plan in plans
    ]
    used[token] = UsedToken(now + TOKEN_SECONDS, digest, reads, first_reply)
    return reply


def write_all(database: Database, request: Request, actions: list[Action]) -> tuple[dict[str, Any], list[Plan]]:
    """Execute all writes, or refuse them all with the reason of each. Return the reply and the executed plans."""
    tables = [database.table(action.request) for action in actions]
    plans = [_planned(action.planner, table) for action, table in zip(actions, tables, strict=True)]
    done = [plan for plan in plans if not isinstance(plan, Refusal)]
    _check_distinct([(plan.table.name, plan.table.keys.key_of(plan.key)) for plan in done])
    if sum(plan.size_bytes for plan in done) > MAX_TRANSACTION_BYTES:
        raise invalid("The aggregate size of the items in the transaction cannot exceed 4 MB")
    if len(done) < len(plans):
        raise canceled([_reason(plan) if isinstance(plan, Refusal) else _NONE for plan in plans])
    draws = [[_of_transaction(draw) for draw in plan.change.draws] for plan in done]
    _check_capacity(database, draws)
    failures = [plan.failure for plan in done]
    if any(failures):
        # The cost of a canceled transaction is not published. Here it is the first of the two writes of each item.
        database.charge([plan.change.draws[0] for plan in done])
        raise canceled(
            [
                _NONE if failure is None else _failed(failure, is_insert=action.is_insert)
                for action, failure in zip(actions, failures, strict=True)
            ]
        )
    database.charge([draw for drawn in draws for draw in drawn])
    for plan in done:
        plan.change.apply()
    consumed = consumed_list(request, _by_table(tables, draws), database)
    return {**_with_units_per_kind(consumed, "Write"), **_metrics(database, request, done)}, done


def _of_transaction(draw: Draw) -> Draw:
    return draw if draw.kind == "Vector" else draw._replace(units=2 * draw.units)


def _planned(planner: Planner, table: Table) -> Plan | Refusal:
    try:
        return planner(table)
    except Refusal as refusal:
        return refusal


def _check_distinct(keys: list[tuple[str, Key]]) -> None:
    if len(set(keys)) < len(keys):
        raise invalid("Transaction request cannot include multiple operations on one item")


def _check_capacity(database: Database, draws: Sequence[Sequence[Draw]]) -> None:
    refusals = [database.capacity.refusal(drawn, database.clock()) for drawn in draws]
    if any(refusals):
        raise canceled([_NONE if refusal is None else _reason(refusal) for refusal in refusals])


def reason_code(refusal: Refusal) -> str:
    """Return the code of a refusal that the service lists instead of raising it."""
    kind = str(refusal.body["__type"]).rpartition("#")[2]
    return _CODES.get(kind, kind.removesuffix(_SUFFIX))


def _reason(refusal: Refusal) -> dict[str, Any]:
    return {"Code": reason_code(refusal), "Message": refusal.body.get("message", "")}


def _failed(failure: Refusal, *, is_insert: bool) -> dict[str, Any]:
    if is_insert:
        return {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}
    shown = {"Item": failure.body["Item"]} if "Item" in failure.body else {}
    return {**_reason(failure), **shown}


def _by_table(tables: Sequence[Table], draws: Sequence[Sequence[Draw]]) -> dict[str, list[Draw]]:
    drawn_of: dict[str, list[Draw]] = {}
    for table, drawn in zip(tables, draws, strict=True):
        drawn_of.setdefault(table.name, []).extend(drawn)
    return drawn_of


def _with_units_per_kind(reply: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Add the units per kind (read or write) to the consumed capacity, as the service does for transactions."""
    for capacity in reply.get("ConsumedCapacity", ()):
        capacity[f"{kind}CapacityUnits"] = capacity["CapacityUnits"]
    return reply


def _metrics(database: Database, request: Request, plans: Sequence[Plan]) -> dict[str, Any]:
    keys: dict[str, list[Any]] = {}
    for plan in plans:
        keys.setdefault(plan.table.name, []).append(plan.key)
    metrics = {
        name: listed
        for name, written in keys.items()
        if (listed := collection_metrics(request, database.named(name), written))
    }
    return {"ItemCollectionMetrics": metrics} if metrics else {}


def transact_get_items(database: Database, request: Request) -> Chunks:
    """Read up to 100 items as of one moment."""
    gets = [_get(item) for item in _items(request)]
    return read_all(database, request, gets)


def _get(item: Any) -> Request:
    match item:
        case {"Get": dict(members)} if len(item) == 1:
            return Request(members)
        case dict():
            raise invalid("TransactItems can only contain Get")
        case _:
            raise malformed()


def read_all(database: Database, request: Request, gets: list[Request]) -> Chunks:
    """Read all items, or refuse them all with the reason of each."""
    trees: list[Tree | None] = [requested_tree(get) for get in gets]
    keys = [canonical_map(get.required("Key")) for get in gets]
    tables = [database.table(get) for get in gets]
    positions = [_key_or_refusal(table, key) for table, key in zip(tables, keys, strict=True)]
    valid_keys = [position for position in positions if not isinstance(position, Refusal)]
    _check_distinct(
        [(table.name, position) for table, position in zip(tables, positions, strict=True) if position in valid_keys]
    )
    if len(valid_keys) < len(positions):
        raise canceled([_reason(position) if isinstance(position, Refusal) else _NONE for position in positions])
    stored_items = [table.store.get(position) for table, position in zip(tables, valid_keys, strict=True)]
    sizes = [stored.size_bytes if stored else 0 for stored in stored_items]
    if sum(sizes) > MAX_TRANSACTION_BYTES:
        raise invalid("The aggregate size of the items in the transaction cannot exceed 4 MB")
    draws = [
        [Draw(table.arn, "Read", table.partition_of(position), 2 * read_units(size, consistent=True))]
        for table, position, size in zip(tables, valid_keys, sizes, strict=True)
    ]
    _check_capacity(database, draws)
    database.charge([draw for drawn in draws for draw in drawn])
    items = [
        b"{}" if stored is None else b'{"Item":' + picked(stored, tree) + b"}"
        for stored, tree in zip(stored_items, trees, strict=True)
    ]
    reply = _with_units_per_kind(consumed_list(request, _by_table(tables, draws), database), "Read")
    consumed = to_json(reply)[1:-1]
    return [b'{"Responses":[', b",".join(items), b"]", b"," * bool(consumed), consumed, b"}"]


def _key_or_refusal(table: Table, key: Any) -> Key | Refusal:
    try:
        return checked_key(table, key)
    except Refusal as refusal:
        return refusal
