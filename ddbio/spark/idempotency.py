"""Make the keys of :mod:`ddbio.core.loads.idempotency` in Spark's own expressions; refuses the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from ddbio.core.loads.idempotency import ADVICE, NULL_PART
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["idempotency_key"]

# https://spark.apache.org/docs/4.0.0/sql-ref-datetime-pattern.html
_SECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_TIMES = {"timeZone": "UTC", "timestampFormat": _SECONDS + "'Z'", "timestampNTZFormat": _SECONDS}


def idempotency_key(*cols: Column | str) -> Column:
    """Return a key for each row, 64 hexadecimal digits: equal exactly where all the columns are equal.

    It is what :func:`ddbio.idempotency_key` makes of the same values in Arrow. A column of floats, or a nested one,
    fails the query.

    Raises
    ------
    OptionError
        If no column is named.
    """
    if not cols:
        raise OptionError("idempotency_key needs at least one column")
    return sql.sha2(sql.concat(*(_part(sql.col(each) if isinstance(each, str) else each) for each in cols)), 256)


def _part(column: Column) -> Column:
    # What a column's type is shows when Spark plans: it keeps one of these branches.
    kind, text = sql.typeof(column), column.cast("string")
    found = (
        sql.when(kind == "string", _prefixed("S", text))
        .when(kind.isin("tinyint", "smallint", "int", "bigint"), _prefixed("N", text))
        .when(kind.startswith("decimal"), _prefixed("N", _plain(text)))
        .when(kind == "binary", _prefixed("B", text))
        .when(kind == "boolean", _prefixed("Z", text))
        .when(kind == "date", _prefixed("D", text))
        .when(kind == "timestamp", _prefixed("T", _time(column)))
        .when(kind == "timestamp_ntz", _prefixed("L", _time(column)))
        .when(kind == "void", sql.lit(None).cast("binary"))
        .otherwise(sql.raise_error(sql.concat(sql.lit("a column is of type "), kind, sql.lit(f": {ADVICE}"))))
    )
    return sql.coalesce(found, sql.lit(NULL_PART.decode()).cast("binary"))


def _prefixed(letter: str, text: Column) -> Column:
    content = text.cast("binary")
    head = sql.concat(sql.lit(letter), sql.octet_length(content).cast("string"), sql.lit(":"))
    return sql.concat(head.cast("binary"), content)


def _plain(text: Column) -> Column:
    """Return a decimal's text without exponent and superfluous zeros."""
    sign = sql.when(text.startswith("-"), "-").otherwise("")
    # Small ones are spelled like 1.23E-7; there are no large exponents.
    digits = sql.regexp_replace(text, r"[-.]|E.*", "")
    exponent = sql.call_function("try_to_number", sql.regexp_extract(text, r"E-(\d+)", 1), sql.lit("99")).cast("int")
    zeros = sql.call_function("repeat", sql.lit("0"), exponent - 1)
    spelled = sql.when(text.contains("E"), sql.concat(sign, sql.lit("0."), zeros, digits)).otherwise(text)
    return sql.when(spelled.contains("."), sql.regexp_replace(spelled, r"\.?0+$", "")).otherwise(spelled)


def _time(column: Column) -> Column:
    # The one way to print a time of either kind that does not depend on the session's zone.
    return sql.get_json_object(sql.to_json(sql.struct(column.alias("at")), _TIMES), "$.at")
