"""What a file format is: how its files are named, written into a sink, and read part by part.

A format is one :class:`FileFormat`. To add one, write its module beside ``parquet.py`` and list it in ``formats.py``;
the rolling writer, the readers of loads and the digest of files take it from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    import pyarrow as pa

    from ddbio.core.staged import StagedFile, StoredObject
    from ddbio.files.object_store import ObjectStore, Sink
    from ddbio.options import Compression, JsonFormat

    OpenReader: TypeAlias = Callable[[ObjectStore, StoredObject, "ReadOptions"], "FileReader"]
    OpenWriter: TypeAlias = Callable[[Sink, pa.Schema, Compression, pa.Table], "FileWriter"]

BATCH_ROWS = 16_384
"""Rows of the batches that files are read in, unless a caller asks for another number."""

NO_KEYS: Mapping[str, str] = MappingProxyType({})
"""The keys of rows that belong to no table."""


class FileWriter(Protocol):
    """Write one open file into its sink."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes that the sink has been given so far."""
        ...

    def write_group(self, table: pa.Table) -> None:
        """Write rows as one row group, stripe or block of the format."""
        ...

    def finish(self) -> StagedFile:
        """Write what ends the file, and return it staged."""
        ...

    def abort(self) -> None:
        """Discard the file."""
        ...


@dataclass(frozen=True)
class Parts:
    """List the parts of a file that can be read one by one: row groups, stripes, or the whole file as one part.

    Attributes
    ----------
    sizes_bytes
        Stored bytes of each part; an equal share of the file if the format does not tell.
    rows
        Rows of the file, or None if only reading it would tell.
    first_rows
        Rows of the file before each part, or None if only reading those would tell.
    """

    sizes_bytes: tuple[int, ...]
    rows: int | None
    first_rows: tuple[int | None, ...] = (0,)


@dataclass(frozen=True)
class Sample:
    """Hold the first rows of a file, and the stored bytes of a row if the file does not count its rows."""

    batch: pa.RecordBatch
    row_bytes: float | None


@dataclass(frozen=True)
class ReadOptions:
    """Say how text is understood; other formats have types of their own.

    Attributes
    ----------
    keys
        Key attributes and their types: one of type S is text whatever its values look like.
    json_format
        Whether JSON is DynamoDB JSON or plain.
    """

    keys: Mapping[str, str] = field(default_factory=lambda: NO_KEYS)
    json_format: JsonFormat = "auto"


class FileReader(Protocol):
    """Read one file, opened once, part by part."""

    def parts(self) -> Parts:
        """Return the parts of the file without reading its rows."""
        ...

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        ...

    def read(self, part: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; all batches of a file have one schema."""
        ...

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows, having read little of the file; None if that cannot be done."""
        ...


@dataclass(frozen=True)
class FileFormat:
    """Describe one file format.

    Attributes
    ----------
    name
        How options call it.
    endings
        How the names of its files end, in lower case.
    open_reader
        Opens a stored file for reading.
    is_splittable
        Whether a file has parts that are read one by one.
    open_writer
        Opens a file over a sink, for a schema, a codec and the first rows; None if ddbio does not write the format.
    extensions
        How the names of written files end, by codec.
    """

    name: str
    endings: tuple[str, ...]
    open_reader: OpenReader
    is_splittable: bool = False
    open_writer: OpenWriter | None = None
    extensions: Mapping[Compression, str] = field(default_factory=dict)
