"""Vector indexes of tables: their definitions, the checks of written vectors, and their entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.testing.pricing import item_bytes
from ddbio.testing.refusal import invalid, invalid_values, malformed
from ddbio.testing.request import canonical_value, checked_name, to_json
from ddbio.testing.tables.table import (
    MAX_PARTITION_KEY_BYTES,
    ItemStore,
    KeyAttribute,
    KeySchema,
    Stored,
    Table,
)

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue, Item

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html#limits-vector-indexes
MAX_DIMENSIONS = 4096
_MAX_INDEXES = 5
_MAX_FILTERS = 18
MAX_FLOAT = float(np.finfo(np.float32).max)
_INVALID = "One or more parameter values are not valid. One or more parameter values were invalid . "


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorIndex:
    """One vector index: its vector, the attributes that limit a search, its projection, and its entries."""

    name: str
    arn: str
    attribute: str
    dimensions: int
    function: str
    partition: KeySchema | None
    """The HASH attribute of the search schema. Items without it are not in the index."""
    filters: tuple[str, ...]
    projected: frozenset[str] | None
    """The projected attributes, including keys, without the vector. None is all attributes."""
    description: dict[str, Any]
    store: ItemStore = field(default_factory=ItemStore)

    @property
    def search_names(self) -> tuple[str, ...]:
        """The attributes of the search schema."""
        return (*(self.partition.names if self.partition else ()), *self.filters)

    def check_indexed(self, item: Item) -> None:
        """Raise if the vector or the HASH attribute of an item cannot be indexed."""
        problem = self._problem(item[self.attribute]) if self.attribute in item else None
        if problem is not None:
            raise invalid(f"{_INVALID}{problem} IndexName: {self.name}")
        if self.partition is not None:
            self.partition.check_indexed(item, self.name)

    def _problem(self, value: AttributeValue) -> str | None:
        ((tag, elements),) = value.items()
        if tag != "L":
            return f"Invalid type for parameter {self.attribute}, Expected: L, Actual: {tag}."
        if len(elements) != self.dimensions:
            return f"Invalid size for parameter {self.attribute}, Expected: {self.dimensions}, Actual: {len(elements)}."
        for number, element in enumerate(elements):
            ((element_tag, content),) = element.items()
            if element_tag != "N":
                return f"Invalid type for parameter {self.attribute}[{number}], Expected: N, Actual: {element_tag}."
            if abs(float(content)) > MAX_FLOAT:
                shown = f"{Decimal(content).normalize():E}"
                return (
                    f"Invalid value for parameter {self.attribute}[{number}], Value: {shown} is outside valid range "
                    "[-3.4028235E38, 3.4028235E38]."
                )
        return None

    def entry(self, item: Item | None) -> Stored | None:
        """Return the entry of the index for an item, or None if the index does not contain the item.

        The vector has 4 bytes for each dimension, as in the ``VectorWriteRequestBytes`` of the service.
        """
        if item is None or self.attribute not in item or self._problem(item[self.attribute]) is not None:
            return None
        if self.partition is not None and not all(name in item for name in self.partition.names):
            return None
        projected = {
            name: value
            for name, value in item.items()
            if name != self.attribute and (self.projected is None or name in self.projected)
        }
        numbers = [canonical_value({"N": str(np.float32(element["N"]))}) for element in item[self.attribute]["L"]]
        size_bytes = 4 * self.dimensions + len(self.attribute.encode()) + item_bytes(projected)
        return Stored(to_json({**projected, self.attribute: {"L": numbers}}), size_bytes)


def add_vector_index(table: Table, definition: Any, types: dict[str, str], *, on_demand: bool) -> VectorIndex:
    """Add an empty vector index to a table, from its definition in CreateTable or UpdateTable."""
    try:
        name, attribute = definition["IndexName"], definition["VectorAttribute"]["AttributeName"]
        dimensions, projection = int(definition["Dimensions"]), definition["Projection"]
        schema = [
            (part["AttributeName"], part["SearchSchemaElementType"]) for part in definition.get("SearchSchema", ())
        ]
        included = projection.get("NonKeyAttributes") or ()
    except (KeyError, TypeError, ValueError, AttributeError):
        raise malformed() from None
    checked_name(name, "IndexName")
    partition = [name for name, kind in schema if kind == "HASH"]
    filters = tuple(name for name, kind in schema if kind != "HASH")
    _check_table(table, name, attribute, dimensions, on_demand=on_demand)
    _check_schema(partition, filters, types)
    keys = {*table.keys.names, *partition, *filters}
    arn = f"{table.arn}/index/{name}"
    described = {**definition, "Dimensions": dimensions, "IndexArn": arn, "IndexStatus": "ACTIVE"}
    index = VectorIndex(
        name=name,
        arn=arn,
        attribute=attribute,
        dimensions=dimensions,
        function=definition["DistanceFunction"],
        partition=KeySchema((KeyAttribute(partition[0], types[partition[0]], MAX_PARTITION_KEY_BYTES),))
        if partition
        else None,
        filters=filters,
        projected=None
        if projection["ProjectionType"] == "ALL"
        else frozenset({*keys, *(included if projection["ProjectionType"] == "INCLUDE" else ())}),
        description=described,
    )
    table.vector_indexes[name] = index
    return index


def _check_table(table: Table, name: str, attribute: str, dimensions: int, *, on_demand: bool) -> None:
    if not on_demand:
        raise invalid_values("A vector index requires a table with BillingMode PAY_PER_REQUEST")
    if name in table.indexes or name in table.vector_indexes:
        raise invalid_values(f"Duplicate index name: {name} already exists")
    if len(table.vector_indexes) == _MAX_INDEXES:
        raise invalid_values(f"Number of VectorIndexes exceeds the limit of {_MAX_INDEXES} of a table")
    if attribute in table.keys.names or any(attribute in index.keys.names for index in table.indexes.values()):
        raise invalid_values(f"VectorAttribute {attribute} is an attribute of a key")
    same = [index.dimensions for index in table.vector_indexes.values() if index.attribute == attribute]
    if any(other != dimensions for other in same):
        raise invalid_values(
            f"VectorAttribute {attribute} has Dimensions {same[0]} in another index and {dimensions} in {name}"
        )


def _check_schema(partition: list[str], filters: tuple[str, ...], types: dict[str, str]) -> None:
    if len(partition) > 1:
        raise invalid_values("SearchSchema has more than one HASH element")
    if len(filters) > _MAX_FILTERS:
        raise invalid_values(f"SearchSchema has more than {_MAX_FILTERS} INLINE_FILTER elements")
    if not {*partition, *filters} <= set(types):
        raise invalid_values("One element in SearchSchema is not defined in attribute definitions")
