"""Writer of a task's record batches to files of one target size, in any format that ddbio writes."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError
from ddbio.formats.file_format import WriterOptions
from ddbio.formats.partitions import folder_of
from ddbio.formats.registry import FORMATS
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, name_of_field
from ddbio.items.schema.vectors import listed_vector
from ddbio.storage.checksums import ChecksumSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.formats.file_format import FileWriter
    from ddbio.options import Compression
    from ddbio.storage.object_store import Sink, SinkMaker
    from ddbio.storage.staged import FileNaming, StagedFile

# Longer values would make manifests large, and readers do not need longer text to skip files.
_MAX_VALUE_BYTES = 256
_CUT_CHARACTERS = 128
_LAST_CHARACTER = "\U0010ffff"


class FileStatistics:
    """Statistics of some columns of one file.

    Parameters
    ----------
    schema
        Schema of the rows.
    attributes
        The attributes whose columns have statistics; attributes without a column are ignored.
    columns
        Columns of a lake table, by their own names. Their long texts are cut to a lower and an upper bound.
    """

    def __init__(self, schema: pa.Schema, attributes: Iterable[str] = (), columns: Iterable[str] = ()) -> None:
        selected, self._columns = set(attributes), frozenset(columns)
        self._indices = [
            index
            for index, field in enumerate(schema)
            if field.name in self._columns or (field.name != RESCUE_NAME and name_of_field(field) in selected)
        ]
        self._fields = [schema.field(index) for index in self._indices]
        self._nulls = [0] * len(self._indices)
        self._ends: list[pa.Array[Any] | None] = [None] * len(self._indices)

    def add(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        for number, index in enumerate(self._indices):
            column = table.column(index)
            self._nulls[number] += column.null_count
            if _is_ordered(self._fields[number]) and column.null_count < len(column):
                range_of_table: Any = pc.min_max(column)
                ends = [pa.repeat(range_of_table[name], 1) for name in ("min", "max")]
                previous = self._ends[number]
                self._ends[number] = pa.concat_arrays([*([] if previous is None else [previous]), *ends])

    def to_dict(self) -> dict[str, dict[str, Any]] | None:
        """Return ``nulls``, ``min`` and ``max`` by attribute, or by column; None if no column has statistics.

        ``min`` and ``max`` are null if all values are null, if the column has no order, such as numbers stored as text,
        or if
        one of them is too long. Decimals are text, times ISO 8601, bytes base64.
        """
        statistics = {}
        for field, nulls, ends in zip(self._fields, self._nulls, self._ends, strict=True):
            least = greatest = None
            if ends is not None:
                both: Any = pc.min_max(ends)
                least, greatest = both["min"].as_py(), both["max"].as_py()
                if field.name in self._columns and isinstance(least, str):
                    least, greatest = _lower_bound(least), _upper_bound(greatest)
                else:
                    least, greatest = _plain(least), _plain(greatest)
            has_bounds = least is not None and greatest is not None
            statistics[field.name if field.name in self._columns else name_of_field(field)] = {
                "nulls": nulls,
                "min": least if has_bounds else None,
                "max": greatest if has_bounds else None,
            }
        return statistics or None


def _lower_bound(text: str) -> str:
    return text[:_CUT_CHARACTERS]


def _upper_bound(text: str) -> str:
    """Return a short text that is not less than ``text`` in the order of code points, which is that of UTF-8."""
    end = _CUT_CHARACTERS
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def _is_ordered(field: pa.Field[Any]) -> bool:
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # As text, 10 comes before 9.
        return (field.metadata or {}).get(DDB_TYPE, b"S") == b"S"
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ) and not pa.types.is_duration(kind)


def _plain(value: Any) -> Any:
    """Return a value that JSON can store, or None if it cannot or should not."""
    if isinstance(value, str):
        return value if len(value.encode()) <= _MAX_VALUE_BYTES else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if len(value) <= _MAX_VALUE_BYTES else None
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


# Large enough for Spark and Athena to skip and to read in long ranges, small enough for memory next to a scan's pages.
_ROW_GROUP_BYTES = 32 * 1024 * 1024
_ROW_GROUP_ROWS = 1_000_000
# A file this close to its target is closed: a further row group would be tiny.
_CLOSE_RATIO = 0.95
_TEXT_RATIO = 4.0
NO_PARTITION: Mapping[str, str | None] = MappingProxyType({})
"""Partition of files that are not in a partition's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Options of writing files.

    Attributes
    ----------
    compression
        Codec of every page; its name is part of the file's extension. None is the format's default.
    target_file_bytes
        Size of a file on the target; only the last file of a task may be much smaller.
    format
        Name of a format in ``registry.py`` that can be written.
    statistics
        Attributes whose number of nulls, minimum and maximum are recorded for each file.
    column_statistics
        The same for columns of a lake table, by their own names.
    dictionaries, stored_types
        As of :class:`ddbio.formats.file_format.WriterOptions`; with None, dictionaries are chosen for each file.
    """

    compression: Compression | None = None
    target_file_bytes: int = 256 * 1024 * 1024
    format: str = "parquet"
    statistics: tuple[str, ...] = ()
    column_statistics: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] | None = None
    stored_types: tuple[tuple[str, bool], ...] = ()


class RollingWriter:
    """Writer of one task's rows to files close to the target size, with one row group in memory.

    Parameters
    ----------
    store
        Store where the files are staged.
    naming
        Names of this attempt of this task.
    schema
        Schema of every batch; Parquet stores its metadata and that of its fields. Files have vectors as lists.
    options
        Size and compression.
    partition
        Column and value of each folder that contains the files.
    """

    def __init__(
        self,
        store: SinkMaker,
        naming: FileNaming,
        schema: pa.Schema,
        options: FileOptions,
        partition: Mapping[str, str | None] = NO_PARTITION,
    ) -> None:
        self._store, self._naming, self._options = store, naming, options
        self._schema = pa.schema([listed_vector(field) for field in schema]).with_metadata(schema.metadata)
        self._has_vectors = not self._schema.equals(schema)
        self._partition, self._folder = dict(partition), folder_of(partition)
        self._format = FORMATS[options.format]
        self._file: FileWriter | None = None
        self._statistics = self._new_statistics()
        self._staged: list[StagedFile] = []
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._gathered_rows = 0
        # Bytes in the file per byte of Arrow, of the latest file. The first value assumes no compression; text may take
        # several times the bytes, which the first rows then show.
        self.ratio = 1.0 if self._format.is_splittable else _TEXT_RATIO
        self._file_arrow_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch's rows; a row group is written when it is full.

        Raises
        ------
        TargetError, EndpointError, ServiceError, AccessDeniedError
            If the store refuses bytes; then call ``abort``.
        """
        if self._has_vectors:
            batch = batch.cast(self._schema)
        remaining: pa.RecordBatch | None = batch if batch.num_rows else None
        while remaining is not None:
            size_bytes = remaining.nbytes
            row_bytes = max(1.0, size_bytes / remaining.num_rows)
            fitting_rows = min(
                math.ceil((self._group_bytes() - self._gathered_bytes) / row_bytes),
                _ROW_GROUP_ROWS - self._gathered_rows,
            )
            rows = max(1, min(fitting_rows, remaining.num_rows))
            # A batch that fits completely, as most do, is neither cut nor measured again.
            part, remaining = (
                (remaining, None) if rows == remaining.num_rows else (remaining.slice(0, rows), remaining.slice(rows))
            )
            self._gathered.append(part)
            self._gathered_bytes += size_bytes if remaining is None else part.nbytes
            self._gathered_rows += rows
            if self._gathered_bytes >= self._group_bytes() or self._gathered_rows >= _ROW_GROUP_ROWS:
                self._write_group()

    def finish(self, *, keep_empty: bool = False) -> list[StagedFile]:
        """Return the staged files of this task; none if there was no row.

        Parameters
        ----------
        keep_empty
            Stage a file without rows if there was no row, so that readers get the columns.
        """
        self._write_group()
        if keep_empty and self._file is None and not self._staged:
            self._file = self._open_file(self._schema.empty_table())
        self._close_file()
        return self._staged

    def close_files(self) -> list[StagedFile]:
        """Stage all rows written until now, even in a small file; return all files staged until now."""
        self._write_group()
        self._close_file()
        return list(self._staged)

    @property
    def has_open_file(self) -> bool:
        """Return whether rows were written to a file that is not full yet."""
        return self._file is not None

    def settle(self, min_bytes: float = math.inf) -> list[pa.RecordBatch]:
        """Write the gathered rows if a file is open, or if they have at least ``min_bytes``; else return them."""
        if self._file is not None or self._gathered_bytes >= min_bytes:
            self._write_group()
            return []
        gathered = self._gathered
        self._gathered, self._gathered_bytes, self._gathered_rows = [], 0, 0
        return gathered

    def abort(self) -> None:
        """Discard the open file; the job's abort discards the finished files."""
        if self._file:
            self._file.abort()
            self._file = None

    def _group_bytes(self) -> float:
        """Return the Arrow bytes at which the open row group, or the file with it, is full."""
        written = self._file.size_bytes if self._file else 0
        return min(_ROW_GROUP_BYTES, (self._options.target_file_bytes - written) / self.ratio)

    def _write_group(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered, self._schema)
        if self._file is None:
            self._file = self._open_file(table)
        self._file.write_group(table)
        self._statistics.add(table)
        self._file_arrow_bytes += self._gathered_bytes
        self.ratio = max(1, self._file.size_bytes) / max(1, self._file_arrow_bytes)
        self._gathered, self._gathered_bytes, self._gathered_rows = [], 0, 0
        if self._file.size_bytes >= _CLOSE_RATIO * self._options.target_file_bytes:
            self._close_file()

    def _open_file(self, first_rows: pa.Table) -> FileWriter:
        self._file_arrow_bytes = 0
        compression, open_writer = self._format.codec(self._options.compression), self._format.open_writer
        if open_writer is None:
            raise OptionError(f"files of format {self._format.name} are not written")
        ratio = self.ratio if self._staged else None
        options = WriterOptions(
            *(compression, self._options.target_file_bytes, first_rows, ratio),
            *(self._options.dictionaries, self._options.stored_types),
        )
        sink: Sink = self._store.create(
            self._naming.path(len(self._staged), self._format.extensions[compression], self._folder)
        )
        if compression not in self._format.self_checking:
            sink = ChecksumSink(sink)
        try:
            return open_writer(sink, self._schema, options)
        except BaseException:
            sink.abort()
            raise

    def _new_statistics(self) -> FileStatistics:
        return FileStatistics(self._schema, self._options.statistics, self._options.column_statistics)

    def _close_file(self) -> None:
        if self._file:
            staged = self._file.finish()
            self._staged.append(replace(staged, partition=self._partition, statistics=self._statistics.to_dict()))
            self._statistics = self._new_statistics()
            self.ratio = max(1, staged.size_bytes) / max(1, self._file_arrow_bytes)
            self._file = None
