"""Stores of a job's input and output by URI. Imports no file format."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ddbio.aws.s3_store import S3Store
from ddbio.errors import OptionError, TargetError
from ddbio.jobs.clients import s3_spec
from ddbio.jobs.report import Report
from ddbio.options.locations import parse_location
from ddbio.storage.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.commit.committer import AlreadyCommittedError, WriteMode
    from ddbio.options import ConnectionOptions
    from ddbio.storage.object_store import ObjectStore

_LOG = logging.getLogger("ddbio.commit")


def open_store(uri: str, options: ConnectionOptions, *, is_temporary: bool = False) -> ObjectStore:
    """Return the store of an ``s3://`` URI (``s3a://`` is the same) or a local path.

    Parameters
    ----------
    is_temporary
        Whether objects in the store are deleted again: they have no storage class and no lock.

    Raises
    ------
    OptionError
        If the URI has another scheme, or is an incomplete S3 URI.
    """
    scheme, path = parse_location(uri)
    if scheme == "file":
        return LocalStore(path)
    spec = s3_spec(options)
    if is_temporary:
        spec = dataclasses.replace(spec, members_of_keys=())
    return S3Store(spec, path)


def protect_sources(target: ObjectStore, mode: WriteMode, sources: Iterable[str]) -> None:
    """Raise if an overwritten target contains a source of the job.

    Raises
    ------
    TargetError
        With the source that would be deleted.
    """
    below = f"{_real(target.uri)}/"
    for source in sources if mode == "overwrite" else ():
        if f"{_real(source)}/".startswith(below):
            ways = "choose another target, or use mode append"
            raise TargetError(
                f"target {target.uri} holds {source}, which mode overwrite would delete: {ways}", target.uri
            )


def require_shared(cluster: str | None, locations: Mapping[str, str | None], *, shared_paths: bool) -> None:
    """Raise for local paths if the tasks run on a cluster, whose workers have separate disks.

    Parameters
    ----------
    cluster
        The master of the cluster that runs the tasks; None if this machine does.
    locations
        Paths or URIs that the tasks read or write, by option name.

    Raises
    ------
    OptionError
        With the first such path.
    """
    for option, path in locations.items() if cluster is not None and not shared_paths else ():
        if path is not None and parse_location(path)[0] == "file":
            raise OptionError(
                f"{option} is {path!r}, a path of this machine, and the workers of {cluster} have separate disks: "
                "give an s3:// URI, or shared_paths if that path is on a shared file system"
            )


def _real(uri: str) -> str:
    scheme, path = parse_location(uri)
    return path if scheme == "s3" else str(Path(path).resolve())


ReportT = TypeVar("ReportT", bound=Report)


def committed_report(kind: type[ReportT], committed: AlreadyCommittedError) -> ReportT:
    """Return the report of an earlier run of the same job, and log that nothing was run.

    Raises
    ------
    OptionError
        If the job with that id belongs to another verb.
    """
    manifest = committed.manifest
    _LOG.warning("job %s is committed already: this is its report, nothing was run", manifest["job_id"])
    try:
        return kind.from_dict(manifest["report"])
    except (KeyError, TypeError):
        raise OptionError(f"job id {manifest['job_id']!r} belongs to a job of another kind: choose another") from None


def new_job_id() -> str:
    """Return a new job id: the UTC time, so that ids sort by age, and eight random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}_{secrets.token_hex(4)}"
