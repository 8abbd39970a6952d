"""Registration of an Iceberg table in a catalog of pyiceberg's configuration: REST, Hive, SQL.

Writers still commit to the folder of the table. The table is registered by its metadata, and later the missing
snapshots are added to the catalog in separate commits, so that readers always find the table.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ddbio.errors import DdbioError, EndpointError, OptionError, TargetError
from ddbio.lake_formats.iceberg import metadata_location
from ddbio.lake_formats.iceberg_files import IMPLEMENTATION, STORE
from ddbio.retrying import retrying

try:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        NoSuchNamespaceError,
        NoSuchTableError,
        NotInstalledError,
        TableAlreadyExistsError,
    )
    from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
    from pyiceberg.table.update import (
        AddSchemaUpdate,
        AddSnapshotUpdate,
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotsUpdate,
        SetCurrentSchemaUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )
    from pyiceberg.utils.config import Config
except ModuleNotFoundError as error:
    raise OptionError("Iceberg needs the library pyiceberg: pip install 'ddbio[iceberg]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog
    from pyiceberg.table.metadata import TableMetadata

    from ddbio.catalog.lake import IcebergName
    from ddbio.lake_formats.table import LakeTable
    from ddbio.storage.object_store import ObjectStore


def open_catalog(name: IcebergName, store: ObjectStore) -> Catalog:
    """Return a catalog of pyiceberg's configuration.

    The catalog reads and writes files of the table through our store.

    Raises
    ------
    OptionError
        If the configuration has no such catalog, or a library for it is missing.
    EndpointError
        If the catalog is unavailable.
    """
    # pyiceberg caches the configuration at its import, so it is read again.
    properties: Any = Config().get_catalog_config(name.catalog)
    if not properties:
        variable = f"PYICEBERG_CATALOG__{name.catalog.upper()}__URI"
        raise OptionError(
            f"catalog: pyiceberg's configuration has no catalog {name.catalog!r} for {name}: write it to "
            f".pyiceberg.yaml, or set the environment variable {variable}"
        )
    # A REST catalog is asked for its configuration here.
    with _opening(name, str(properties.get("uri", ""))):
        catalog = load_catalog(name.catalog, **properties)
    catalog.properties |= {"py-io-impl": IMPLEMENTATION, STORE: store}
    return catalog


def require_namespace(name: IcebergName, store: ObjectStore) -> None:
    """Create the namespace of a table in its catalog, unless the table exists already.

    Raises
    ------
    OptionError
        As :func:`open_catalog`, or if the catalog does not support the namespace.
    EndpointError
        If the catalog is unavailable, or refuses the request.
    """
    catalog = open_catalog(name, store)
    with _opening(name, str(catalog.properties.get("uri", ""))):
        # A Hive catalog is first contacted here.
        if not catalog.table_exists(name.path):
            catalog.create_namespace_if_not_exists(name.path[:-1])


@contextlib.contextmanager
def _opening(name: IcebergName, uri: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, NotInstalledError) as error:
        raise OptionError(f"catalog: {name} of pyiceberg's configuration cannot be opened: {error}") from error
    except Exception as error:
        raise EndpointError(f"the catalog {name.catalog} at {uri}: {type(error).__name__}: {error}", uri) from error


def publish(name: IcebergName, table: LakeTable) -> None:
    """Update the table of a catalog to the newest state of a lake table.

    Raises
    ------
    TargetError
        If the catalog has another table of this name, or the table was written through the catalog.
    EndpointError
        If the catalog is unavailable, or refuses; the lake table is committed, and the next run publishes it.
    """
    catalog = open_catalog(name, table.store)
    conflicts = (CommitFailedException, TableAlreadyExistsError)
    try:
        retrying(lambda: _publish(name, catalog, table), on=conflicts, attempts=5, base_seconds=0.2)
    except conflicts as conflict:
        raise TargetError(f"other writers of {name} were repeatedly faster: {conflict}", str(name)) from conflict
    except DdbioError:
        raise
    except Exception as error:
        # Each type of catalog has different errors: HTTP, Thrift, SQL.
        raise EndpointError(
            f"the lake table is committed, but {name} does not have the new version yet: {type(error).__name__}: "
            f"{error}; the next run tries again",
            str(catalog.properties.get("uri", "")),
        ) from error


def _publish(name: IcebergName, catalog: Catalog, table: LakeTable) -> None:
    try:
        remote = catalog.load_table(name.path)
    except (NoSuchTableError, NoSuchNamespaceError):
        remote = None
    # Loaded after the catalog, so that it includes everything that the catalog has from us.
    state = table.load()
    assert state is not None  # noqa: S101 - it was committed
    if remote is None:
        catalog.register_table(name.path, metadata_location(table.store.uri, state.version))
        return
    ours: TableMetadata = state.handle.metadata
    _check(name, table.store.uri, remote.metadata, ours)
    updates = updates_between(remote.metadata, ours)
    if updates:
        requirements = (
            AssertTableUUID(uuid=ours.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=remote.metadata.current_snapshot_id),
        )
        catalog.commit_table(remote, requirements, updates)


def _check(name: IcebergName, uri: str, remote: TableMetadata, ours: TableMetadata) -> None:
    """Raise for another table, and for a table with snapshots of other writers."""
    if remote.table_uuid != ours.table_uuid:
        raise TargetError(f"{name} is the table of {remote.location}, not of {uri}: give another name", str(name))
    own_ids = {snapshot.snapshot_id: snapshot for snapshot in ours.snapshots}
    oldest = min((snapshot.sequence_number or 0 for snapshot in ours.snapshots), default=0)
    current = remote.current_snapshot()
    # A snapshot that is older than all of ours has expired.
    if current is not None and current.snapshot_id not in own_ids and (current.sequence_number or 0) >= oldest:
        raise TargetError(
            f"{name} was written through its catalog, so the folder {uri} lacks its changes: changes are applied to "
            "the folder; drop the table from the catalog without purging its files, and the next run adds it again",
            str(name),
        )


def updates_between(remote: TableMetadata, ours: TableMetadata) -> tuple[Any, ...]:
    """Return the updates that give a table of a catalog our columns, snapshots and properties."""
    updates: list[Any] = []
    schemas = {schema.schema_id for schema in remote.schemas}
    updates += [AddSchemaUpdate(schema_=schema) for schema in ours.schemas if schema.schema_id not in schemas]
    if remote.current_schema_id != ours.current_schema_id:
        updates.append(SetCurrentSchemaUpdate(schema_id=ours.current_schema_id))
    remote_ids = {snapshot.snapshot_id for snapshot in remote.snapshots}
    new = [snapshot for snapshot in ours.snapshots if snapshot.snapshot_id not in remote_ids]
    updates += [
        AddSnapshotUpdate(snapshot=snapshot)
        for snapshot in sorted(new, key=lambda snapshot: snapshot.sequence_number or 0)
    ]
    if ours.current_snapshot_id is not None and ours.current_snapshot_id != remote.current_snapshot_id:
        update = SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type=SnapshotRefType.BRANCH,
            snapshot_id=ours.current_snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        updates.append(update)
    # Snapshots with tags in the catalog are kept.
    kept_ids = {snapshot.snapshot_id for snapshot in ours.snapshots}
    kept_ids |= {ref.snapshot_id for ref_name, ref in remote.refs.items() if ref_name != MAIN_BRANCH}
    if expired := sorted(remote_ids - kept_ids):
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=expired))
    properties = {key: value for key, value in ours.properties.items() if remote.properties.get(key) != value}
    if properties:
        updates.append(SetPropertiesUpdate(updates=properties))
    return tuple(updates)
