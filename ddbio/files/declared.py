"""Find the columns of files that do not tell DynamoDB's types themselves: the manifests of their jobs do."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.core.schema.arrow import name_of_field
from ddbio.core.schema.file import schema_from_json
from ddbio.core.staged import job_of
from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.files.formats import FORMATS, format_of
from ddbio.files.meta import manifest_path, parse_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.core.staged import StoredObject
    from ddbio.files.object_store import ObjectStore


def declared_schemas(store: ObjectStore, files: Iterable[StoredObject]) -> dict[str, pa.Schema]:
    """Return the columns of files by their paths, as far as manifests have them and the files' formats do not.

    A file of another size than its manifest says is not the one that was written.
    """
    sizes = {entry.path: entry.size_bytes for entry in files if _is_asked(entry.path)}
    found: dict[str, pa.Schema] = {}
    for job_id in sorted({job_of(path) for path in sizes} - {""}):
        path = manifest_path(job_id)
        # It may be gone, or be of a release with another form of schemas.
        with suppress(NotFoundError, SchemaError, TargetError, KeyError, TypeError):
            state = parse_state(store.read(path), path)
            # Those of an export hold DynamoDB JSON, which needs no schema; those for an import have none.
            if not state["schema"] or state.get("objects"):
                continue
            written = [file["path"] for file in state["files"] if sizes.get(file["path"]) == file["bytes"]]
            said = {each["attribute"] for each in state.get("partition_by", ()) if not each.get("in_files", True)}
            schema = schema_from_json(state["schema"])
            held = pa.schema([field for field in schema if name_of_field(field) not in said])
            found |= dict.fromkeys(written, held)
    return found


def _is_asked(path: str) -> bool:
    chosen = format_of(path)
    return chosen is not None and not chosen.keeps_types and not FORMATS["dynamodb-json"].wrote(path)
