"""Comparison of the columns that a job would append to a target with those of the existing files.

Polars, pandas and Spark read the files of a folder as one table. They cannot do that if a column has two types.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.commit.protocol import list_manifests
from ddbio.errors import DecodeError, NotFoundError, SchemaError, TargetError
from ddbio.formats.registry import is_row_file, is_splittable
from ddbio.formats.row_files import read_schema
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.items.schema.file import schema_from_json
from ddbio.storage.meta import read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from ddbio.formats.partitions import Partitioning
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

    _Conflict: TypeAlias = tuple[str, pa.DataType, pa.DataType]

_LOG = logging.getLogger("ddbio.commit")
# Manifests of jobs without files, or with files of another format, have no types: read at most this number.
_MAX_MANIFESTS = 20
_SMALL_TYPES = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def require_same_types(store: ObjectStore, schema: pa.Schema) -> None:
    """Refuse columns that have another type in the files of the target; log columns that only one side has.

    Raises
    ------
    TargetError
        With the column and both types.
    """
    existing = _schema_of_target(store)
    if existing is None:
        return
    for path, old, new in _conflicts(existing, schema, ""):
        raise TargetError(
            f"target {store.uri} has column {path!r} as {old}, and this job would append it as {new}: polars, pandas "
            f"and Spark could not read both together; pass the existing columns by the option schema ('ddbio "
            f"schema {store.uri} --json' prints them), or choose another target",
            store.uri,
        )
    if differing := sorted(({*existing.names} ^ {*schema.names}) - {RESCUE_NAME}):
        _LOG.warning(
            "target %s: not all files have the columns %s: some readers fill missing columns only with an option",
            *(store.uri, ", ".join(differing)),
        )


def require_same_partitions(store: ObjectStore, partitioning: Partitioning | None) -> None:
    """Refuse to add files that are partitioned by other columns than those of the newest job at the target.

    Raises
    ------
    TargetError
        With both partitionings.
    """
    for entry in _newest_manifests(store):
        with suppress(NotFoundError):
            state = read_state(store, entry.path)
            if not state["files"] or "partition_by" not in state:
                continue
            existing = [column["name"] for column in state.get("partition_by", [])]
            requested = [] if partitioning is None else [column.name for column in partitioning.columns]
            if existing != requested:
                raise TargetError(
                    f"target {store.uri} is partitioned by {', '.join(existing) or 'nothing'}, and this job would add "
                    f"files partitioned by {', '.join(requested) or 'nothing'}, which no engine reads together: give "
                    "partition_by of the target, or choose another target",
                    store.uri,
                )
            return


def _newest_manifests(store: ObjectStore) -> list[StoredObject]:
    return sorted(list_manifests(store), key=lambda entry: entry.modified_at, reverse=True)[:_MAX_MANIFESTS]


def _schema_of_target(store: ObjectStore) -> pa.Schema | None:
    """Return the columns of the newest files by their manifest, else those of some file; None if there is none."""
    for entry in _newest_manifests(store):
        # It may not exist any more, or a release with another format of schemas may have written it.
        with suppress(NotFoundError, SchemaError):
            state = read_state(store, entry.path)
            if state.get("schema") and any(is_splittable(file["path"]) for file in state["files"]):
                return schema_from_json(state["schema"])
    paths = (entry.path for entry in store.list() if is_row_file(entry.path) and is_splittable(entry.path))
    # Files of other programs may be damaged, and this job cannot repair them.
    with suppress(NotFoundError, DecodeError):
        return next((read_schema(store, path) for path in paths), None)
    return None


def _conflicts(old: Iterable[pa.Field[Any]], new: Iterable[pa.Field[Any]], prefix: str) -> Iterator[_Conflict]:
    """Yield path and types of fields with the same name and two types, also within structs, lists and maps."""
    existing = {field.name: field for field in old}
    for field in new:
        if field.name in existing:
            path = f"{prefix}{field.name}"
            yield from _type_conflicts(existing[field.name].type, field.type, path)


def _type_conflicts(old: Any, new: Any, path: str) -> Iterator[_Conflict]:
    old, new = _SMALL_TYPES.get(old, old), _SMALL_TYPES.get(new, new)
    if old == new or pa.types.is_null(old) or pa.types.is_null(new):
        return
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        yield from _conflicts(old, new, f"{path}.")
    elif _is_list(old) and _is_list(new):
        yield from _type_conflicts(old.value_type, new.value_type, f"{path}[]")
    elif pa.types.is_map(old) and pa.types.is_map(new):
        yield from _type_conflicts(old.item_type, new.item_type, f"{path}.*")
    else:
        yield path, old, new


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)
