"""Open Parquet files: every module that reads Parquet does it here, so that all read the same values.

Arrow reads timestamps of Spark up to 3.5, Hive and Impala (INT96) as nanoseconds, which turn dates before 1677 and
after 2262 into other dates. Here they are microseconds, which hold the years 0001 to 9999.
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

# A footer of some row groups and a hundred columns; a longer one takes a second request.
_TAIL_BYTES = 64 * 1024
# The length of the footer, and the mark PAR1.
# https://parquet.apache.org/docs/file-format/
_END_BYTES, _MARK = 8, b"PAR1"
_NAMES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_KINDS = {name: number for number, name in enumerate(_NAMES)}
# A damaged schema may name another; no column chunk has this number.
_NO_KIND = -2
_WIDTHS = np.array([1, 4, 8, 12, 4, 8, -1, -1])
TEXT = _KINDS["BYTE_ARRAY"]
"""The number of the physical type of texts."""
_FIXED = _KINDS["FIXED_LEN_BYTE_ARRAY"]


def read_tail(store: ObjectStore, entry: StoredObject) -> bytes:
    """Return the end of a file, with its whole footer if it is Parquet, by one request if the footer is short."""
    tail = _end(store, entry, _TAIL_BYTES)
    needed = int.from_bytes(tail[-_END_BYTES : -len(_MARK)], "little") + _END_BYTES
    return _end(store, entry, needed) if needed > len(tail) and tail.endswith(_MARK) else tail


def _end(store: ObjectStore, entry: StoredObject, length: int) -> bytes:
    length = min(length, entry.size_bytes)
    return store.read_range(entry, entry.size_bytes - length, length)


def facts_of_chunks(tail: bytes, metadata: pq.FileMetaData) -> NDArray[np.int64]:
    """Return the facts of each row group's column chunks, after a check that pyarrow can make objects of them.

    Parameters
    ----------
    tail
        What ``read_tail`` returned.
    metadata
        The footer that pyarrow found in it.

    Raises
    ------
    DecodeError
        A column is encrypted, or what the footer says of it does not fit its type.
    """
    size = int.from_bytes(tail[-_END_BYTES : -len(_MARK)], "little")
    text = tail[-_END_BYTES - size : -_END_BYTES]
    groups, leaves = metadata.num_row_groups, metadata.num_columns
    facts = read_column_chunks(text, groups, leaves)
    schema: Any = metadata.schema
    columns = [schema.column(place) for place in range(leaves)]
    kinds = np.array([_KINDS.get(each.physical_type, _NO_KIND) for each in columns], np.int64)
    misfits = (facts[..., KIND] != kinds) | ((facts[..., TEXT_BYTES] >= 0) & (kinds != TEXT))
    if (facts[..., REPETITIONS : DEFINITIONS + 1] > 0).any():
        levels = np.array([(each.max_repetition_level, each.max_definition_level) for each in columns])
        counts = facts[..., REPETITIONS : DEFINITIONS + 1]
        misfits |= ((counts > 0) & (counts != levels + 1)).any(axis=-1)
    encrypted = facts[..., ENCRYPTED] >= 0
    if encrypted.any():
        raise DecodeError(f"column {_first(columns, encrypted)} is encrypted, which is not read")
    _refuse(columns, misfits)
    return facts


def check_bounds(facts: NDArray[np.int64], metadata: pq.FileMetaData) -> None:
    """Check that pyarrow can make objects of the bounds of column chunks.

    Raises
    ------
    DecodeError
        A bound does not fit the type of its column.
    """
    schema: Any = metadata.schema
    columns = [schema.column(place) for place in range(metadata.num_columns)]
    kinds = facts[..., KIND]
    lengths = np.array([each.length for each in columns])
    widths = np.where(kinds == _FIXED, lengths, _WIDTHS[kinds])[..., np.newaxis]
    bounds = facts[..., BOUNDS:TEXT_BYTES]
    _refuse(columns, ((widths >= 0) & (bounds > 0) & (bounds != widths)).any(axis=-1))


def _refuse(columns: list[Any], misfits: NDArray[np.bool_]) -> None:
    if misfits.any():
        path = _first(columns, misfits)
        raise DecodeError(f"its footer is damaged: what it says of column {path} does not fit its type")


def _first(columns: list[Any], found: NDArray[np.bool_]) -> str:
    return str(columns[int(found.any(axis=0).argmax())].path)


def read_footer(store: ObjectStore, entry: StoredObject, columns: dict[tuple[str, ...], tuple[str, ...]]) -> Footer:
    """Return what a file of Parquet says of itself.

    Parameters
    ----------
    columns
        Keeps the columns of the leaves of each schema, which are found once for all files.

    Raises
    ------
    DecodeError
        If it is no file of Parquet.
    NotFoundError
        If the file is gone.
    """
    opened, facts = _opened(store, entry)
    names = _columns_of(opened.metadata, columns)
    stored, whole = (facts[..., which].sum(axis=0).tolist() for which in (COMPRESSED, UNCOMPRESSED))
    sums: dict[str, list[int]] = {name: [0, 0] for name in names}
    for place, name in enumerate(names):
        sums[name][0] += stored[place]
        sums[name][1] += whole[place]
    return Footer(
        opened.metadata.num_rows,
        opened.metadata.num_row_groups,
        {name: (each[0], each[1]) for name, each in sums.items()},
    )


def _columns_of(metadata: pq.FileMetaData, known: dict[tuple[str, ...], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the name of the column that each leaf is a part of."""
    schema: Any = metadata.schema
    paths = tuple(schema.column(place).path for place in range(metadata.num_columns))
    names = known.get(paths)
    if names is None:
        fields = schema.to_arrow_schema()
        names = tuple(field.name for field in fields for _ in range(_leaves(field.type)))
        known[paths] = names if len(names) == len(paths) else paths
    return known[paths]


