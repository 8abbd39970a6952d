"""Interface of a file format: how its files are named, written into a sink, and read part by part.

A format is one :class:`FileFormat`. To add a format, write its module in this package and list it in ``registry.py``;
the rolling writer, the readers of loads and the digest of files then support it.
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

_ResultT = TypeVar("_ResultT")

BATCH_ROWS = 16_384
"""Default number of rows in the batches that are read from files."""

NO_KEYS: Mapping[str, str] = MappingProxyType({})
"""The keys of rows that do not belong to a table."""

NO_TYPES: Mapping[str, pa.Field[Any]] = MappingProxyType({})
"""The declared columns of rows without declared columns."""


@dataclass(frozen=True)
class WriterOptions:
    """Options of writing a file.

    Attributes
    ----------
    compression
        The codec, one of those of the format.
    target_file_bytes
        Approximate size of the file: a writer buffers only a small part of it.
    first_rows
        The rows that are written first. They determine the encodings.
    ratio
        File bytes per byte of Arrow, from a finished file of such rows; None before a file is finished.
    dictionaries
        Paths of the columns that get a dictionary in Parquet; None to choose them by the first rows.
    stored_types
        Options of Arrow's Parquet writer that keep the stored types of columns.
    """

    compression: Compression
    target_file_bytes: int
    first_rows: pa.Table
    ratio: float | None = None
    dictionaries: tuple[str, ...] | None = None
    stored_types: tuple[tuple[str, bool], ...] = ()


class FileWriter(Protocol):
    """Writer of one open file into its sink."""

    @property
    def size_bytes(self) -> int:
        """Return the current size of the file; the size of buffered rows is estimated."""
        ...

    def write_group(self, table: pa.Table) -> None:
        """Write rows as one row group, stripe or block of the format."""
        ...

    def finish(self) -> StagedFile:
        """Write the end of the file, and return it staged."""
        ...

    def abort(self) -> None:
        """Discard the file."""
        ...


@dataclass(frozen=True)
class Parts:
    """Parts of a file that can be read separately: row groups, stripes, or the complete file as one part.

    Attributes
    ----------
    sizes_bytes
        Stored bytes of each part; an equal share of the file if the format does not record them.
    rows
        Rows of the file, or None if they can only be counted by reading it.
    first_rows
        Rows of the file before each part, or None if they can only be counted by reading them.
    """

    sizes_bytes: tuple[int, ...]
    rows: int | None
    first_rows: tuple[int | None, ...] = (0,)


@dataclass(frozen=True)
class Sample:
    """First rows of a file, and the stored bytes per row if the file does not record its number of rows."""

    batch: pa.RecordBatch
    row_bytes: float | None


@dataclass(frozen=True)
class ReadOptions:
    """Rules for the interpretation of text; other formats have their own types.

    Attributes
    ----------
    keys
        Key attributes and their types: a key of type S is text, regardless of its values.
    json_format
        Whether JSON is DynamoDB JSON or plain.
    schema
        The columns that were written, by whose types text is then decoded; None if they are unknown.
    types
        Columns of text that a person declares, by attribute, each with its DynamoDB type.
    columns
        The columns of text, if they were inferred from more than one block.
    splits_text
        Whether a large file of text is read by ranges of bytes; each part may then have its own columns.
    starts
        The first row of each range, if the range itself does not show it, and the end of the file.
    null_values
        The words of CSV that are missing values, in every column; None for ``text_types.NULL_WORDS``.
    range_bytes
        Maximum bytes of a range; None for the value of a load.
    names_nulls
        Whether rows of JSON have the column of ``nulls_field``, which distinguishes null members from missing ones.
    takes_illegal
        Whether JSON with values that no item may have is read, so that a write rejects the rows, instead of an error.
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
    """Position of the first row of a range of text: its byte offset, and the number of line ends before it."""

    byte: int
    lines: int


@dataclass(frozen=True)
class TextLayout:
    """Columns and row positions of a text file, determined by reading it once: see ``ReadOptions``."""

    columns: pa.Schema | None = None
    starts: tuple[TextStart, ...] = ()


class FileReader(ABC):
    """Reader of one file, opened once, part by part.

    Attributes
    ----------
    row_lines
        The line numbers of the rows of text that were read last; None for formats that are not text.
    """

    row_lines: RowLines | None = None

    @property
    def has_item_ranges(self) -> bool:
        """Return whether the file is DynamoDB JSON with several parts."""
        return False

    @abstractmethod
    def parts(self) -> Parts:
        """Return the parts of the file without reading its rows."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""

    @abstractmethod
    def read(self, part: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. All batches of a file have one schema, except those of split text."""

    @abstractmethod
    def sample(self, rows: int) -> Sample | None:
        """Return the first rows after reading little of the file; None if that is impossible."""

    def first_schema(self) -> pa.Schema | None:
        """Return the columns by the file's head or footer; None if these do not show all columns."""
        return self.schema()

    def columns(self, part: int) -> pa.Schema | None:
        """Return columns that fit all rows of a part; None if it has no rows."""
        del part
        return self.schema()

    def raw_items(self, part: int, reader: RawItemReader) -> Iterator[RawItems] | None:
        """Return the items of a part of DynamoDB JSON, read in bounded memory; None for other formats."""
        del part, reader
        return None


