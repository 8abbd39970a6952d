"""Create and describe tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.aws.control_plane import create_table, describe_table, enable_time_to_live, read_table_definition
from ddbio.core.create_table import NewTable, create_table_request, new_table_request, parse_key
from ddbio.core.result import Result
from ddbio.core.table_description import TableDescription
from ddbio.errors import NotFoundError, TargetError
from ddbio.ops.job.storage import dynamodb_spec
from ddbio.ops.job.waiting import await_end
from ddbio.options import WaitPolicyOptions, connection_of

if TYPE_CHECKING:
    from typing import Any

    from ddbio.aws.client import ClientSpec
    from ddbio.options import ConnectionOptions, CreateLikeOptions, CreateTableOptions, LoadOptions


@dataclass(frozen=True)
class CreatedTable(Result):
    """A table that was created, and the CreateTable request that did it."""

    table: str
    request: dict[str, Any]


def describe(table: str, options: ConnectionOptions) -> TableDescription:
    """Return key, size, billing and indexes of a table.

    Raises
    ------
    NotFoundError
        If there is no such table.
    DdbioError
        If it cannot be described.
    """
    return describe_table(dynamodb_spec(options), table)


def create(options: CreateTableOptions) -> CreatedTable:
    """Create a table, and wait until it is ACTIVE.

    Raises
    ------
    TargetError
        If it exists.
    OptionError
        If key or indexes are malformed.
    DdbioError
        If it cannot be created.
    """
    request = new_table_request(NewTable(options.table, options.key, options.gsi, options.rcu, options.wcu))
    return _create(dynamodb_spec(options), request, options)


def create_like(options: CreateLikeOptions) -> CreatedTable:
    """Create a table like another one, and wait until it is ACTIVE.

    Raises
    ------
    TargetError
        If the target exists.
    DdbioError
        If the source cannot be described or the target not be created.
    """
    described, expiry = read_table_definition(dynamodb_spec(options), options.source)
    spec = dynamodb_spec(options.target_connection)
    made = _create(spec, create_table_request(described, options), options)
    if expiry is not None:
        enable_time_to_live(spec, options.target, expiry)
    return made


def is_table(spec: ClientSpec, table: str) -> bool:
    """Return whether there is such a table."""
    try:
        describe_table(spec, table)
    except NotFoundError:
        return False
    return True


def describe_target(options: LoadOptions) -> TableDescription:
    """Return the table of a load as it is, or as it would be created.

    Raises
    ------
    NotFoundError
        If there is no such table, and ``create_table`` is not given.
    DdbioError
        If it cannot be described.
    """
    try:
        return describe_table(dynamodb_spec(options), options.table)
    except NotFoundError as error:
        if options.key is None:
            raise NotFoundError(f"{error}; or give create_table and key to have it created") from error
    name = options.table
    return TableDescription(name, "", "", "ACTIVE", parse_key(options.key), 0, 0, on_demand=True)


def create_target(options: LoadOptions) -> None:
    """Create the table of a load if ``create_table`` is given and there is none.

    Raises
    ------
    DdbioError
        If it cannot be created.
    """
    spec = dynamodb_spec(options)
    if options.key is None or is_table(spec, options.table):
        return
    _create(spec, new_table_request(NewTable(options.table, options.key)), WaitPolicyOptions(**connection_of(options)))


def _create(spec: ClientSpec, request: dict[str, Any], options: WaitPolicyOptions) -> CreatedTable:
    name = request["TableName"]
    if is_table(spec, name):
        raise TargetError(f"table {name!r} exists already: choose another name", name)
    create_table(spec, request)
    await_end(lambda: describe_table(spec, name), options)
    return CreatedTable(name, request)
