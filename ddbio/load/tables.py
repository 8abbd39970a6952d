"""Creation and description of tables."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.aws.control_plane import (
    create_table,
    describe_table,
    enable_time_to_live,
    put_policy,
    read_policy,
    read_table_definition,
    read_tags,
    shows_vector_indexes,
)
from ddbio.aws.table_description import TableDescription
from ddbio.errors import (
    AccessDeniedError,
    EndpointError,
    ExportIncompleteError,
    NotFoundError,
    OptionError,
    ServiceError,
    TargetError,
)
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.create_table import (
    NewTable,
    create_table_request,
    format_key,
    hidden_attributes,
    new_table_request,
    parse_key,
    policy_for,
)
from ddbio.jobs.waiting import await_end
from ddbio.options import WaitPolicyOptions, connection_of
from ddbio.result import Result
from ddbio.storage.meta import META, is_manifest, read_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.load.options import CreateLikeOptions, CreateTableOptions, LoadOptions
    from ddbio.options import ConnectionOptions


_LOG = logging.getLogger("ddbio.table")

# Service model of DynamoDB in botocore: https://github.com/boto/botocore/blob/develop/CHANGELOG.rst
VECTORS_SINCE = "1.43.64"


@dataclass(frozen=True)
class CreatedTable(Result):
    """Created table, with its CreateTable request."""

    table: str
    request: dict[str, Any]


def describe(table: str, options: ConnectionOptions) -> TableDescription:
    """Return key, size, billing and indexes of a table.

    Parameters
    ----------
    table
        Name or ARN.

    Raises
    ------
    NotFoundError
        If the table does not exist.
    DdbioError
        If it cannot be described.
    """
    return describe_table(dynamodb_spec(options), table)


def create(options: CreateTableOptions) -> CreatedTable:
    """Create a table, wait until it is ACTIVE, and return its name and the request that created it.

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
    """Create a table like another one, wait until it is ACTIVE, and return its name and the request that created it.

    Keys, indexes, billing, streams, encryption, table class, deletion protection and time to live are the source's,
    with ``copy_tags`` and ``copy_policy`` also tags and resource policy.

    Raises
    ------
    TargetError
        If the target exists.
    DdbioError
        If the source cannot be described or the target not be created.
    """
    source_spec, spec = dynamodb_spec(options), dynamodb_spec(options.target_connection)
    definition = define_like(options)
    source_arn = definition.source_arn
    policy = read_policy(source_spec, source_arn) if options.copy_policy else None
    created = _create(spec, definition.request, options)
    if definition.expiry is not None:
        enable_time_to_live(spec, options.target, definition.expiry)
    if policy is not None:
        target_arn = describe_table(spec, options.target).arn
        put_policy(spec, target_arn, policy_for(policy, source_arn, target_arn))
    return created


class LikeDefinition(NamedTuple):
    """Definition of a table like another: ARN of the source, CreateTable request, and time-to-live attribute."""

    source_arn: str
    request: dict[str, Any]
    expiry: str | None


def define_like(options: CreateLikeOptions) -> LikeDefinition:
    """Return the definition of a table like another one. It includes the tags with ``copy_tags``.

    Raises
    ------
    ServiceError
        The source has vector indexes that the installed botocore hides.
    DdbioError
        The source cannot be described.
    """
    spec = dynamodb_spec(options)
    described, expiry = read_table_definition(spec, options.source)
    arn = described.get("TableArn", options.source)
    if not shows_vector_indexes(spec):
        if hidden := hidden_attributes(described):
            raise ServiceError(
                f"table {options.source!r} defines {', '.join(hidden)}, which no visible index uses: install boto3 "
                f"{VECTORS_SINCE} or newer, which shows vector indexes"
            )
        if described.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST":
            _LOG.warning(
                "table %s: if it has vector indexes, the new table lacks them: boto3 %s or newer shows them",
                options.source,
                VECTORS_SINCE,
            )
    request = create_table_request(described, options)
    tags = read_tags(spec, arn) if options.copy_tags else []
    return LikeDefinition(arn, {**request, "Tags": tags} if tags else request, expiry)


