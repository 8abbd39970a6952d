"""Write one task's segments as lines of an export, straight from the pages; make the manifests that go with it."""

from __future__ import annotations

import secrets
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.core.exports import manifest
from ddbio.core.item_lines import PageSplitter
from ddbio.core.staged import FileNaming, SmallObject
from ddbio.errors import DecodeError
from ddbio.files.gzip_lines import GzipLinesWriter
from ddbio.ops.scans.files import FilesResult
from ddbio.ops.scans.task import PageStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.budget import Budget
    from ddbio.core.facts import TableFacts
    from ddbio.ops.job.staging import Staging
    from ddbio.ops.scans.files import FilesTask
    from ddbio.options import ScanToFilesOptions

FOLDER = "data"
"""Where readers look for an export's files."""


def write_lines_task(task: FilesTask, budget: Budget) -> FilesResult:
    """Write one task's segments into staged files of lines; leave nothing staged when it fails."""
    stream = PageStream(task.scan, budget, PageSplitter)
    staging = task.staging
    naming = FileNaming(staging.job_id, task.scan.number, secrets.randbelow(10**6))
    writer = GzipLinesWriter(staging.store, naming, FOLDER, staging.files.target_file_bytes)
    try:
        with closing(iter(stream)) as blocks:
            for lines in blocks:
                writer.write(lines.text, lines.items)
        files = writer.finish()
    except BaseException:
        writer.abort()
        raise
    tally, written = stream.tally, sum(file.staged.rows for file in files)
    if written != tally.items:
        raise DecodeError(f"the pages hold {written} items, and said that they hold {tally.items}")
    staged, md5s = tuple(file.staged for file in files), tuple(file.md5 for file in files)
    return FilesResult(staged, tally.items, 0, tally.wire_bytes, tally.misfits, tally.digest, md5s)


def export_objects(
    staging: Staging, options: ScanToFilesOptions, facts: TableFacts, began: datetime, results: Sequence[FilesResult]
) -> tuple[SmallObject, ...]:
    """Return what makes the files an export: the summary, by which readers know that it has completed, comes last."""
    files = [
        manifest.ExportFile(staged.path.rpartition("/")[2], staged.rows, md5)
        for result in results
        for staged, md5 in zip(result.staged, result.md5s, strict=True)
    ]
    bucket, prefix = _place(staging.store.uri)
    listed = manifest.files_text(files, prefix)
    summary = manifest.summary_text(
        export_id=f"{int(began.timestamp() * 1000):014d}-{secrets.token_hex(4)}",
        table_arn=facts.arn,
        table_id=facts.table_id,
        times=(began, datetime.now(UTC)),
        bucket=bucket,
        prefix=prefix,
        items=sum(file.items for file in files),
        filtered={name: value for name in ("index", "columns", "limit") if (value := getattr(options, name))},
    )
    objects = [SmallObject(manifest.STARTED, "")]
    for name, text in ((manifest.FILES, listed), (manifest.SUMMARY, summary)):
        objects.append(SmallObject(f"{name}.md5", manifest.checksum_text(text).decode()))
        objects.append(SmallObject(f"{name}.json", text.decode()))
    return tuple(objects)


def _place(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of a target, with its slash; neither of a local folder."""
    scheme, _, path = uri.rpartition("://")
    if not scheme:
        return "", ""
    bucket, _, prefix = path.partition("/")
    return bucket, f"{prefix}/" if prefix else ""
