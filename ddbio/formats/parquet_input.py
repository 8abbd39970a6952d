"""Open Parquet files: every module that reads Parquet does it here, so that all read the same values.

Arrow reads timestamps of Spark up to 3.5, Hive and Impala (INT96) as nanoseconds, which turn dates before 1677 and
after 2262 into other dates. Here they are microseconds, which hold the years 0001 to 9999.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
