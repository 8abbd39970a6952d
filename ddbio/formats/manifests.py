"""Find in the manifests of jobs what files do not tell themselves: DynamoDB's types, checksums, columns of folders."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.formats.registry import format_of, holds_dynamodb_json
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


def _state_of(store: ObjectStore, job_id: str) -> dict[str, Any]:
    """Return what a job's manifest says; nothing if it is gone."""
    with suppress(NotFoundError):
        return read_state(store, manifest_path(job_id)) if job_id else {}
    return {}


def _attributes_of_folders(state: Mapping[str, Any]) -> set[str]:
    """Return the attributes that only folders have."""
    return {each["attribute"] for each in state.get("partition_by", ()) if not each.get("in_files", True)}


@dataclass(frozen=True)
class Noted:
    """Hold what manifests say of files, by their paths.

    Attributes
    ----------
    schemas
        The columns of those that do not tell DynamoDB's types.
    checksums
        ``crc32`` of those that have no checksums of their own, and the size that it is of.
    """

    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    checksums: dict[str, tuple[int, str]] = field(default_factory=dict)

    def with_checksums(self, entry: StoredObject) -> StoredObject:
        """Return the entry with its checksums, if it still has the size that it was written with."""
        size_bytes, crc32 = self.checksums.get(entry.path, (-1, None))
        return replace(entry, crc32=crc32) if size_bytes == entry.size_bytes else entry


def look_up(store: ObjectStore, files: Iterable[StoredObject]) -> Noted:
    """Return what manifests say of files, as far as these do not tell it themselves.

    A file of another size than its manifest says is not the one that was written.

    Raises
    ------
    TargetError
        If a manifest is damaged, or a newer release wrote it.
    """
    sizes = {entry.path: entry.size_bytes for entry in files if _needs_manifest(entry.path)}
    noted = Noted()
    for job_id in sorted(set(map(job_of, sizes))):
        # It may be of a release with another form of schemas.
        with suppress(KeyError, TypeError):
            state = _state_of(store, job_id)
            written = [file for file in state["files"] if sizes.get(file["path"]) == file["bytes"]]
            summed = (file for file in written if "crc32" in file)
            noted.checksums.update({file["path"]: (file["bytes"], file["crc32"]) for file in summed})
            with suppress(SchemaError):
                held = _columns_in_files(state)
                typed = (file["path"] for file in written if held is not None and _is_typed_by_it(file["path"]))
                noted.schemas.update(dict.fromkeys(typed, held))
    return noted


def _columns_in_files(state: Mapping[str, Any]) -> pa.Schema | None:
    """Return the columns that the files of a manifest have, or None if it says none."""
    # Those of an export hold DynamoDB JSON, which needs no schema; those for an import have none.
    if not state["schema"] or state.get("objects"):
        return None
    said = _attributes_of_folders(state)
    return pa.schema([field for field in schema_from_json(state["schema"]) if name_of_field(field) not in said])


def _needs_manifest(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and (_is_typed_by_it(path) or not chosen.checks(path))


def _is_typed_by_it(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and not chosen.keeps_types and not holds_dynamodb_json(path)


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
    jobs = {job_of(path) for path, each in columns.items() if each}
    known = {job_id: found for job_id in jobs if (found := _folders_of(store, job_id)) is not None}
    for path in columns:
        if (attributes := known.get(job_of(path))) is not None:
            values = hive_partition(path).items()
            columns[path] = tuple((*attributes[name], value) for name, value in values if name in attributes)
    return columns


def _folders_of(store: ObjectStore, job_id: str) -> dict[str, tuple[str, str]] | None:
    """Return attribute and type of each column of a job's folders; None if no manifest tells."""
    with suppress(SchemaError, KeyError):
        state = _state_of(store, job_id)
        tags = {name_of_field(field): tag_of_field(field) for field in schema_from_json(state["schema"])}
        described = state["partition_by"]
        return {each["name"]: (each["attribute"], tags[each["attribute"]]) for each in described if not each["part"]}
    return None


@dataclass(frozen=True)
class Description:
    """Say what the manifests of some files say.

    Attributes
    ----------
    schema
        All columns of the rows, those of folders too; None if no manifest tells.
    partition_by
        The columns of folders, as :class:`ddbio.commit.committer.CommitInfo` has them; None if only the names of the
        folders tell.
    """

    schema: pa.Schema | None
    partition_by: tuple[Mapping[str, Any], ...] | None

    def with_folders(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of files and, after them, those that only folders have."""
        said = [each["attribute"] for each in self.partition_by or () if not each.get("in_files", True)]
        known = self.schema if self.schema is not None else pa.schema([])
        added = [known.field(name) for name in dict.fromkeys(said) if name in known.names and name not in schema.names]
        metadata: Any = schema.metadata
        return pa.schema([*schema, *added], metadata)


def describe_files(store: ObjectStore, files: Iterable[LiveFile], *, are_rewritten: bool = False) -> Description:
    """Return what the manifests of files that one job takes over from others say of them together.

    Parameters
    ----------
    are_rewritten
        Whether the files become others, so that their own types do not matter any more.

    Raises
    ------
    TargetError
        If they say different things, so that no manifest can say both.
    """
    files = list(files)
    states: dict[str, dict[str, Any]] = {}
    for job_id in sorted({job_of(each.path) for each in files}):
        states[job_id] = {}
        with suppress(TargetError):
            states[job_id] = _state_of(store, job_id)
    texts = sorted({states[job_of(each.path)].get("schema", "") for each in files})
    untyped = [] if are_rewritten else sorted(each.path for each in files if not _tells_types(each.path))
    if len(texts) > 1 and untyped:
        raise TargetError(
            f"the files of {store.uri} were written under different schemas, which those like {untyped[0]} do not tell "
            "themselves: rewrite them first, as with ddbio compact --format parquet",
            store.uri,
        )
    forms = {_form_of(states[job_of(each.path)]) for each in files if each.partition}
    if len(forms) > 1:
        raise TargetError(
            f"the folders of {store.uri} have columns by different rules: take one partition after the other", store.uri
        )
    form = forms.pop() if forms else "[]"
    return Description(_merged(texts), None if form is None else tuple(json.loads(form)))


def _form_of(state: Mapping[str, Any]) -> str | None:
    return json.dumps(state["partition_by"], sort_keys=True) if "partition_by" in state else None


def _merged(texts: Iterable[str]) -> pa.Schema | None:
    fields: dict[str, pa.Field[Any]] = {}
    for text in texts:
        with suppress(SchemaError):
            for found in schema_from_json(text) if text else ():
                fields.setdefault(found.name, found)
    return pa.schema(fields.values()) if fields else None


def _tells_types(path: str) -> bool:
    found = format_of(path)
    return found is None or found.keeps_types
