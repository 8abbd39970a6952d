"""Static facts about file formats: their size ratios, and the classes by which the engines of catalogs read them.

The formats that read and write files are the objects of ``ddbio/formats/registry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_IO = "org.apache.hadoop"
_LAZY_OUTPUT = f"{_IO}.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
_TEXT_RATIO = 0.4


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Facts about the files of one format.

    Attributes
    ----------
    input_format, output_format, serde, serde_parameters
        The classes by which Hive, Athena and Glue read the files, the same as in Athena's own DDL.
    table_parameters
        Additional properties of a table in Hive and Glue.
    spark_options
        Additional options of a table in Spark.
    has_types
        Whether columns have types in catalogs; otherwise all are text.
    duckdb_reader, duckdb_ending, duckdb_arguments
        DuckDB's function, the ending of the file names, and the arguments; empty if DuckDB does not read the format.
    size_ratio
        Assumed ratio of file size to item size. Text is gzipped.

    References
    ----------
    https://docs.aws.amazon.com/athena/latest/ug/supported-serdes.html
    """

    input_format: str = f"{_IO}.mapred.TextInputFormat"
    output_format: str = _LAZY_OUTPUT
    serde: str
    serde_parameters: Mapping[str, str] = field(default_factory=dict)
    table_parameters: Mapping[str, str] = field(default_factory=dict)
    spark_options: Mapping[str, str] = field(default_factory=dict)
    has_types: bool = True
    duckdb_reader: str = ""
    duckdb_ending: str = ""
    duckdb_arguments: tuple[str, ...] = ("union_by_name = true",)
    size_ratio: float = _TEXT_RATIO


FILE_FACTS = {
    "parquet": FileFacts(
        input_format=f"{_IO}.hive.ql.io.parquet.MapredParquetInputFormat",
        output_format=f"{_IO}.hive.ql.io.parquet.MapredParquetOutputFormat",
        serde=f"{_IO}.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        serde_parameters={"serialization.format": "1"},
        duckdb_reader="read_parquet",
        duckdb_ending="parquet",
        size_ratio=0.35,
    ),
    "orc": FileFacts(
        input_format=f"{_IO}.hive.ql.io.orc.OrcInputFormat",
        output_format=f"{_IO}.hive.ql.io.orc.OrcOutputFormat",
        serde=f"{_IO}.hive.ql.io.orc.OrcSerde",
        # By name: columns may be added in any order.
        serde_parameters={"serialization.format": "1", "orc.column.index.access": "false"},
        size_ratio=0.35,
    ),
    "avro": FileFacts(
        input_format=f"{_IO}.hive.ql.io.avro.AvroContainerInputFormat",
        output_format=f"{_IO}.hive.ql.io.avro.AvroContainerOutputFormat",
        serde=f"{_IO}.hive.serde2.avro.AvroSerDe",
        duckdb_reader="read_avro",
        duckdb_ending="avro",
        duckdb_arguments=(),
        size_ratio=0.5,
    ),
    "json": FileFacts(
        serde="org.openx.data.jsonserde.JsonSerDe",
        duckdb_reader="read_json",
        duckdb_ending="json*",
    ),
    "csv": FileFacts(
        serde=f"{_IO}.hive.serde2.OpenCSVSerde",
        serde_parameters={"separatorChar": ",", "quoteChar": '"'},
        table_parameters={"skip.header.line.count": "1"},
        spark_options={"header": "true"},
        has_types=False,
        duckdb_reader="read_csv",
        duckdb_ending="csv*",
    ),
}
"""The formats that catalogs support as tables, by name."""


def file_bytes(format_name: str, item_bytes: float) -> int:
    """Return the estimated size of files with items of this size, in bytes."""
    facts = FILE_FACTS.get(format_name)
    return round(item_bytes * (_TEXT_RATIO if facts is None else facts.size_ratio))
