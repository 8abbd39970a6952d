"""Interface of a lake table of any format: its state, and commits by one writer at a time.

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
"""Prefix of our properties of a table."""

KEYS, BUCKETS, EPOCHS, FLOOR, WRITER = (
    f"{PREFIX}{name}" for name in ("keys", "buckets", "epochs", "gc_floor", "writer")
)
"""The properties: the key attributes; the number of buckets; the streams in the order of their epochs; the time up to
which tombstones may have been removed; the writer of the table."""

BASE = "ddbio/base"
"""The position that is the start of the base load of the table, in microseconds since 1970; 0 without a base."""

EXPORTED_TO = "exported_to"
"""The position of a base that is the time, in microseconds, up to which exports were applied; 0 without exports."""


_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)


@dataclass(frozen=True)
class LakeFile:
    """Data file of a table."""

    path: str
    size_bytes: int
    bucket: int


@dataclass(frozen=True)
class LakeState:
    """One version of a table.

    Attributes
    ----------
    handle
        Data of the format that a commit on top of this version needs, and that detects commits of other writers.
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
    """Changes of a commit.

    Attributes
    ----------
    added
        New files; their partition is the bucket.
    removed
        Files of the state to remove.
    positions
        The applied position of each source: a number by name, stored in the same commit. If two writers store the same
        name, one of them fails.
    metadata
        The description of the commit in the history of the table.
    exact
        Fail if there is any newer version than the state, regardless of its changes.
    """

    added: Sequence[StagedFile] = ()
    removed: Sequence[LakeFile] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True)
class ForeignFile:
    """Data file of a table that another program created.

    Attributes
    ----------
    path
        Its path in the table's folder.
    format
        ``parquet``, ``orc`` or ``avro``.
    values
        The partition values of the file in the table's metadata, by column name.
    """

    path: str
    format: str
    values: Mapping[str, Any]


class ConflictError(Exception):
    """Raised if another writer has changed the table meanwhile; the caller must load the state and decide again."""


_Result = TypeVar("_Result")


def retry_conflicts(store: ObjectStore, commit: Callable[[], _Result], attempts: int = 30) -> _Result:
    """Return the result of a function that commits to a table; it is repeated while other writers are faster.

    Parameters
    ----------
    store
        The store of the table, for the error message.
    attempts
        Maximum number of attempts.

    Raises
    ------
    TargetError
        If other writers are faster each time.
    """

    def may_pass(error: Exception) -> bool:
        if isinstance(error, ConflictError):
            _LOG.info("another writer changed %s: loading its new state", store.uri)
        return isinstance(error, ConflictError)

    try:
        return retrying(commit, on=may_pass, attempts=attempts, base_seconds=0.04, cap_seconds=2.0)
    except ConflictError as conflict:
        raise TargetError(
            f"another writer was faster at {store.uri} {attempts} times: {conflict}", store.uri
        ) from conflict


_Method = TypeVar("_Method", bound="Callable[..., Any]")


def readable(read: _Method) -> _Method:
    """Decorate a method that reads the log of a table, so that all errors of a malformed log become a TargetError.

    Raises
    ------
    TargetError
        The message names the table.
    """

    @functools.wraps(read)
    def reading(self: LakeTable, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(self, *args, **kwargs)
        except (DdbioError, ConflictError):
            raise
        except Exception as error:
            raise TargetError(
                f"the table {self.store.uri} cannot be read: its log is damaged, or has an unexpected format "
                f"({type(error).__name__}: {error}): restore it from a copy",
                self.store.uri,
            ) from error

    return cast("_Method", reading)


class LakeTable(Protocol):
    """One table that can be read and changed; every change is a version that is visible completely or not at all."""

    @property
    def keeps_bucket(self) -> bool:
        """Return whether data files also have the column of the bucket."""
        ...

    @property
    def store(self) -> ObjectStore:
        """Return the store of the table's files."""
        ...

    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version; None if there is no table.

        Raises
        ------
        NotFoundError
            If there is no such version.
        TargetError
            If the table has a feature that this engine does not support.
        """
        ...

    def foreign_files(self) -> tuple[ForeignFile, ...] | None:
        """Return the data files of the newest version, if another program created the table; None if ddbio did.

        Raises
        ------
        TargetError
            If the table has a feature that makes its rows differ from those of its files.
        """
        ...

    def before(self, state: LakeState) -> int | None:
        """Return the number of the preceding version, which may have expired; None if this is the first version."""
        ...

    def position(self, state: LakeState, name: str) -> int:
        """Return the applied position of a source, from the commits of the table; 0 if it was never applied."""
        ...

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Create an empty table, partitioned by its bucket.

        Raises
        ------
        ConflictError
            If there is a table already.
        """
        ...

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the schema of data files."""
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
        """Rewrite all files in one version, so that rows with similar values of some columns are adjacent (Z-order).

        Raises
        ------
        ConflictError
            If another writer was faster.
        OptionError
            If the format's library does not support it.
        """
        ...

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the metadata files that versions from ``since`` on do not need."""
        ...

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Make versions from ``since`` on independent of older ones, and return the newest state.

        Raises
        ------
        ConflictError
            If another writer was faster.
        """
        ...

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Commit on top of a state completely or not at all, and return the new version.

        Raises
        ------
        ConflictError
            If another writer was faster.
        """
        ...
