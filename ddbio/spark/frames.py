"""Tables and exports as DataFrames through functions, for every version of Spark: 3.5 has no Python data sources.

They plan in the calling process. Tasks of ``mapInArrow`` then run the readers and the writer of the data sources.
"""

from __future__ import annotations

import json
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from ddbio.errors import OptionError
from ddbio.spark.registration import keep_budgets, register
from ddbio.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ddbio.jobs.report import WriteReport
    from ddbio.spark.interfaces import DataSourceReader
    from ddbio.spark.writing import TableWriter

# PySpark imports this package when it looks for data sources, and must not wait for Arrow: readers and the writer are
# imported when they are used.


def scan(spark: SparkSession, table: str, **options: Any) -> DataFrame:
    """Return the items of a table as a DataFrame, as ``spark.read.format("dynamodb")`` does, also on Spark 3.5.

    The segments are planned now. Every action on the DataFrame scans the table again. The tasks share one budget.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        The options of ``spark.read.format("dynamodb")``. A ``schema`` that is a Spark ``StructType``, or its text such
        as
        ``"pk string, n long"``, reads these attributes and no others.

    Raises
    ------
    OptionError
        If an option is wrong, or the driver is in another process (Spark Connect).
    DdbioError
        As a scan.
    """
    from ddbio.spark import reading  # noqa: PLC0415 - see above

    values = _settings(spark, {**options, "table": table})
    columns = _columns_of(spark, values)
    if columns is None:
        described = reading.describe_read(values)
        columns = described.spark_schema()
    else:
        described = reading.describe_read_of(values, columns)
    return _read(spark, reading.TableReader(described, columns), columns)


def read_export(spark: SparkSession, source: str, **options: Any) -> DataFrame:
    """Return the items of a native export as a DataFrame, as ``format("dynamodb-export")`` does, also on Spark 3.5.

    Parameters
    ----------
    source
        Folder of the export: ``s3://bucket/prefix/AWSDynamoDB/ID`` or a local one.
    **options
        The options of ``spark.read.format("dynamodb-export")``; ``schema`` as for :func:`scan`.

    Raises
    ------
    OptionError
        If an option is wrong, or the driver is in another process (Spark Connect).
    DdbioError
        As reading an export.
    """
    from ddbio.spark import export_reading  # noqa: PLC0415 - see above

    values = _settings(spark, {**options, "source": source})
    columns = _columns_of(spark, values)
    if columns is not None:
        return _read(spark, export_reading.open_reader(values, None, columns), columns)
    described = export_reading.describe_export_read(values)
    columns = described.spark_schema()
    return _read(spark, export_reading.open_reader(values, described, columns), columns)


def write(frame: DataFrame, table: str, **options: Any) -> WriteReport:
    """Write a DataFrame into a table, as ``df.write.format("dynamodb")`` does, also on Spark 3.5. Return the report.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        The options of ``df.write.format("dynamodb")``.

    Raises
    ------
    OptionError
        If an option is wrong, or the driver is in another process (Spark Connect).
    DdbioError
        As for a load, if the error occurs before a row is written. An error of a task is Spark's PythonException, which
        names ddbio's error.
    """
    from ddbio.spark import writing  # noqa: PLC0415 - see above

    values = _settings(frame.sparkSession, {**options, "table": table})
    writer = writing.TableWriter(values, frame.schema, overwrite=False)
    # Spark parses names with dots as paths, and its workers cut names at a NUL.
    numbered = frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])
    task = partial(_write_rows, writer, tuple(frame.columns))
    rows = numbered.mapInArrow(task, "message binary").collect()
    # Our own workers wrote them.
    return writer.keep_report([pickle.loads(row["message"]) for row in rows])  # noqa: S301


def write_batch(table: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes each micro-batch into a table.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        The options of ``df.write.format("dynamodb")``, in snake_case or camelCase.
    """
    settings = {name: value for name, value in options.items() if value is not None}

    def write_rows(frame: DataFrame, _: int) -> None:
        if is_connect(frame.sparkSession):
            register(frame.sparkSession)
            texts = {name: str(value) for name, value in settings.items()}
            frame.write.format("dynamodb").mode("append").options(**texts).save(table)
        else:
            write(frame, table, **settings)

    return write_rows


def _settings(spark: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    if is_connect(spark):
        raise OptionError(
            "this function needs the driver in this process, and this is Spark Connect: use format('dynamodb') and "
            "format('dynamodb-export'), which Spark has there"
        )
    keep_budgets(spark)
    return {name: value for name, value in options.items() if value is not None}


def _columns_of(spark: SparkSession, values: dict[str, Any]) -> StructType | None:
    """Return the user's columns, in Spark's types, and remove them from the options; None if there are none."""
    schema = values.get("schema")
    if isinstance(schema, str) and not _is_json(schema):
        schema = spark.createDataFrame([], schema).schema
    if not isinstance(schema, StructType):
        return None
    del values["schema"]
    return schema


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _read(spark: SparkSession, reader: DataSourceReader, columns: StructType) -> DataFrame:
    partitions: Sequence[Any] = reader.partitions()
    if not partitions:
        return spark.createDataFrame([], columns)
    count = len(partitions)
    return spark.range(0, count, 1, count).mapInArrow(partial(_read_rows, reader, partitions), columns)


def _read_rows(
    reader: DataSourceReader, partitions: Sequence[Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the partitions whose numbers Spark passes."""
    for batch in batches:
        for number in map(int, batch.column(0).to_numpy()):
            yield from reader.read(partitions[number])


def _write_rows(
    writer: TableWriter, names: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and yield its pickled message."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    written = writer.write(batch.rename_columns(list(names)) for batch in batches)
    yield pa.RecordBatch.from_pydict({"message": pa.array([pickle.dumps(written)], pa.binary())})