def open_footer(store: ObjectStore, entry: StoredObject) -> pq.ParquetFile:
    """Return a file of Parquet of which nothing but the end was read: its footer, and no row.

    Raises
    ------
    DecodeError
        If it is no file of Parquet.
    NotFoundError
        If the file is gone.
    """
    opened, facts = _opened(store, entry)
    with _naming(store, entry):
        check_bounds(facts, opened.metadata)
    return opened


def _opened(store: ObjectStore, entry: StoredObject) -> tuple[pq.ParquetFile, NDArray[np.int64]]:
    """Return a file as ``open_footer`` does, and the facts of its column chunks; their bounds are not checked."""
    tail = read_tail(store, entry)
    with _naming(store, entry):
        # Places in a footer count from the file's beginning, and none is looked at.
        opened = open_parquet(pa.BufferReader(tail))
        return opened, facts_of_chunks(tail, opened.metadata)


@contextlib.contextmanager
def _naming(store: ObjectStore, entry: StoredObject) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, DecodeError) as error:
        uri = f"{store.uri}/{entry.path}"
        raise DecodeError(f"{uri} cannot be read as its name says: {error}", uri=uri) from error


def _leaves(given: Any) -> int:
    """Return how many leaves of Parquet a type has."""
    return sum(_leaves(given.field(place).type) for place in range(given.num_fields)) or 1


_LEGACY_KEYS = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_SPARK_VERSION = b"org.apache.spark.version"
# Days from 1582-10-15 on are the same in both calendars, and times of every zone from 1900 on.
_FIRST_SAME_DAY, _FIRST_SAME_SECOND = -141_427, -2_208_988_800
_SETTINGS: dict[str, Any] = {"page_checksum_verification": True, "coerce_int96_timestamp_unit": "us"}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Return an open Parquet file, which verifies the checksums of its pages.

    Reading its rows raises DecodeError if an INT96 timestamp is no whole number of microseconds in 64 bits, or if Spark
    wrote a date in the calendar before 1582.

    Parameters
    ----------
    source
        A file or a buffer of Arrow's.
    **options
        Others of ``pyarrow.parquet.ParquetFile``.
    """
    opened = pq.ParquetFile(source, **_SETTINGS, **options)
    schema: Any = opened.schema
    leaves = (schema.column(place) for place in range(len(schema)))
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    if not paths and not is_in_old_calendar(opened.metadata.metadata):
        return opened
    return _GuardedFile(source, paths, **{**options, "metadata": opened.metadata})


def read_parquet(source: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a Parquet file.

    Raises
    ------
    DecodeError
        As :func:`open_parquet` says.
    """
    return open_parquet(source).read(None if columns is None else list(columns))


def is_in_old_calendar(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether Spark wrote the old dates and timestamps of a file in the Julian calendar.

    References
    ----------
    https://spark.apache.org/docs/latest/sql-data-sources-parquet.html, datetimeRebaseMode
    """
    found = metadata or {}
    version = found.get(_SPARK_VERSION, b"")
    return any(key in found for key in _LEGACY_KEYS) or version.startswith((b"1.", b"2."))


class _GuardedFile(pq.ParquetFile):
    """Read a file some of whose values Arrow may read as others, and refuse those.

    Parameters
    ----------
    paths
        Those of INT96 columns.
    """

    def __init__(self, source: Any, paths: list[str], **options: Any) -> None:
        super().__init__(source, **_SETTINGS, **options)
        self._source, self._paths = source, paths
        self._is_old = is_in_old_calendar(self.metadata.metadata)

    def iter_batches(  # type: ignore[override] # the others are passed on
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

    def read(self, columns: Any = None, use_threads: bool = True, use_pandas_metadata: bool = False) -> pa.Table:  # noqa: FBT001, FBT002 - as Arrow has it
        groups = range(self.num_row_groups)
        return self.read_row_groups(
            groups, columns=columns, use_threads=use_threads, use_pandas_metadata=use_pandas_metadata
        )

    def _require_microseconds(self, group: int) -> None:
        """Refuse a timestamp that microseconds do not hold: INT96 has nanoseconds of a day, and 32 bits of days."""
        if not self._paths:
            return
        units = [
            pq.ParquetFile(self._source, metadata=self.metadata, coerce_int96_timestamp_unit=unit).iter_batches(
                row_groups=[group], columns=self._paths
            )
            for unit in ("s", "us", "ns")
        ]
        for batches in zip(*units, strict=True):
            for path, seconds, micros, nanos in zip(self._paths, *(each.columns for each in batches), strict=False):
                # Nanoseconds wrap, and so do microseconds that are cast to them: what differs is below a microsecond.
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
    """Refuse a day or a time that stands for another one in the old calendar."""
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
