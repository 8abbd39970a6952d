"""Merge of changes into Hudi tables: Hudi's own writer for Spark 3.5 upserts the rows that are newer than the table's.

The metadata of each commit records the table's state and the applied position of each source, so that nothing is
applied twice. A writer claims the table, because Hudi itself would roll back the unfinished commit of another writer.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark.sql.window import Window

from ddbio.commit.committer import Claim
from ddbio.errors import OptionError, ServiceError
from ddbio.formats.lake_columns import BUCKET, DELETED, KEY, OPERATION, OWN_FIELDS, TIME, VERSION, attribute_columns
from ddbio.items.schema.arrow import fields_within
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.lake.apply import apply_source
from ddbio.lake.bucket_merge import MergedBucket, Outcome
from ddbio.lake.changes import open_changes
from ddbio.lake.merging import Merged, SpreadMerging
from ddbio.lake_formats.hudi import STATE, HudiLakeTable
from ddbio.lake_formats.rows import newest
from ddbio.lake_formats.table import PREFIX, ConflictError, LakeState
from ddbio.spark.engine import SparkEngine
from ddbio.spark.session import running_session
from ddbio.spark.types import to_spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from ddbio.jobs.report import Clock
    from ddbio.lake.apply import ApplyReport
    from ddbio.lake.change_source import ChangePart
    from ddbio.lake.merging import BucketMerger, RowMaker
    from ddbio.lake.options import ApplyOptions
    from ddbio.lake_formats.hudi import Instant
    from ddbio.lake_formats.rows import LakeShape
    from ddbio.lake_formats.table import Commit
    from ddbio.options import ConnectionOptions
    from ddbio.storage.object_store import ObjectStore

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
"""The jar that is tested."""

_CHANGES, _EFFECT = "_changes", "_found"
_NEW, _OVER_TOMBSTONE, _OVER_ITEM, _STALE = "new", "tombstone", "item", "stale"
# Hudi's schemas are Avro's: https://avro.apache.org/docs/1.11.1/specification/#names
_AVRO_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.partitionpath.field": BUCKET,
    "hoodie.datasource.write.precombine.field": VERSION,
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.commitmeta.key.prefix": PREFIX,
    # Of two rows of a key, the one with the greater version stays, regardless of which was written first.
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "hoodie.payload.ordering.field": VERSION,
    # The version that Hudi 0.14 and later read (EMR 7, Glue 5, Athena), whose commits are plain JSON.
    "hoodie.write.table.version": "6",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.metadata.enable": "false",
    # It would listen on other interfaces than loopback.
    "hoodie.embed.timeline.server": "false",
    # ``maintain`` removes versions, as for other formats.
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}


# Hudi's own columns precede the columns of each row and contain the location of the row:
# https://hudi.apache.org/tech-specs/#meta-fields
_ROW_COMMIT, _ROW_NUMBER, _ROW_KEY = "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"
_ROW_PARTITION, _ROW_FILE = "_hoodie_partition_path", "_hoodie_file_name"
_LOCATION_FIELDS = (pa.field(_ROW_COMMIT, pa.string()), pa.field(_ROW_FILE, pa.string()))
# With it, rows contain the location of the rows that they replace, and Hudi does not look these up again. Its own
# UPDATE does the same: org.apache.hudi.DataSourceWriteOptions.SPARK_SQL_WRITES_PREPPED_KEY, since Hudi 0.14.
_WITH_LOCATIONS = {"_hoodie.spark.sql.writes.prepped": "true"}

_NO_ROW = {KEY: "", BUCKET: -1, VERSION: "", DELETED: False}


class HudiTable(HudiLakeTable):
    """Hudi table with commits by Hudi's own writer.

    Added columns and properties are written with the next commit. Until then only this object knows them.

    Parameters
    ----------
    parts
        Store of the files of a base load, which a commit adds.

    Raises
    ------
    OptionError
        If this Spark, or its session, has no writer of Hudi.
    """

    def __init__(
        self, store: ObjectStore, session: SparkSession, parallelism: int, parts: ObjectStore | None = None
    ) -> None:
        super().__init__(store)
        self.fence: Callable[[], None] = lambda: None
        self._parts = parts
        self._session, self._parallelism = session, parallelism
        self._fields: tuple[pa.Field[Any], ...] = ()
        self._properties: dict[str, str] = {}
        self._winners: DataFrame | None = None
        self._joined: list[Instant] = []
        require_hudi(session)

    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version (the instant of a commit). It has no files."""
        stored = self.stored(version)
        if version is not None or not (self._fields or self._properties):
            return stored
        schema = stored.schema if stored else pa.schema([])
        fields = [field for field in self._fields if field.name not in schema.names]
        properties = {**(stored.properties if stored else {}), **self._properties}
        return LakeState(stored.version if stored else 0, pa.schema([*schema, *fields]), properties, (), stored)

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Record the definition for the first commit."""
        self._fields = tuple(field for field in schema if has_avro_names(field))
        self._properties = dict(properties)
        state = self.load()
        assert state is not None  # noqa: S101 - there are properties
        return state

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Record additions for the next commit."""
        del state
        self._fields = (*self._fields, *fields)
        self._properties = {**self._properties, **properties}
        changed = self.load()
        assert changed is not None  # noqa: S101 - there are properties or columns
        return changed

    def stage(self, rows: DataFrame, floor: int | None) -> tuple[int, Outcome]:
        """Decide the effect of changes, keep the winning ones for the commit, and return the number of changes.

        Parameters
        ----------
        floor
            As for ``ddbio.lake.bucket_merge.BucketMerge``.
        """
        self.release()
        self._joined = self.timeline()
        order = Window.partitionBy(BUCKET, KEY).orderBy(sql.desc(VERSION))
        changes = rows.withColumn("_place", sql.row_number().over(order))
        stale = (sql.col("_place") > 1) | (sql.col(BUCKET) < 0)
        had = self.keys().drop(TIME, OPERATION).withColumnsRenamed({VERSION: "_had", DELETED: "_gone"})
        is_new = sql.col("_had").isNull()
        state = (
            sql.when(stale if floor is None else stale | (is_new & (sql.col(TIME) <= floor)), _STALE)
            .when(is_new, _NEW)
            .when(sql.col(VERSION) <= sql.col("_had"), _STALE)
            .when(sql.col("_gone"), _OVER_TOMBSTONE)
            .otherwise(_OVER_ITEM)
        )
        staged = changes.join(had, [BUCKET, KEY], "left").withColumn(_EFFECT, state)
        # The result is counted and then written: its input must not be read a second time, with another result.
        self._winners = staged.persist(StorageLevel.MEMORY_AND_DISK)
        with self._spark_errors("merged no changes into"):
            counts = staged.groupBy(_EFFECT, DELETED).agg(sql.count("*").alias("rows"), sql.sum(_CHANGES).alias("all"))
            counted = [(row[_EFFECT], row[DELETED], int(row["rows"]), int(row["all"])) for row in counts.collect()]
        sums = {
            "inserted": sum(n for effect, gone, n, _ in counted if effect in {_NEW, _OVER_TOMBSTONE} and not gone),
            "updated": sum(n for effect, gone, n, _ in counted if effect == _OVER_ITEM and not gone),
            "deleted": sum(n for effect, gone, n, _ in counted if effect != _STALE and gone),
            "stale": sum(n for effect, _, n, _ in counted if effect == _STALE),
        }
        return sum(changes_of_group for *_, changes_of_group in counted), Outcome(**sums)

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Upsert the winning changes, or replace all rows by the rows of a base.

        The metadata of the commit has columns, properties and positions.
        """
        timeline = self.timeline()
        before = self.stored(timeline=timeline)
        if (before.version if before else 0) != state.version:
            raise ConflictError(f"{self.store.uri} has a commit after {state.version}")
        names, services = list(map(_quoted, state.schema.names)), dict[str, str]()
        if self._winners is not None:
            if timeline != self._joined:
                # Clustering by another writer, for example: the rows were moved.
                raise ConflictError(f"{self.store.uri} has a commit since its keys were read")
            rows, operation = self._winners.where(sql.col(_EFFECT) != _STALE), "upsert"
            rows = rows.select(*_location_columns(), *names)
            services = _WITH_LOCATIONS
        else:
            rows = self._base(state, commit)
            rows = rows.select(*names)
            operation = "bulk_insert" if before is None else "insert_overwrite_table"
        positions = {f"{PREFIX}position.{name}": str(number) for name, number in commit.positions.items()}
        properties = {**state.properties, **positions, **commit.metadata}
        version = self.write(rows, operation, dataclasses.replace(state, properties=properties), services)
        self.release()
        self._fields, self._properties = (), {}
        return version

    def keys(self) -> DataFrame:
        """Return the common columns of all tables for each row, and its location.

        The files are known. Hudi's own reader would list them again, in extra jobs.
        """
        folder = spark_uri(self._session, self.store.uri.rstrip("/"))
        schema = to_spark_schema(pa.schema([*OWN_FIELDS, *_LOCATION_FIELDS]))
        files = [f"{folder}/{file.path}" for file in self.files()]
        if not files:
            return self._session.createDataFrame([], schema)
        return self._session.read.schema(schema).parquet(*files)

    def no_rows(self, state: LakeState) -> DataFrame:
        """Return an empty DataFrame with all columns."""
        return self._session.createDataFrame([], to_spark_schema(state.schema))

    def write(
        self, rows: DataFrame, operation: str, state: LakeState, services: Mapping[str, str] | None = None
    ) -> int:
        """Commit by an operation of Hudi, with the state in the commit's metadata. Return the number of the commit.

        Parameters
        ----------
        services
            Additional options: clustering, cleaning, archiving, and the encoding of rows.
        """
        self.fence()
        stored = {
            "columns": schema_to_json(attribute_columns(state.schema)),
            "properties": dict(state.properties),
            "before": state.version,
        }
        name = re.sub(r"\W", "_", self.store.uri.rstrip("/").rpartition("/")[2], flags=re.ASCII) or "lake"
        options = {**_OPTIONS, "hoodie.table.name": name, STATE: json.dumps(stored)}
        options["hoodie.datasource.write.operation"] = operation
        for kind in ("upsert", "insert", "bulkinsert", "delete"):
            options[f"hoodie.{kind}.shuffle.parallelism"] = str(self._parallelism)
        options |= services or {}
        with self._spark_errors("took no commit:"):
            folder = spark_uri(self._session, self.store.uri)
            rows.write.format("hudi").options(**options).mode("append").save(folder)
        written = self.stored()
        if written is None or written.version <= state.version:
            raise ServiceError(f"Hudi wrote no commit of ddbio to {self.store.uri}: check its timeline in .hoodie")
        return written.version

    def _base(self, state: LakeState, commit: Commit) -> DataFrame:
        """Return the rows of a base load."""
        assert self._parts is not None  # noqa: S101 - who loads a base gives it
        schema, folder = to_spark_schema(state.schema), spark_uri(self._session, self._parts.uri.rstrip("/"))
        if not commit.added:
            return self.no_rows(state)
        return self._session.read.schema(schema).parquet(*(f"{folder}/{file.path}" for file in commit.added))

    def release(self) -> None:
        """Free the rows that were kept for a commit."""
        if self._winners is not None:
            self._winners.unpersist()
            self._winners = None

    @contextmanager
    def _spark_errors(self, what: str) -> Iterator[None]:
        """Raise Spark's errors as ServiceError."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            raise ServiceError(f"Hudi {what} {self.store.uri}: {message_of(error)}") from error


