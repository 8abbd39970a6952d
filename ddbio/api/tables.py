"""Create and describe tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import tables
from ddbio.options import ConnectionOptions, CreateLikeOptions, CreateTableOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import ConnectionKeywords, CreateLikeKeywords, CreateTableKeywords
    from ddbio.core.table_description import TableDescription
    from ddbio.ops.tables import CreatedTable


@takes(CreateTableOptions)
def create_table(table: str, **options: Unpack[CreateTableKeywords]) -> CreatedTable:
    """Create a table, wait until it is ACTIVE, and return its name and the request that created it.

    Parameters
    ----------
    table
        Name of the new table.
    **options
        ``key``, like ``pk:S,sk:N``, is needed; ``gsi`` defines global indexes; ``billing``, ``rcu`` and ``wcu`` its
        capacity, on demand by default; see :class:`ddbio.CreateTableKeywords` for all.

    Raises
    ------
    TargetError
        If the table exists.
    DdbioError
        With what happened, to what, and what to do.
    """
    return tables.create(parse_options(CreateTableOptions, {**options, "table": table}))


@takes(CreateLikeOptions)
def create_table_like(source: str, target: str, **options: Unpack[CreateLikeKeywords]) -> CreatedTable:
    """Create a table like another one, wait until it is ACTIVE, and return its name and the request that created it.

    Keys, indexes, billing, streams, encryption, table class, deletion protection and time to live are the source's.

    Parameters
    ----------
    source
        Name or ARN of the model.
    target
        Name of the new table.
    **options
        ``billing``, ``kms_key`` and ``warm_write_units`` differ from the source's if given; ``target_region``,
        ``target_profile`` and ``target_role_arn`` say where the table is created; see
        :class:`ddbio.CreateLikeKeywords` for all.

    Raises
    ------
    TargetError
        If the target exists.
    DdbioError
        With what happened, to what, and what to do.
    """
    return tables.create_like(parse_options(CreateLikeOptions, {**options, "source": source, "target": target}))


@takes(ConnectionOptions)
def describe_table(table: str, **options: Unpack[ConnectionKeywords]) -> TableDescription:
    """Return key, size, billing and indexes of a table.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return tables.describe(table, parse_options(ConnectionOptions, options))
