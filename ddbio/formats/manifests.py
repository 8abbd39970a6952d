"""Facts from job manifests that files do not store: DynamoDB's types, checksums, and the columns of folders."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.formats.registry import format_of, is_dynamodb_json_file
from ddbio.items.schema.arrow import name_of_field, tag_of_field
from ddbio.items.schema.file import schema_from_json
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.paths import folder_columns, hive_partition
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.commit.snapshot import LiveFile
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject


def _read_manifest(store: ObjectStore, job_id: str) -> dict[str, Any]:
    """Return the contents of a job's manifest; nothing if it no longer exists."""
    with suppress(NotFoundError):
        return read_state(store, manifest_path(job_id)) if job_id else {}
    return {}


def _attributes_of_folders(state: Mapping[str, Any]) -> set[str]:
    """Return the attributes that are only in folder names."""
    return {column["attribute"] for column in state.get("partition_by", ()) if not column.get("in_files", True)}


@dataclass(frozen=True)
class ManifestFacts:
    """Facts in manifests about files, by their paths.

    Attributes
    ----------
    schemas
        The columns of files that do not store DynamoDB's types.
    checksums
        ``crc32`` of files without their own checksums, after the file size to which it applies.
    """

    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    checksums: dict[str, tuple[int, str]] = field(default_factory=dict)

    def with_checksums(self, entry: StoredObject) -> StoredObject:
        """Return the entry with its checksums, if its size is still the one that was written."""
        size_bytes, crc32 = self.checksums.get(entry.path, (-1, None))
        return replace(entry, crc32=crc32) if size_bytes == entry.size_bytes else entry


def look_up(store: ObjectStore, files: Iterable[StoredObject]) -> ManifestFacts:
    """Return the facts in manifests that the files do not store themselves.

    A file whose size differs from its manifest is not the file that was written, so its facts are left out.

    Raises
    ------
    TargetError
        If a manifest is damaged, or a newer release wrote it.
    """
    sizes = {entry.path: entry.size_bytes for entry in files if _needs_manifest(entry.path)}
    noted = ManifestFacts()
    for job_id in sorted(set(map(job_of, sizes))):
        # A release with another format of schemas may have written it.
        with suppress(KeyError, TypeError):
            state = _read_manifest(store, job_id)
            written = [file for file in state["files"] if sizes.get(file["path"]) == file["bytes"]]
            summed = (file for file in written if "crc32" in file)
            noted.checksums.update({file["path"]: (file["bytes"], file["crc32"]) for file in summed})
            with suppress(SchemaError):
                columns = _columns_in_files(state)
                typed = (
                    file["path"] for file in written if columns is not None and _is_typed_by_manifest(file["path"])
                )
                noted.schemas.update(dict.fromkeys(typed, columns))
    return noted


def _columns_in_files(state: Mapping[str, Any]) -> pa.Schema | None:
    """Return the columns of the files of a manifest, or None if it does not record them."""
    # Exported files are DynamoDB JSON, which needs no schema; files for an import have none.
    if not state["schema"] or state.get("objects"):
        return None
    folder_attributes = _attributes_of_folders(state)
    return pa.schema(
        [field for field in schema_from_json(state["schema"]) if name_of_field(field) not in folder_attributes]
    )


