"""Push-down of a query: the Python side of the shim ``PushdownSource``, which gets the filters from Spark."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import SparkFiles
from pyspark.sql.types import LongType, StructField, StructType

from ddbio.errors import OptionError
from ddbio.items.capacity import read_units
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field, normalize_schema, project_schema
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.file import schema_to_json
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.scan.describe import describe_scan, sample_table, unsampled
from ddbio.scan.plan import budget_of
from ddbio.scan.pushdown import PushedKeys, pushed_condition
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.reading import (
    ReadDescription,
    TableReader,
    describe_read,
    open_budget,
    parse_read_options,
    table_attributes,
)
from ddbio.spark.types import to_arrow_schema, with_attribute_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.table_description import TableDescription
    from ddbio.spark.reading import DataFrameOptions

OPTION = "ddbio.pushed"
"""The option with the shim's data and requests."""

# Metadata of the rescue column has the details of elements of lists and maps that Spark's types lack.
_SCHEMA = "ddb:schema"
_TYPE = "ddb:type"

# One segment reads a limit, which is slower than many segments for more rows.
_MAX_LIMIT = 10_000
# Number of item collections that are queried even if a scan were cheaper, and the maximum.
_MIN_QUERIES, _MAX_QUERIES = 100, 10_000


def answer(values: Mapping[str, str]) -> StructType:
    """Return the columns of a table, or a column whose metadata has its size, depending on the shim's request."""
    asked, options = _split(values)
    if asked.get("ask") == "statistics":
        return _statistics(parse_read_options(options))
    described = describe_read(options)
    schema = described.spark_schema()
    if normalize_schema(to_arrow_schema(schema)).equals(described.sample.schema, check_metadata=True):
        return schema
    exact = {_SCHEMA: schema_to_json(described.sample.schema)}
    *fields, rescue = schema.fields
    fields.append(StructField(rescue.name, rescue.dataType, metadata={**rescue.metadata, **exact}))
    return StructType(fields)


def open_pushed_reader(values: Mapping[str, str], schema: StructType) -> TableReader:
    """Return the reader of the query's columns, of items that its filters may keep, up to its limit.

    Raises
    ------
    OptionError
        If the option ``schema`` is set in addition to the user's columns.
    """
    pushed, options = _split(values)
    return TableReader(_described(parse_read_options(options), pushed, schema), schema)


def _split(values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    options = {name: value for name, value in values.items() if name != OPTION}
    return json.loads(values[OPTION]), options


def _statistics(options: DataFrameOptions) -> StructType:
    table = describe_scan(options)
    counted = table.index(options.index) if options.index else table
    size = {"items": counted.item_count, "bytes": counted.size_bytes} if counted else {"items": 0, "bytes": 0}
    return StructType([StructField("counted", LongType(), metadata=size)])


def _described(options: DataFrameOptions, pushed: Mapping[str, Any], schema: StructType) -> ReadDescription:
    frame_schema = StructType.fromJson(pushed["schema"])
    is_inferred = all(_TYPE in field.metadata for field in frame_schema.fields if field.name != RESCUE_NAME)
    has_rescue = RESCUE_NAME in frame_schema.names
    if not is_inferred:
        if options.schema is not None:
            raise OptionError("the columns are given twice, by .schema() and by the option 'schema': keep one")
        if not has_rescue:
            if options.on_misfit == "drop":
                raise OptionError(
                    "on_misfit=drop keeps what it does not drop in _rescue: add that column to the schema"
                )
            options = dataclasses.replace(options, on_misfit="fail")
    table = describe_scan(options)
    rate = budget_of(table, options)
    terms = request_lease_terms(SparkFiles.getRootDirectory(), rate)
    columns = _arrow_schema(frame_schema)
    if not is_inferred:
        with closing(open_budget(None if terms is None else terms.lease, rate)) as budget:
            columns = with_attribute_names(columns, table_attributes(table, options, budget))
    if not is_inferred and (rules := ColumnRules.of(options)):
        if rules.sampled:
            asked = dataclasses.replace(options, schema=columns)
            with closing(open_budget(None if terms is None else terms.lease, rate)) as budget:
                columns = sample_table(table, asked, budget).schema
        else:
            columns = rules.apply(columns)
    needed: Sequence[str] | None = [name_of_field(columns.field(name)) for name in schema.names if name != RESCUE_NAME]
    if RESCUE_NAME in schema.names:
        # A value is a misfit depending on all columns, and can be in any selected attribute.
        needed = options.columns if is_inferred or options.columns else [*map(name_of_field, columns)][:-1]
    options = dataclasses.replace(
        options,
        schema=columns if RESCUE_NAME in schema.names else project_schema(columns, needed or ()),
        columns=None if needed is None else tuple(needed),
        where=_where(options, table, pushed, columns),
        limit=_limit(options, pushed),
        timestamps=None,
        types=None,
        numbers="exact",
    )
    return ReadDescription(options, table, unsampled(table, options), terms)


def _arrow_schema(frame_schema: StructType) -> pa.Schema:
    """Return the columns of all attributes, as inferred if they were inferred."""
    columns = normalize_schema(to_arrow_schema(frame_schema))
    text = frame_schema[RESCUE_NAME].metadata.get(_SCHEMA) if RESCUE_NAME in frame_schema.names else None
    if text is not None:
        exact = normalize_schema(arrow_schema_of(text))
        if exact.names == columns.names:
            return exact
    return columns


def _where(
    options: DataFrameOptions, table: TableDescription, pushed: Mapping[str, Any], columns: pa.Schema
) -> str | None:
    if options.keys is not None:
        return options.where
    index = table.index(options.index) if options.index else None
    types = tuple((key.name, key.tag) for key in index.keys) if index else tuple(table.key_types)
    keys = PushedKeys(types, index.partition_key_count if index else 1)
    queries = read_units(table.size_bytes, options.consistent) / read_units(1, options.consistent)
    most = min(max(int(queries), _MIN_QUERIES), _MAX_QUERIES)
    return pushed_condition(pushed["filters"], columns, keys, options.where, most)


def _limit(options: DataFrameOptions, pushed: Mapping[str, Any]) -> int | None:
    asked = pushed["limit"]
    limits = [limit for limit in (options.limit, asked if asked and asked <= _MAX_LIMIT else None) if limit]
    return min(limits, default=None)
