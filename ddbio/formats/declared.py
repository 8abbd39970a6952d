"""Find what files do not tell themselves in the manifests of their jobs: DynamoDB's types, and checksums."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import NotFoundError, SchemaError
from ddbio.formats.registry import FORMATS, format_of
from ddbio.items.schema.arrow import name_of_field
from ddbio.items.schema.file import schema_from_json
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject


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
    for job_id in sorted({job_of(path) for path in sizes} - {""}):
        path = manifest_path(job_id)
        # It may be gone, or be of a release with another form of schemas.
        with suppress(NotFoundError, KeyError, TypeError):
            state = read_state(store, path)
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
    said = {each["attribute"] for each in state.get("partition_by", ()) if not each.get("in_files", True)}
    return pa.schema([field for field in schema_from_json(state["schema"]) if name_of_field(field) not in said])


def _needs_manifest(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and (_is_typed_by_it(path) or not chosen.checks(path))


def _is_typed_by_it(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and not chosen.keeps_types and not FORMATS["dynamodb-json"].wrote(path)
