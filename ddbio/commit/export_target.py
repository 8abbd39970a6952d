"""Commit to a folder in the layout of a native full export: its manifests are written after its files."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.formats import export_manifest as manifest
from ddbio.storage.staged import SmallObject

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping, Sequence

    from ddbio.commit.committer import CommitInfo
    from ddbio.commit.protocol import Target
    from ddbio.storage.staged import StagedFile

FOLDER = "data"
"""Where readers look for an export's files."""


@dataclass(frozen=True, kw_only=True)
class ExportTarget:
    """Publish files of lines as a full export of a table; else do what the folder's own committer does.

    Attributes
    ----------
    folder
        The folder of the export.
    table_arn, table_id
        The table, as the summary names it.
    began
        When the export began.
    filtered
        What of the table was read, where that is not all.
    """

    folder: Target
    table_arn: str
    table_id: str | None
    began: datetime
    filtered: Mapping[str, Any]

    def prepare(self, job_id: str) -> tuple[str, ...]:
        """Claim the folder for a job and bring it in order."""
        return self.folder.prepare(job_id)

    def renewed(self, job_id: str) -> contextlib.AbstractContextManager[None]:
        """Renew the job's claim while the context is open."""
        return self.folder.renewed(job_id)

    def commit(self, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()) -> str:
        """Publish the staged files of a job, and after them the manifests of the export."""
        described = replace(info, objects=(*info.objects, *self._objects(staged)))
        return self.folder.commit(job_id, staged, described, replaced)

    def abort(self, job_id: str) -> None:
        """Delete everything of a job that is not committed."""
        self.folder.abort(job_id)

    def release(self, job_id: str) -> None:
        """Remove the claim of a job."""
        self.folder.release(job_id)

    def _objects(self, staged: Sequence[StagedFile]) -> tuple[SmallObject, ...]:
        """Return the manifests; the last is the summary, which tells readers that the export is complete."""
        files = [
            manifest.ExportFile(each.path.rpartition("/")[2], each.rows, base64.b64decode(each.md5 or ""))
            for each in staged
        ]
        bucket, prefix = _place(self.folder.store.uri)
        listed = manifest.files_text(files, prefix)
        summary = manifest.summary_text(
            export_id=f"{int(self.began.timestamp() * 1000):014d}-{secrets.token_hex(4)}",
            table_arn=self.table_arn,
            table_id=self.table_id,
            times=(self.began, datetime.now(UTC)),
            bucket=bucket,
            prefix=prefix,
            items=sum(file.items for file in files),
            filtered=dict(self.filtered),
        )
        objects = [SmallObject(manifest.STARTED, "")]
        for name, text in ((manifest.FILES, listed), (manifest.SUMMARY, summary)):
            objects.append(SmallObject(f"{name}.md5", manifest.checksum_text(text).decode()))
            objects.append(SmallObject(f"{name}.json", text.decode()))
        return tuple(objects)


def _place(uri: str) -> tuple[str, str]:
    """Return bucket and prefix (with its slash) of a target; empty texts for a local folder."""
    scheme, _, path = uri.rpartition("://")
    if not scheme:
        return "", ""
    bucket, _, prefix = path.partition("/")
    return bucket, f"{prefix}/" if prefix else ""
