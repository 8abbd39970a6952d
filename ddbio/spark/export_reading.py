"""Native export as a DataFrame: Spark's planner opens and samples the export, its tasks stream files."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from pydantic import Field
from pydantic.dataclasses import dataclass as options_dataclass
from pyspark import SparkFiles

from ddbio.errors import OptionError, SchemaError
from ddbio.export.options import ExportReadOptions
from ddbio.export.tasks import ExportStream, export_columns, export_tasks, spark_task_count
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_NAME, attributes_of, name_of_field
from ddbio.jobs.engine import available_cores
from ddbio.options import parse_options
from ddbio.sources.export_source import ExportSource, open_export
from ddbio.spark.interfaces import DataSourceReader, InputPartition
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.reading import fit_batch, rename_option, slice_batch
from ddbio.spark.types import to_arrow_schema, to_spark_schema, with_attribute_names
from ddbio.spark.worker import tidy_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from ddbio.export.tasks import ExportColumns, ExportTask


@options_dataclass(frozen=True, kw_only=True)
class ExportFrameOptions(ExportReadOptions):
    """Options of a DataFrame that reads an export."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Spark partitions; default is one for each core of the session, more for large exports."""


@dataclass(frozen=True)
class ExportReadDescription:
    """An export with verified manifests, and the columns of its rows."""

    options: ExportFrameOptions
    source: ExportSource
    columns: ExportColumns

    def spark_schema(self) -> StructType:
        """Return the columns as a Spark schema."""
        return to_spark_schema(self.columns.rows)


def describe_export_read(values: Mapping[str, str]) -> ExportReadDescription:
    """Return the export of the options, and its columns from a sample.

    Raises
    ------
    DdbioError
        As :func:`ddbio.export.read.read_export`.
    """
    options = parse_options(ExportFrameOptions, rename_option(values, "source", {"path"}))
    source = open_export(options.source, options)
    return ExportReadDescription(options, source, export_columns(source, options))


def open_reader(values: Mapping[str, str], described: ExportReadDescription | None, schema: StructType) -> ExportReader:
    """Return the reader of these columns, of a described export or, if the user sets the columns, of one described now.

    Raises
    ------
    OptionError
        If the columns of items are set twice.
    SchemaError
        If a change has no such column.
    """
    if described is not None:
        return ExportReader(described, schema)
    described = describe_export_read(values)
    if described.columns.keys is None and described.options.schema is not None:
        raise OptionError("the columns are given twice, by .schema() and by the option 'schema': keep one")
    columns = to_arrow_schema(schema)
    if described.columns.keys is None:
        columns = with_attribute_names(columns, attributes_of(described.columns.items))
    return ExportReader(_with_columns(described, columns), schema, columns)


def _with_columns(described: ExportReadDescription, types: pa.Schema) -> ExportReadDescription:
    """Return the description with the user's types. Other attributes keep the sampled types, which decode fastest."""
    columns = described.columns
    if columns.keys is not None:
        for name in types.names:
            if name not in columns.rows.names:
                valid = ", ".join(columns.rows.names)
                raise SchemaError(f"{name}: no column of changes; they are {valid}: give items' types as option schema")
        return described
    own = [field for field in types if field.name != RESCUE_NAME]
    names = {name_of_field(field) for field in own} | {field.name for field in own}
    others = [field for field in columns.items if not names & {field.name, name_of_field(field)}]
    return dataclasses.replace(described, columns=dataclasses.replace(columns, items=pa.schema([*own, *others])))


@dataclass
class FileGroup(InputPartition):  # type: ignore[misc]
    """The files of one Spark partition."""

    task: ExportTask


class ExportReader(DataSourceReader):  # type: ignore[misc]
    """Reader of an export into the columns that Spark expects. A file that fails its checks fails its task.

    If the user sets the columns, a value that does not fit its column fails the read unless ``_rescue`` is a column.
    """

    def __init__(self, described: ExportReadDescription, schema: StructType, columns: pa.Schema | None = None) -> None:
        self._described = described
        self._columns = to_arrow_schema(schema).remove_metadata()
        self._names = None if columns is None else {name_of_field(field) for field in columns}

    def partitions(self) -> list[FileGroup]:
        """Return the tasks of the Spark partitions, about equal in bytes. Together they read every file once."""
        described = self._described
        terms = request_lease_terms(SparkFiles.getRootDirectory(), None)
        sizes = described.source.sizes()
        usual = spark_task_count(sizes, available_cores() if terms is None else terms.parallelism)
        options = described.options
        if self._names is not None and options.on_misfit == "fail":
            # Attributes that are not selected may have any type.
            options = dataclasses.replace(options, on_misfit="rescue")
        tasks = export_tasks(described.source, described.columns, options, options.tasks or usual, sizes)
        return [FileGroup(task) for task in tasks]

    def read(self, partition: FileGroup | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition's files. Spark reads a source without partitions as one partition None."""
        if partition is None:
            return
        try:
            with closing(iter(ExportStream(partition.task))) as batches:
                for batch in batches:
                    yield from slice_batch(fit_batch(self._with_selected_rescues(batch), self._columns))
        finally:
            tidy_worker()

    def _with_selected_rescues(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        index = batch.num_columns - 1
        if self._names is None or batch.column(index).null_count == batch.num_rows:
            return batch
        texts = [self._rescued(text) for text in batch.column(index).to_pylist()]
        return batch.set_column(index, RESCUE_NAME, pa.array(texts, pa.string()))

    def _rescued(self, text: str | None) -> str | None:
        """Return the rescued values of the user's columns."""
        values: dict[str, Any] = json.loads(text or "{}")
        members = {name: value for name, value in values.items() if name in (self._names or ())}
        if not members:
            return None
        if RESCUE_NAME not in self._columns.names or self._described.options.on_misfit == "fail":
            advice = f"add '{RESCUE_NAME} string' to .schema(), and do not ask for on_misfit=fail, to have it there"
            raise SchemaError(f"{next(iter(members))}: a value does not fit its column: {advice}")
        return compact_json(members)
