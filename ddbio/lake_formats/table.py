"""What a table of a lake offers, whatever its format: its state, and commits by one writer at a time.

A format only keeps the list of files. ``ddbio.lake_formats.bucket_files`` reads and writes them, in an object store.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ddbio.errors import DdbioError, TargetError
from ddbio.retrying import retrying
from ddbio.storage.states import TEXT, list_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile, StoredObject

_LOG = logging.getLogger("ddbio.lake")

PREFIX = "ddbio."
"""Begins the names of our properties of a table."""

KEYS, BUCKETS, EPOCHS, FLOOR, WRITER = (
    f"{PREFIX}{name}" for name in ("keys", "buckets", "epochs", "gc_floor", "writer")
)
"""The properties: the key attributes; how many buckets there are; the streams in the order of their epochs; the time up
to which tombstones may be gone; who writes the table."""

BASE = "ddbio/base"
"""The position that says when the base load of the table began, in microseconds since 1970; 0 if it has none."""

EXPORTED_TO = "exported_to"
"""Of a base, the position up to which microsecond the table has all changes by exports; 0 if there is none."""


_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)


@dataclass(frozen=True)
class LakeFile:
    """Name a data file of a table."""

    path: str
    size_bytes: int
    bucket: int


@dataclass(frozen=True)
class LakeState:
    """Hold one version of a table.

    Attributes
    ----------
    handle
        What the format needs to commit on top of this version, and to notice if another writer was faster.
    """

    version: int
    schema: pa.Schema
    properties: Mapping[str, str]
    files: tuple[LakeFile, ...]
    handle: Any = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check our own properties, which are text that any writer of the table may have set."""
        for name, text in self.properties.items():
            if name in {KEYS, EPOCHS}:
                list_of(TEXT)(json.loads(text))
            is_number = name in {BUCKETS, FLOOR} or name.startswith(f"{PREFIX}position.")
            if is_number and not _NUMBER.fullmatch(text):
                raise ValueError(f"{name} is {text!r}, not a number")


@dataclass(frozen=True)
class Commit:
    """Say what a commit does.

    Attributes
    ----------
    added
        Files that are written; their partition names the bucket.
    removed
        Files of the state that go.
    positions
        How far each source is applied: a number by name, stored in the same commit. Of two writers that store the same
        name one fails.
    metadata
        What the history of the table says of the commit.
    exact
        Fail if there is any version behind the state, whatever it changed.
    """

    added: Sequence[StagedFile] = ()
    removed: Sequence[LakeFile] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True)
class ForeignFile:
    """Name a data file of a table that another program made.

    Attributes
    ----------
    path
        Its path in the table's folder.
    format
        ``parquet``, ``orc`` or ``avro``.
    values
        What the table's metadata says of the file's partition, by the name of the column.
    """

    path: str
    format: str
    values: Mapping[str, Any]


class ConflictError(Exception):
    """Raised if another writer has changed the table meanwhile: read its state again, and decide again."""


_Result = TypeVar("_Result")


def retry_conflicts(store: ObjectStore, commit: Callable[[], _Result], attempts: int = 30) -> _Result:
    """Return the result of a function that commits to a table, which is repeated while other writers are faster.

    Parameters
    ----------
    store
        Where the table lies, for the error message.
    attempts
        How often the commit is tried at most.

    Raises
    ------
    TargetError
        If other writers are faster each time.
    """

    def may_pass(error: Exception) -> bool:
        if isinstance(error, ConflictError):
            _LOG.info("another writer changed %s: its new state is read", store.uri)
        return isinstance(error, ConflictError)

    try:
        return retrying(commit, on=may_pass, attempts=attempts, base_seconds=0.04, cap_seconds=2.0)
    except ConflictError as conflict:
        raise TargetError(
            f"{attempts} times another writer was faster at {store.uri}: {conflict}", store.uri
        ) from conflict


_Method = TypeVar("_Method", bound="Callable[..., Any]")


def readable(read: _Method) -> _Method:
    """Let a method that reads the log of a table fail by one error if the log is malformed, whatever its reader raises.

    Raises
    ------
    TargetError
        Naming the table.
    """

    @functools.wraps(read)
    def reading(self: LakeTable, *args: Any, **given: Any) -> Any:
        try:
            return read(self, *args, **given)
        except (DdbioError, ConflictError):
            raise
        except Exception as error:
            raise TargetError(
                f"the table {self.store.uri} cannot be read: its log is damaged, or not as its writers make it "
                f"({type(error).__name__}: {error}): restore it from a copy",
                self.store.uri,
            ) from error

    return cast("_Method", reading)


class LakeTable(Protocol):
    """Read and change one table; every change is a version that readers see whole or not at all."""

    @property
    def keeps_bucket(self) -> bool:
        """Whether data files have the column of the bucket, too."""
        ...

    @property
    def store(self) -> ObjectStore:
        """Where the files of the table lie."""
        ...

    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version; None if there is no table.

        Raises
        ------
        NotFoundError
            If there is no such version.
        TargetError
            If the table has what this engine cannot keep right.
        """
        ...

    def foreign_files(self) -> tuple[ForeignFile, ...] | None:
        """Return the data files of the newest version, if another program made the table; None if ddbio did.

        Raises
        ------
        TargetError
            If the table has a feature by which its rows are not simply those of its files.
        """
        ...

    def before(self, state: LakeState) -> int | None:
        """Return the number of the version before one, which may be forgotten; None if it is the first."""
        ...

    def position(self, state: LakeState, name: str) -> int:
        """Return how far a source is applied, by the commits of the table; 0 if it never was."""
        ...

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Make an empty table, partitioned by its bucket.

        Raises
        ------
        ConflictError
            If there is one by now.
        """
        ...

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the schema that data files have to be written with."""
        ...

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Add columns, set properties, and return the new state.

        Raises
        ------
        ConflictError
            If another writer was faster.
        """
        ...

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Rewrite all files, rows with near values of some columns beside each other (Z-order), in one version.

        Raises
        ------
        ConflictError
            If another writer was faster.
        OptionError
            If the format's library cannot.
        """
        ...

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the files in which the format keeps versions that none from one on needs."""
        ...

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Make the versions from one on readable without what those before it have; return the newest state.

        Raises
        ------
        ConflictError
            If another writer was faster.
        """
        ...

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Commit on top of a state, all or nothing; return the version.

        Raises
        ------
        ConflictError
            If another writer was faster.
        """
        ...
