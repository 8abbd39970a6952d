"""Partitions of rows by columns and by parts of times, and the names of their folders as in Hive and Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError, TargetError
from ddbio.formats.time_parts import PARTS, local_times
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.kernel.arrays import take_rows
from ddbio.items.rescue import MisfitLog, rescue_text
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, is_decimal, is_number, is_text, name_of_field
from ddbio.items.schema.folded import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal
    from typing import TypeAlias

    from ddbio.options.format_names import TimeUnit

    Codes: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Folder value for null; an empty text has no folder name either, and is stored in this folder, too."""
# https://hive.apache.org/docs/latest/user/configuration-properties/ - hive.exec.default.partition.name

NOT_A_TIME = "not a time: its partition is null"
NO_FOLDER = "not valid as a folder's name: its partition is null"
"""Kinds of misfits: values that are not times, and text that is empty or equals the name of the null partition."""

# The characters that Hive and Spark escape; also NUL, which paths cannot contain. Their readers decode it.
# https://github.com/apache/spark/blob/master/sql/catalyst/src/main/scala/org/apache/spark/sql/catalyst/catalog/ExternalCatalogUtils.scala
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
# File systems limit a folder's name to 255 bytes.
_MAX_FOLDER_BYTES = 255
_PART = re.compile(rf"({'|'.join(PARTS)})\((.+)\)(?:\s+as\s+(\S+))?", re.IGNORECASE)
# Above this number of combinations of values, sorting the codes is cheaper than counting them.
_DENSE = 1 << 20


def escape(text: str) -> str:
    """Return a name or a value, escaped for a folder's name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def folder_of(partition: Mapping[str, str | None]) -> str:
    """Return the path of a partition's folder, with a slash at its end; an empty text for no columns.

    Raises
    ------
    TargetError
        If a value is too long for the name of a folder.
    """
    names = [f"{escape(name)}={escape(value) if value else NULL_FOLDER}" for name, value in partition.items()]
    for name in names:
        if len(name.encode()) > _MAX_FOLDER_BYTES:
            raise TargetError(
                f"a partition's folder cannot be called {name[:40]}…, which takes {len(name.encode())} bytes of "
                f"at most {_MAX_FOLDER_BYTES}: partition by another column",
                name,
            )
    return "".join(f"{name}/" for name in names)


@dataclass(frozen=True)
class PartitionColumn:
    """A column of the folders: an attribute's value, or a part of it as a time.

    Attributes
    ----------
    name
        The name in the folders.
    attribute
        The attribute with the value.
    part
        ``year``, ``month``, ``day`` or ``hour``; None for the value itself.
    """

    name: str
    attribute: str
    part: str | None = None

    @property
    def text(self) -> str:
        """Return the column in the syntax of ``partition_by``."""
        return self.attribute if self.part is None else f"{self.part}({self.attribute})"


@dataclass(frozen=True, kw_only=True)
class Partitioning:
    """Columns by which rows are partitioned, and the columns of the files.

    Attributes
    ----------
    time_unit, time_zone
        Unit of numbers and text that are read as times, and time zone of the years, months, days and hours.
    keep_columns
        Whether the files also have the columns of the folders.
    """

    columns: tuple[PartitionColumn, ...]
    time_unit: TimeUnit = "auto"
    time_zone: str = "UTC"
    keep_columns: bool = False

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the files: those that are not in the folders."""
        if self.keep_columns:
            return schema
        folder_attributes = {column.attribute for column in self.columns if column.part is None}
        return pa.schema([field for field in schema if name_of_field(field) not in folder_attributes])

    def describe(self) -> list[dict[str, Any]]:
        """Return the columns for a manifest; ``in_files`` is whether the files have the attribute, too."""
        return [
            {
                "name": column.name,
                "attribute": column.attribute,
                "part": column.part,
                "in_files": self.keep_columns or column.part is not None,
            }
            for column in self.columns
        ]


@dataclass(frozen=True, kw_only=True)
class PartitionBy:
    """Request to partition rows, before their columns are known.

    Attributes
    ----------
    texts
        The name of an attribute, or ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``, also with ``as NAME``.
    time_unit, time_zone, keep_columns
        As of :class:`Partitioning`.
    """

    texts: tuple[str, ...]
    time_unit: TimeUnit = "auto"
    time_zone: str = "UTC"
    keep_columns: bool = False


