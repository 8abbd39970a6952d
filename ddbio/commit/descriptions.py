"""What manifests say of files that one job takes over from others: their columns, and those of their folders."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.formats.registry import format_of
from ddbio.items.schema.file import schema_from_json
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.commit.snapshot import LiveFile
    from ddbio.storage.object_store import ObjectStore


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
    """Return what the manifests of files say of them together.

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
    states = {job_id: _state_of(store, job_id) for job_id in sorted({job_of(each.path) for each in files})}
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


def _state_of(store: ObjectStore, job_id: str) -> dict[str, Any]:
    path = manifest_path(job_id)
    with suppress(NotFoundError, TargetError):
        return read_state(store, path) if job_id else {}
    return {}


def _form_of(state: Mapping[str, Any]) -> str | None:
    return json.dumps(state["partition_by"], sort_keys=True) if "partition_by" in state else None


def _merged(texts: Iterable[str]) -> pa.Schema | None:
    fields: dict[str, pa.Field[Any]] = {}
    for text in texts:
        with suppress(SchemaError):
            for field in schema_from_json(text) if text else ():
                fields.setdefault(field.name, field)
    return pa.schema(fields.values()) if fields else None


def _tells_types(path: str) -> bool:
    found = format_of(path)
    return found is None or found.keeps_types
