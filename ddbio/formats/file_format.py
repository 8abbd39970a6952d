"""What a file format is: how its files are named, written into a sink, and read part by part.

A format is one :class:`FileFormat`. To add one, write its module beside ``parquet.py`` and list it in ``registry.py``;
the rolling writer, the readers of loads and the digest of files take it from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ddbio.errors import DecodeError, OptionError
from ddbio.items.raw_items import shift_line

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    import pyarrow as pa

    from ddbio.formats.layout import Footer
    from ddbio.formats.row_lines import Lines, RowLines
    from ddbio.items.raw_items import RawItemReader, RawItems
    from ddbio.load.options import JsonFormat
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import StagedFile, StoredObject

    ReadFooter: TypeAlias = Callable[[ObjectStore, StoredObject, dict[tuple[str, ...], tuple[str, ...]]], Footer]
    OpenReader: TypeAlias = Callable[[ObjectStore, StoredObject, "ReadOptions"], "FileReader"]
    OpenWriter: TypeAlias = Callable[[Sink, pa.Schema, "WriterOptions"], "FileWriter"]

_MadeT = TypeVar("_MadeT")

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
        The words of CSV that are missing values, in every column; None are those of ``text_types.NULL_WORDS``.
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


class FileReader(ABC):
    """Read one file, opened once, part by part.

    Attributes
    ----------
    row_lines
        The lines on which the rows of text stand that were read last; None if it is no text.
    """

    row_lines: RowLines | None = None

    @property
    def has_item_ranges(self) -> bool:
        """Return whether the file is DynamoDB JSON that has parts."""
        return False

    @abstractmethod
    def parts(self) -> Parts:
        """Return the parts of the file without reading its rows."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""

    @abstractmethod
    def read(self, part: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; all batches of a file have one schema, but for text that is split."""

    @abstractmethod
    def sample(self, rows: int) -> Sample | None:
        """Return the first rows, having read little of the file; None if that cannot be done."""

    def first_schema(self) -> pa.Schema | None:
        """Return the columns that the file's head or footer shows; None if these do not show all."""
        return self.schema()

    def columns(self, part: int) -> pa.Schema | None:
        """Return columns that hold all rows of a part; None if it has no rows."""
        del part
        return self.schema()

    def raw_items(self, part: int, reader: RawItemReader) -> Iterator[RawItems] | None:
        """Return the items of a part of DynamoDB JSON, read in bounded memory; None if it is something else."""
        del part, reader
        return None


@dataclass(frozen=True)
class Block:
    """Hold whole rows of a file of text.

    Attributes
    ----------
    lines_before
        How many lines of the file end before the block, or what counts them.
    """

    text: bytes
    lines_before: int | Callable[[], int] = 0

    def apply(self, make: Callable[[bytes], _MadeT]) -> _MadeT:
        """Return what is made of the text; lines in errors become those of the file."""
        try:
            return make(self.text)
        except DecodeError as error:
            before = self.lines_before
            raise shift_line(error, before if isinstance(before, int) else before()) from None


class TextRows(ABC):
    """Read the rows of one file's text, block by block, in order.

    Attributes
    ----------
    has_header
        Whether the beginning of a file names the columns of all its rows.
    needs_starts
        Whether only the text before a range tells where its first row begins.
    row_begin
        What a row begins with, if all begin with the same.
    """

    has_header: ClassVar[bool] = False
    needs_starts: ClassVar[bool] = False
    row_begin: ClassVar[bytes] = b""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @staticmethod
    def begins_with_items(head: bytes) -> bool:
        """Return whether a text begins with DynamoDB JSON."""
        del head
        return False

    def is_one_document(self, head: bytes) -> bool:
        """Return whether a text that begins so has all its rows in one document."""
        del head
        return False

    @abstractmethod
    def begin(self, head: bytes) -> None:
        """Learn from the beginning of a file what holds for all its rows; what is read next begins later."""

    @abstractmethod
    def cut(self, text: bytes) -> int:
        """Return how many bytes of the text are whole rows, if more text follows; 0 if that cannot be told."""

    @classmethod
    @abstractmethod
    def joined(cls, columns: Iterable[pa.Schema | None]) -> pa.Schema | None:
        """Return columns that hold the values of all of these; None if there are none."""

    @abstractmethod
    def columns(self, blocks: Iterable[Block]) -> pa.Schema | None:
        """Return columns that hold the rows of all blocks; None if there are no blocks."""

    @abstractmethod
    def rows(self, text: bytes, columns: pa.Schema | None) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next block as these columns, or as columns that hold them."""

    @abstractmethod
    def lines(self, text: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the lines of the file on which the rows of a block begin, if that can be told.

        Parameters
        ----------
        first_line
            The line of the file with which the block begins.
        """


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
    text_rows
        Reads the rows of a format that is text.
    magic, magic_end
        What files of the format begin with, and what is found at their end if text may begin so, too.
    read_footer
        Reads what a file says of itself at its end. Its last argument keeps the columns of the leaves of each schema.
    unwritable_type
        Returns a type in a file that ddbio would write as another, or nothing.
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
    text_rows: type[TextRows] | None = None
    magic: bytes = b""
    magic_end: re.Pattern[bytes] | None = None
    read_footer: ReadFooter | None = None
    unwritable_type: Callable[[ObjectStore, StoredObject], str] | None = None

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
