"""Answer GetItem and BatchGetItem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.scans import parsed, requested_paths
from ddbio.testing.expressions.parsing import Placeholders, Tree, pick, tree_of
from ddbio.testing.refusal import Refusal, constraint, invalid, malformed, read_units
from ddbio.testing.request import Request, canonical_map, checked_name, to_json
from ddbio.testing.tables.capacity import Draw
from ddbio.testing.tables.database import Database, consumed_list, consumed_member

if TYPE_CHECKING:
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.items import Key, Stored
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
MAX_BATCH_KEYS = 100
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
MAX_BATCH_BYTES = 16 << 20


def get_item(database: Database, request: Request) -> Chunks:
    """Read one item by its key."""
    table = database.table(request)
    tree = _tree(request)
    key = _checked_key(table, request.required("Key"))
    draw = _draw(table, key, consistent=request.boolean("ConsistentRead"))
    database.take([draw])
    stored = table.store.get(key)
    found = b"" if stored is None else b'"Item":' + _picked(stored, tree)
    consumed = to_json(consumed_member(request, table, [draw]))[1:-1]
    return [b"{", consumed, b"," * bool(consumed and found), found, b"}"]


def _tree(request: Request) -> Tree | None:
    placeholders = Placeholders(request, has_expression="ProjectionExpression" in request.members)
    paths = requested_paths(request, placeholders)
    placeholders.check_all_used()
    return None if paths is None else tree_of(paths)


def _picked(stored: Stored, tree: Tree | None) -> bytes:
    """Return the JSON of what is asked for; a whole item is what it was stored as."""
    return stored.json if tree is None else to_json(pick(parsed(stored.json), tree))


def _checked_key(table: Table, given: Any) -> Key:
    key = canonical_map(given)
    table.keys.check_key(key)
    return table.keys.key_of(key)


def _draw(table: Table, key: Key, *, consistent: bool) -> Draw:
    stored = table.store.get(key)
    units = read_units(stored.size_bytes if stored else 0, consistent=consistent)
    return Draw(table.arn, "Read", table.partition_of(key), units)


def batch_get_item(database: Database, request: Request) -> Chunks:
    """Read up to 100 items and 16 MiB. Each key is admitted or throttled by itself; throttled keys are unprocessed."""
    asked = request.required("RequestItems")
    batch = _Batch(database)
    if type(asked) is not dict:
        raise malformed()
    parts = [(name, _checked_part(database, name, part)) for name, part in asked.items()]
    if not parts:
        raise constraint("{}", "requestItems", "have length greater than or equal to 1")
    if sum(len(keys) for _, (_, _, keys) in parts) > MAX_BATCH_KEYS:
        raise invalid("Too many items requested for the BatchGetItem call")
    for name, (table, part, keys) in parts:
        batch.read(name, table, part, keys)
    if batch.refusal is not None and not batch.draws:
        raise batch.refusal
    found = b",".join(to_json(name) + b":[" + b",".join(items) + b"]" for name, items in batch.responses.items())
    rest = {"UnprocessedKeys": batch.unprocessed, **consumed_list(request, batch.draws, database)}
    return [b'{"Responses":{', found, b"},", to_json(rest)[1:]]


def _checked_part(database: Database, name: str, part: Any) -> tuple[Table, Request, list[tuple[Any, Key]]]:
    if type(part) is not dict or type(part.get("Keys")) is not list:
        raise malformed()
    if not part["Keys"]:
        raise constraint("[]", f"requestItems.{name}.member.keys", "have length greater than or equal to 1")
    table = database.named(checked_name(name, "RequestItems"))
    # Numbers are compared as sent: the service accepts 1000 and 1e3 here, and returns the item once.
    if any(given in part["Keys"][:at] for at, given in enumerate(part["Keys"])):
        raise invalid("Provided list of item keys contains duplicates")
    keys = {key: given for given in part["Keys"] for key in (_checked_key(table, given),)}
    return table, Request(part), [(given, key) for key, given in keys.items()]


class _Batch:
    """Collect what a BatchGetItem has read so far."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._size_bytes = 0
        self.responses: dict[str, list[bytes]] = {}
        self.unprocessed: dict[str, Any] = {}
        self.draws: dict[str, list[Draw]] = {}
        self.refusal: Refusal | None = None

    def read(self, name: str, table: Table, part: Request, keys: list[tuple[Any, Key]]) -> None:
        """Read one table's keys."""
        tree, consistent = _tree(part), part.boolean("ConsistentRead")
        found = self.responses.setdefault(name, [])
        left = []
        for given, key in keys:
            stored = table.store.get(key)
            draw = _draw(table, key, consistent=consistent)
            if not self._admitted(draw, stored.size_bytes if stored else 0):
                left.append(given)
                continue
            self.draws.setdefault(table.name, []).append(draw)
            if stored is not None:
                found.append(_picked(stored, tree))
        if left:
            self.unprocessed[name] = {**part.members, "Keys": left}

    def _admitted(self, draw: Draw, size_bytes: int) -> bool:
        if self._size_bytes + size_bytes > MAX_BATCH_BYTES or self._database.fault_injector.leaves():
            return False
        try:
            self._database.take([draw])
        except Refusal as refusal:
            self.refusal = self.refusal or refusal
            return False
        self._size_bytes += size_bytes
        return True
