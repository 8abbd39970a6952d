"""Open the place that output goes to or input comes from, by its URI; write nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.aws.client import ClientSpec
from ddbio.aws.objects import S3Store
from ddbio.errors import OptionError, TargetError
from ddbio.files.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.files.claim import WriteMode
    from ddbio.files.store import ObjectStore
    from ddbio.options import ConnectionOptions

_ONE_SLASH = re.compile(r"s3[an]?:/?(?!/)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def dynamodb_spec(options: ConnectionOptions) -> ClientSpec:
    """Return the recipe of the DynamoDB client that the options ask for."""
    return ClientSpec(options.endpoint_url, options.region, options.profile, options.role_arn, _role(options))


def s3_spec(options: ConnectionOptions) -> ClientSpec:
    """Return the recipe of the S3 client that the options ask for."""
    return ClientSpec(options.s3_endpoint_url, options.region, options.profile, options.role_arn, _role(options))


def _role(options: ConnectionOptions) -> tuple[tuple[str, Any], ...]:
    """Return what the AssumeRole request has beside the role, as the service names it."""
    given = {
        "ExternalId": options.external_id,
        "RoleSessionName": options.role_session_name,
        "DurationSeconds": options.role_duration_seconds,
        "SourceIdentity": options.source_identity,
    }
    return tuple((name, value) for name, value in given.items() if value is not None)


def open_store(uri: str, options: ConnectionOptions) -> ObjectStore:
    """Return the store behind an ``s3://`` URI (``s3a://`` is the same) or a local path.

    Raises
    ------
    OptionError
        If the URI has another scheme, or is no whole one of S3.
    """
    scheme = _SCHEME.match(uri)
    if _ONE_SLASH.match(uri):
        raise OptionError(f"{uri!r} has one slash behind its scheme: write s3://bucket/prefix, or ./{uri} for a folder")
    if scheme is None or scheme[1] == "file":
        return LocalStore(uri)
    if scheme[1] in {"s3", "s3a", "s3n"}:
        return S3Store(s3_spec(options), "s3://" + uri[scheme.end() :])
    raise OptionError(f"{uri!r} is neither s3://bucket/prefix nor a local path")


def spare_sources(target: ObjectStore, mode: WriteMode, sources: Iterable[str]) -> None:
    """Refuse to overwrite a target that holds what the job reads, told by the sources' whole names.

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
    """Refuse local paths that the workers of a cluster would each look for on a disk of their own.

    Parameters
    ----------
    cluster
        The master of the cluster that runs the tasks; None where this machine does.
    places
        What the job reads or writes in its tasks, by the option that names it.

    Raises
    ------
    OptionError
        Naming the first such path.
    """
    for option, place in places.items() if cluster is not None and not shared_paths else ():
        scheme = _SCHEME.match(place) if place is not None else None
        if place is not None and (scheme is None or scheme[1] == "file"):
            raise OptionError(
                f"{option} is {place!r}, a path of this machine, and the workers of {cluster} have disks of their own: "
                "give an s3:// URI, or shared_paths if all of them reach that path"
            )


def _real(uri: str) -> str:
    return uri if _SCHEME.match(uri) else str(Path(uri).resolve())
