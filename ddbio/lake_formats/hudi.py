"""Reads of Hudi tables without a JVM, from the commits in their timeline and the names of their files.

The tables are copy on write, in table version 6, and are written by Hudi's own writer: a commit is JSON, and the name
of a data file contains its file group and its commit. Only that writer commits, see ``ddbio.spark.hudi``.
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
"""The key in the metadata of ddbio's commits whose value describes the table."""

TIMELINE = ".hoodie/"
"""The folder of the commits."""

_COMMIT = re.compile(r"\.hoodie/(\d+)\.(?:replace)?commit")
# https://hudi.apache.org/tech-specs/#file-layout-hierarchy
_DATA = re.compile(rf"{BUCKET}=(\d+)/([^/_]+)_[^/_]*_(\d+)\.parquet")
# The folder of the commits in newer table versions of Hudi.
_NEWER = f"{TIMELINE}timeline/"


@dataclass(frozen=True)
class Instant:
    """Completed commit; its number consists of the digits of its time."""

    number: int
    path: str
    modified_at: float

    @property
    def replaces(self) -> bool:
        """Return whether the commit may replace file groups."""
        return self.path.endswith(".replacecommit")


class HudiLakeTable:
    """A Hudi table that ddbio created; it can only be read.

    The number of a version is the instant of its commit. A version can be read until Hudi has cleaned its files. Other
    writers, such as clustering, may commit in between: ddbio's last commit describes the table.
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
        """Return None, since a table of another program is refused by ``load``."""
        return None

    def before(self, state: LakeState) -> int | None:
        """Return the number of the preceding version, from the metadata of the commit; None for the first version."""
        return int(state.handle) or None

    def position(self, state: LakeState, name: str) -> int:
        """Return the applied position of a source, from the metadata of the commit."""
        return int(state.properties.get(f"{PREFIX}position.{name}", 0))

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the columns of the rows."""
        return state.schema

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Raise, because only Hudi's writer can create a table."""
        del schema, properties
        self._refuse()

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Raise, because only Hudi's writer can change a table."""
        del state, fields, properties
        self._refuse()

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Raise, because only Hudi's writer can change a table."""
        del state, names, file_bytes
        self._refuse()

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Raise, because only Hudi's writer can change a table."""
        del state, commit
        self._refuse()

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the files of older commits in the timeline, except the ddbio commit that describes ``since``."""
        del state
        oldest, files = self.ddbio_commit_of(since), []
        for entry in self.store.list(TIMELINE):
            digits = re.match(r"\.hoodie/(\d+)\.", entry.path)
            if digits and int(digits[1]) < oldest:
                files.append(entry)
        return files

    def ddbio_commit_of(self, version: int) -> int:
        """Return the newest ddbio commit at or before this version."""
        state = self.stored(version)
        return version if state is None else state.version

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Raise, because only Hudi's writer can change a table."""
        del state, since
        self._refuse()

    @readable
    def timeline(self) -> list[Instant]:
        """Return the completed commits that are not archived, the oldest first.

        Raises
        ------
        OptionError
            If the table was upgraded to another table version of Hudi.
        """
        instants, listed = list[Instant](), list(self.store.list(TIMELINE))
        for entry in listed:
            if match := _COMMIT.fullmatch(entry.path):
                instants.append(Instant(int(match[1]), entry.path, entry.modified_at))
        if not instants and any(entry.path.startswith(_NEWER) for entry in listed):
            raise OptionError(
                f"{self.store.uri} is a Hudi table that ddbio did not create, or that was upgraded: ddbio reads and "
                "writes table version 6 (hoodie.write.table.version)"
            )
        return sorted(instants, key=lambda instant: instant.number)

    @readable
    def stored(self, version: int | None = None, timeline: Sequence[Instant] | None = None) -> LakeState | None:
        """Return the state in the newest ddbio commit, or in the newest up to a version, without files.

        Raises
        ------
        NotFoundError
            If there is no such commit.
        OptionError
            If there are only commits of other programs.
        """
        instants = self.timeline() if timeline is None else timeline
        if version is not None and all(item.number != version for item in instants):
            raise NotFoundError(f"the Hudi table {self.store.uri} has no commit {version}, or it was archived")
        for instant in reversed(instants):
            if version is not None and instant.number > version:
                continue
            metadata = self._metadata(instant).get("extraMetadata") or {}
            if STATE in metadata:
                stored = json.loads(metadata[STATE])
                schema = lake_schema(schema_from_json(stored["columns"]))
                return LakeState(instant.number, schema, stored["properties"], (), stored.get("before", 0))
        if instants:
            raise OptionError(f"{self.store.uri} is a Hudi table that ddbio did not create: choose another folder")
        return None

    @readable
    def files(self, version: int | None = None, timeline: Sequence[Instant] | None = None) -> tuple[LakeFile, ...]:
        """Return the data files of the newest version, or of another one, including those of other writers.

        For each file group, this is the file of the latest commit, unless the group was replaced.

        Raises
        ------
        NotFoundError
            If files of the version have been cleaned.
        """
        commits = self.timeline() if timeline is None else timeline
        until = max((instant.number for instant in commits), default=0) if version is None else version
        groups = self._groups(commits)
        replaced = {group for instant in commits if instant.number <= until for group in self._replaced(instant)}
        self._require_whole(groups, [instant for instant in commits if instant.number > until], until)
        live_files = []
        for name, files in groups.items():
            older = [number for number in files if number <= until]
            if older and name not in replaced:
                live_files.append(files[max(older)])
        return tuple(live_files)

    def _groups(self, commits: Sequence[Instant]) -> dict[str, dict[int, LakeFile]]:
        """Return the files of each file group by commit, without files of commits that were not completed."""
        numbers, first = (
            {instant.number for instant in commits},
            min((instant.number for instant in commits), default=0),
        )
        groups = defaultdict[str, dict[int, LakeFile]](dict)
        for entry in self.store.list(f"{BUCKET}="):
            match = _DATA.fullmatch(entry.path)
            # Files of failed commits were rolled back before any commit was archived.
            if match and (int(match[3]) in numbers or int(match[3]) < first):
                groups[match[2]][int(match[3])] = LakeFile(entry.path, entry.size_bytes, int(match[1]))
        return groups

    def _require_whole(self, groups: dict[str, dict[int, LakeFile]], later: Sequence[Instant], until: int) -> None:
        """Raise if a file of a version was cleaned; later commits record which files they replaced."""
        new_groups = set[str]()

        def has(name: str) -> bool:
            return any(number <= until for number in groups.get(name, {}))

        for instant in later:
            for stats in (self._metadata(instant).get("partitionToWriteStats") or {}).values():
                for write in stats:
                    before = str(write.get("prevCommit") or "null")
                    if before == "null":
                        new_groups.add(write["fileId"])
                    elif int(before) <= until and int(before) not in groups.get(write["fileId"], {}):
                        raise self._cleaned(until)
            if any(name not in new_groups and not has(name) for name in self._replaced(instant)):
                raise self._cleaned(until)

    def _cleaned(self, version: int) -> NotFoundError:
        return NotFoundError(f"files of version {version} of the Hudi table {self.store.uri} have been cleaned")

    def _replaced(self, instant: Instant) -> Iterator[str]:
        if instant.replaces:
            for names in (self._metadata(instant).get("partitionToReplaceFileIds") or {}).values():
                yield from names

    def _metadata(self, instant: Instant) -> dict[str, Any]:
        metadata: dict[str, Any] = json.loads(self.store.read(instant.path) or b"{}")
        return metadata

    def _refuse(self) -> NoReturn:
        raise OptionError(
            f"{self.store.uri} is a Hudi table: only Hudi's own writer changes it, with engine='spark' on Spark 3.5"
        )
