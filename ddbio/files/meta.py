"""Name, write and read the small objects that jobs keep in ``_ddbio/`` of a folder, beside their files."""

from __future__ import annotations

import json
import re
from typing import Any

from ddbio.core.folders.json_checksum import MEMBER, add_checksum, require_checksum
from ddbio.errors import TargetError

META = "_ddbio/"
"""Folder of a target for what jobs write beside their files; Spark, Athena and pyarrow ignore it."""

FORMAT = 1
"""Version of the layout of claims, intents and manifests."""

PROBE = ".probe"
"""End of the name of an empty object that a job writes and deletes to try its permissions."""

STAGING = f"{META}staging/"
SNAPSHOTS = f"{META}snapshots/"

_CLAIM, _INTENT, _MANIFEST = ".claim.json", ".intent.json", ".json"
_SNAPSHOT = re.compile(re.escape(SNAPSHOTS) + r"(\d{20})\.json")


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
    return path.startswith(META) and path.endswith(_CLAIM)


def is_intent(path: str) -> bool:
    """Return whether an object is an intent."""
    return path.startswith(META) and path.endswith(_INTENT)


def is_manifest(path: str) -> bool:
    """Return whether an object is a job's manifest."""
    name = path.removeprefix(META)
    return name != path and name.endswith(_MANIFEST) and not {".", "/"} & {*name.removesuffix(_MANIFEST)}


def version_at(path: str) -> int | None:
    """Return the version of the snapshot at a path, or None if that is no snapshot."""
    found = _SNAPSHOT.fullmatch(path)
    return None if found is None else int(found[1])


def job_of_state(path: str) -> str:
    """Return the id of the job whose claim, intent or manifest this is."""
    return path.removeprefix(META).partition(".")[0]


def format_state(state: dict[str, Any]) -> bytes:
    """Return a claim, an intent or a manifest as JSON text."""
    return add_checksum(json.dumps(state, ensure_ascii=False, indent=1))


def parse_state(text: bytes, path: str) -> dict[str, Any]:
    """Return the contents of a claim, an intent or a manifest.

    Raises
    ------
    TargetError
        If it was not written by ddbio, or by a version whose layout this one does not know; or if it is damaged.
    """
    require_checksum(text, path)
    try:
        state = json.loads(text)
        state.pop(MEMBER, None)
        version = state.get("format", 0)
    except (ValueError, AttributeError) as error:
        raise TargetError(f"{path} is not a state that ddbio wrote ({error}): move it away") from None
    if version > FORMAT:
        raise TargetError(f"{path} has format {version}, this ddbio knows {FORMAT}: use the newer ddbio that wrote it")
    return state  # type: ignore[no-any-return]
