"""What a file format is: how its files are named, written into a sink, and read part by part.

A format is one :class:`FileFormat`. To add one, write its module beside ``parquet.py`` and list it in ``formats.py``;
the rolling writer, the readers of loads and the digest of files take it from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    import pyarrow as pa

    from ddbio.options import Compression, JsonFormat
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import StagedFile, StoredObject

    OpenReader: TypeAlias = Callable[[ObjectStore, StoredObject, "ReadOptions"], "FileReader"]
    OpenWriter: TypeAlias = Callable[[Sink, pa.Schema, "WriterOptions"], "FileWriter"]

BATCH_ROWS = 16_384
"""Rows of the batches that files are read in, unless a caller asks for another number."""

NO_KEYS: Mapping[str, str] = MappingProxyType({})
"""The keys of rows that belong to no table."""

NO_TYPES: Mapping[str, pa.Field[Any]] = MappingProxyType({})
"""The declared columns of rows of which nobody declares any."""


@dataclass(frozen=True)
class WriterOptions:
    """Say how a file is written.

    Attributes
    ----------
    compression
        The codec, one of those that the format has.
    target_file_bytes
        About how large the file will be: what a writer holds back is little of it.
    first_rows
        The rows that are written first, to choose encodings by.
    ratio
        Bytes of a file per byte of Arrow, of a finished file of such rows; None before one is.
    dictionaries
        Paths of the columns that get a dictionary in Parquet; None lets the first rows say it.
    stored_types
        Options of Arrow's writer of Parquet, by which columns are stored as they were.
    """

    compression: Compression
    target_file_bytes: int
    first_rows: pa.Table
    ratio: float | None = None
    dictionaries: tuple[str, ...] | None = None
    stored_types: tuple[tuple[str, bool], ...] = ()


class FileWriter(Protocol):
    """Write one open file into its sink."""

    @property
    def size_bytes(self) -> int:
        """Return the size of the file so far, as far as it can be told: bytes that the writer holds are estimated."""
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
    schema
        The columns that were written, or None if nobody knows: text is then decoded by these types.
    types
        Columns of text that a person declares, by attribute, each with its DynamoDB type.
    columns
        The columns of text, if they were chosen by more than what is read at once.
    splits_text
        Whether a large file of text is read by ranges of bytes, of which each part may have columns of its own.
    starts
        Where the rows of each range begin, if it does not show that itself, and the end of the file.
    null_values
        The words of CSV that are missing values, in every column; None are those of ``text_rows.NULL_WORDS``.
    range_bytes
        The most bytes of a range; None is those of a load.
    names_nulls
        Whether rows of JSON have the column of ``nulls_field``, which tells members that are null from missing ones.
    takes_illegal
        Whether JSON with values that no item may have is read, for a write to reject their rows, instead of an error.
    """

    keys: Mapping[str, str] = field(default_factory=lambda: NO_KEYS)
    json_format: JsonFormat = "auto"
    schema: pa.Schema | None = None
    types: Mapping[str, pa.Field[Any]] = field(default_factory=lambda: NO_TYPES)
    columns: pa.Schema | None = None
    splits_text: bool = False
    starts: tuple[TextStart, ...] = ()
    range_bytes: int | None = None
    null_values: tuple[str, ...] | None = None
    names_nulls: bool = False
    takes_illegal: bool = False


@dataclass(frozen=True)
class TextStart:
    """Say where the first row of a range of text begins: its byte, and how many lines end before."""

    byte: int
    lines: int


@dataclass(frozen=True)
class TextLayout:
    """Hold what is found out of a file of text by reading it once: see ``ReadOptions``."""

    columns: pa.Schema | None = None
    starts: tuple[TextStart, ...] = ()


class FileReader(Protocol):
    """Read one file, opened once, part by part."""

    def parts(self) -> Parts:
        """Return the parts of the file without reading its rows."""
        ...

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        ...

    def read(self, part: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; all batches of a file have one schema, but for text that is split."""
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
        Opens a file over a sink, for rows of a schema; None if ddbio does not write the format.
    extensions
        How the names of written files end, by codec.
    default_compression
        The codec if none is asked for.
    require
        Raises OptionError if a library that the format needs is not installed.
    keeps_types
        Whether its files tell DynamoDB's types: those of others are known from a manifest.
    self_checking
        The codecs with which its files have checksums, and its reader compares them.
    """

    name: str
    endings: tuple[str, ...]
    open_reader: OpenReader
    is_splittable: bool = False
    open_writer: OpenWriter | None = None
    extensions: Mapping[Compression, str] = field(default_factory=dict)
    default_compression: Compression = "zstd"
    keeps_types: bool = False
    self_checking: frozenset[Compression] = frozenset()
    require: Callable[[], object] | None = None

    def wrote(self, path: str) -> bool:
        """Return whether a path ends as those of written files do."""
        return path.endswith(tuple(f".{each}" for each in self.extensions.values()))

    def checks(self, path: str) -> bool:
        """Return whether a written file of that name has checksums of its own."""
        extensions = (each for codec, each in self.extensions.items() if codec in self.self_checking)
        return path.endswith(tuple(f".{each}" for each in extensions))

    def codec(self, asked: Compression | None) -> Compression:
        """Return the codec to write with.

        Raises
        ------
        OptionError
            If the format is not written, or has no such codec.
        """
        if not self.extensions:
            raise OptionError(f"files of format {self.name} are not written")
        chosen = asked or self.default_compression
        if chosen not in self.extensions:
            raise OptionError(f"format {self.name} has no compression {chosen}: give {', '.join(self.extensions)}")
        if self.require is not None:
            self.require()
        return chosen
