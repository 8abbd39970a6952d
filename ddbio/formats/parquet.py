"""Parquet: writes files row group by row group, with dictionaries chosen by the data, and reads row groups."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ddbio.errors import DecodeError
from ddbio.formats.file_format import FileFormat, FileReader, Parts, Sample, WriterOptions
from ddbio.formats.parquet_input import TEXT, facts_of_chunks, open_parquet, read_footer, read_tail
from ddbio.items.arrow_input import checked_batches
from ddbio.items.expansion import FREE_BYTES, check_rows, may_expand
from ddbio.items.kernel.column_chunks import BOUNDS, DICTIONARY, KIND, TEXT_BYTES, UNCOMPRESSED
from ddbio.items.schema.arrow import fields_within
from ddbio.storage.local_store import LocalStore
from ddbio.storage.object_store import MemorySink, RangeFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from ddbio.formats.file_format import ReadOptions
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import StagedFile, StoredObject

# Runs of adjacent rows from all parts of the table detect repeated values both nearby and far apart.
_RUNS = 16
_RUN_ROWS, _MIN_RUN_ROWS = 256, 16
# Of N rows, an eighth is sampled, at most 4,096 rows. If values are drawn evenly from D distinct ones, 90 % of the
# sample are distinct when D is a bit more than N / 2, or about 20,000. Such a dictionary is hardly smaller than the
# values. With twice that size it outgrows Parquet's page of 1 MiB, and the values are then also written plainly.
_SAMPLE_RATIO = 1 / 8
_DISTINCT_RATIO = 0.9

_BUFFER_BYTES = 256 * 1024

# Larger row groups of a file are not read into memory completely; their columns are read in steps of these bytes.
_LARGE_BYTES = 32 * 1024 * 1024
_STREAM_BYTES = 1024 * 1024
_SAMPLE_STREAM_BYTES = 64 * 1024

# Parquet has checksums of pages, but none of the footer, which has the column names.
_COLUMNS_KEY = b"ddbio:columns"


class ParquetFileWriter:
    """Writer of one Parquet file into a sink, which counts the bytes."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriterOptions) -> None:
        self._sink = sink
        self.closed = False
        self.size_bytes = 0
        self._rows = 0
        self._columns = _digest_of(schema)
        handle: Any = self
        # Spark 4.0 fails on an LZ4_RAW dictionary of some size when a filter reads it.
        dictionaries: Any = []
        if options.compression != "lz4":
            paths = options.dictionaries
            dictionaries = dictionary_columns(options.first_rows) if paths is None else list(paths)
        # Version 1 data pages: every Parquet reader supports them. The Arrow schema keeps the fields' metadata.
        # Pages come in many small writes, each of which costs more in Python than a copy does.
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(handle, mode="w"), _BUFFER_BYTES)
        self._writer = pq.ParquetWriter(
            self._buffer,
            schema,
            compression=options.compression,
            use_dictionary=dictionaries,
            data_page_version="1.0",
            write_page_index=True,
            write_page_checksum=True,
            store_schema=True,
            **dict(options.stored_types),  # type: ignore[arg-type] # its stubs lack some
        )

    def write(self, data: Buffer, /) -> int:
        """Pass the writer's bytes to the sink."""
        size = self._sink.write(data)
        self.size_bytes += size
        return size

    def flush(self) -> None:
        """Do nothing: the sink flushes itself."""

    def close(self) -> None:
        """Do nothing: the sink is finished or aborted."""

    def write_group(self, table: pa.Table) -> None:
        """Write a table as one row group."""
        self._writer.write_table(table, row_group_size=table.num_rows)
        # Bytes in the buffer would be missing from the size of the file.
        self._buffer.flush()
        self._rows += table.num_rows

    def finish(self) -> StagedFile:
        """Write the footer, and return the staged file."""
        self._writer.add_key_value_metadata({_COLUMNS_KEY.decode(): self._columns.decode()})
        self._writer.close()
        self._buffer.detach()
        return self._sink.finish(self._rows)

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        # The aborted sink discards the footer; a writer that failed half-way may refuse to write one.
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()
            self._buffer.detach()


