"""Access to Parquet files: every module opens them here, so that all modules read the same values.

Arrow reads INT96 timestamps, which Hive, Impala and Spark up to 3.5 write, as nanoseconds. These turn dates before 1677
and after 2262 into other dates. Here they are microseconds, which cover the years 0001 to 9999.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import DecodeError
from ddbio.formats.layout import Footer
from ddbio.items.kernel.column_chunks import (
    BOUNDS,
    COMPRESSED,
    DEFINITIONS,
    ENCRYPTED,
    KIND,
    REPETITIONS,
    TEXT_BYTES,
    UNCOMPRESSED,
    read_column_chunks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

# A footer of some row groups and a hundred columns; a longer footer takes a second request.
_TAIL_BYTES = 64 * 1024
# The length of the footer, and the marker PAR1.
# https://parquet.apache.org/docs/file-format/
_END_BYTES, _MAGIC = 8, b"PAR1"
_NAMES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_KINDS = {name: number for number, name in enumerate(_NAMES)}
# A damaged schema may have another type; no column chunk has this number.
_NO_KIND = -2
_WIDTHS = np.array([1, 4, 8, 12, 4, 8, -1, -1])
TEXT = _KINDS["BYTE_ARRAY"]
"""The number of the physical type of texts."""
_FIXED = _KINDS["FIXED_LEN_BYTE_ARRAY"]


def read_tail(store: ObjectStore, entry: StoredObject) -> bytes:
    """Return the end of a file, with its complete footer if it is Parquet; one request if the footer is short."""
    tail = _end(store, entry, _TAIL_BYTES)
    needed = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES
    return _end(store, entry, needed) if needed > len(tail) and tail.endswith(_MAGIC) else tail


def _end(store: ObjectStore, entry: StoredObject, length: int) -> bytes:
    length = min(length, entry.size_bytes)
    return store.read_range(entry, entry.size_bytes - length, length)


def facts_of_chunks(tail: bytes, metadata: pq.FileMetaData) -> NDArray[np.int64]:
    """Return the facts of each row group's column chunks, after checking that pyarrow can convert them to objects.

    Parameters
    ----------
    tail
        The result of ``read_tail``.
    metadata
        The footer, parsed by pyarrow.

    Raises
    ------
    DecodeError
        A column is encrypted, or its facts in the footer do not fit its type.
    """
    size = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
    text = tail[-_END_BYTES - size : -_END_BYTES]
    groups, leaves = metadata.num_row_groups, metadata.num_columns
    facts = read_column_chunks(text, groups, leaves)
    schema: Any = metadata.schema
    columns = [schema.column(index) for index in range(leaves)]
    kinds = np.array([_KINDS.get(column.physical_type, _NO_KIND) for column in columns], np.int64)
    misfits = (facts[..., KIND] != kinds) | ((facts[..., TEXT_BYTES] >= 0) & (kinds != TEXT))
    if (facts[..., REPETITIONS : DEFINITIONS + 1] > 0).any():
        levels = np.array([(column.max_repetition_level, column.max_definition_level) for column in columns])
        counts = facts[..., REPETITIONS : DEFINITIONS + 1]
        misfits |= ((counts > 0) & (counts != levels + 1)).any(axis=-1)
    encrypted = facts[..., ENCRYPTED] >= 0
    if encrypted.any():
        raise DecodeError(f"column {_first(columns, encrypted)} is encrypted, which is not supported")
    _refuse(columns, misfits)
    return facts


def check_bounds(facts: NDArray[np.int64], metadata: pq.FileMetaData) -> None:
    """Check that pyarrow can convert the bounds of column chunks to objects.

    Raises
    ------
    DecodeError
        A bound does not fit the type of its column.
    """
    schema: Any = metadata.schema
    columns = [schema.column(index) for index in range(metadata.num_columns)]
    kinds = facts[..., KIND]
    lengths = np.array([column.length for column in columns])
    widths = np.where(kinds == _FIXED, lengths, _WIDTHS[kinds])[..., np.newaxis]
    bounds = facts[..., BOUNDS:TEXT_BYTES]
    _refuse(columns, ((widths >= 0) & (bounds > 0) & (bounds != widths)).any(axis=-1))


def _refuse(columns: list[Any], misfits: NDArray[np.bool_]) -> None:
    if misfits.any():
        path = _first(columns, misfits)
        raise DecodeError(f"its footer is damaged: the facts about column {path} do not fit its type")


def _first(columns: list[Any], matches: NDArray[np.bool_]) -> str:
    return str(columns[int(matches.any(axis=0).argmax())].path)


def read_footer(store: ObjectStore, entry: StoredObject, columns: dict[tuple[str, ...], tuple[str, ...]]) -> Footer:
    """Return the facts in the footer of a Parquet file.

    Parameters
    ----------
    columns
        Cache of the columns of the leaves of each schema, shared by all files.

    Raises
    ------
    DecodeError
        If it is not a Parquet file.
    NotFoundError
        If the file does not exist any more.
    """
    opened, facts = _opened(store, entry)
    names = _columns_of(opened.metadata, columns)
    stored, uncompressed = (facts[..., which].sum(axis=0).tolist() for which in (COMPRESSED, UNCOMPRESSED))
    sums: dict[str, list[int]] = {name: [0, 0] for name in names}
    for index, name in enumerate(names):
        sums[name][0] += stored[index]
        sums[name][1] += uncompressed[index]
    return Footer(
        opened.metadata.num_rows,
        opened.metadata.num_row_groups,
        {name: (total[0], total[1]) for name, total in sums.items()},
    )


def _columns_of(metadata: pq.FileMetaData, cache: dict[tuple[str, ...], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the name of each leaf's top-level column."""
    schema: Any = metadata.schema
    paths = tuple(schema.column(index).path for index in range(metadata.num_columns))
    names = cache.get(paths)
    if names is None:
        fields = schema.to_arrow_schema()
        names = tuple(field.name for field in fields for _ in range(_leaves(field.type)))
        cache[paths] = names if len(names) == len(paths) else paths
    return cache[paths]


