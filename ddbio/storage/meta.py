"""Names, writing and reading of the small objects of jobs in ``_ddbio/`` of a folder."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ddbio.storage.object_store import read_at_most
from ddbio.storage.states import MAX_BYTES, add_checksum, parse_state

if TYPE_CHECKING:
    from ddbio.storage.object_store import ObjectStore

META = "_ddbio/"
"""Folder of a target for the metadata of jobs; Spark, Athena and pyarrow ignore it."""

PROBE = ".probe"
"""Ending of the name of an empty object that a job writes and deletes to test its permissions."""

STAGING = f"{META}staging/"
SNAPSHOTS = f"{META}snapshots/"

_CLAIM, _INTENT, _MANIFEST = ".claim.json", ".intent.json", ".json"
# An object with another name is not a state of a job, regardless of who wrote it.
_STATE = re.compile(rf"{META}\w+", re.ASCII)
_SNAPSHOT = re.compile(re.escape(SNAPSHOTS) + r"(\d{20})\.json", re.ASCII)


def claim_path(job_id: str) -> str:
    """Return the path of a job's claim."""
    return f"{META}{job_id}{_CLAIM}"


def intent_path(job_id: str) -> str:
    """Return the path of a job's intent."""
    return f"{META}{job_id}{_INTENT}"


def manifest_path(job_id: str) -> str:
    """Return the path of a job's manifest."""
    return f"{META}{job_id}{_MANIFEST}"


def snapshot_path(version: int) -> str:
    """Return the path of a snapshot; the paths sort by version."""
    return f"{SNAPSHOTS}{version:020}.json"


def is_claim(path: str) -> bool:
    """Return whether an object is a claim."""
    return _STATE.fullmatch(path.removesuffix(_CLAIM)) is not None and path.endswith(_CLAIM)


def is_intent(path: str) -> bool:
    """Return whether an object is an intent."""
    return _STATE.fullmatch(path.removesuffix(_INTENT)) is not None and path.endswith(_INTENT)


def is_manifest(path: str) -> bool:
    """Return whether an object is a job's manifest."""
    return _STATE.fullmatch(path.removesuffix(_MANIFEST)) is not None and path.endswith(_MANIFEST)


def version_at(path: str) -> int | None:
    """Return the version of the snapshot at a path, or None if it is not a snapshot."""
    match = _SNAPSHOT.fullmatch(path)
    return None if match is None else int(match[1])


def job_of_state(path: str) -> str:
    """Return the id of the job whose claim, intent or manifest this is."""
    return path.removeprefix(META).partition(".")[0]


def format_state(state: dict[str, Any]) -> bytes:
    """Return a claim, an intent or a manifest as JSON text."""
    return add_checksum(json.dumps(state, ensure_ascii=False, indent=1))


def read_state(store: ObjectStore, path: str) -> dict[str, Any]:
    """Return the contents of a state file: all state files are read by this function.

    Raises
    ------
    NotFoundError
        If there is no such file.
    TargetError
        If it is damaged, or written by another program or by a newer version of ddbio. The message names the file and
        has an advice.
    """
    return parse_state(read_at_most(store, path, MAX_BYTES), path, store.uri)
