"""Name an Iceberg table in a catalog that pyiceberg's configuration knows: REST, Hive, SQL.

The folder of the table stays what writers commit to. The catalog gets the table by its metadata, and afterwards the
snapshots that it does not have, in one commit of its own: no reader finds the table missing.
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
    """Return the catalog of a name, by pyiceberg's configuration.

    What the catalog itself reads and writes of the table goes through our store.

    Raises
    ------
    OptionError
        If the configuration has no such catalog, or a library for it is missing.
    EndpointError
        If the catalog does not answer.
    """
    # What pyiceberg keeps is of when it was imported.
    properties: Any = Config().get_catalog_config(name.catalog)
    if not properties:
        place = f"PYICEBERG_CATALOG__{name.catalog.upper()}__URI"
        raise OptionError(
            f"catalog: pyiceberg's configuration has no catalog {name.catalog!r}, which {name} is of: write it to "
            f".pyiceberg.yaml, or set the environment variable {place}"
        )
    # A catalog of REST is asked for its configuration.
    with _opening(name, str(properties.get("uri", ""))):
        catalog = load_catalog(name.catalog, **properties)
    catalog.properties |= {"py-io-impl": IMPLEMENTATION, STORE: store}
    return catalog


def require_namespace(name: IcebergName, store: ObjectStore) -> None:
    """Make the namespace of a table in its catalog, if that has no such table yet.

    Raises
    ------
    OptionError
        As of :func:`open_catalog`, or if the catalog cannot have such a namespace.
    EndpointError
        If the catalog does not answer, or refuses.
    """
    catalog = open_catalog(name, store)
    with _opening(name, str(catalog.properties.get("uri", ""))):
        # A catalog of Hive gets its first request here.
        if not catalog.table_exists(name.path):
            catalog.create_namespace_if_not_exists(name.path[:-1])


@contextlib.contextmanager
def _opening(name: IcebergName, uri: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, NotInstalledError) as error:
        raise OptionError(f"catalog: {name} of pyiceberg's configuration does not open: {error}") from error
    except Exception as error:
        raise EndpointError(f"the catalog {name.catalog} at {uri}: {type(error).__name__}: {error}", uri) from error


def publish(name: IcebergName, table: LakeTable) -> None:
    """Make the table of a catalog name the newest state of a lake table.

    Raises
    ------
    TargetError
        If the table of the catalog is another one, or was written through the catalog.
    EndpointError
        If the catalog does not answer, or refuses; the lake table is committed, and the next run publishes it.
    """
    catalog = open_catalog(name, table.store)
    conflicts = (CommitFailedException, TableAlreadyExistsError)
    try:
        retrying(lambda: _publish(name, catalog, table), on=conflicts, attempts=5, base_seconds=0.2)
    except conflicts as conflict:
        raise TargetError(f"other writers were faster at {name} again and again: {conflict}", str(name)) from conflict
    except DdbioError:
        raise
    except Exception as error:
        # Each kind of catalog has errors of its own: of HTTP, Thrift, SQL.
        raise EndpointError(
            f"the lake table is committed, but {name} does not name it yet: {type(error).__name__}: {error}; the "
            "next run tries again",
            str(catalog.properties.get("uri", "")),
        ) from error


def _publish(name: IcebergName, catalog: Catalog, table: LakeTable) -> None:
    try:
        there = catalog.load_table(name.path)
    except (NoSuchTableError, NoSuchNamespaceError):
        there = None
    # Read behind the catalog: what that has of us, we have.
    state = table.load()
    assert state is not None  # noqa: S101 - it was committed
    if there is None:
        catalog.register_table(name.path, metadata_location(table.store.uri, state.version))
        return
    ours: TableMetadata = state.handle.metadata
    _check(name, table.store.uri, there.metadata, ours)
    updates = updates_between(there.metadata, ours)
    if updates:
        requirements = (
            AssertTableUUID(uuid=ours.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=there.metadata.current_snapshot_id),
        )
        catalog.commit_table(there, requirements, updates)


def _check(name: IcebergName, uri: str, there: TableMetadata, ours: TableMetadata) -> None:
    """Refuse another table, and one that has snapshots of other writers."""
    if there.table_uuid != ours.table_uuid:
        raise TargetError(f"{name} is the table of {there.location}, not that of {uri}: give another name", str(name))
    known = {each.snapshot_id: each for each in ours.snapshots}
    oldest = min((each.sequence_number or 0 for each in ours.snapshots), default=0)
    current = there.current_snapshot()
    # One that is older than all of ours has expired.
    if current is not None and current.snapshot_id not in known and (current.sequence_number or 0) >= oldest:
        raise TargetError(
            f"{name} was written through its catalog, which the folder {uri} does not know: changes are applied to the "
            "folder; drop the table from the catalog without purging its files, and the next run names it again",
            str(name),
        )


def updates_between(there: TableMetadata, ours: TableMetadata) -> tuple[Any, ...]:
    """Return the updates that make a table of a catalog have our columns, snapshots and properties."""
    updates: list[Any] = []
    schemas = {each.schema_id for each in there.schemas}
    updates += [AddSchemaUpdate(schema_=each) for each in ours.schemas if each.schema_id not in schemas]
    if there.current_schema_id != ours.current_schema_id:
        updates.append(SetCurrentSchemaUpdate(schema_id=ours.current_schema_id))
    known = {each.snapshot_id for each in there.snapshots}
    new = [each for each in ours.snapshots if each.snapshot_id not in known]
    updates += [AddSnapshotUpdate(snapshot=each) for each in sorted(new, key=lambda each: each.sequence_number or 0)]
    if ours.current_snapshot_id is not None and ours.current_snapshot_id != there.current_snapshot_id:
        update = SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type=SnapshotRefType.BRANCH,
            snapshot_id=ours.current_snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        updates.append(update)
    # Tags of the catalog's keep theirs.
    kept = {each.snapshot_id for each in ours.snapshots}
    kept |= {ref.snapshot_id for place, ref in there.refs.items() if place != MAIN_BRANCH}
    if expired := sorted(known - kept):
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=expired))
    given = {key: value for key, value in ours.properties.items() if there.properties.get(key) != value}
    if given:
        updates.append(SetPropertiesUpdate(updates=given))
    return tuple(updates)