class HudiMerging(SpreadMerging):
    """Merging in which Spark's tasks make the rows, and a join decides which are newer than the table's."""

    def __init__(self, engine: SparkEngine, table: HudiTable, session: SparkSession) -> None:
        super().__init__(engine)
        self._table, self._session = table, session

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for attributes with valid Avro names. Others stay in the rescue column."""
        wider = super().grown(shape, columns, parts)
        named = pa.schema([field for field in wider.attributes if has_avro_names(field)])
        return dataclasses.replace(wider, attributes=named)

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Decide the changes. Nothing is written before the commit."""
        groups = self._groups(parts)
        columns = pa.schema([*maker.shape.schema, pa.field(_CHANGES, pa.int64())])
        task = functools.partial(_rows, maker, groups)
        count = len(groups)
        rows = self._session.range(0, count, 1, count).mapInArrow(task, to_spark_schema(columns))
        changes, outcome = self._table.stage(rows, merger.floor)
        return Merged(changes, (MergedBucket(outcome),))


def _rows(
    maker: RowMaker, groups: Sequence[Sequence[ChangePart]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the changes of some groups. The first row of each batch has the number of changes."""
    for numbers in batches:
        for number in map(int, numbers.column(0).to_numpy()):
            for part in groups[number]:
                for batch in part.batches():
                    rows = newest(maker.rows(part.lineage, batch))
                    if not rows.num_rows:
                        # A base has all of them: the row only carries the number of changes.
                        rows = pa.Table.from_pylist([_NO_ROW], rows.schema)
                    counts = pa.array([batch.num_rows, *[0] * (rows.num_rows - 1)][: rows.num_rows], pa.int64())
                    columns = [*rows.combine_chunks().columns, counts]
                    names = [*rows.schema.names, _CHANGES]
                    table = pa.table(columns, names=names).replace_schema_metadata(None)
                    yield from table.combine_chunks().to_batches()


def apply_changes(options: ApplyOptions, clock: Clock, master: str | None, conf: Mapping[str, str]) -> ApplyReport:
    """Merge the new changes of a source into a Hudi table.

    Raises
    ------
    OptionError
        If this Spark, or its session, has no writer of Hudi.
    DdbioError
        As ``ddbio.lake.apply.apply_log``.
    """
    with closing(SparkEngine(master, dict(conf))) as engine:
        table = HudiTable(hudi_store(options.table, options, engine.session), engine.session, engine.parallelism)
        merging = HudiMerging(engine, table, engine.session)
        source = open_changes(options)
        with claimed(table.store) as claim:
            table.fence = claim.require
            try:
                report = apply_source(source, options, merging, clock, table)
            finally:
                table.release()
        return dataclasses.replace(report, cpu_seconds=round(engine.cpu_seconds(), 3))


@contextmanager
def claimed(store: ObjectStore) -> Iterator[Claim]:
    """Claim a table while the context is open. Another writer is refused, or waits for the end of this one.

    Raises
    ------
    TargetError
        If another job writes to the table.
    """
    claim = Claim(store, new_job_id(), "overwrite")
    others = claim.take()
    try:
        for other in others:
            # Its job has died.
            Claim(store, other.job_id, other.mode).release()
        with claim.renewed():
            yield claim
    finally:
        claim.release()


def has_avro_names(field: pa.Field[Any]) -> bool:
    """Return whether the names of a column and of its members are valid in Avro."""
    if _AVRO_NAME.fullmatch(field.name) is None:
        return False
    inner = fields_within(field.type)
    if pa.types.is_struct(field.type):
        return all(map(has_avro_names, inner))
    return all(has_avro_names(pa.field("element", member.type)) for member in inner)


def spark_uri(session: SparkSession, uri: str) -> str:
    """Return the URI of a folder for Spark: s3a for S3, unless Hadoop has a file system for s3:// itself, as on EMR."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark's access to the JVM
    if uri.startswith("s3://") and not hadoop.get("fs.s3.impl"):
        return f"s3a://{uri.removeprefix('s3://')}"
    return uri


# The settings of Spark's file systems for options of S3 requests. Hudi's writer supports no others.
# https://hadoop.apache.org/docs/stable/hadoop-aws/tools/hadoop-aws/encryption.html
_S3A = {
    "s3_sse": "fs.s3a.encryption.algorithm",
    "s3_sse_kms_key_id": "fs.s3a.encryption.key",
    "s3_acl": "fs.s3a.acl.default",
    "s3_storage_class": "fs.s3a.create.storage.class",
    "s3_requester_pays": "fs.s3a.requester.pays.enabled",
}
_S3A_SSE = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}
_EMRFS = {"s3_sse_kms_key_id": "fs.s3.serverSideEncryption.kms.keyId", "s3_acl": "fs.s3.canned.acl"}
_WITHOUT_SETTING = ("s3_expected_bucket_owner", "s3_tags", "s3_object_lock_mode", "s3_object_lock_legal_hold")


def hudi_store(uri: str, options: ConnectionOptions, session: SparkSession) -> ObjectStore:
    """Return the folder of a Hudi table to write.

    Raises
    ------
    OptionError
        If it is on S3, and the session's writer would not follow an option of S3 requests.
    """
    store = open_store(uri, options)
    if store.uri.startswith("s3://"):
        hadoop, spark_folder = session.sparkContext._jsc.hadoopConfiguration(), spark_uri(session, store.uri)  # noqa: SLF001 - as below
        settings = _S3A if spark_folder.startswith("s3a://") else _EMRFS
        for name in (*_WITHOUT_SETTING, *_S3A):
            value = getattr(options, name)
            if not value:
                continue
            if name not in settings:
                raise OptionError(
                    f"option {name!r}: format hudi is written by Hudi's own writer for Spark, whose file system has no "
                    "setting for it: leave it out, or choose delta or iceberg"
                )
            wanted = _S3A_SSE.get(value, "true" if value is True else str(value))
            own = settings[name].replace("fs.s3a.", f"fs.s3a.bucket.{store.uri.split('/')[2]}.", 1)
            setting = hadoop.get(own) or hadoop.get(settings[name])
            if _plain(setting) != _plain(wanted):
                raise OptionError(
                    f"option {name!r}: format hudi is written by Spark's own file system, which has {setting!r} for "
                    f"it: start the session with spark.hadoop.{settings[name]}={wanted}"
                )
    return store


def _plain(value: str | None) -> str:
    """Return a setting without case and marks: file systems spell ``bucket-owner-read`` as ``BucketOwnerRead``."""
    return re.sub(r"[-_]", "", value or "").lower()


def running_hudi_session() -> SparkSession:
    """Return the running session, which must have Hudi's writer.

    Raises
    ------
    OptionError
        If no session runs, or it has no writer of Hudi.
    """
    session = running_session()
    if session is None:
        raise OptionError("format hudi is written by Hudi's own writer for Spark: give engine='spark'")
    require_hudi(session)
    return session


def require_hudi(session: SparkSession) -> None:
    """Raise if a session has no writer of Hudi.

    Raises
    ------
    OptionError
        The message names what is missing.
    """
    how = f"start a session of Spark 3.5 with spark.jars.packages={BUNDLE}, or choose delta or iceberg"
    if not pyspark.__version__.startswith("3.5."):
        raise OptionError(f"format hudi is written on Spark 3.5, and this is Spark {pyspark.__version__}: {how}")
    if "KryoSerializer" not in str(session.sparkContext.getConf().get("spark.serializer", "")):
        raise OptionError(
            "Hudi needs spark.serializer=org.apache.spark.serializer.KryoSerializer in the session's configuration"
        )
    try:
        session.read.format("hudi").load("file:///nonexistent-ddbio")
    except (PySparkException, Py4JJavaError) as error:
        # With the jar, the error is that there is no table.
        if "Failed to find the data source" in str(error):
            raise OptionError(f"this session has no jar of Hudi: {how}") from error


def _location_columns() -> list[Column]:
    """Return Hudi's own columns of changes that were joined with the keys. New rows have no location yet."""
    return [
        sql.col(_ROW_COMMIT),
        sql.lit(None).cast("string").alias(_ROW_NUMBER),
        sql.col(KEY).alias(_ROW_KEY),
        sql.concat(sql.lit(f"{BUCKET}="), sql.col(BUCKET)).alias(_ROW_PARTITION),
        sql.col(_ROW_FILE),
    ]


def message_of(error: BaseException) -> str:
    """Return the message of an error of Spark or Java, without its stack."""
    text = str(getattr(error, "java_exception", None) or error).partition("\n\tat ")[0].strip()
    return text.splitlines()[-1] if text else type(error).__name__


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
