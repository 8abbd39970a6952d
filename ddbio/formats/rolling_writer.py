"""Stage a task's record batches as files of one target size, in any format that ddbio writes."""

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
from ddbio.storage.checksums import ChecksumSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.formats.file_format import FileWriter
    from ddbio.options import Compression
    from ddbio.storage.object_store import Sink, SinkMaker
    from ddbio.storage.staged import FileNaming, StagedFile

# Longer values would make a manifest large, and no reader skips files by so much text.
_MOST_BYTES = 256
_CUT_CHARACTERS = 128
_LAST_CHARACTER = "\U0010ffff"


class FileStatistics:
    """Gather the statistics of some columns of one file.

    Parameters
    ----------
    schema
        Schema of the rows.
    attributes
        The attributes whose columns are looked at; those without a column are passed over.
    columns
        Columns by their own names, of a lake table. Their long texts are cut to a lower and an upper bound.
    """

    def __init__(self, schema: pa.Schema, attributes: Iterable[str] = (), columns: Iterable[str] = ()) -> None:
        wanted, self._columns = set(attributes), frozenset(columns)
        self._places = [
            place
            for place, field in enumerate(schema)
            if field.name in self._columns or (field.name != RESCUE_NAME and name_of_field(field) in wanted)
        ]
        self._fields = [schema.field(place) for place in self._places]
        self._nulls = [0] * len(self._places)
        self._ends: list[pa.Array[Any] | None] = [None] * len(self._places)

    def add(self, table: pa.Table) -> None:
        """Count the rows of a table in."""
        for number, place in enumerate(self._places):
            column = table.column(place)
            self._nulls[number] += column.null_count
            if _is_ordered(self._fields[number]) and column.null_count < len(column):
                found: Any = pc.min_max(column)
                ends = [pa.repeat(found[name], 1) for name in ("min", "max")]
                known = self._ends[number]
                self._ends[number] = pa.concat_arrays([*([] if known is None else [known]), *ends])

    def to_dict(self) -> dict[str, dict[str, Any]] | None:
        """Return ``nulls``, ``min`` and ``max`` by attribute, or by column; None if no column was looked at.

        ``min`` and ``max`` are null if all values are, if the column has no order, such as numbers held as text, or if
        one of them is too long. Decimals are text, times ISO 8601, bytes base64.
        """
        found = {}
        for field, nulls, ends in zip(self._fields, self._nulls, self._ends, strict=True):
            least = greatest = None
            if ends is not None:
                both: Any = pc.min_max(ends)
                least, greatest = both["min"].as_py(), both["max"].as_py()
                if field.name in self._columns and isinstance(least, str):
                    least, greatest = _lower_bound(least), _upper_bound(greatest)
                else:
                    least, greatest = _plain(least), _plain(greatest)
            known = least is not None and greatest is not None
            found[field.name if field.name in self._columns else name_of_field(field)] = {
                "nulls": nulls,
                "min": least if known else None,
                "max": greatest if known else None,
            }
        return found or None


def _lower_bound(text: str) -> str:
    return text[:_CUT_CHARACTERS]


def _upper_bound(text: str) -> str:
    """Return a short text that is not less than a text in the order of code points, which is that of UTF-8."""
    end = _CUT_CHARACTERS
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def _is_ordered(field: pa.Field[Any]) -> bool:
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # As text 10 comes before 9.
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
    """Return a value as JSON holds it, or None if it cannot or should not."""
    if isinstance(value, str):
        return value if len(value.encode()) <= _MOST_BYTES else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if len(value) <= _MOST_BYTES else None
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


# Large enough for Spark and Athena to skip and read in long ranges, small enough to hold beside the pages of a scan.
_ROW_GROUP_BYTES = 32 * 1024 * 1024
_ROW_GROUP_ROWS = 1_000_000
# A file this close to its target is closed: the rest would be a tiny row group.
_CLOSE_RATIO = 0.95
_TEXT_RATIO = 4.0
NO_PARTITION: Mapping[str, str | None] = MappingProxyType({})
"""Files that lie in no folder of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Say how files are written.

    Attributes
    ----------
    compression
        Codec of every page; its name is part of the file's extension. None is the format's own choice.
    target_file_bytes
        Size of a file on the target; only the last one of a task may be much smaller.
    format
        Name of a format in ``registry.py`` that is written.
    statistics
        Attributes whose nulls, least and greatest value are noted for each file.
    column_statistics
        The same for columns of a lake table, by their own names.
    dictionaries, stored_types
        As of :class:`ddbio.formats.file_format.WriterOptions`; the dictionaries are decided for each file by None.
    """

    compression: Compression | None = None
    target_file_bytes: int = 256 * 1024 * 1024
    format: str = "parquet"
    statistics: tuple[str, ...] = ()
    column_statistics: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] | None = None
    stored_types: tuple[tuple[str, bool], ...] = ()


