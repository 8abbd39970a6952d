"""The data sources of ``spark.read.format``, implemented by other modules of this package.

PySpark imports this module whenever it looks for data sources. So it imports nothing heavy before the first read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
    )
    from pyspark.sql.types import StructType

    from ddbio.spark.export_reading import ExportReadDescription
    from ddbio.spark.reading import ReadDescription

log = logging.getLogger(__name__)

# The option of ddbio.spark.pushdown, which is only loaded if it is set.
_PUSHED = "ddbio.pushed"


class DynamoDBSource(DataSource):  # type: ignore[misc]
    """A DynamoDB table as a DataFrame. Its options are those of every scan or write, and ``tasks``."""

    # Spark keeps the instance that inferred the schema, and asks the same one for its reader.
    _described: ReadDescription | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "dynamodb"

    def schema(self) -> StructType:
        """Return the columns of a sample of the table, or those of the option ``schema``."""
        if _PUSHED in self.options:
            from ddbio.spark import pushdown  # noqa: PLC0415 - see above

            return pushdown.answer(self.options)
        from ddbio.spark import reading  # noqa: PLC0415 - see above

        self._described = reading.describe_read(self.options)
        return self._described.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of these columns. With a user's schema, no other attributes are read."""
        if _PUSHED in self.options:
            from ddbio.spark import pushdown  # noqa: PLC0415 - see above

            return pushdown.open_pushed_reader(self.options, schema)
        from ddbio.spark import reading  # noqa: PLC0415 - see above

        described = self._described or reading.describe_read_of(self.options, schema)
        return reading.TableReader(described, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - PySpark's own
        """Return the writer of these columns."""
        from ddbio.spark import writing  # noqa: PLC0415 - see above

        return writing.TableWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001 - PySpark's own
        """Return the writer of a stream's micro-batches."""
        from ddbio.spark import writing  # noqa: PLC0415 - see above

        return writing.stream_writer(self.options, schema, overwrite=overwrite)


class DdbioSource(DynamoDBSource):
    """A DynamoDB table, under a name that no other connector has."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "ddbio"


class PushdownSource(DynamoDBSource):
    """A DynamoDB table, read without push-down if the jar is missing: the same rows for more units."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``, which the jar's own source overrides."""
        return "dynamodb-pushdown"

    def schema(self) -> StructType:
        """Return the columns as ``dynamodb`` does, and warn that the jar is missing."""
        log.warning("nothing is pushed down: the jar of ddbio.spark.jar() is not among spark.jars")
        return super().schema()


class ExportSource(DataSource):  # type: ignore[misc]
    """A native export of a table as a DataFrame. Its options are those of reading an export, and ``tasks``."""

    _described: ExportReadDescription | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "dynamodb-export"

    def schema(self) -> StructType:
        """Return the columns of a sample of the export, or those of the option ``schema``."""
        from ddbio.spark import export_reading  # noqa: PLC0415 - see above

        self._described = export_reading.describe_export_read(self.options)
        return self._described.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of these columns. With a user's schema, all other columns are left out."""
        from ddbio.spark import export_reading  # noqa: PLC0415 - see above

        return export_reading.open_reader(self.options, self._described, schema)


class LogSource(DataSource):  # type: ignore[misc]
    """The log of a table's changes as a streaming DataFrame."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return "dynamodb-log"

    def schema(self) -> StructType:
        """Return the columns of the log."""
        from ddbio.spark import change_reading  # noqa: PLC0415 - see above

        return change_reading.describe_log(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's own
        """Return the reader of these columns of the log."""
        from ddbio.spark import change_reading  # noqa: PLC0415 - see above

        return change_reading.open_log_reader(self.options, schema)


class StreamsSource(DataSource):  # type: ignore[misc]
    """The changes of a table from its DynamoDB stream as a streaming DataFrame, through a log."""

    _source = "streams"

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return "dynamodb-streams"

    def schema(self) -> StructType:
        """Return the columns of the changes. Those of items come from a sample of the table."""
        from ddbio.spark import change_reading  # noqa: PLC0415 - see above

        return change_reading.describe_stream(self.options, self._source)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's own
        """Return the reader of these columns of the changes."""
        from ddbio.spark import change_reading  # noqa: PLC0415 - see above

        return change_reading.open_stream_reader(self.options, self._source, schema)


class KinesisSource(StreamsSource):
    """The changes of a table from its Kinesis data stream as a streaming DataFrame, through a log."""

    _source = "kinesis"

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return "dynamodb-kinesis"