@dataclass(frozen=True)
class Block:
    """Complete rows of a text file.

    Attributes
    ----------
    lines_before
        Number of the file's line ends before the block, or a function that counts them.
    """

    text: bytes
    lines_before: int | Callable[[], int] = 0

    def apply(self, make: Callable[[bytes], _ResultT]) -> _ResultT:
        """Return the result of ``make`` for the text; line numbers in errors become those of the file."""
        try:
            return make(self.text)
        except DecodeError as error:
            before = self.lines_before
            raise shift_line(error, before if isinstance(before, int) else before()) from None


class TextRows(ABC):
    """Reader of the rows in one file's text, block by block, in order.

    Attributes
    ----------
    has_header
        Whether the start of a file has the column names of all its rows.
    needs_starts
        Whether only the text before a range determines its first row.
    row_begin
        The bytes that every row starts with; empty if there are none.
    """

    has_header: ClassVar[bool] = False
    needs_starts: ClassVar[bool] = False
    row_begin: ClassVar[bytes] = b""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @staticmethod
    def begins_with_items(head: bytes) -> bool:
        """Return whether a text starts with DynamoDB JSON."""
        del head
        return False

    def is_one_document(self, head: bytes) -> bool:
        """Return whether a text with this head has all its rows in one document."""
        del head
        return False

    @abstractmethod
    def begin(self, head: bytes) -> None:
        """Read the properties of all rows from the start of a file; later blocks may come from anywhere in it."""

    @abstractmethod
    def cut(self, text: bytes) -> int:
        """Return the number of bytes of complete rows if more text follows; 0 if that cannot be determined."""

    @classmethod
    @abstractmethod
    def joined(cls, columns: Iterable[pa.Schema | None]) -> pa.Schema | None:
        """Return columns that fit the values of all of these; None if there are none."""

    @abstractmethod
    def columns(self, blocks: Iterable[Block]) -> pa.Schema | None:
        """Return columns that fit the rows of all blocks; None if there are no blocks."""

    @abstractmethod
    def rows(self, text: bytes, columns: pa.Schema | None) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next block in these columns, or in columns that fit them."""

    @abstractmethod
    def lines(self, text: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the line numbers of the rows of a block; None if they cannot be determined.

        Parameters
        ----------
        first_line
            The line number of the block's first line in the file.
        """


@dataclass(frozen=True)
class FileFormat:
    """Description of one file format.

    Attributes
    ----------
    name
        The name in options.
    endings
        The endings of file names, in lower case.
    open_reader
        Opens a stored file for reading.
    is_splittable
        Whether a file has parts that can be read separately.
    open_writer
        Opens a file over a sink, for rows of a schema; None if ddbio does not write the format.
    extensions
        The endings of the names of written files, by codec.
    default_compression
        The default codec.
    require
        Raises OptionError if a library that the format needs is not installed.
    keeps_types
        Whether files store DynamoDB's types. For other formats, the types are in a manifest.
    self_checking
        The codecs whose files have checksums that the reader verifies.
    text_rows
        Reader of the rows of a text format.
    magic, magic_end
        First bytes of every file; and the pattern of the last bytes, if text may start with the same bytes.
    read_footer
        Reads the footer. The last argument caches the columns of the leaves of each schema.
    read_streams
        Reads the stored bytes of each column, if the footer does not record them; empty if the file is damaged.
    unwritable_type
        Returns a type in a file that ddbio would write as another one, or an empty text.
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
    read_streams: Callable[[ObjectStore, StoredObject], dict[str, int]] | None = None
    unwritable_type: Callable[[ObjectStore, StoredObject], str] | None = None

    def wrote(self, path: str) -> bool:
        """Return whether a path has an ending of written files."""
        return path.endswith(tuple(f".{extension}" for extension in self.extensions.values()))

    def checks(self, path: str) -> bool:
        """Return whether a written file of that name has its own checksums."""
        extensions = (extension for codec, extension in self.extensions.items() if codec in self.self_checking)
        return path.endswith(tuple(f".{extension}" for extension in extensions))

    def codec(self, requested: Compression | None) -> Compression:
        """Return the codec to write with.

        Raises
        ------
        OptionError
            If the format is not written, or has no such codec.
        """
        if not self.extensions:
            raise OptionError(f"files of format {self.name} are not written")
        chosen = requested or self.default_compression
        if chosen not in self.extensions:
            raise OptionError(f"format {self.name} has no compression {chosen}: give {', '.join(self.extensions)}")
        if self.require is not None:
            self.require()
        return chosen