class RollingWriter:
    """Stage one task's rows as files close to the target size; hold one row group in memory.

    Parameters
    ----------
    store
        Where the files are staged.
    naming
        Names of this attempt of this task.
    schema
        Schema of every batch; Parquet keeps its metadata, fields' included.
    options
        Size and compression.
    partition
        Column and value of each folder that the files lie in.
    """

    def __init__(
        self,
        store: SinkMaker,
        naming: FileNaming,
        schema: pa.Schema,
        options: FileOptions,
        partition: Mapping[str, str | None] = NO_PARTITION,
    ) -> None:
        self._store, self._naming, self._schema, self._options = store, naming, schema, options
        self._partition, self._folder = dict(partition), folder_of(partition)
        self._format = FORMATS[options.format]
        self._file: FileWriter | None = None
        self._statistics = self._new_statistics()
        self._staged: list[StagedFile] = []
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._gathered_rows = 0
        # Bytes in the file per byte of Arrow, of the last file so far. At first as if nothing were saved; text may take
        # several times as many, which the first rows then show.
        self.ratio = 1.0 if self._format.is_splittable else _TEXT_RATIO
        self._file_arrow_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch's rows; write a row group when there are enough.

        Raises
        ------
        TargetError, EndpointError, ServiceError, AccessDeniedError
            If the store refuses bytes; call ``abort`` then.
        """
        rest: pa.RecordBatch | None = batch if batch.num_rows else None
        while rest is not None:
            size_bytes = rest.nbytes
            row_bytes = max(1.0, size_bytes / rest.num_rows)
            fitting_rows = min(
                math.ceil((self._group_bytes() - self._gathered_bytes) / row_bytes),
                _ROW_GROUP_ROWS - self._gathered_rows,
            )
            rows = max(1, min(fitting_rows, rest.num_rows))
            # What fits as a whole, as most batches do, is neither cut nor measured again.
            taken, rest = (rest, None) if rows == rest.num_rows else (rest.slice(0, rows), rest.slice(rows))
            self._gathered.append(taken)
            self._gathered_bytes += size_bytes if rest is None else taken.nbytes
            self._gathered_rows += rows
            if self._gathered_bytes >= self._group_bytes() or self._gathered_rows >= _ROW_GROUP_ROWS:
                self._write_group()

    def finish(self, *, keep_empty: bool = False) -> list[StagedFile]:
        """Return the staged files of this task; none if there was no row.

        Parameters
        ----------
        keep_empty
            Stage a file without rows if there was no row, so that readers find the columns.
        """
        self._write_group()
        if keep_empty and self._file is None and not self._staged:
            self._file = self._open_file(self._schema.empty_table())
        self._close_file()
        return self._staged

    def close_files(self) -> list[StagedFile]:
        """Stage all rows so far, even if that makes a small file; return the files that were staged until now."""
        self._write_group()
        self._close_file()
        return list(self._staged)

    @property
    def has_open_file(self) -> bool:
        """Return whether rows were written to a file that is not full yet."""
        return self._file is not None

    def settle(self, least_bytes: float = math.inf) -> list[pa.RecordBatch]:
        """Write the gathered rows to the open file, or a new one if they are so many bytes; else return them."""
        if self._file is not None or self._gathered_bytes >= least_bytes:
            self._write_group()
            return []
        gathered = self._gathered
        self._gathered, self._gathered_bytes, self._gathered_rows = [], 0, 0
        return gathered

    def abort(self) -> None:
        """Discard the open file; the job's abort discards the finished ones."""
        if self._file:
            self._file.abort()
            self._file = None

    def _group_bytes(self) -> float:
        """Return the Arrow bytes after which the open row group is full, or the file with it."""
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