def partitioning_of(by: PartitionBy, schema: pa.Schema) -> Partitioning:
    """Return the partitioning of rows of a schema.

    Raises
    ------
    OptionError
        If there is no such attribute, its values cannot be text, or two columns would have the same name.
    """
    fields = {name_of_field(field): field for field in schema}
    columns, owners = list[PartitionColumn](), {fold(field.name): "a column" for field in schema}
    for text in by.texts:
        match = None if text in fields else _PART.fullmatch(text)
        if match is None:
            _require_text(text, fields)
            columns.append(PartitionColumn(fields[text].name, text))
            continue
        part, attribute = match[1].lower(), match[2]
        _require_time(attribute, fields)
        name = match[3] or part
        if owner := owners.get(fold(name)):
            raise OptionError(
                f"partition_by: {text} would be called {name!r}, as {owner} is already: give it another name, such as "
                f"'{part}({attribute}) as {attribute}_{part}'"
            )
        owners[fold(name)] = text
        columns.append(PartitionColumn(name, attribute, part))
    if len({column.name for column in columns}) != len(columns):
        raise OptionError("partition_by names a column twice")
    return Partitioning(
        columns=tuple(columns), time_unit=by.time_unit, time_zone=by.time_zone, keep_columns=by.keep_columns
    )


def _require_field(attribute: str, fields: Mapping[str, pa.Field[Any]]) -> pa.Field[Any]:
    if attribute not in fields:
        raise OptionError(
            f"partition_by: there is no column for {attribute!r}: correct the name, raise sample_items, or give a "
            "schema that has it"
        )
    return fields[attribute]


def _require_text(attribute: str, fields: Mapping[str, pa.Field[Any]]) -> None:
    field = _require_field(attribute, fields)
    kind, tag = field.type, (field.metadata or {}).get(DDB_TYPE, b"S")
    if pa.types.is_timestamp(kind):
        raise OptionError(
            f"partition_by: {attribute!r} has a time in each row, which would make very many folders: partition by "
            f"year({attribute}), month({attribute}) or day({attribute})"
        )
    is_day = pa.types.is_date(kind) and tag == b"S"
    has_text = is_text(kind) or is_number(kind) or pa.types.is_boolean(kind) or is_day
    if not has_text or tag in {b"JSON", b"RESCUE"}:
        raise OptionError(
            f"partition_by: values of {attribute!r} ({kind}) have no text for a folder: partition by text, numbers, "
            "booleans or days"
        )


def _require_time(attribute: str, fields: Mapping[str, pa.Field[Any]]) -> None:
    field = _require_field(attribute, fields)
    kind, tag = field.type, (field.metadata or {}).get(DDB_TYPE, b"S")
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if not (is_text(kind) or is_number(kind) or is_time) or tag in {b"JSON", b"RESCUE"}:
        raise OptionError(f"partition_by: values of {attribute!r} ({kind}) are not times: give text, numbers or times")


@dataclass(frozen=True)
class PartitionedRows:
    """Rows sorted by partition.

    Attributes
    ----------
    rows
        The columns of the files.
    partitions
        The values of each partition's columns, in the order of the rows.
    counts
        Number of rows of each partition.
    """

    rows: pa.RecordBatch
    partitions: tuple[tuple[str | None, ...], ...]
    counts: tuple[int, ...]


