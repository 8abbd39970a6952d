"""GetItem, BatchGetItem, Query and Scan."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.testing.expressions.conditions import PredicateParser, check_filter_names, key_conditions, range_of
from ddbio.testing.expressions.parsing import Path, Placeholders, Tree, attribute_paths, pick, projection_paths, tree_of
from ddbio.testing.pricing import read_units
from ddbio.testing.refusal import Refusal, constraint, invalid, invalid_values, malformed, violations
from ddbio.testing.request import Request, canonical_map, checked_name, to_json
from ddbio.testing.tables.capacity import Draw
from ddbio.testing.tables.database import Database, consumed_list, consumed_member
from ddbio.testing.tables.table import Key, base_key, hash_bounds, part_of_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.items.attribute import Item
    from ddbio.testing.expressions.conditions import Predicate
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.table import Index, Key, KeySchema, Snapshot, Stored, Table

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
MAX_BATCH_KEYS = 100
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
MAX_BATCH_BYTES = 16 << 20
_PROJECTION_MEMBERS = frozenset(
    {"AttributesToGet", "ExpressionAttributeNames", "ExpressionAttributeValues", "ProjectionExpression"}
)


def get_item(database: Database, request: Request) -> Chunks:
    """Read one item by its key."""
    tree = requested_tree(request)
    key_item = canonical_map(request.required("Key"))
    table = database.table(request)
    key = checked_key(table, key_item)
    draw = _draw(table, key, consistent=request.boolean("ConsistentRead"))
    database.take([draw])
    stored = table.store.get(key)
    item = b"" if stored is None else b'"Item":' + picked(stored, tree)
    consumed = to_json(consumed_member(request, table, [draw]))[1:-1]
    return [b"{", consumed, b"," * bool(consumed and item), item, b"}"]


def requested_tree(request: Request) -> Tree | None:
    """Return the tree of the attributes that a request for single items projects."""
    if _PROJECTION_MEMBERS.isdisjoint(request.members):
        return None
    placeholders = Placeholders.of(request, "ProjectionExpression")
    paths = requested_paths(request, placeholders)
    placeholders.check_all_used()
    return None if paths is None else tree_of(paths)


def picked(stored: Stored, tree: Tree | None) -> bytes:
    """Return the JSON of the projected attributes. A full item is returned as it was stored."""
    return stored.json if tree is None else to_json(pick(parsed(stored.json), tree))


def checked_key(table: Table, key: Item) -> Key:
    """Return the position of a canonical key. Raise if it is not a key of the table."""
    table.keys.check_key(key)
    return table.keys.key_of(key)


def _draw(table: Table, key: Key, *, consistent: bool) -> Draw:
    stored = table.store.get(key)
    units = read_units(stored.size_bytes if stored else 0, consistent=consistent)
    return Draw(table.arn, "Read", table.partition_of(key), units)


def batch_get_item(database: Database, request: Request) -> Chunks:
    """Read up to 100 items and 16 MiB. Each key is admitted or throttled separately; throttled keys are unprocessed."""
    asked = request.required("RequestItems")
    batch = _Batch(database)
    if type(asked) is not dict:
        raise malformed()
    if not asked:
        raise invalid("The requestItems parameter is required for BatchGetItem")
    parts = [(name, _checked_part(database, name, part)) for name, part in asked.items()]
    if sum(len(keys) for _, (_, _, keys) in parts) > MAX_BATCH_KEYS:
        raise invalid("Too many items requested for the BatchGetItem call")
    for name, (table, part, keys) in parts:
        batch.read(name, table, part, keys)
    if batch.refusal is not None and not batch.draws:
        raise batch.refusal
    responses = b",".join(to_json(name) + b":[" + b",".join(items) + b"]" for name, items in batch.responses.items())
    members = {"UnprocessedKeys": batch.unprocessed, **consumed_list(request, batch.draws, database)}
    return [b'{"Responses":{', responses, b"},", to_json(members)[1:]]


def _checked_part(database: Database, name: str, part: Any) -> tuple[Table, Request, list[tuple[Any, Key]]]:
    if type(part) is not dict or type(part.get("Keys")) is not list:
        raise malformed()
    if not part["Keys"]:
        raise constraint("[]", f"requestItems.{name}.member.keys", "have length greater than or equal to 1")
    if len(part["Keys"]) > MAX_BATCH_KEYS:
        path = f"'RequestItems.{name}.member.Keys'"
        rule = f"Member must have length less than or equal to {MAX_BATCH_KEYS}"
        raise violations([f"Value at {path} failed to satisfy constraint: {rule}"])
    table = database.named(checked_name(name, "RequestItems"))
    # Numbers are compared as sent: the service accepts 1000 and 1e3 here, and returns the item once.
    if any(key_item in part["Keys"][:at] for at, key_item in enumerate(part["Keys"])):
        raise invalid("Provided list of item keys contains duplicates")
    keys = {key: key_item for key_item in part["Keys"] for key in (checked_key(table, canonical_map(key_item)),)}
    return table, Request(part), [(key_item, key) for key, key_item in keys.items()]


class _Batch:
    """State of a BatchGetItem."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._size_bytes = 0
        self.responses: dict[str, list[bytes]] = {}
        self.unprocessed: dict[str, Any] = {}
        self.draws: dict[str, list[Draw]] = {}
        self.refusal: Refusal | None = None

    def read(self, name: str, table: Table, part: Request, keys: list[tuple[Any, Key]]) -> None:
        """Read one table's keys."""
        tree, consistent = requested_tree(part), part.boolean("ConsistentRead")
        items = self.responses.setdefault(name, [])
        left = []
        for key_item, key in keys:
            stored = table.store.get(key)
            draw = _draw(table, key, consistent=consistent)
            if not self._admitted(draw, stored.size_bytes if stored else 0):
                left.append(key_item)
                continue
            self.draws.setdefault(table.name, []).append(draw)
            if stored is not None:
                items.append(picked(stored, tree))
        if left:
            self.unprocessed[name] = {**part.members, "Keys": left}

    def _admitted(self, draw: Draw, size_bytes: int) -> bool:
        if self._size_bytes + size_bytes > MAX_BATCH_BYTES or self._database.fault_injector.leaves_unprocessed():
            return False
        try:
            self._database.take([draw])
        except Refusal as refusal:
            self.refusal = self.refusal or refusal
            return False
        self._size_bytes += size_bytes
        return True


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html#Scan.Pagination
MAX_PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """The table or index that a request reads."""

    table: Table
    index: Index | None

    @classmethod
    def of(cls, table: Table, request: Request) -> Source:
        """Return the source that a request names. Raise on a missing index or a consistent read of a global one."""
        name = request.text("IndexName")
        if name is None:
            return cls(table, None)
        if name in table.vector_indexes:
            operation = "Query" if "KeyConditionExpression" in request.members else "Scan"
            raise invalid(f"{operation} operation not supported on this index type{'.' * (operation == 'Query')}")
        index = table.indexes.get(name)
        if index is None:
            raise invalid(f"The table does not have the specified index: {name}")
        if index.kind == "Global" and request.boolean("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        return cls(table, index)

    @property
    def keys(self) -> KeySchema:
        """The key that orders the source."""
        return self.table.keys if self.index is None else self.index.keys

    @property
    def snapshot(self) -> Snapshot:
        """The items in order."""
        return (self.table if self.index is None else self.index).store.snapshot()

    @property
    def resource(self) -> str:
        """The ARN of the table or index whose capacity a read consumes."""
        return self.index.arn if self.index is not None and self.index.kind == "Global" else self.table.arn

    @property
    def local_index(self) -> str | None:
        """The name of a local index, for the breakdown of consumed capacity."""
        return self.index.name if self.index is not None and self.index.kind == "Local" else None

    @property
    def partitions(self) -> int:
        """The number of physical partitions."""
        return (self.table if self.index is None else self.index).throughput.partitions

    def paging_key(self, item: Item) -> Item:
        """Return the LastEvaluatedKey of an item: the table's key, and the index's key if the source is an index."""
        return {name: item[name] for name in dict.fromkeys((*self.table.keys.names, *self.keys.names))}

    def start_key(self, request: Request) -> Key | None:
        """Return the position of the ExclusiveStartKey. Raise if it is not exactly a key of the source."""
        if request.mapping("ExclusiveStartKey") is None:
            return None
        start = request.key("ExclusiveStartKey")
        try:
            self.table.keys.check_key({name: start[name] for name in start if name in self.table.keys.names})
            self.keys.check_key({name: start[name] for name in start if name in self.keys.names})
        except Exception as refusal:
            raise invalid(
                "The provided starting key is invalid: The provided key element does not match the schema"
            ) from refusal
        if len(start) != len(self.paging_key(start)):
            raise invalid("The provided starting key is invalid")
        return self.table.keys.key_of(start) if self.index is None else self.index.key_of(start)


@dataclass(frozen=True, slots=True)
class Selection:
    """The projection of each item: all attributes, the attributes of a tree, or only the count."""

    counts_only: bool = False
    tree: Tree | None = None
    fetches_base: bool = False
    """Whether items of a local index must be completed from the table."""


def requested_paths(request: Request, placeholders: Placeholders) -> list[Path] | None:
    """Return the paths of ProjectionExpression or AttributesToGet, or None if the request has neither."""
    expression, names = request.text("ProjectionExpression"), request.listing("AttributesToGet")
    if expression is not None:
        return projection_paths(expression, placeholders)
    return None if names is None else attribute_paths(names)


def selection_of(source: Source, request: Request, paths: list[Path] | None) -> Selection:
    """Return the projection of a Scan or Query. Raise if Select contradicts other members of the request."""
    select = request.text("Select")
    if paths is not None and select not in (None, "SPECIFIC_ATTRIBUTES"):
        raise invalid(f"Cannot specify the AttributesToGet when choosing to get {select}")
    if paths is None and select == "SPECIFIC_ATTRIBUTES":
        raise invalid_values(
            "Must specify the AttributesToGet or ProjectionExpression when choosing SPECIFIC_ATTRIBUTES"
        )
    index = source.index
    if select == "ALL_PROJECTED_ATTRIBUTES" and index is None:
        raise invalid_values("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")
    unprojected = _unprojected(index, select, paths)
    if unprojected and index is not None and index.kind == "Global":
        raise invalid_values(
            f"{unprojected} is not supported for global secondary index {index.name} "
            "because it does not project all of these attributes"
        )
    tree = None if paths is None else tree_of(paths)
    return Selection(select == "COUNT", tree, bool(unprojected))


def _unprojected(index: Index | None, select: str | None, paths: list[Path] | None) -> str:
    if index is None or index.projected is None:
        return ""
    if select == "ALL_ATTRIBUTES":
        return "Select type ALL_ATTRIBUTES"
    missing = sorted({str(path[0]) for path in paths or () if path[0] not in index.projected})
    return f"Requesting [{', '.join(missing)}]" if missing else ""


def filter_of(request: Request, placeholders: Placeholders) -> tuple[Predicate | None, set[str]]:
    """Return the FilterExpression as a predicate, or None, and the attributes that it names."""
    text = request.text("FilterExpression")
    if text is None:
        return None, set()
    parser = PredicateParser("FilterExpression", text, placeholders)
    return parser.parsed(), parser.names


def parsed(text: bytes | memoryview) -> Any:
    """Return an item as Python values."""
    return json.loads(bytes(text))


@dataclass(frozen=True, slots=True)
class Page:
    """The positions ``first … last - 1`` that one request reads, and whether it stops before the end."""

    first: int
    last: int
    stops_early: bool


def forward_page(snapshot: Snapshot, first: int, end: int, limit: int | None) -> Page:
    """Return the page that starts at a position. It stops after the item that reaches 1 MiB, or at the limit."""
    reach = int(np.searchsorted(snapshot.sizes, snapshot.sizes[first] + MAX_PAGE_BYTES))
    last = min(end, reach, end if limit is None else first + limit)
    return Page(first, last, last < end)


def backward_page(snapshot: Snapshot, begin: int, last: int, limit: int | None) -> Page:
    """Return the page that ends before a position, by the same rules."""
    reach = int(np.searchsorted(snapshot.sizes, snapshot.sizes[last] - MAX_PAGE_BYTES, side="right")) - 1
    first = max(begin, reach, begin if limit is None else last - limit)
    return Page(first, last, first > begin)


def scan(database: Database, request: Request) -> Chunks:
    """Read a table, an index or one segment of it in hash order."""
    low, high = _segment(request)
    placeholders = Placeholders.of(request, "ProjectionExpression", "FilterExpression")
    paths = requested_paths(request, placeholders)
    predicate, _ = filter_of(request, placeholders)
    placeholders.check_all_used()
    limit = request.integer("Limit")
    source = Source.of(database.table(request), request)
    selection = selection_of(source, request, paths)
    start = source.start_key(request)
    snapshot = source.snapshot
    first = snapshot.position((low,))
    if start is not None:
        if not low <= start[0] < high:
            raise invalid(
                "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with "
                f"correct Segment. TotalSegments: {request.members['TotalSegments']} "
                f"Segment: {request.members['Segment']}"
            )
        first = _after(snapshot, start)
        low = start[0]
    page = forward_page(snapshot, first, snapshot.position((high,)), limit)
    if page.stops_early:
        high = snapshot.keys[page.last - 1][0] + 1
    draws = list(_scan_draws(source, snapshot, page, (low, high), consistent=request.boolean("ConsistentRead")))
    return _Reader(database, request, source, selection, predicate).reply(snapshot, page, draws)


def _segment(request: Request) -> tuple[int, int]:
    segments, segment = request.integer("TotalSegments"), request.integer("Segment")
    if segments is None and segment is None:
        return hash_bounds(0, 1)
    if segments is None or segment is None:
        missing, present = (
            ("Segment", "parameter TotalSegments") if segment is None else ("TotalSegments", "Segment parameter")
        )
        raise invalid(
            f"The {missing} parameter is required but was not present in the request when {present} is present"
        )
    if segment >= segments:
        raise invalid(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: "
            f"Segment: {segment} is not less than TotalSegments: {segments}"
        )
    return hash_bounds(segment, segments)


def _after(snapshot: Snapshot, key: Key) -> int:
    at = snapshot.position(key)
    return at + (at < len(snapshot.keys) and snapshot.keys[at] == key)


def _scan_draws(
    source: Source, snapshot: Snapshot, page: Page, hashes: tuple[int, int], *, consistent: bool
) -> Iterator[Draw]:
    """Yield one draw per physical partition that a page visits. An empty partition also costs a unit."""
    partitions = source.partitions
    low, high = hashes
    first = page.first
    for partition in range(part_of_hash(low, partitions), part_of_hash(max(low, high - 1), partitions) + 1):
        end = min(page.last, snapshot.position((hash_bounds(partition, partitions)[1],)))
        units = read_units(snapshot.size_bytes(first, max(first, end)), consistent=consistent)
        yield Draw(source.resource, "Read", partition, units, source.local_index)
        first = max(first, end)


def query(database: Database, request: Request) -> Chunks:
    """Read items of one partition key in the order of the sort key, ascending or descending."""
    return read_query(database, request)


def read_query(database: Database, request: Request, *, filters_keys: bool = False) -> Chunks:
    """Answer a Query. With ``filters_keys``, its filter may name key attributes."""
    expression = request.text("KeyConditionExpression")
    if expression is None:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    placeholders = Placeholders(request, has_expression=True)
    conditions = key_conditions(expression, placeholders)
    paths = requested_paths(request, placeholders)
    predicate, names = filter_of(request, placeholders)
    placeholders.check_all_used()
    source = Source.of(database.table(request), request)
    wanted = range_of(conditions, source.keys)
    selection = selection_of(source, request, paths)
    if not filters_keys:
        check_filter_names(names, source.keys.names)
    limit = request.integer("Limit")
    start = source.start_key(request)
    backward = request.members.get("ScanIndexForward") is not None and not request.boolean("ScanIndexForward")
    snapshot = source.snapshot
    first, last = wanted.positions(snapshot.keys)
    if start is not None:
        if not wanted.contains(start) or (source.keys.sort is None and source.index is None):
            raise invalid("The provided starting key is outside query boundaries based on provided conditions")
        first, last = (first, snapshot.position(start)) if backward else (_after(snapshot, start), last)
    page = (backward_page if backward else forward_page)(snapshot, first, last, limit)
    partition = part_of_hash(wanted.hash_value, source.partitions)
    units = read_units(snapshot.size_bytes(page.first, page.last), consistent=request.boolean("ConsistentRead"))
    draws = [Draw(source.resource, "Read", partition, units, source.local_index)]
    return _Reader(database, request, source, selection, predicate).reply(snapshot, page, draws, backward=backward)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader that consumes the capacity of a page and builds its reply."""

    database: Database
    request: Request
    source: Source
    selection: Selection
    predicate: Predicate | None = None

    def reply(self, snapshot: Snapshot, page: Page, draws: list[Draw], *, backward: bool = False) -> Chunks:
        scanned = range(page.first, page.last)
        if backward:
            scanned = scanned[::-1]
        if self.selection.fetches_base:
            draws += self._base_draws(snapshot, scanned)
        self.database.take(draws)
        matches = [at for at in scanned if self.predicate is None or self.predicate(self._full_item(snapshot, at))]
        consumed = to_json(consumed_member(self.request, self.source.table, draws))[1:-1]
        last = b""
        if page.stops_early:
            last = b',"LastEvaluatedKey":' + to_json(self.source.paging_key(parsed(snapshot.json_at(scanned[-1]))))
        head = b"{" + consumed + b"," * bool(consumed) + b'"Count":' + str(len(matches)).encode()
        tail = last + b',"ScannedCount":' + str(len(scanned)).encode() + b"}"
        if self.selection.counts_only:
            return [head, tail]
        is_whole = self.selection.tree is None and not self.selection.fetches_base
        if is_whole and self.predicate is None and not backward:
            items: bytes | memoryview = snapshot.json_between(page.first, page.last)
        else:
            items = b",".join(self._item(snapshot, at) for at in matches)
        return [head + b',"Items":[', items, b"]" + tail]

    def _item(self, snapshot: Snapshot, at: int) -> bytes:
        if self.selection.tree is None and not self.selection.fetches_base:
            return snapshot.json_at(at)
        item = self._full_item(snapshot, at)
        return to_json(item if self.selection.tree is None else pick(item, self.selection.tree))

    def _full_item(self, snapshot: Snapshot, at: int) -> Item:
        if self.selection.fetches_base:
            return self.source.table.read_item(base_key(snapshot.keys[at])) or {}
        item: Item = parsed(snapshot.json_at(at))
        return item

    def _base_draws(self, snapshot: Snapshot, positions: range) -> Iterator[Draw]:
        table, consistent = self.source.table, self.request.boolean("ConsistentRead")
        for at in positions:
            stored = table.store.get(base_key(snapshot.keys[at]))
            units = read_units(stored.size_bytes if stored else 0, consistent=consistent)
            yield Draw(table.arn, "Read", table.partition_of(snapshot.keys[at]), units)
