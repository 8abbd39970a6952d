"""SQL of views over a log: the history of all items, and their newest state combined with a lake table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.catalog.quotes import back_quoted, double_quoted, files_below, hive_text, sql_text
from ddbio.cdc.log_reader import open_log
from ddbio.errors import OptionError
from ddbio.formats.lake_columns import DELETED, TIME, VERSION, deleted_column, lake_fields
from ddbio.formats.log_columns import EVENT_TIME, OPERATION, SEQUENCE
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field, tag_of_field
from ddbio.items.schema.folded import fold
from ddbio.items.schema.own_names import column_name, columns_of
from ddbio.jobs.stores import open_store
from ddbio.lake.history import STATE_OPERATION, VALID_FROM, VALID_TO, history_names
from ddbio.lake.verify import base_us
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.keys import prefix_of
from ddbio.lake_formats.registry import TABLE_FORMATS
from ddbio.lake_formats.rows import item_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.lake.options import ViewOptions
    from ddbio.lake_formats.items import LakeItems

Dialect = Literal["spark", "duckdb", "athena"]

SPARK_LOG: Final = "ddbio_log"
"""The temporary view through which Spark reads the folder of a log."""

_ORDER_DIGITS = 40
_NOT_IN_PATHS = set("'\"\\?")


@dataclass(frozen=True)
class ViewedLog:
    """Columns and SQL name of a log.

    Attributes
    ----------
    keys
        The key attributes.
    columns
        The columns of the attributes.
    relation
        The SQL expression of the log.
    """

    keys: Sequence[str]
    columns: pa.Schema
    relation: str


@dataclass(frozen=True)
class ViewedLake:
    """Columns and SQL name of a lake table.

    Attributes
    ----------
    columns
        The columns of the attributes.
    deleted
        The column that marks tombstones.
    """

    columns: pa.Schema
    relation: str
    deleted: str = DELETED


def history_query(log: ViewedLog, dialect: Dialect) -> str:
    """Return the query for the states of all items, with the start and end of their validity.

    Raises
    ------
    OptionError
        If JSON paths do not support the name of a key attribute.
    """
    quote = back_quoted if dialect == "spark" else double_quoted
    named = zip(log.keys, columns_of(log.columns, log.keys), strict=True)
    keys = ", ".join(key_part for key, name in named for key_part in _key_parts(key, quote(name), RESCUE_NAME, dialect))
    rank = _rank_name(log.columns)
    order = f"length({SEQUENCE}), {SEQUENCE}"
    names = zip(log.columns.names, history_names(log.columns), strict=True)
    attributes = [f"{quote(name)} AS {quote(shown)}" for name, shown in names]
    shown = [
        *attributes,
        RESCUE_NAME,
        f"{OPERATION} AS {quote(STATE_OPERATION)}",
        f"{EVENT_TIME} AS {quote(VALID_FROM)}",
        f"lead({EVENT_TIME}) OVER (PARTITION BY {keys} ORDER BY {order}) AS {quote(VALID_TO)}",
        SEQUENCE,
    ]
    # After a compaction that keeps old files, each change occurs twice.
    once = f"row_number() OVER (PARTITION BY {keys}, {SEQUENCE} ORDER BY {EVENT_TIME}) AS {rank}"
    return f"SELECT {_joined(shown)}\nFROM (SELECT *, {once} FROM {log.relation}) AS changes\nWHERE {rank} = 1"  # noqa: S608 - a text that is printed


def latest_query(log: ViewedLog, lake: ViewedLake, since: datetime | None, epoch: int, dialect: Dialect) -> str:
    """Return the query for the newest state of all items, by version, from the lake table and the log.

    Parameters
    ----------
    since
        Changes before this time are in the lake table.
    epoch
        The epoch of the log's stream.

    Raises
    ------
    OptionError
        If a column of the log has another type than in the lake table, or JSON paths do not support the name of a key
        attribute.
    """
    quote = back_quoted if dialect == "spark" else double_quoted
    lake_by_name = {name_of_field(field): field for field in lake.columns}
    log_by_name = {name_of_field(field): field for field in log.columns}
    for name, field in log_by_name.items():
        if name in lake_by_name:
            _require_alike(field, lake_by_name[name])
    new = lake_fields([log_by_name[name] for name in log_by_name if name not in lake_by_name], lake.columns)
    fields = [*lake.columns, *new]
    lake_names = set(lake.columns.names)

    def of_log(field: pa.Field[Any]) -> str:
        log_field = log_by_name.get(name_of_field(field))
        return f"{'NULL' if log_field is None else quote(log_field.name)} AS {quote(field.name)}"

    def of_lake(field: pa.Field[Any]) -> str:
        return f"b.{quote(field.name)}" if field.name in lake_names else f"NULL AS {quote(field.name)}"

    def key_parts(prefix: str = "") -> list[str]:
        columns = ((name, f"{prefix}{quote(lake_by_name[name].name)}") for name in log.keys)
        return [
            key_part for name, key in columns for key_part in _key_parts(name, key, f"{prefix}{RESCUE_NAME}", dialect)
        ]

    columns = [of_log(field) for field in fields]
    columns += [RESCUE_NAME, OPERATION, f"'{prefix_of(epoch)}' || lpad({SEQUENCE}, {_ORDER_DIGITS}, '0') AS {VERSION}"]
    condition = "" if since is None else f"\n  WHERE {EVENT_TIME} >= {_time(since, dialect)}"
    # A null never compares as equal. For a missing part, both sides use the same value of its type.
    nothing = [default for name in log.keys for default in (_empty_value(lake_by_name[name], dialect), "''")]
    pairs = zip(key_parts("n."), key_parts("b."), nothing, strict=True)
    same = " AND ".join(f"COALESCE({new}, {none}) = COALESCE({old}, {none})" for new, old, none in pairs)
    shown = [f"n.{quote(field.name)}" for field in fields]
    rank = _rank_name(pa.schema(fields))
    newest = f"row_number() OVER (PARTITION BY {', '.join(key_parts())} ORDER BY {VERSION} DESC) AS {rank}"
    return "\n".join(
        [
            "WITH changes AS (",
            f"  SELECT {_joined(columns, 4)}",
            f"  FROM {log.relation}{condition}",
            "),",
            "newest AS (",
            f"  SELECT * FROM (SELECT *, {newest} FROM changes) AS placed",  # noqa: S608 - a text that is printed
            f"  WHERE {rank} = 1",
            ")",
            f"SELECT {_joined([*shown, f'n.{RESCUE_NAME}', f'n.{VERSION}'])}",
            f"FROM newest AS n LEFT JOIN {lake.relation} AS b ON {same}",
            f"WHERE n.{OPERATION} <> 'REMOVE' AND (b.{VERSION} IS NULL OR b.{VERSION} <= n.{VERSION})",
            "UNION ALL",
            f"SELECT {_joined([*map(of_lake, fields), f'b.{RESCUE_NAME}', f'b.{VERSION}'])}",
            f"FROM {lake.relation} AS b LEFT JOIN newest AS n ON {same}",
            f"WHERE NOT b.{lake.deleted} AND (n.{VERSION} IS NULL OR n.{VERSION} < b.{VERSION})",
        ]
    )


def _key_parts(name: str, column: str, rescue: str, dialect: Dialect) -> tuple[str, str]:
    """Return the expressions of a key attribute: its column, and its value in the rescue column if that is null."""
    if _NOT_IN_PATHS & set(name):
        raise OptionError(
            f"the key attribute {name!r} has a character that JSON paths do not support in SQL: apply the log to a "
            "lake table, or use ddbio history"
        )
    bracketed = f"$['{name}']"
    read = {
        "duckdb": f"json_extract_string({rescue}, '$.\"{name}\"')",
        "spark": f"get_json_object({rescue}, {hive_text(bracketed)})",
        "athena": f"json_format(json_extract({rescue}, '$[\"{name}\"]'))",
    }
    return column, f"CASE WHEN {column} IS NULL THEN {read[dialect]} END"


def _empty_value(field: pa.Field[Any], dialect: Dialect) -> str:
    """Return a value of the type of a key column."""
    match tag_of_field(field):
        case "N":
            return "0"
        case "B":
            return "CAST('' AS BLOB)" if dialect == "duckdb" else "X''"
    return "''"


def log_relation(uri: str, dialect: Dialect) -> tuple[str, str | None]:
    """Return the SQL expression of the folder of a log, and the statement that declares it.

    Raises
    ------
    OptionError
        If the engine cannot read folders.
    """
    if dialect == "duckdb":
        return (
            f"read_parquet({files_below(uri, 'year=*/**/*.parquet')}, union_by_name = true, hive_partitioning = false)",
            None,
        )
    if dialect == "spark":
        # The folders are hours and not partitions: an attribute may have the same name.
        options = f"path {hive_text(uri)}, mergeSchema 'true', recursiveFileLookup 'true'"
        return SPARK_LOG, f"CREATE OR REPLACE TEMPORARY VIEW {SPARK_LOG} USING parquet OPTIONS ({options})"
    raise OptionError("Athena reads only tables of its catalog: set log_relation; 'ddbio catalog sync' creates one")


def lake_relation(uri: str, table_format: str, dialect: Dialect) -> str:
    """Return the SQL expression of a lake table in a folder.

    Raises
    ------
    OptionError
        If the engine cannot read the format from a folder.
    """
    lake_format = TABLE_FORMATS[table_format]
    if dialect == "duckdb" and lake_format.duckdb_function is not None:
        return f"{lake_format.duckdb_function}({sql_text(uri)})"
    if dialect == "spark" and lake_format.spark_source is not None:
        return f"{lake_format.spark_source}.{back_quoted(uri)}"
    raise OptionError(f"{dialect} reads {table_format} tables only through its catalog: set lake_relation")


def statements(query: str, name: str | None, setup: str | None, dialect: Dialect) -> str:
    """Return a query, or the definition of a view of that name, after the statement that it needs."""
    kind = "TEMPORARY VIEW" if dialect == "spark" and setup is not None else "VIEW"
    text = query if name is None else f"CREATE OR REPLACE {kind} {name} AS\n{query}"
    return text if setup is None else f"{setup};\n{text}"


def _rank_name(columns: pa.Schema) -> str:
    """Return an unused column name for the rank of a row among the rows of its item."""
    return column_name("_place", {fold(name) for name in columns.names})


def _require_alike(field: pa.Field[Any], lake: pa.Field[Any]) -> None:
    tags = tag_of_field(field), tag_of_field(lake)
    if tags[0] == tags[1] and (tags[0] == "N" or lake_fields([field])[0].type == lake.type):
        return
    raise OptionError(
        f"{name_of_field(field)} is {lake.type} in the lake table and {field.type} in the log: SQL cannot convert "
        "between them; create the lake table again"
    )


def _time(time: datetime, dialect: Dialect) -> str:
    text = time.strftime("%Y-%m-%d %H:%M:%S")
    # Athena reads the timestamps of files as UTC, without a zone.
    return f"TIMESTAMP '{text}'" if dialect == "athena" else f"CAST('{text}+00:00' AS {_TIME_TYPES[dialect]})"


_TIME_TYPES = {"spark": "TIMESTAMP", "duckdb": "TIMESTAMPTZ"}


def _joined(parts: Sequence[str], indent: int = 2) -> str:
    return (",\n" + " " * indent).join(parts)


# A stream keeps changes for a day: a change that is not applied yet may be that much older than an applied one.
_LATEST_US = 24 * 3600 * 1_000_000
# `apply` leaves out changes that the base includes, with the same tolerance.
_SLACK_US = 300 * 1_000_000


def history_view_sql(options: ViewOptions) -> str:
    """Return the SQL of the history of all items of a log (SCD2), for Spark, DuckDB or Athena.

    Raises
    ------
    NotFoundError
        If there is no log.
    OptionError
        If the log has changes of several streams, or the engine cannot read folders.
    """
    log, setup, _ = _view_source(options)
    return statements(history_query(log, options.dialect), options.name, setup, options.dialect)


def latest_view_sql(options: ViewOptions) -> str:
    """Return the SQL of the newest state of all items, from a lake table and the newer changes of the log.

    Raises
    ------
    NotFoundError
        If there is no log, or no lake table.
    OptionError
        If the log has changes of several streams, the engine cannot read folders, or column types do not match.
    """
    if options.target is None:
        raise OptionError("option 'target' is missing: set it to the lake table that the log is applied to")
    items = open_items(options.target, options, options.format)
    log, setup, stream = _view_source(options)
    uri = items.table.store.uri
    relation = options.lake_relation or lake_relation(uri, items.format, options.dialect)
    epochs = items.epochs
    epoch = (epochs.index(stream) if stream in epochs else len(epochs)) + 1
    lake = ViewedLake(items.shape.attributes, relation, deleted_column(items.format))
    query = latest_query(log, lake, _since(items), epoch, options.dialect)
    return statements(query, options.name, setup, options.dialect)


def _view_source(options: ViewOptions) -> tuple[ViewedLog, str | None, str]:
    store = open_store(options.source, options)
    log = open_log(store)
    streams = [lineage.name for lineage in log.lineages()]
    if len(streams) > 1:
        raise OptionError(
            f"the log {options.source} has changes of {len(streams)} streams, which SQL cannot order: apply them to a "
            "lake table, or use ddbio history"
        )
    relation, setup = (options.log_relation, None)
    if relation is None:
        relation, setup = log_relation(store.uri, options.dialect)
    schema = log.schema()
    columns = pa.schema([field for field in item_columns(schema) if field.name != RESCUE_NAME])
    by_name = dict[str, str]()
    for name in schema.names:
        other = by_name.setdefault(fold(name), name)
        if other != name:
            raise OptionError(
                f"the log {options.source} has columns {other!r} and {name!r}, whose names are equal in SQL: apply it "
                "to a lake table, whose columns have different names"
            )
    return ViewedLog(log.keys(), columns, relation), setup, streams[0]


def _since(items: LakeItems) -> datetime | None:
    """Return a time before which all changes are in a lake table; None if it is empty."""
    times = [pc.max(batch.column(0)).as_py() for batch in items.rows((TIME,))]
    newest = max((value for value in times if value is not None), default=0)
    base = base_us(items)
    since = max(newest - _LATEST_US, base - _SLACK_US if base else 0)
    return datetime.fromtimestamp(since // 1_000_000, UTC) if since > 0 else None