class Partitioner:
    """Sorter of batches by partition, which counts the values without their own partition."""

    is_even = False

    def __init__(self, partitioning: Partitioning, schema: pa.Schema) -> None:
        self._partitioning = partitioning
        self.names = tuple(column.name for column in partitioning.columns)
        indices = {name_of_field(field): index for index, field in enumerate(schema)}
        self._indices = [indices[column.attribute] for column in partitioning.columns]
        self.schema = partitioning.file_schema(schema)
        file_columns = set(self.schema.names)
        self._file_indices = [index for index, field in enumerate(schema) if field.name in file_columns]
        self.log = MisfitLog()
        # Values of the current batch that neither a folder nor a file can store.
        self._unstored: list[tuple[str, str, Codes]] = []

    def sort_block(self, batches: Sequence[pa.RecordBatch]) -> Iterator[PartitionedRows]:
        """Yield the rows of some batches by partition, as :meth:`sort` returns them."""
        for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
            yield self.sort(batch)

    def sort(self, batch: pa.RecordBatch) -> PartitionedRows:
        """Return the rows of a batch by partition; rows of one partition keep their order."""
        codes, values = self._codes(batch)
        rows = self._rescue(batch.select(self._file_indices))
        if len(values) > 1:
            narrow: Any = codes.astype(np.uint16 if len(values) < 1 << 16 else np.int64)
            rows = take_rows(rows, np.argsort(narrow, kind="stable"))
        counts = np.bincount(codes, minlength=len(values))
        return PartitionedRows(rows, tuple(values), tuple(counts.tolist()))

    def _codes(self, batch: pa.RecordBatch) -> tuple[Codes, list[tuple[str | None, ...]]]:
        """Return the number of each row's partition, and the values of all partitions that occur."""
        combined = np.zeros(batch.num_rows, np.int64)
        partitions: list[tuple[str | None, ...]] = [()]
        for column, index in zip(self._partitioning.columns, self._indices, strict=True):
            codes, texts = self._column_codes(column, batch.schema.field(index), batch.column(index))
            combined = combined * len(texts) + codes
            if len(partitions) * len(texts) <= _DENSE:
                present = np.flatnonzero(np.bincount(combined, minlength=len(partitions) * len(texts)))
                numbers = np.zeros(len(partitions) * len(texts), np.int64)
                numbers[present] = np.arange(len(present))
                combined = numbers[combined]
            else:
                present, combined = np.unique(combined, return_inverse=True)
            partitions = [
                (*partitions[number // len(texts)], texts[number % len(texts)]) for number in present.tolist()
            ]
        return combined, partitions

    def _column_codes(
        self, column: PartitionColumn, field: pa.Field[Any], values: pa.Array[Any]
    ) -> tuple[Codes, list[str | None]]:
        """Return a code for each row, and the text of each code; the last one is null."""
        column_values: Any = values
        if column.part is not None:
            column_values = self._time_parts(column, field, values)
        encoded = pc.dictionary_encode(column_values)
        texts = _texts(encoded.dictionary)
        codes = np.asarray(pc.fill_null(encoded.indices, len(texts))).astype(np.int64)
        unstored = [code for code, text in enumerate(texts) if text in {"", NULL_FOLDER}]
        for code in unstored:
            count = int(np.count_nonzero(codes == code))
            self.log.add_texts(column.attribute, NO_FOLDER, compact_json({"S": texts[code]}), count)
            if column.part is None and not self._partitioning.keep_columns:
                self._unstored.append((column.attribute, str(texts[code]), np.flatnonzero(codes == code)))
            codes[codes == code] = len(texts)
        return codes, [*texts, None]

    def _rescue(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Store values that cannot be folder names in the rescue column, if the rows have one."""
        unstored, self._unstored = self._unstored, []
        if not unstored or RESCUE_NAME not in rows.schema.names:
            return rows
        texts = rows.column(RESCUE_NAME).to_pylist()
        for attribute, value, rows_of_value in unstored:
            for row in rows_of_value.tolist():
                rescued = parse_json((texts[row] or "{}").encode())
                texts[row] = rescue_text({**rescued, attribute: {"S": value}})
        number = rows.schema.get_field_index(RESCUE_NAME)
        return rows.set_column(number, rows.schema.field(number), pa.array(texts, rows.schema.field(number).type))

    def _time_parts(self, column: PartitionColumn, field: pa.Field[Any], values: pa.Array[Any]) -> Any:
        is_number_text = (field.metadata or {}).get(DDB_TYPE) == b"N"
        options = self._partitioning
        times = local_times(values, options.time_unit, options.time_zone, text_is_iso=not is_number_text)
        if lost := times.null_count - values.null_count:
            row = pc.index(pc.and_(pc.is_null(times), pc.is_valid(values)), value=True).as_py()
            tag = "N" if is_number_text or is_number(field.type) else "S"
            self.log.add_texts(column.text, NOT_A_TIME, compact_json({tag: str(values[row].as_py())}), lost)
        return PARTS[str(column.part)](times)


def _texts(values: pa.Array[Any]) -> list[str | None]:
    """Return distinct values as text; decimals without the digits that only the scale of their column adds."""
    if is_decimal(values.type):
        return [_plain(value) for value in values.to_pylist() if value is not None]
    return [*pc.cast(values, pa.string()).to_pylist()]


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