# A page header starts with the kind of the page and its uncompressed size.
_PAGE_HEAD_BYTES, _PAGE_SIZE_INDEX, _NEXT_INTEGER, _LARGEST_PAGE = 32, 2, 0x15, (1 << 31) - 1
_LONG_TEXT_BYTES = 1024


@dataclass(frozen=True)
class _Footer:
    """Footer of a file, and the facts of its column chunks."""

    metadata: pq.FileMetaData
    facts: NDArray[np.int64]


_FOOTERS: WeakValueDictionary[tuple[str, StoredObject], _Footer] = WeakValueDictionary()


def _read_footer(store: ObjectStore, entry: StoredObject) -> _Footer:
    tail = read_tail(store, entry)
    metadata = pq.read_metadata(pa.BufferReader(tail))
    return _Footer(metadata, facts_of_chunks(tail, metadata))


def parquet_bytes(table: pa.Table, compression: Compression) -> bytes:
    """Return a Parquet file of one row group, to be written by one request."""
    sink = MemorySink()
    writer = ParquetFileWriter(sink, table.schema, WriterOptions(compression, table.nbytes, table))
    writer.write_group(table)
    writer.finish()
    return sink.buffer.getvalue()


class ParquetReader(FileReader):
    """Reader of one Parquet file by its row groups.

    Checksums of pages are verified if the file has them, the columns in the footer if ddbio wrote the file, and the
    numbers
    of rows always.
    """

    def __init__(self, store: ObjectStore, entry: StoredObject, _: ReadOptions) -> None:
        self._store, self._entry = store, entry
        self._file = pa.PythonFile(RangeFile(store, entry), "r")
        # A row group's columns are asked for in few, large ranges.
        # A footer of thousands of columns takes 100 MB: readers of one file share it.
        cache_key = store.uri, entry
        self._footer = _FOOTERS.get(cache_key) or _read_footer(store, entry)
        _FOOTERS[cache_key] = self._footer
        self._opened = open_parquet(self._file, pre_buffer=True, metadata=self._footer.metadata)
        # On a disk small reads cost little, and large reads need new memory for a complete row group.
        if isinstance(store, LocalStore) and max(self._group_bytes(), default=0) > _LARGE_BYTES:
            self._opened = _open_streaming(self._file, _STREAM_BYTES, metadata=self._opened.metadata)
        _refuse_intervals(self._opened.schema)
        digest = (self._opened.metadata.metadata or {}).get(_COLUMNS_KEY)
        if digest is not None and digest != _digest_of(self._opened.schema_arrow):
            raise DecodeError("its footer is damaged: its columns are not those that were written")

    @property
    def footer(self) -> pq.FileMetaData:
        """Return the footer."""
        return self._opened.metadata

    def parts(self) -> Parts:
        """Return the row groups, by the footer."""
        footer = self._opened.metadata
        counts = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        if sum(counts) != footer.num_rows:
            raise DecodeError(f"its footer is damaged: {footer.num_rows} rows are not those of its row groups")
        check_rows(self._entry.size_bytes, footer.num_rows)
        first_rows = tuple(itertools.accumulate(counts, initial=0))[:-1]
        return Parts(self._group_bytes(), footer.num_rows, first_rows)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema, field metadata included."""
        return self._opened.schema_arrow

    def read(self, part: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one row group."""
        rows = self._opened.metadata.row_group(part).num_rows
        batch_rows = min(batch_rows, self._fitting_rows(part, batch_rows))
        batches = iter(self._check_batches(self._opened.iter_batches(batch_rows, row_groups=[part])))
        for batch in batches:
            rows -= batch.num_rows
            if rows <= 0:
                # The reader of thousands of columns takes more memory than their rows: it ends before the rows are
                # used.
                rows -= sum(remaining.num_rows for remaining in batches)
            yield _without_digest(batch)
        if rows:
            raise DecodeError(f"row group {part} is damaged: {abs(rows)} rows too {'few' if rows > 0 else 'many'}")

    def _fitting_rows(self, part: int, batch_rows: int) -> int:
        """Return the number of rows that fit into memory, even if all have the longest value of a dictionary."""
        facts, rows = self._footer.facts[part], batch_rows
        sizes, bounds = facts[:, UNCOMPRESSED], facts[:, BOUNDS:TEXT_BYTES].max(axis=1, initial=-1)
        # Short bounds prove that all texts are short.
        may_be_long = (facts[:, KIND] == TEXT) & ((bounds < 0) | (bounds > _LONG_TEXT_BYTES))
        suspects = may_be_long & (facts[:, DICTIONARY] >= 0) & (sizes > FREE_BYTES // batch_rows)
        for begin, size in facts[suspects][:, [DICTIONARY, UNCOMPRESSED]].tolist():
            head = self._store.read_range(self._entry, min(begin, self._entry.size_bytes), _PAGE_HEAD_BYTES)
            longest = min(size, page_bytes(head))
            rows = min(rows, max(1, FREE_BYTES // max(1, longest)))
        return rows

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows, without reading their complete row group."""
        batches = _open_streaming(self._file, _SAMPLE_STREAM_BYTES, metadata=self._opened.metadata).iter_batches(rows)
        return next((Sample(_without_digest(batch), None) for batch in self._check_batches(batches)), None)

    def _check_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # pyarrow does not check the indices of dictionaries, and counts the entries of damaged lists wrongly.
        kinds = [field.type for field in self._opened.schema_arrow]
        is_safe = not any(kind.num_fields or may_expand(kind) for kind in kinds)
        return batches if is_safe else checked_batches(batches)

    def _group_bytes(self) -> tuple[int, ...]:
        """Return the approximate number of bytes of each row group in the file."""
        # pyarrow 25 ends the process if the footer has an impossible size of a row group's columns.
        footer = self._opened.metadata
        groups = [max(0, footer.row_group(number).total_byte_size) for number in range(footer.num_row_groups)]
        total = max(1, sum(groups))
        return tuple(self._entry.size_bytes * group // total for group in groups)


def page_bytes(head: bytes) -> int:
    """Return the uncompressed size of a page by its first bytes; the largest size if the header is unusual.

    References
    ----------
    https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, PageHeader; Thrift's compact
    protocol: each of the first two members is a header byte and a number.
    """
    numbers, offset = list[int](), 0
    while len(numbers) < _PAGE_SIZE_INDEX and offset < len(head) and head[offset] == _NEXT_INTEGER:
        offset, number, shift = offset + 1, 0, 0
        while offset < len(head):
            number |= (head[offset] & 0x7F) << shift
            offset, shift = offset + 1, shift + 7
            if head[offset - 1] < 0x80:  # noqa: PLR2004 - the last byte of a number
                break
        numbers.append(number >> 1 ^ -(number & 1))
    return numbers[-1] if len(numbers) == _PAGE_SIZE_INDEX and numbers[-1] >= 0 else _LARGEST_PAGE


def _refuse_intervals(schema: Any) -> None:
    """Refuse months and days without a fixed length, whose bytes Arrow would return."""
    for leaf in map(schema.column, range(len(schema))):
        if leaf.converted_type == "INTERVAL":
            raise DecodeError(f"column {leaf.path} is an INTERVAL, which DynamoDB has no type for: write it as text")


def _without_digest(batch: pa.RecordBatch) -> pa.RecordBatch:
    metadata = batch.schema.metadata
    if metadata is None or _COLUMNS_KEY not in metadata:
        return batch
    remaining: Any = {name: text for name, text in metadata.items() if name != _COLUMNS_KEY}
    return batch.replace_schema_metadata(remaining or None)


def _digest_of(schema: pa.Schema) -> bytes:
    """Return a digest of the names and types of columns in Arrow and DynamoDB."""
    return _digest_of_text(schema.serialize().to_pybytes())


@functools.lru_cache(maxsize=16)
def _digest_of_text(serialized: bytes) -> bytes:
    """Return the digest of a schema, cached because consecutive files have the same schema."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    lines = "\n".join(line for field in schema for line in _lines_of(field, ""))
    return hashlib.sha256(lines.encode()).hexdigest().encode()


def _lines_of(field: pa.Field[Any], path: str) -> Iterator[str]:
    tags = {name.decode(): text.decode() for name, text in (field.metadata or {}).items() if name.startswith(b"ddb:")}
    inner = fields_within(field.type)
    kind = field.type.id if inner else field.type
    yield f"{path}{field.name!r} {kind} {sorted(tags.items())}"
    for index, child in enumerate(inner):
        # Writers use different names for elements and values.
        name = child.name if pa.types.is_struct(field.type) else ""
        yield from _lines_of(child.with_name(name), f"{path}{index}.")


def _open_streaming(file: pa.NativeFile, buffer_bytes: int, **options: Any) -> pq.ParquetFile:
    # Each column has its own buffer. By default Arrow reads complete row groups before that.
    return open_parquet(file, pre_buffer=False, buffer_size=buffer_bytes, **options)


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns, also nested ones, whose values repeat, so that a dictionary saves space.

    A column without values in the sample keeps its dictionary: it costs nothing there, and saves space if values repeat
    later.
    """
    paths = []
    for column_field, column in zip(table.schema, _spread_sample(table).columns, strict=True):
        paths += [path for path, values in _leaves(column_field.name, column) if _repeats(values)]
    return paths


def _spread_sample(table: pa.Table) -> pa.RecordBatch:
    run_rows = min(_RUN_ROWS, max(_MIN_RUN_ROWS, int(table.num_rows * _SAMPLE_RATIO) // _RUNS))
    stride = max(run_rows, table.num_rows // _RUNS)
    runs = [table.slice(start, run_rows) for start in range(0, table.num_rows, stride)]
    sample = pa.concat_tables(runs or [table]).combine_chunks().to_batches()
    return sample[0] if sample else pa.RecordBatch.from_pylist([], table.schema)


def _leaves(path: str, column: pa.Array[Any]) -> Iterator[tuple[str, pa.Array[Any]]]:
    """Yield Parquet's path and the values of each leaf; the parts of paths have pyarrow's names in files."""
    # https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#nested-types
    if isinstance(column, pa.ExtensionArray):
        yield from _leaves(path, column.storage)
    elif isinstance(column, pa.StructArray):
        for field, child in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif isinstance(column, pa.MapArray):
        entries = column.drop_null()
        first, last = (entries.offsets[index].as_py() for index in (0, -1))
        yield from _leaves(f"{path}.key_value.key", entries.keys[first:last])
        yield from _leaves(f"{path}.key_value.value", entries.items[first:last])
    elif isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        yield from _leaves(f"{path}.list.element", column.flatten())
    else:
        yield path, column


def _repeats(values: pa.Array[Any]) -> bool:
    try:
        values = values.drop_null() if values.null_count else values
        most, some = _DISTINCT_RATIO * len(values), values[: len(values) // 4]
        # A part of the values proves it if they repeat enough even if all other values were distinct.
        is_shown = len(pc.unique(some)) + len(values) - len(some) < most
        return is_shown or len(values) == 0 or len(pc.unique(values)) < most
    except pa.ArrowNotImplementedError:
        # pyarrow 25 does not compare values of float16, views and some other types.
        return True


PARQUET = FileFormat(
    name="parquet",
    endings=(".parquet",),
    open_reader=ParquetReader,
    is_splittable=True,
    keeps_types=True,
    open_writer=ParquetFileWriter,
    # Spark's own names: the codec is before the format, and pyarrow's lz4 is Parquet's LZ4_RAW.
    # https://github.com/apache/parquet-java/blob/master/parquet-common/src/main/java/org/apache/parquet/hadoop/metadata/CompressionCodecName.java
    extensions={
        "zstd": "zstd.parquet",
        "snappy": "snappy.parquet",
        "gzip": "gz.parquet",
        "lz4": "lz4raw.parquet",
        "none": "parquet",
    },
    self_checking=frozenset({"zstd", "snappy", "gzip", "lz4", "none"}),
    magic=b"PAR1",
    magic_end=re.compile(rb"PAR1\Z"),
    read_footer=read_footer,
)