def open_footer(store: ObjectStore, entry: StoredObject) -> pq.ParquetFile:
    """Return a Parquet file with only its footer read, and no row.

    Raises
    ------
    DecodeError
        If it is not a Parquet file.
    NotFoundError
        If the file does not exist any more.
    """
    opened, facts = _opened(store, entry)
    with _named_errors(store, entry):
        check_bounds(facts, opened.metadata)
    return opened


def _opened(store: ObjectStore, entry: StoredObject) -> tuple[pq.ParquetFile, NDArray[np.int64]]:
    """Return a file as ``open_footer`` does, and the facts of its column chunks; their bounds are not checked."""
    tail = read_tail(store, entry)
    with _named_errors(store, entry):
        # Offsets in a footer count from the start of the file, but none is used.
        opened = open_parquet(pa.BufferReader(tail))
        return opened, facts_of_chunks(tail, opened.metadata)


@contextlib.contextmanager
def _named_errors(store: ObjectStore, entry: StoredObject) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, DecodeError) as error:
        uri = f"{store.uri}/{entry.path}"
        raise DecodeError(f"{uri} cannot be read in the format of its name: {error}", uri=uri) from error


def _leaves(data_type: Any) -> int:
    """Return the number of Parquet leaves of a type."""
    return sum(_leaves(data_type.field(index).type) for index in range(data_type.num_fields)) or 1


_LEGACY_KEYS = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_SPARK_VERSION = b"org.apache.spark.version"
# Days from 1582-10-15 on are the same in both calendars, and times of every zone from 1900 on.
_FIRST_SAME_DAY, _FIRST_SAME_SECOND = -141_427, -2_208_988_800
_SETTINGS: dict[str, Any] = {"page_checksum_verification": True, "coerce_int96_timestamp_unit": "us"}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Return an open Parquet file, which verifies the checksums of its pages.

    Reading its rows raises DecodeError if an INT96 timestamp is not a whole number of microseconds in 64 bits, or if
    Spark
    wrote a date in the calendar before 1582.

    Parameters
    ----------
    source
        A file or buffer of Arrow.
    **options
        Other options of ``pyarrow.parquet.ParquetFile``.
    """
    opened = pq.ParquetFile(source, **_SETTINGS, **options)
    schema: Any = opened.schema
    leaves = (schema.column(index) for index in range(len(schema)))
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    if not paths and not is_in_old_calendar(opened.metadata.metadata):
        return opened
    return _GuardedFile(source, paths, **{**options, "metadata": opened.metadata})


def read_parquet(source: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a Parquet file.

    Raises
    ------
    DecodeError
        If :func:`open_parquet` raises it.
    """
    return open_parquet(source).read(None if columns is None else list(columns))


