"""Read Hudi tables without a JVM, by the commits in their timeline and the names of their files.

They are copy on write in table version 6, as ddbio has Hudi's own writer make them: a commit is JSON, and the name of a
data file tells its file group and the commit that wrote it. Only that writer commits: ``ddbio.spark.hudi``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ddbio.errors import NotFoundError, OptionError
from ddbio.formats.lake_columns import BUCKET, lake_schema
from ddbio.items.schema.file import schema_from_json
from ddbio.lake_formats.table import PREFIX, ForeignFile, LakeFile, LakeState, readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.lake_formats.table import Commit
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

STATE = f"{PREFIX}state"
"""The name in the metadata of commits under which they say what the table is."""

TIMELINE = ".hoodie/"
"""The folder of the commits."""

_COMMIT = re.compile(r"\.hoodie/(\d+)\.(?:replace)?commit")
# https://hudi.apache.org/tech-specs/#file-layout-hierarchy
_DATA = re.compile(rf"{BUCKET}=(\d+)/([^/_]+)_[^/_]*_(\d+)\.parquet")
# Where newer versions of Hudi's tables have their commits.
_NEWER = f"{TIMELINE}timeline/"


@dataclass(frozen=True)
class Instant:
    """Name a completed commit: its number is its time, in digits."""

    number: int
    path: str
    modified_at: float

    @property
    def replaces(self) -> bool:
        """Whether it may take the place of file groups."""
        return self.path.endswith(".replacecommit")


class HudiLakeTable:
    """Read a Hudi table that ddbio has made; what would change it is refused.

    The number of a version is the instant of its commit. A version can be read until Hudi has cleaned its files. Other
    writers may commit between ours, clustering for example: what the table is our last commit says.
    """

    keeps_bucket = True

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    @readable
    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version; None if there is no table.

        Raises
        ------
        NotFoundError
            If there is no such version, or a file of it has been cleaned.
        OptionError
            If ddbio did not create the table.
        """
        timeline = self.timeline()
        state = self.stored(version, timeline)
        return None if state is None else dataclasses.replace(state, files=self.files(version, timeline))

    def foreign_files(self) -> tuple[ForeignFile, ...] | None:
        """Return None: a table of another program is refused when it is loaded."""
        return None

    def before(self, state: LakeState) -> int | None:
        """Return the number of the version before one, by what its commit says; None if it is the first."""
        return int(state.handle) or None

    def position(self, state: LakeState, name: str) -> int:
        """Return how far a source is applied, by the metadata of the commit."""
        return int(state.properties.get(f"{PREFIX}position.{name}", 0))

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the columns of the rows."""
        return state.schema

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Refuse."""
        del schema, properties
        self._refuse()

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Refuse."""
        del state, fields, properties
        self._refuse()

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Refuse."""
        del state, names, file_bytes
        self._refuse()

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Refuse."""
        del state, commit
        self._refuse()

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the files of older commits in the timeline; that stays which says what the table was."""
        del state
        oldest, found = self.told_by(since), []
        for each in self.store.list(TIMELINE):
            digits = re.match(r"\.hoodie/(\d+)\.", each.path)
            if digits and int(digits[1]) < oldest:
                found.append(each)
        return found

    def told_by(self, version: int) -> int:
        """Return the number of the commit of ddbio that says what a version is, itself or one before it."""
        state = self.stored(version)
        return version if state is None else state.version

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Refuse."""
        del state, since
        self._refuse()

    @readable
    def timeline(self) -> list[Instant]:
        """Return the completed commits that are not archived, the oldest first.

        Raises
        ------
        OptionError
            If the table has been upgraded to another version of Hudi's format.
        """
        found, listed = list[Instant](), list(self.store.list(TIMELINE))
        for each in listed:
            if match := _COMMIT.fullmatch(each.path):
                found.append(Instant(int(match[1]), each.path, each.modified_at))
        if not found and any(each.path.startswith(_NEWER) for each in listed):
            raise OptionError(
                f"{self.store.uri} is a Hudi table that ddbio did not create, or that was upgraded: it reads and writes "
                "table version 6 (hoodie.write.table.version)"
            )
        return sorted(found, key=lambda each: each.number)

    @readable
    def stored(self, version: int | None = None, timeline: Sequence[Instant] | None = None) -> LakeState | None:
        """Return what the newest commit of ddbio says, or the newest up to a version; the state names no files.

        Raises
        ------
        NotFoundError
            If there is no such commit.
        OptionError
            If no commit is of ddbio.
        """
        found = self.timeline() if timeline is None else timeline
        if version is not None and all(each.number != version for each in found):
            raise NotFoundError(f"the Hudi table {self.store.uri} has no commit {version}, or not any more")
        for instant in reversed(found):
            if version is not None and instant.number > version:
                continue
            metadata = self._metadata(instant).get("extraMetadata") or {}
            if STATE in metadata:
                given = json.loads(metadata[STATE])
                schema = lake_schema(schema_from_json(given["columns"]))
                return LakeState(instant.number, schema, given["properties"], (), given.get("before", 0))
        if found:
            raise OptionError(f"{self.store.uri} is a Hudi table that ddbio did not create: choose another folder")
        return None

    @readable
    def files(self, version: int | None = None, timeline: Sequence[Instant] | None = None) -> tuple[LakeFile, ...]:
        """Return the data files of the newest version, or of another one, whoever wrote it.

        Of each file group it is the one of the latest commit, unless the group was replaced.

        Raises
        ------
        NotFoundError
            If files of the version have been cleaned.
        """
        commits = self.timeline() if timeline is None else timeline
        until = max((each.number for each in commits), default=0) if version is None else version
        groups = self._groups(commits)
        replaced = {each for instant in commits if instant.number <= until for each in self._replaced(instant)}
        self._require_whole(groups, [each for each in commits if each.number > until], until)
        found = []
        for name, files in groups.items():
            older = [number for number in files if number <= until]
            if older and name not in replaced:
                found.append(files[max(older)])
        return tuple(found)

    def _groups(self, commits: Sequence[Instant]) -> dict[str, dict[int, LakeFile]]:
        """Return the files of each file group by their commits; those of commits that never came are left out."""
        known, first = {each.number for each in commits}, min((each.number for each in commits), default=0)
        groups = defaultdict[str, dict[int, LakeFile]](dict)
        for each in self.store.list(f"{BUCKET}="):
            match = _DATA.fullmatch(each.path)
            # What failed was rolled back before anything was archived.
            if match and (int(match[3]) in known or int(match[3]) < first):
                groups[match[2]][int(match[3])] = LakeFile(each.path, each.size_bytes, int(match[1]))
        return groups

    def _require_whole(self, groups: dict[str, dict[int, LakeFile]], later: Sequence[Instant], until: int) -> None:
        """Refuse a version of which a file was cleaned: later commits say which one they took the place of."""
        made = set[str]()

        def has(name: str) -> bool:
            return any(number <= until for number in groups.get(name, {}))

        for instant in later:
            for stats in (self._metadata(instant).get("partitionToWriteStats") or {}).values():
                for each in stats:
                    before = str(each.get("prevCommit") or "null")
                    if before == "null":
                        made.add(each["fileId"])
                    elif int(before) <= until and int(before) not in groups.get(each["fileId"], {}):
                        raise self._cleaned(until)
            if any(name not in made and not has(name) for name in self._replaced(instant)):
                raise self._cleaned(until)

    def _cleaned(self, version: int) -> NotFoundError:
        return NotFoundError(f"files of version {version} of the Hudi table {self.store.uri} have been cleaned")

    def _replaced(self, instant: Instant) -> Iterator[str]:
        if instant.replaces:
            for names in (self._metadata(instant).get("partitionToReplaceFileIds") or {}).values():
                yield from names

    def _metadata(self, instant: Instant) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.store.read(instant.path) or b"{}")
        return found

    def _refuse(self) -> NoReturn:
        raise OptionError(
            f"{self.store.uri} is a Hudi table: only Hudi's own writer changes it, with engine='spark' on Spark 3.5"
        )
