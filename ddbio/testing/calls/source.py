"""Hold what a read reads: a table or one of its indexes, its start key and the wanted attributes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.core.capacity import EVENTUAL_RATIO
from ddbio.testing.expressions.projection import Path, Tree, attribute_paths, projection_paths, tree_of
from ddbio.testing.refusal import invalid, invalid_values

if TYPE_CHECKING:
    from ddbio.core.attribute import Item
    from ddbio.testing.expressions.names import Placeholders
    from ddbio.testing.request import Request
    from ddbio.testing.tables.schema import Key, KeySchema
    from ddbio.testing.tables.shelf import Frozen
    from ddbio.testing.tables.table import Index, Table

SELECTS = ("SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES")


@dataclass(frozen=True, slots=True)
class Source:
    """Hold a table, and the index through which it is read, if any."""

    table: Table
    index: Index | None

    @classmethod
    def asked(cls, table: Table, request: Request) -> Source:
        """Return the source a request names; refuse an absent index, or a consistent read of a global one."""
        name = request.text("IndexName")
        if name is None:
            return cls(table, None)
        index = table.indexes.get(name)
        if index is None:
            raise invalid(f"The table does not have the specified index: {name}")
        if index.kind == "Global" and request.boolean("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        return cls(table, index)

    @property
    def keys(self) -> KeySchema:
        """The key by which the source is ordered."""
        return self.table.keys if self.index is None else self.index.keys

    @property
    def frozen(self) -> Frozen:
        """The items in order."""
        return (self.table if self.index is None else self.index).shelf.frozen()

    @property
    def resource(self) -> str:
        """The ARN of what pays for a read."""
        return self.index.arn if self.index is not None and self.index.kind == "Global" else self.table.arn

    @property
    def local_index(self) -> str | None:
        """The name under which a local index shows its share."""
        return self.index.name if self.index is not None and self.index.kind == "Local" else None

    @property
    def partitions(self) -> int:
        """The number of physical partitions."""
        return (self.table if self.index is None else self.index).throughput.partitions

    def paging_key(self, item: Item) -> Item:
        """Return an item's LastEvaluatedKey: the table's key, and the index's where one is read."""
        return {name: item[name] for name in dict.fromkeys((*self.table.keys.names, *self.keys.names))}

    def start_key(self, request: Request) -> Key | None:
        """Return the place of the ExclusiveStartKey; refuse one that is not exactly a key of the source."""
        if request.mapping("ExclusiveStartKey") is None:
            return None
        given = request.key("ExclusiveStartKey")
        try:
            self.table.keys.check_key({name: given[name] for name in given if name in self.table.keys.names})
            self.keys.check_key({name: given[name] for name in given if name in self.keys.names})
        except Exception as refusal:
            raise invalid(
                "The provided starting key is invalid: The provided key element does not match the schema"
            ) from refusal
        if len(given) != len(self.paging_key(given)):
            raise invalid("The provided starting key is invalid")
        return self.table.keys.key_of(given) if self.index is None else self.index.key_of(given)


@dataclass(frozen=True, slots=True)
class Shape:
    """Hold what of each item is wanted: everything, the attributes of a tree, or only the count."""

    counts_only: bool = False
    tree: Tree | None = None
    fetches_base: bool = False
    """Whether items of a local index must be completed from the table."""


def asked_paths(request: Request, placeholders: Placeholders) -> list[Path] | None:
    """Return the paths of ProjectionExpression or AttributesToGet, or None if the request has neither."""
    expression, names = request.text("ProjectionExpression"), request.listing("AttributesToGet")
    if expression is not None and names is not None:
        raise invalid(
            "Can not use both expression and non-expression parameters in the same request: "
            "Non-expression parameters: {AttributesToGet} Expression parameters: {ProjectionExpression}"
        )
    if expression is not None:
        return projection_paths(expression, placeholders)
    return None if names is None else attribute_paths(names)


def shape_of(source: Source, request: Request, placeholders: Placeholders) -> Shape:
    """Return what a Scan or Query wants of each item; refuse a Select that contradicts the rest of the request."""
    select = request.text("Select", SELECTS)
    paths = asked_paths(request, placeholders)
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
    return Shape(select == "COUNT", tree, bool(unprojected))


def _unprojected(index: Index | None, select: str | None, paths: list[Path] | None) -> str:
    if index is None or index.projected is None:
        return ""
    if select == "ALL_ATTRIBUTES":
        return "Select type ALL_ATTRIBUTES"
    missing = sorted({str(path[0]) for path in paths or () if path[0] not in index.projected})
    return f"Requesting [{', '.join(missing)}]" if missing else ""


def read_ratio(request: Request) -> float:
    """Return what a read unit costs: one if consistent, half if eventual."""
    return 1.0 if request.boolean("ConsistentRead") else EVENTUAL_RATIO


def parsed(wire: bytes | memoryview) -> Any:
    """Return the Python form of wire JSON."""
    return json.loads(bytes(wire))
