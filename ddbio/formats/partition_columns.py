"""The columns that the folders of a dataset give to the rows of its files: of a job's own folders, exactly."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ddbio.errors import NotFoundError, SchemaError
from ddbio.items.schema.arrow import name_of_field, tag_of_field
from ddbio.items.schema.file import schema_from_json
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.paths import folder_columns, hive_partition
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns


def partition_columns(store: ObjectStore, paths: Iterable[str], keys: Mapping[str, str]) -> dict[str, FolderColumns]:
    """Return the columns that the folders of each path give to its rows.

    Of a file that a job of ddbio wrote, the job's manifest says which attributes and types they are; parts of times,
    such as years, are no attributes, and are left out. Of other files the folders' names and values say it.

    Parameters
    ----------
    keys
        Key attributes and their types.

    Raises
    ------
    TargetError
        If a manifest is damaged, or a newer release wrote it.
    """
    columns = folder_columns(paths, keys)
    jobs = {job_of(path) for path, each in columns.items() if each} - {""}
    known = {job_id: found for job_id in jobs if (found := _attributes_of(store, job_id)) is not None}
    for path in columns:
        if (attributes := known.get(job_of(path))) is not None:
            values = hive_partition(path).items()
            columns[path] = tuple((*attributes[name], value) for name, value in values if name in attributes)
    return columns


def _attributes_of(store: ObjectStore, job_id: str) -> dict[str, tuple[str, str]] | None:
    """Return attribute and type of each column of a job's folders; None if no manifest tells."""
    path = manifest_path(job_id)
    with suppress(NotFoundError, SchemaError, KeyError):
        state = read_state(store, path)
        tags = {name_of_field(field): tag_of_field(field) for field in schema_from_json(state["schema"])}
        described = state["partition_by"]
        return {each["name"]: (each["attribute"], tags[each["attribute"]]) for each in described if not each["part"]}
    return None
