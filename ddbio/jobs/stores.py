"""Open the stores that a job reads and writes, by their URIs. This loads no format of files."""

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
    """Return the store behind an ``s3://`` URI (``s3a://`` is the same) or a local path.

    Parameters
    ----------
    is_temporary
        Whether what is written there is deleted again: it has no storage class of its own, and is not locked.

    Raises
    ------
    OptionError
        If the URI has another scheme, or is not a complete one of S3.
    """
    scheme, place = parse_location(uri)
    if scheme == "file":
        return LocalStore(place)
    spec = s3_spec(options)
    if is_temporary:
        spec = dataclasses.replace(spec, members_of_keys=())
    return S3Store(spec, place)


def protect_sources(target: ObjectStore, mode: WriteMode, sources: Iterable[str]) -> None:
    """Refuse to overwrite a target that holds what the job reads.

    Raises
    ------
    TargetError
        Naming the source that would be deleted.
    """
    below = f"{_real(target.uri)}/"
    for source in sources if mode == "overwrite" else ():
        if f"{_real(source)}/".startswith(below):
            ways = "choose another target, or use mode append"
            raise TargetError(
                f"target {target.uri} holds {source}, which mode overwrite would delete: {ways}", target.uri
            )


def require_shared(cluster: str | None, places: Mapping[str, str | None], *, shared_paths: bool) -> None:
    """Refuse local paths if the tasks run on a cluster, whose workers have disks of their own.

    Parameters
    ----------
    cluster
        The master of the cluster that runs the tasks; None if this machine does.
    places
        The paths or URIs that the tasks read or write, by the option that names them.

    Raises
    ------
    OptionError
        Naming the first such path.
    """
    for option, place in places.items() if cluster is not None and not shared_paths else ():
        if place is not None and parse_location(place)[0] == "file":
            raise OptionError(
                f"{option} is {place!r}, a path of this machine, and the workers of {cluster} have disks of their own: "
                "give an s3:// URI, or shared_paths if all of them reach that path"
            )


def _real(uri: str) -> str:
    scheme, place = parse_location(uri)
    return place if scheme == "s3" else str(Path(place).resolve())


ReportT = TypeVar("ReportT", bound=Report)


def committed_report(kind: type[ReportT], committed: AlreadyCommittedError) -> ReportT:
    """Return the report of an earlier run of the same job, and log that nothing was run.

    Raises
    ------
    OptionError
        If the job of that id was another verb's.
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