def _needs_manifest(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and (_is_typed_by_manifest(path) or not chosen.checks(path))


def _is_typed_by_manifest(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and not chosen.keeps_types and not is_dynamodb_json_file(path)


def partition_columns(store: ObjectStore, paths: Iterable[str], keys: Mapping[str, str]) -> dict[str, FolderColumns]:
    """Return the columns that the folders of each path add to its rows.

    For a file that a job of ddbio wrote, the job's manifest has their attributes and types; parts of times, such as
    years,
    are not attributes, and are left out. For other files, the columns follow from the names and values of the folders.

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
    jobs = {job_of(path) for path, folders in columns.items() if folders}
    attributes_by_job = {job_id: folders for job_id in jobs if (folders := _folders_of(store, job_id)) is not None}
    for path in columns:
        if (attributes := attributes_by_job.get(job_of(path))) is not None:
            values = hive_partition(path).items()
            columns[path] = tuple((*attributes[name], value) for name, value in values if name in attributes)
    return columns


def _folders_of(store: ObjectStore, job_id: str) -> dict[str, tuple[str, str]] | None:
    """Return attribute and type of each column of a job's folders; None if no manifest has them."""
    with suppress(SchemaError, KeyError):
        state = _read_manifest(store, job_id)
        tags = {name_of_field(field): tag_of_field(field) for field in schema_from_json(state["schema"])}
        described = state["partition_by"]
        return {
            column["name"]: (column["attribute"], tags[column["attribute"]])
            for column in described
            if not column["part"]
        }
    return None


@dataclass(frozen=True)
class Description:
    """Common contents of the manifests of some files.

    Attributes
    ----------
    schema
        All columns of the rows, including those of folders; None if no manifest has them.
    partition_by
        The columns of folders, in the format of :class:`ddbio.commit.committer.CommitInfo`; None if only the names of
        the
        folders define them.
    """

    schema: pa.Schema | None
    partition_by: tuple[Mapping[str, Any], ...] | None

    def with_folders(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of files, followed by those that only folders have."""
        folder_attributes = [
            column["attribute"] for column in self.partition_by or () if not column.get("in_files", True)
        ]
        described = self.schema if self.schema is not None else pa.schema([])
        added = [
            described.field(name)
            for name in dict.fromkeys(folder_attributes)
            if name in described.names and name not in schema.names
        ]
        metadata: Any = schema.metadata
        return pa.schema([*schema, *added], metadata)


def describe_files(store: ObjectStore, files: Iterable[LiveFile], *, are_rewritten: bool = False) -> Description:
    """Return the common contents of the manifests of files that a job takes over from other jobs.

    Parameters
    ----------
    are_rewritten
        Whether the files are rewritten, so that their present types are irrelevant.

    Raises
    ------
    TargetError
        If the manifests contradict each other, so that one manifest cannot describe all files.
    """
    files = list(files)
    states: dict[str, dict[str, Any]] = {}
    for job_id in sorted({job_of(file.path) for file in files}):
        states[job_id] = {}
        with suppress(TargetError):
            states[job_id] = _read_manifest(store, job_id)
    texts = sorted({states[job_of(file.path)].get("schema", "") for file in files})
    untyped = [] if are_rewritten else sorted(file.path for file in files if not _stores_types(file.path))
    if len(texts) > 1 and untyped:
        raise TargetError(
            f"the files of {store.uri} were written under different schemas, and files like {untyped[0]} do not store "
            "their types: rewrite them first, for example with ddbio compact --format parquet",
            store.uri,
        )
    rules = {_partition_rules_of(states[job_of(file.path)]) for file in files if file.partition}
    if len(rules) > 1:
        raise TargetError(
            f"the folders of {store.uri} have columns by different rules: take one partition after the other", store.uri
        )
    rule = rules.pop() if rules else "[]"
    return Description(_merge(texts), None if rule is None else tuple(json.loads(rule)))


def _partition_rules_of(state: Mapping[str, Any]) -> str | None:
    return json.dumps(state["partition_by"], sort_keys=True) if "partition_by" in state else None


def _merge(texts: Iterable[str]) -> pa.Schema | None:
    fields: dict[str, pa.Field[Any]] = {}
    for text in texts:
        with suppress(SchemaError):
            for field in schema_from_json(text) if text else ():
                fields.setdefault(field.name, field)
    return pa.schema(fields.values()) if fields else None


def _stores_types(path: str) -> bool:
    file_format = format_of(path)
    return file_format is None or file_format.keeps_types
