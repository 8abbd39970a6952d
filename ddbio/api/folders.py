"""Folders of files: what belongs to them, compaction, vacuum, publishing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.folders import compact as compaction
from ddbio.ops.folders import listing
from ddbio.ops.folders import publish as publishing
from ddbio.ops.folders import vacuum as vacuuming
from ddbio.options import (
    CompactOptions,
    FilesListOptions,
    PublishOptions,
    RollbackOptions,
    VacuumOptions,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from ddbio.api.keywords import (
        CompactKeywords,
        FilesListKeywords,
        PublishKeywords,
        RollbackKeywords,
        VacuumKeywords,
    )
    from ddbio.ops.folders.compact import CompactPlan, CompactReport
    from ddbio.ops.folders.listing import FileList
    from ddbio.ops.folders.publish import PublishPlan, PublishReport
    from ddbio.ops.folders.vacuum import VacuumReport


@takes(FilesListOptions)
def list_files(path: str | os.PathLike[str], **options: Unpack[FilesListKeywords]) -> FileList:
    """Return the live files of a folder that ddbio writes: give their ``paths`` to a reader of files.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` or a local folder.
    **options
        ``at_version`` chooses an older version; see :class:`ddbio.FilesListKeywords` for all.

    Raises
    ------
    NotFoundError
        If the folder has no such version.
    """
    return listing.list_files(parse_options(FilesListOptions, {**options, "path": os.fspath(path)}))


@takes(CompactOptions)
def compact(
    path: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None,
    **options: Unpack[CompactKeywords],
) -> CompactReport:  # fmt: skip
    """Rewrite the small files of a folder as few large ones, which replace them in one commit.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` or a local folder.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        ``target_bytes`` and ``small_than``, ``partition``, ``format`` and ``compression`` of the new files,
        ``max_seconds``, ``keep_old``; see :class:`ddbio.CompactKeywords` for all.

    Raises
    ------
    TargetError
        If another job replaces files of the folder; nothing of this job is then visible.
    DdbioError
        What else went wrong; the folder is then as it was.
    """
    checked = parse_options(CompactOptions, {**options, "path": os.fspath(path)})
    return compaction.compact(checked, master=master, conf=conf)


@takes(CompactOptions)
def plan_compact(path: str | os.PathLike[str], **options: Unpack[CompactKeywords]) -> CompactPlan:
    """Return what :func:`compact` would rewrite, from the list of the live files alone.

    Parameters
    ----------
    path, **options
        As for :func:`compact`.

    Raises
    ------
    NotFoundError
        If the folder has no live file.
    """
    return compaction.plan_compact(parse_options(CompactOptions, {**options, "path": os.fspath(path)}))


@takes(VacuumOptions)
def vacuum(path: str | os.PathLike[str], *, dry_run: bool = False, **options: Unpack[VacuumKeywords]) -> VacuumReport:
    """Delete old versions of a folder, files that only they name, and what dead jobs left; others' files stay.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` or a local folder.
    dry_run
        Delete nothing, and report what would be deleted.
    **options
        ``older_than`` says what is old; see :class:`ddbio.VacuumKeywords` for all.

    Raises
    ------
    TargetError
        If another job replaces files of the folder now.
    """
    return vacuuming.vacuum(parse_options(VacuumOptions, {**options, "path": os.fspath(path)}), dry_run=dry_run)


@takes(PublishOptions)
def publish(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], *,
    check: Callable[[list[str]], None] | None = None, **options: Unpack[PublishKeywords],
) -> PublishReport:  # fmt: skip
    """Make the live files of a folder the next version of another; its readers see the old version or the new.

    Parameters
    ----------
    source, dest
        ``s3://bucket/prefix`` or a local folder.
    check
        Called with the URIs or local paths of the files; nothing is published if it raises.
    **options
        ``expect_rows``, ``expect_digest`` and ``rules``; see :class:`ddbio.PublishKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; readers then still see the old version.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return publishing.publish(parse_options(PublishOptions, values), check)


@takes(PublishOptions)
def plan_publish(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[PublishKeywords]
) -> PublishPlan:
    """Return what :func:`publish` would copy, take and cost, from the list of the live files alone.

    Parameters
    ----------
    source, dest, **options
        As for :func:`publish`.

    Raises
    ------
    NotFoundError
        If the source has no live file.
    LimitError
        If the plan is above a limit.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return publishing.plan_publish(parse_options(PublishOptions, values))


@takes(RollbackOptions)
def rollback(path: str | os.PathLike[str], **options: Unpack[RollbackKeywords]) -> PublishReport:
    """Make an older version of a folder its newest again.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` or a local folder.
    **options
        ``to_version``, by default the one before the newest; see :class:`ddbio.RollbackKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such version, or its files are gone.
    """
    return publishing.rollback(parse_options(RollbackOptions, {**options, "path": os.fspath(path)}))