def is_table(spec: ClientSpec, table: str) -> bool:
    """Return whether a table exists."""
    try:
        describe_table(spec, table)
    except NotFoundError:
        return False
    return True


def describe_target(options: LoadOptions) -> TableDescription:
    """Return the description of a load's table, or of the table that it would create.

    Raises
    ------
    NotFoundError
        If the table does not exist, and ``create_table`` is not given.
    OptionError
        If the name is that of a file.
    DdbioError
        If it cannot be described.
    """
    if "/" in options.table and not options.table.startswith("arn:"):
        raise OptionError(
            f"{options.table!r} is not a table name: the first argument of a load is its source, the second its table"
        )
    try:
        return describe_table(dynamodb_spec(options), options.table)
    except NotFoundError as error:
        if not options.create_table:
            raise NotFoundError(f"{error}; or give create_table, and option 'key', to create it") from error
    key = parse_key(options.key) if options.key is not None else stated_key(options)
    return TableDescription(options.table, "", "", "ACTIVE", key, 0, 0, on_demand=True)


def stated_key(options: LoadOptions) -> tuple[tuple[str, str], ...]:
    """Return the key of the table from which a load's source comes, according to the source.

    The manifests of ddbio's files have it. A native export has the name of its table, which is described if it still
    exists.

    Raises
    ------
    OptionError
        If no key is found, or several keys.
    """
    # The registry imports all file formats, which describing a table does not need.
    from ddbio.formats.registry import is_row_file  # noqa: PLC0415
    from ddbio.storage.paths import is_glob, split_glob  # noqa: PLC0415

    folder = options.source.rstrip("/")
    folders = [folder]
    # A folder may be named like a file, or like a glob.
    if is_row_file(folder.rpartition("/")[2]):
        folders.append(folder.rpartition("/")[0] or ".")
    if is_glob(folder):
        folders.append(split_glob(folder)[0] or ".")
    for name in folders:
        with contextlib.suppress(AccessDeniedError, EndpointError, NotFoundError, ExportIncompleteError):
            keys_found = _keys_in(name, options)
            if len(keys_found) == 1:
                return parse_key(keys_found.pop())
            if keys_found:
                keys = " and ".join(sorted(keys_found))
                raise OptionError(f"{name} has rows of tables with the keys {keys}: give key")
    raise OptionError(f"{options.source} states no key for the new table: give key, as in key='pk:S,sk:N'")


def _keys_in(folder: str, options: LoadOptions) -> set[str]:
    from ddbio.jobs.stores import open_store  # noqa: PLC0415
    from ddbio.sources.export_source import open_export  # noqa: PLC0415 - as above

    store = open_store(folder, options)
    manifests = [entry.path for entry in store.list(META) if is_manifest(entry.path)]
    stated = [read_state(store, path).get("source") or {} for path in manifests]
    if not manifests:
        stated = [{"table_arn": open_export(folder, options).summary.table_arn}]
    return set(filter(None, (_key_of(source, options) for source in stated)))


def _key_of(source: Mapping[str, Any], options: LoadOptions) -> str | None:
    """Return the key in a manifest's source, as text, or that of the table of the source."""
    match source:
        case {"key": dict(key)}:
            return format_key(tuple(key.items()))
        case {"import": {"key": str(key)}}:
            return key
        case {"table_arn": str(arn)}:
            return format_key(describe_table(dynamodb_spec(options), arn).key_types)
    return None


def create_target(options: LoadOptions) -> None:
    """Create the table of a load if ``create_table`` is given and it does not exist.

    Raises
    ------
    DdbioError
        If it cannot be created.
    """
    spec = dynamodb_spec(options)
    if not options.create_table or is_table(spec, options.table):
        return
    key = options.key or format_key(stated_key(options))
    _create(spec, new_table_request(NewTable(options.table, key)), WaitPolicyOptions(**connection_of(options)))


def _create(spec: ClientSpec, request: dict[str, Any], options: WaitPolicyOptions) -> CreatedTable:
    name = request["TableName"]
    if is_table(spec, name):
        raise TargetError(f"table {name!r} exists already: choose another name", name)
    create_table(spec, request)
    await_end(lambda: describe_table(spec, name), options)
    return CreatedTable(name, request)