def is_in_old_calendar(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether Spark wrote the old dates and timestamps of a file in the Julian calendar.

    References
    ----------
    https://spark.apache.org/docs/latest/sql-data-sources-parquet.html, datetimeRebaseMode
    """
    properties = metadata or {}
    version = properties.get(_SPARK_VERSION, b"")
    return any(key in properties for key in _LEGACY_KEYS) or version.startswith((b"1.", b"2."))


class _GuardedFile(pq.ParquetFile):
    """File with values that Arrow may read as other values, which are refused.

    Parameters
    ----------
    paths
        The paths of INT96 columns.
    """

    def __init__(self, source: Any, paths: list[str], **options: Any) -> None:
        super().__init__(source, **_SETTINGS, **options)
        self._source, self._paths = source, paths
        self._is_old = is_in_old_calendar(self.metadata.metadata)

    def iter_batches(  # type: ignore[override] # the other parameters are passed through
        self, batch_size: int = 65_536, row_groups: Any = None, **options: Any
    ) -> Iterator[Any]:
        for group in range(self.num_row_groups) if row_groups is None else row_groups:
            self._require_microseconds(group)
            for batch in super().iter_batches(batch_size, [group], **options):
                self._require_new_calendar(batch)
                yield batch

    def read_row_groups(self, row_groups: Sequence[int], *args: Any, **options: Any) -> pa.Table:
        for group in row_groups:
            self._require_microseconds(group)
        table = super().read_row_groups(list(row_groups), *args, **options)
        for batch in table.to_batches():
            self._require_new_calendar(batch)
        return table

    def read_row_group(self, i: int, *args: Any, **options: Any) -> pa.Table:
        return self.read_row_groups([i], *args, **options)

    def read(self, columns: Any = None, use_threads: bool = True, use_pandas_metadata: bool = False) -> pa.Table:  # noqa: FBT001, FBT002 - Arrow's signature
        groups = range(self.num_row_groups)
        return self.read_row_groups(
            groups, columns=columns, use_threads=use_threads, use_pandas_metadata=use_pandas_metadata
        )

    def _require_microseconds(self, group: int) -> None:
        """Refuse a timestamp that microseconds cannot store: INT96 has nanoseconds of a day, and 32 bits of days."""
        if not self._paths:
            return
        units = [
            pq.ParquetFile(self._source, metadata=self.metadata, coerce_int96_timestamp_unit=unit).iter_batches(
                row_groups=[group], columns=self._paths
            )
            for unit in ("s", "us", "ns")
        ]
        for batches in zip(*units, strict=True):
            for path, seconds, micros, nanos in zip(self._paths, *(batch.columns for batch in batches), strict=False):
                # Nanoseconds overflow, and so do microseconds that are cast to them: any difference is below a
                # microsecond.
                if not micros.cast(nanos.type, safe=False).equals(nanos):
                    raise DecodeError(_NOT_MICROSECONDS.format(path, group, "is finer than a microsecond"))
                try:
                    seconds.cast(micros.type)
                except pa.ArrowInvalid:
                    raise DecodeError(_NOT_MICROSECONDS.format(path, group, "is beyond the year 9999")) from None

    def _require_new_calendar(self, batch: pa.RecordBatch) -> None:
        if self._is_old:
            for field, column in zip(batch.schema, batch.columns, strict=True):
                _require_new_calendar(column, field.name)


_NOT_MICROSECONDS = (
    "{}: an INT96 timestamp of row group {} {}: write the column as TIMESTAMP, as Spark does with "
    "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS and Arrow by default"
)


def _require_new_calendar(array: Any, name: str) -> None:
    """Refuse a day or a time that is another one in the old calendar."""
    kind = array.type
    if isinstance(array, pa.StructArray):
        for field, child in zip(kind, array.flatten(), strict=True):
            _require_new_calendar(child, f"{name}.{field.name}")
    elif pa.types.is_map(kind):
        _require_new_calendar(array.keys, name)
        _require_new_calendar(array.items, name)
    elif hasattr(array, "flatten") and kind.num_fields == 1:
        _require_new_calendar(array.flatten(), name)
    elif (is_day := pa.types.is_date32(kind)) or pa.types.is_timestamp(kind):
        counts = array.drop_null().view(pa.int32() if is_day else pa.int64()).to_numpy()
        first = _FIRST_SAME_DAY if is_day else _FIRST_SAME_SECOND * _PER_SECOND[array.type.unit]
        if len(counts) and counts.min() < first:
            raise DecodeError(
                f"{name}: Spark wrote it in the Julian calendar, which has other days before 1582, and other times "
                "before 1900: read the file with Spark 3 or later, which corrects them, and write it again"
            )
