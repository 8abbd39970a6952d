"""The keyword arguments of the public functions, for editors and type checkers.

Each class mirrors a class of :mod:`ddbio.options`, which checks the values. Generated: ``tests/api/generated.py``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

import pyarrow as pa

from ddbio.items.schema.item_schema import ItemSchema
from ddbio.options import Credentials


class ConnectionKeywords(TypedDict, total=False):
    """Keywords of :class:`ddbio.options.ConnectionOptions`."""

    endpoint_url: str | None
    """Endpoint of DynamoDB, for example that of a local fake."""
    region: str | None
    """AWS region of the table."""
    profile: str | None
    """Named profile of the shared AWS configuration."""
    session: Any
    """A ``boto3.Session`` to use instead of the default chain; Python only, and not for Spark workers."""
    credentials: Credentials | Mapping[str, str] | None
    """``Credentials``, or those of botocore, to use as they are; Python only. They travel to Spark workers."""
    role_arn: str | None
    """Role to assume before the first call; botocore refreshes its credentials before they expire."""
    external_id: str | None
    """External id that the role's trust policy requires."""
    role_session_name: str | None
    """Name of the role's session, by which CloudTrail tells jobs apart; default is ddbio and its version."""
    role_duration_seconds: int | None
    """How long the role's credentials are valid before they are refreshed; default is the service's one hour."""
    source_identity: str | None
    """Source identity of the role's session, which CloudTrail keeps through role chaining."""
    s3_endpoint_url: str | None
    """Endpoint of S3; the environment variable AWS_ENDPOINT_URL_S3 works as well."""
    s3_sse_kms_key_id: str | None
    """KMS key that encrypts what is written to S3: its ARN, or ``aws/s3`` for S3's own; default is the bucket's way."""
    s3_sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None
    """How S3 encrypts what is written; ``aws:kms`` if a key is given, else the bucket's way."""
    s3_bucket_key: bool | None
    """Encrypt by a key of the bucket that the KMS key encrypts, which costs fewer requests to KMS."""
    s3_storage_class: str | None
    """Storage class of data files and rejected rows; the small objects of jobs stay in the standard class."""
    s3_tags: str | None
    """Tags of every object that is written, at most ten: ``team=data&stage=raw``."""
    s3_acl: str | None
    """Canned ACL of every object that is written."""
    s3_checksum: Literal["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] | None
    """Checksum that is sent with all bytes and kept by S3; default is CRC32."""
    s3_object_lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None
    """How data files, manifests, snapshots and rejected rows are locked; needs ``s3_object_lock_until``."""
    s3_object_lock_until: datetime | str | None
    """Time, with its zone, until which they are locked."""
    s3_object_lock_legal_hold: bool
    """Lock them until the hold is taken off."""
    s3_requester_pays: bool
    """Agree to pay for the requests to buckets whose owners have the requester pay."""
    s3_expected_bucket_owner: str | None
    """Account that must own every bucket that is read or written; S3 refuses requests to buckets of others."""
    allow_http: bool
    """Send credentials and data unencrypted to ``http://`` endpoints other than this machine's own."""
    deadline_seconds: float
    """Give up if throttling or an unreachable endpoint has let no request through for this long."""


class IamKeywords(TypedDict, total=False):
    """Keywords of :class:`ddbio.options.IamOptions`."""

    account: str | None
    """Account of tables, keys and catalogs that are named without an ARN; default is that of the role, else any."""
    principal: Literal["job", "target", "caller"]
    """Whose policy: of the job, of the other identity that ``target_role_arn`` or ``target_profile`` names, or of the
    caller, who assumes the roles.
    """
    vpc_endpoint: str | Sequence[str] | None
    """Ids of the VPC endpoints by which all requests come, ``vpce-…``, separated by commas."""
    bucket_kms_key: str | None
    """KMS key by which the buckets encrypt what no option says otherwise of."""
    table_kms_key: str | None
    """KMS key of yours by which the tables are encrypted."""
    partition_key: str | None
    """Partition key of the table, or of the index: with it a Query is told from a Scan where ``where`` is given."""


class SimulateKeywords(TypedDict, total=False):
    """Keywords of :class:`ddbio.options.SimulateOptions`."""

    tasks: int
    """Tasks that run at the same time."""
    lanes: int | None
    """Requests in flight: over all tasks of a scan, of each task of a load; default is the planner's choice."""
    skew: float
    """How unequal segments or tasks are: 0 makes all equal, at 0.5 the largest of 1,000 has 16 times the mean."""
    hot_key: float
    """Share of all data that belongs to one partition key: to one segment, one lane and one partition."""
    partitions: int | None
    """Physical partitions of the table; default is one for each 10 GB and for what one serves of the budget."""
    table_rate: float | None
    """Units per second that the table serves, provisioned or as its maximum; default is what its partitions serve."""
    account_rate: float | None
    """Units per second of all tables of the account in the region; default is no limit."""
    other_rate: float
    """Units per second that others consume of the table."""
    burst_seconds: float
    """Seconds of unused capacity that the table has saved up when the job begins."""
    fixed_partitions: bool
    """Each partition has an equal share of ``table_rate``, as without adaptive capacity."""
    split_seconds: float | None
    """Seconds at its limit after which a partition splits in two, as on-demand tables do; default is never."""
    lose: Sequence[tuple[int, float]] | str
    """Executors that are lost: ``2@600`` for two after 600 s; several separated by commas."""
    join: Sequence[tuple[int, float]] | str
    """Executors that join, likewise."""
    executor_tasks: int
    """Tasks that one executor runs at the same time."""
    static_shares: bool
    """Give each task a fixed share of the budget, as other connectors do, instead of leases."""
    spread: float
    """How much times of requests vary: the deviation of their logarithm; at 0.3 one of 100 takes twice as long."""
    seed: int
    """Seed of everything that is random: sizes, times of requests, pauses after throttling, who is lost."""
    chart: str | None
    """File to write the course of the job to, as a page (``.html``) or a picture (``.png``)."""


class ArchiveKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ArchiveOptions`."""

    log: str | None
    """Folder of the log that the changes of the table ``source`` are captured into first."""
    ttl: str | None
    """Attribute by which items expire; default is the table's own, or the time of each delete."""
    infer: bool
    """Take unmarked deletes of expired items too: replicas of global tables get those of other Regions unmarked."""
    job_id: str | None
    """Name of the archive, under which later runs go on; default follows from the log."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class BulkReportKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.BulkReportOptions`."""

    reject_to: str | None
    """Folder or s3:// prefix for the refused items, as ``load`` with ``retry_rejects`` takes them."""


class CaptureStatusKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureStatusOptions`."""

    job_id: str | None
    """Name of the capture; default is all that write this log."""
    offline: bool
    """Look at the log alone; otherwise the stream says how late the capture is, and what it has lost."""


class CaptureVerifyKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureVerifyOptions`."""

    job_id: str | None
    """Name of the capture; default is all that write this log."""
    images: bool
    """Read the rows, too: whether numbers repeat, and, with old images, before which changes one is missing."""
    since: datetime | str | None
    """Read rows from this time on, with its zone: the rows of the time that is read are held in memory."""
    until: datetime | str | None
    """Read rows before this time."""


class CatalogConnectionKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CatalogConnectionOptions`."""

    glue_endpoint_url: str | None
    """Endpoint of Glue; the environment variable AWS_ENDPOINT_URL_GLUE works as well."""


class CatalogDdlKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CatalogDdlOptions`."""

    name: str | None
    """Name of the table, ``database.table``, of Spark and Unity also ``catalog.schema.table``; default is ``default``
    (of DuckDB ``main``) and the last part of the path.
    """
    projection: bool
    """For Athena: compute the partitions from ranges and lists of their values, instead of registering them."""


class ChangesWriteKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ChangesWriteOptions`."""

    prefix: str
    """Prefix of objects, with ``!{timestamp:…}``, ``!{firehose:random-string}``, ``!{partitionKeyFromLambda:…}``."""
    error_prefix: str
    """Prefix of what is no change, with ``!{firehose:error-output-type}`` besides."""
    name: str
    """Name of the delivery stream, with which names of objects begin."""
    records: Literal["lines", "raw"]
    """Write lines of plain JSON, as the transformation function makes them, or the records as they are."""
    gzip: bool
    """Compress the objects; their names end with ``.gz``."""
    buffer_bytes: int
    """Close an object when its text has so many bytes."""


class ColumnKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ColumnOptions`."""

    schema: ItemSchema | pa.Schema | str | None
    """``ItemSchema``, ``pyarrow.Schema`` or the JSON text of either (``ddbio schema --json``); default is inferred."""
    on_misfit: Literal["rescue", "fail", "drop"]
    """``rescue``: keep misfits in ``_rescue``; ``fail``: raise; ``drop``: discard those of attributes in ``drop``."""
    drop: str | Sequence[str] | None
    """Attributes whose misfits are counted and discarded; those of other attributes go to ``_rescue``."""
    timestamps: Mapping[str, str] | str | None
    """Attributes that are dates and times, and how they are written: ``created_at=iso,ts=epoch_s,day=date``."""
    types: Mapping[str, str] | str | None
    """Types of columns by attribute, instead of those inferred: ``price=decimal(38, 9),payload=json``."""
    numbers: Literal["exact", "float64", "text"]
    """Type of columns of numbers: ``float64`` takes the nearest double unless all are whole; ``text`` is exact too."""
    nulls: Literal["merge", "keep"]
    """``merge``: NULL and missing are both null; ``keep``: each NULL is kept in ``_rescue``."""
    sample_items: int
    """Items to read, from several segments or files, to infer the schema."""


class DeliveredKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.DeliveredOptions`."""

    keys: Any
    """Key attributes, partition key first; default is what the first change record names. Transformed lines need it."""
    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items, as for a scan; default is inferred from some of the objects."""
    old_image: bool
    """Keep the item as it was before each change, in the column ``_old_image``."""
    reject_to: str | None
    """Folder or s3:// prefix for what is no change, in Firehose's own form; without it the first one fails the verb."""


class DoctorKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.DoctorOptions`."""


class ExpiredReadKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExpiredReadOptions`."""

    ttl: str | None
    """Attribute by which items expire; default is the table's own."""
    at: datetime | str | None
    """Time, with its zone, at which items have to be expired; default is now."""
    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items, as for a scan."""
    rcu_per_second: float | None
    """Read units per second that a scan may use."""


class ExportWindowsKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportWindowsOptions`."""

    until: datetime | str | None
    """Time, with its zone, until which changes are wanted; default is now."""


class FilesListKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.FilesListOptions`."""

    at_version: int | None
    """Version of the folder; default is the newest."""


class HistoryKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.HistoryOptions`."""

    key: str | None
    """The item's key: ``S:user#7|N:19`` as in the column ``_key``, ``{"pk": "user#7", "sk": 19}``, or the plain
    value of a key of one attribute; default is every item.
    """


class LayoutKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.LayoutOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""
    small_than: int | str
    """Size below which a file is small."""
    html: str | None
    """File to write the report to as a page of HTML with charts, besides."""
    png: str | None
    """File to write the charts to as a PNG, besides."""


class MetricsConnectionKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.MetricsConnectionOptions`."""

    cloudwatch_endpoint_url: str | None
    """Endpoint of CloudWatch, which is not asked if only an endpoint of DynamoDB is given."""


class PriceKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.PriceOptions`."""

    max_usd: float | None
    """Refuse the job if its plan costs more; stop it at a tenth more."""
    prices: str | None
    """File with a book of prices, in the form of ddbio's own; default is the newest book of the region that is here."""
    compute: str | None
    """What the job runs on, for its price: ``glue:G.1X*10``, ``emr-serverless:4vCPU-16GB*10``, ``ec2:m5.xlarge*10``."""


class PricesRefreshKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.PricesRefreshOptions`."""

    pricing_endpoint_url: str | None
    """Endpoint of the Price List; default is that of AWS."""


class SimulateLoadKeywords(SimulateKeywords, total=False):
    """Keywords of :class:`ddbio.options.SimulateLoadOptions`."""

    source_bytes: int | str
    """Size of all items, as DynamoDB counts it; ``10TB`` works as well."""
    item_bytes: float
    """Mean size of an item."""
    mode: Literal["upsert", "create", "delete", "update"]
    """As for a load: ``create`` and ``update`` send each row by itself."""
    indexes: int
    """Global indexes that hold all of each item; each costs as much as the table."""
    wcu_per_second: float
    """Write units per second that the whole job may use; default is the quota of an on-demand table."""
    warm_up: bool
    """Begin at what a new on-demand table serves, and double it every half hour."""
    request_seconds: float
    """Median time of a request."""


class SimulateScanKeywords(SimulateKeywords, total=False):
    """Keywords of :class:`ddbio.options.SimulateScanOptions`."""

    table_bytes: int | str
    """Size of the table, as DescribeTable would say it; ``80TB`` works as well."""
    item_bytes: float
    """Mean size of an item."""
    segments: int | None
    """TotalSegments; default is that of the policy."""
    policy: Literal["planner", "task", "gib", "128mb"] | None
    """How many segments: the planner's choice, one a task (default of static_shares), one a GiB, or one for 128 MB."""
    rcu_per_second: float
    """Read units per second that the whole job may use; default is the quota of an on-demand table."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    page_seconds: float
    """Median time of a full page."""


class SourceKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.SourceOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""
    json_format: Literal["auto", "plain", "dynamodb"]
    """Read JSON as plain rows or as DynamoDB JSON; ``auto`` decides by the first value of each file."""
    null_values: str | Sequence[str] | None
    """Words that are missing in all columns of CSV: ``NA,null,n/a``; default is ``NA,null``, but not in text."""
    hive_partitions: Literal["add", "ignore", "refuse"]
    """Folders called name=value: ``add`` them as columns, ``ignore`` them, or ``refuse`` to load."""


class StreamEventKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.StreamEventOptions`."""

    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items, as for a scan; default is inferred from the first event."""
    old_image: bool
    """Keep the item as it was before each change, in the column ``_old_image``."""
    reject_to: str | None
    """Folder or s3:// prefix for what is no change; without it Lambda repeats it until its record expires."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class VacuumKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.VacuumOptions`."""

    older_than: str
    """Keep versions that were the newest within this time, and files younger than it: ``12h``, ``7d``, ``4w``."""


class ViewKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ViewOptions`."""

    name: str | None
    """Name of the view; default is the query alone."""
    log_relation: str | None
    """How the engine calls the log: the name of a table; default is its folder."""
    lake_relation: str | None
    """How the engine calls the lake table; default is its folder."""
    format: Literal["auto", "delta", "iceberg", "hudi"]
    """Format of the lake table; by default its files tell."""


class WaitPolicyKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.WaitPolicyOptions`."""

    wait_seconds: float
    """Stop waiting after this long; the job itself continues."""
    poll_seconds: float
    """Longest pause between two status requests; the first pauses are shorter."""


class AdviseKeywords(MetricsConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.AdviseOptions`."""

    from_file: str | None
    """File that describes a table that need not exist: DescribeTable's answer as JSON, with numbers."""
    freshness: float
    """How often the copy is brought up to date: ``1d``, ``1h``, ``1m``, or seconds."""
    point_in_time: bool
    """The copy has to show the table as it was at one time."""
    changes_per_second: float | None
    """Items that are written a second; default is what the file says, or CloudWatch has counted in 14 days."""
    item_bytes: float | None
    """Mean size of an item; default is the table's size over its items."""
    rcu_per_second: float | None
    """Read units per second that a scan may use; default is half of a provisioned table's, all of another's."""
    read_ratio: float | None
    """The same as a share of the table's provisioned (or maximum on-demand) read units."""
    prices: str | None
    """File with a book of prices, in the form of ddbio's own; default is the book that ddbio has."""
    html: str | None
    """File to write the comparison to as a page of HTML with charts, besides."""
    png: str | None
    """File to write the charts to as a PNG, besides."""


class ApplyKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ApplyOptions`."""

    format: Literal["delta", "iceberg", "hudi"]
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"]
    """What merges: this process, without a JVM, or the tasks of Spark. Both write the same, without a jar for Delta and
    Iceberg.
    """
    shared_paths: bool
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    catalog: str | None
    """Table of a catalog that is to name the lake table: ``glue://database.table``, on S3 only; of Iceberg
    ``iceberg://catalog/namespace.table``, a catalog of pyiceberg's configuration: REST, Hive, SQL; of Hudi
    ``hive://database.table``, in the metastore of Spark's session.
    """
    job_id: str | None
    """The capture whose changes are applied; default is all that write the log. Of rows: who gives them."""
    key: str | Sequence[str] | None
    """Key attributes of a table that is made from rows; logs and exports know them."""
    stream: str | None
    """The stream that given rows come from: ``_sequence`` orders the rows of one stream; default is ``rows``."""
    batch_id: int | None
    """Number of a batch of given rows: one that the table has, or a smaller one, is not applied again."""
    buckets: int
    """Partitions ``_b`` of a table that is made; those of a table never change."""
    max_records_per_batch: int
    """Changes that are merged in one commit, about: whole batches of the log."""
    target_file_bytes: int | str
    """Size at which a file is closed and the next one begun."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class CaptureKeywords(PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureOptions`."""

    stream: str | None
    """The data stream, by name or ARN, if the changes of the table go to several."""
    fan_out: str | None
    """A consumer of the data stream, by name or ARN, that gets its records by enhanced fan-out instead of polling
    them; one that is named and not there is registered, and stays.
    """
    leases: int
    """Parts of the shards that processes take leases of: so many processes can share a capture."""
    available_now: bool
    """Stop when the changes that are there are captured; otherwise go on until it is told to stop."""
    max_seconds: float | None
    """End after this time, with what was captured by then written."""
    job_id: str | None
    """Name of the capture, under which later runs go on; default follows from the table and its stream."""
    start: Literal["trim-horizon", "latest"]
    """Where a new capture begins: at the oldest change that the stream has, or now."""
    on_gap: Literal["fail", "continue"]
    """What to do if changes are gone before they were read: stop, or note that and go on behind the gap."""
    flush_seconds: float
    """How long changes are gathered at most until they are written."""
    flush_bytes: int | str
    """How many bytes of records are gathered at most until they are written."""
    old_image: bool
    """Keep the item as it was before each change, in the column ``_old_image``."""
    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items, as for a scan; default is inferred from a sample of the table and the first changes."""
    numbers: Literal["exact", "float64", "text"]
    """Type of inferred columns of numbers: ``float64`` takes the nearest double unless all are whole."""
    types: Mapping[str, str] | str | None
    """Types of columns by attribute, instead of those inferred: ``price=decimal(38, 9),payload=json``."""
    sample_items: int
    """Items of the table to read to infer the columns."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class CatalogSyncKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CatalogSyncOptions`."""


class ChangesReadKeywords(DeliveredKeywords, total=False):
    """Keywords of :class:`ddbio.options.ChangesReadOptions`."""

    since: datetime | str | None
    """Take changes from this time on, with its zone; objects of S3 that were written a day before it are not read."""
    until: datetime | str | None
    """Take changes before this time."""


class CreateLikeKeywords(WaitPolicyKeywords, total=False):
    """Keywords of :class:`ddbio.options.CreateLikeOptions`."""

    target_endpoint_url: str | None
    """Endpoint of the target's DynamoDB; default is the source's."""
    target_region: str | None
    """AWS region of the target; default is the source's."""
    target_profile: str | None
    """Named profile for the target; default is the source's."""
    target_role_arn: str | None
    """Role to assume for the target; default is the source's."""
    target_external_id: str | None
    """External id that the trust policy of the target's role requires."""
    billing: Literal["like", "on_demand"]
    """Bill the new table as the source is billed, or on demand."""
    kms_key: str | None
    """KMS key of the new table: ARN, ``aws/dynamodb``, or ``none`` for the one AWS owns; default is the source's."""
    warm_write_units: int | None
    """Write units per second that the new table bears from the start (warm throughput); AWS bills those over 4,000."""
    warm_read_units: int | None
    """Read units per second that the new table bears from the start (warm throughput); AWS bills those over 12,000."""


class CreateTableKeywords(WaitPolicyKeywords, total=False):
    """Keywords of :class:`ddbio.options.CreateTableOptions`."""

    key: str
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``."""
    gsi: str | Sequence[str]
    """Global indexes, separated by ``;``: ``name=pk:S,sk:N``, with ``/KEYS_ONLY`` appended to project keys only."""
    billing: Literal["on_demand", "provisioned"]
    """How the table is billed."""
    rcu: int | None
    """Read units per second of a provisioned table and of each of its indexes."""
    wcu: int | None
    """Write units per second likewise."""


class ExportReadKeywords(ColumnKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportReadOptions`."""


class FilesKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.FilesOptions`."""

    mode: Literal["error", "append", "overwrite"]
    """What to do if the target holds files already."""
    shared_paths: bool
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    overwrite_foreign: bool
    """Let ``mode=overwrite`` also delete files that no earlier job of ddbio wrote."""
    job_id: str | None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""
    engine: Literal["auto", "local", "spark"]
    """Run on threads of this process (``local``), on Spark, or choose by size."""
    target_file_bytes: int | str
    """Size at which a file is closed and the next one begun."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None
    """Codec of the files; default is zstd, and gzip for text, which every reader of text knows."""
    tasks: int | None
    """Number of tasks; default is the engine's parallelism, fewer for small jobs."""
    partition_by: str | Sequence[str] | None
    """Attributes that become folders ``name=value``; or ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``."""
    partition_time_unit: Literal["auto", "iso", "s", "ms", "us", "ns"]
    """How ``year(ts)`` reads ``ts``: ISO 8601, or units since 1970; ``auto`` tells numbers by their magnitude."""
    partition_time_zone: str
    """Time zone of ``year(ts)`` and the like, such as ``Europe/Berlin``."""
    keep_partition_columns: bool
    """Keep the columns that folders say in the files, too."""
    overwrite_partitions: bool
    """Replace only the partitions that the job writes to, and leave the others (``mode`` is then ``overwrite``)."""
    catalog: str | None
    """Table of a catalog, ``glue://database.table``, to make or update when the files are there; on S3 only."""


class MaintainKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.MaintainOptions`."""

    format: Literal["delta", "iceberg", "hudi"]
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"]
    """What rewrites: this process, without a JVM, or Hudi's own services on Spark, for its tables alone."""
    catalog: str | None
    """Table of a catalog that is to name the newest version, as of ``apply``."""
    tombstones_older_than: str | None
    """Let rows of items go that were deleted so long before the newest applied change: ``7d``; at least ``48h``."""
    vacuum_older_than: str | None
    """Delete files that no version since then has: ``7d``; at least ``24h``, and longer than readers and jobs run."""
    expire_snapshots_older_than: str | None
    """Forget versions that were replaced so long ago, in the table's own log: ``30d``; at least ``24h``."""
    sort_by: str | Sequence[str] | None
    """Attributes by which the rows of each bucket are sorted; a bucket is sorted in memory."""
    z_order_by: str | Sequence[str] | None
    """Attributes by which Delta tables are clustered (Z-order), all files anew in each run."""
    target_file_bytes: int | str
    """Files of a bucket that are smaller than three quarters of this are rewritten as one."""


class PlanCapacityKeywords(MetricsConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.PlanCapacityOptions`."""

    csv: str | None
    """File with what was consumed, instead of CloudWatch: columns time, read and write, in units a second."""
    days: float
    """How far back CloudWatch is asked: by the minute up to 15 days, by 5 minutes up to 63, by the hour beyond."""
    table_class: Literal["standard", "standard-ia"] | None
    """Class of a table of which only the file is known; default is standard."""
    table_gb: float | None
    """Size of a table of which only the file is known, for its storage."""
    prices: str | None
    """File with a book of prices, in the form of ddbio's own; default is the book that ddbio has."""
    html: str | None
    """File to write the report to as a page of HTML with charts, besides."""
    png: str | None
    """File to write the charts to as a PNG, besides."""


class PlanCaptureKeywords(PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.PlanCaptureOptions`."""

    records_per_second: float
    """Changes of items a second, on average."""
    item_bytes: float
    """Mean size of an item."""
    through: Literal["streams", "lambda", "kinesis", "firehose"]
    """What reads the changes: a process that polls the stream, Lambda, Kinesis, or Kinesis and Firehose behind it."""
    view: Literal["keys_only", "new_image", "old_image", "new_and_old_images"]
    """Which images of an item a record of the stream has; Kinesis has both."""
    poll_seconds: float
    """Time between two reads of a shard of the stream."""
    file_seconds: float
    """Time that a file holds."""


class RollbackKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.RollbackOptions`."""

    to_version: int | None
    """Version whose files are live again; default is the one before the newest."""
    catalog: str | None
    """Table of a catalog, ``glue://database.table``, to make or move to the newest version; on S3 only."""


class TimeLimitKeywords(PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.TimeLimitOptions`."""

    max_seconds: float | None
    """Refuse the job if it is expected to take longer than this; stop it at a tenth more."""


class WaitKeywords(WaitPolicyKeywords, total=False):
    """Keywords of :class:`ddbio.options.WaitOptions`."""


class CompactKeywords(CatalogConnectionKeywords, PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.CompactOptions`."""

    target_bytes: int | str
    """Size at which a file is closed and the next one begun."""
    small_than: int | str | None
    """Rewrite only files smaller than this; default is three quarters of ``target_bytes``."""
    partition: str | Sequence[str] | None
    """Rewrite only the partitions with these values, each as ``column=value``."""
    closed_hours: str | None
    """Rewrite only folders ``year=…/month=…/day=…/hour=…`` whose hour ended so long ago: ``1h``, ``1d``."""
    format: Literal["parquet", "orc", "avro", "csv", "json"] | None
    """Format of the new files, to which files of others are converted; default is that of the old ones."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None
    """Codec of the new files, to which files of others are converted; default is that of the old ones."""
    sort_by: str | Sequence[str] | None
    """Sort the rows that are rewritten together by these columns, nulls last; default is the order of the files."""
    verify: Literal["digest", "rewritten", "rows"]
    """``digest``: read the new files again before the commit, compare the digests, and report that of the whole folder;
    ``rewritten``: do not read files that stay for it; ``rows``: only count rows.
    """
    catalog: str | None
    """Table of a catalog, ``glue://database.table``, to make or update when the files are there; on S3 only."""
    keep_old: bool
    """Leave the old files until a vacuum, for readers of older versions; whoever lists the folder then sees both."""
    max_seconds: float | None
    """Begin to rewrite no more files after this time, and publish what is done."""
    shared_paths: bool
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    job_id: str | None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""
    engine: Literal["auto", "local", "spark"]
    """Run on threads of this process (``local``) or on Spark; ``auto`` is Spark if a session is running."""
    tasks: int | None
    """Number of tasks; default is the engine's parallelism."""


class ImportFilesKeywords(TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportFilesOptions`."""

    key: str | None
    """Key of the new table: ``pk:S`` or ``pk:S,sk:N``."""
    like: str | None
    """Table, by name or ARN, whose key the new one gets; or a ``.json`` file with DescribeTable's answer about one."""
    timestamps: Mapping[str, str] | str | None
    """How columns of dates and times are written, by column: ``created_at=iso,ttl=epoch_s``; default is ISO 8601."""
    duplicates: Literal["fail", "first", "last"]
    """If rows share a key: refuse them, or write the first or the last of them."""
    gsi: str | Sequence[str]
    """Global indexes of the new table, as ``import start`` takes them: items are checked for their keys."""
    format: Literal["dynamodb_json", "ion", "csv"]
    """Format of the objects. Ion is written more slowly than JSON; in CSV everything but the key becomes text."""
    delimiter: Literal[",", ";", ":", "|", "\t", " "] | None
    """Delimiter of CSV fields: comma, semicolon, colon, bar, tab or space; default is a comma."""
    csv_strings: bool
    """Write numbers, booleans and dates outside the key as text; the table then holds them as strings."""
    compression: Literal["zstd", "gzip", "none"]
    """Compression of the objects."""
    target_file_bytes: int | str
    """Size of an object before compression; peak memory is several times this."""
    if_absent: bool
    """For a bulk put: write each item only if its key does not exist. Experimental: the format is unverified."""
    newer_by: str | None
    """For a bulk put: write each item only if no item as new by this attribute exists. Experimental likewise."""
    mode: Literal["error", "overwrite"]
    """What to do if the target holds files already."""
    overwrite_foreign: bool
    """Let ``mode=overwrite`` also delete files that no earlier job of ddbio wrote."""
    job_id: str | None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""
    digest: bool
    """Compute the order-independent digest of the items, for a comparison with the table."""


class ImportWaitKeywords(WaitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportWaitOptions`."""

    verify: bool
    """Scan the new table, at the price of a scan, and compare count and digest with those of the files."""


class LimitKeywords(TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.LimitOptions`."""

    max_units: float | None
    """Refuse the job if its plan has more capacity units than this; stop it at a tenth more."""


class ArchiveRestoreKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ArchiveRestoreOptions`."""

    from_key: str | Sequence[str] | None
    """The first key that is restored: the partition key, and the sort key behind it, as text."""
    to_key: str | Sequence[str] | None
    """The last key; one without a sort key stands for all items with that partition key."""
    since: datetime | str | None
    """Restore what expired from this time on."""
    until: datetime | str | None
    """Restore what expired before this time."""
    mode: Literal["create", "upsert"]
    """``create`` leaves items alone that the table has; ``upsert`` replaces them."""
    ttl: Literal["drop", "keep"]
    """Leave the attribute out by which the items expired, or keep it: the service then deletes them again."""
    wcu_per_second: float | None
    """Write units per second that the whole job may use."""


class BulkStartKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.BulkStartOptions`."""

    format: Literal["dynamodb_json", "ion"] | None
    """Format of the objects; default is the manifest's, else dynamodb_json."""
    compression: Literal["zstd", "gzip", "none"] | None
    """Compression of the objects, the same for all; default is the manifest's."""
    wcu_per_second: int | None
    """Write units per second that the operation may use, at least 1,024; default is the service's."""
    tier: Literal["standard", "accelerated"]
    """Performance tier."""
    kms_key: str | None
    """KMS key that encrypts the reports; default is the bucket's own way."""
    bucket_owner: str | None
    """Account that owns the source's bucket, if it is another one."""
    client_token: str | None
    """Idempotency token: within eight hours, the same start with it is the same operation; default is a new one."""


class ExportStartKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportStartOptions`."""

    at: datetime | str | None
    """Time, with its zone, whose state a full export holds; default is now."""
    from_time: datetime | str | None
    """Begin of the window of an incremental export, with its zone."""
    to_time: datetime | str | None
    """End of that window, 15 minutes to 24 hours after its begin."""
    view: Literal["new_image", "new_and_old_images"]
    """Whether an incremental export also has each item as it was before the window."""
    format: Literal["dynamodb_json", "ion"]
    """Format of the data files."""
    kms_key: str | None
    """KMS key that encrypts the objects; default is S3's own."""
    bucket_owner: str | None
    """Account that owns the bucket, if it is another one."""
    client_token: str | None
    """Idempotency token: within eight hours, the same request with it is the same export; default is a new one."""
    enable_pitr: bool
    """Turn point-in-time recovery on if it is off; AWS bills it."""


class ImportStartKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportStartOptions`."""

    key: str | None
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``; default is that in the manifest of ``import files``."""
    gsi: str | Sequence[str]
    """Global indexes, separated by ``;``: ``name=pk:S,sk:N``, with ``/KEYS_ONLY`` appended to project keys only.

    Default is those in the manifest of ``import files``.
    """
    billing: Literal["on_demand", "provisioned"]
    """How the table is billed."""
    rcu: int | None
    """Read units per second of a provisioned table and of each of its indexes."""
    wcu: int | None
    """Write units per second likewise; the import itself uses none."""
    format: Literal["dynamodb_json", "ion", "csv"] | None
    """Format of the objects; default is the manifest's, else dynamodb_json."""
    compression: Literal["zstd", "gzip", "none"] | None
    """Compression of the objects, the same for all; default is the manifest's."""
    delimiter: str | None
    """Delimiter of CSV fields: comma, semicolon, colon, bar, tab or space; default is a comma."""
    bucket_owner: str | None
    """Account that owns the bucket, if it is another one."""
    client_token: str | None
    """Idempotency token: while an import runs, the same start with it is the same import; default is a new one."""


class PublishKeywords(CatalogConnectionKeywords, TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.PublishOptions`."""

    expect_rows: int | None
    """Publish only if the files hold so many rows."""
    expect_digest: str | None
    """Publish only if the rows have this digest, as ``ddbio digest`` prints it."""
    rules: str | None
    """Publish only if the rows keep the quality rules of this YAML file, as ``ddbio validate`` evaluates them."""
    catalog: str | None
    """Table of a catalog, ``glue://database.table``, to make or move to the newest version; on S3 only."""
    job_id: str | None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""


class ValidateKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ValidateOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""
    key: str | Sequence[str] | None
    """Key attributes by which rows are told apart; default is the table's key, or the one in the files' manifest."""
    schema: ItemSchema | pa.Schema | str | None
    """``ItemSchema``, ``pyarrow.Schema`` or the JSON text of either: types of the columns of both sides."""
    nulls: Literal["auto", "keep", "merge"]
    """``keep``: NULL and missing differ; ``merge``: they are the same; ``auto``: as the files tell them apart."""
    sample: float
    """Share of the keys to compare, chosen by the hash of the key: the same keys of both sides."""
    examples: int
    """Differing keys to show of each kind, with both items; 0 saves the second reading that finds them."""
    rules: str | None
    """YAML file of quality rules: of the target, or of the source if there is no target."""
    html: str | None
    """File to write the report to as a page of HTML, besides."""
    engine: Literal["auto", "local", "spark"]
    """Read tables, exports and files in this process (``local``) or by tasks of Spark; ``auto`` is Spark if a session
    is running. A DataFrame's own tasks read it anyway.
    """
    shared_paths: bool
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    segments: int | None
    """TotalSegments of the scan; default follows the table's size, the budget and the lanes."""
    lanes: int | None
    """Segments read at the same time."""
    rcu_per_second: float | None
    """Read units per second that each table may be read with; two tables are read one after the other."""
    read_ratio: float | None
    """The same as a share of each table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""
    sample_items: int
    """Items of a table or an export to read first, to infer the schema, if no side and no option says it."""
    target_endpoint_url: str | None
    """Endpoint of the target's DynamoDB; default is the source's."""
    target_region: str | None
    """AWS region of the target; default is the source's."""
    target_profile: str | None
    """Named profile for the target; default is the source's."""
    target_role_arn: str | None
    """Role to assume for the target; default is the source's."""
    target_external_id: str | None
    """External id that the trust policy of the target's role requires."""


class WriteKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.WriteOptions`."""

    mode: Literal["upsert", "create", "delete", "update"]
    """Replace the item of each row's key, insert it only if there is none, delete it, or set the row's attributes."""
    newer_by: str | None
    """Attribute by which an older row never replaces or deletes a newer item."""
    timestamps: Mapping[str, str] | str | None
    """How columns of dates and times are written, by column: ``created_at=iso,ttl=epoch_s``; default is ISO 8601."""
    operation_by: str | None
    """Column that says put, delete or update for each row; it is not written as an attribute."""
    wcu_per_second: float | None
    """Write units per second that the whole job may use."""
    write_ratio: float | None
    """The same as a share of the table's provisioned (or maximum on-demand) write units; provisioned: 0.5."""
    warm_up: bool
    """Begin with the 4,000 WCU/s that a new on-demand table bears and double every half hour."""
    reject_to: str | None
    """Folder or s3:// prefix for rows that cannot be written; without it, one such row fails the job."""
    max_rejects: int | None
    """Fail the job if more rows than this are rejected; the rejected rows are kept. Default is no limit."""
    reject_format: Literal["json", "parquet"]
    """Keep rejected rows as lines of JSON or as Parquet."""
    lanes: int | None
    """Requests in flight at the same time; default is 8, or what the budget needs if each request takes one row."""
    compress_requests: bool
    """Send large requests gzip-compressed: fewer bytes for more CPU."""


class BackupCreateKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.BackupCreateOptions`."""

    name: str | None
    """Name of the backup; default is the table's with the time."""
    digest: bool
    """Scan the table and report its count and digest, to compare after a restore; nobody should write meanwhile."""


class CaptureHealKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureHealOptions`."""

    export_to: str | None
    """``s3://bucket/prefix`` for the incremental exports that the service is asked for."""
    from_export: str | Sequence[str] | None
    """Folders of incremental exports that are there already, which together cover a gap; no other is asked for."""
    job_id: str | None
    """Name of the capture; default is all that write this log."""
    rcu_per_second: float
    """Read units per second for the items that only the table itself can tell."""


class ImportFilesFromKeywords(SourceKeywords, ImportFilesKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportFilesFromOptions`."""


class ReplayKeywords(DeliveredKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ReplayOptions`."""

    source_table: str | None
    """Table whose changes are put through, by the name in their records; default is ``table``."""
    newer_by: str | None
    """With ``table``: the attribute by which an older change never replaces or deletes a newer item."""
    wcu_per_second: float | None
    """With ``table``: write units per second that the whole job may use."""
    job_id: str | None
    """Name of the replay, under which objects are put through once; default follows from the source and the target."""
    state: str | None
    """With ``table``: folder or s3:// prefix for what was done already; default is ``_ddbio/`` of the source."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files of the log."""


class RestoreKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.RestoreOptions`."""

    at: datetime | str | None
    """Time, with its zone, whose state of the table is restored; default is the latest restorable time."""
    expect_digest: str | None
    """Digest that the new table must have; the table is scanned to compare."""
    verify: bool
    """Compare count and digest with those of the source table as it is now; both tables are scanned."""


class ScanKeywords(ColumnKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ScanOptions`."""

    index: str | None
    """Secondary index to scan instead of the table."""
    columns: str | Sequence[str] | None
    """Attributes to read (ProjectionExpression); default is all."""
    where: str | None
    """Items to read, as PartiQL's WHERE: ``id = 'a' AND total > 9``. A partition key with values asks by Query."""
    keys: Any
    """Keys of the items to read, by BatchGetItem, or partition keys, by Query: a list, an Arrow table or data frame."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    segments: int | None
    """TotalSegments; default follows the table's size, the budget and the lanes."""
    lanes: int | None
    """Segments read at the same time, over all tasks."""
    rcu_per_second: float | None
    """Read units per second that the whole job may use."""
    read_ratio: float | None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""
    limit: int | None
    """Stop after this many items; which ones is undefined."""
    accept_encoding: Literal["identity", "gzip"]
    """``gzip`` asks for compressed pages: several times fewer bytes for more CPU, for slow networks."""


class VerifyKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.VerifyOptions`."""

    format: Literal["auto", "delta", "iceberg", "hudi"]
    """Format of the lake table; by default its files tell."""
    at: datetime | str | None
    """Time, with its zone, as of which both are compared, by a full export; default is now, by a scan."""
    export_to: str | None
    """``s3://bucket/prefix`` for the full export that the service is asked for."""
    log: str | None
    """Folder of the log that is applied: it tells what items were that have changed since the time."""
    version: int | None
    """Version of the lake table to compare; default is the newest."""
    margin_seconds: float
    """How far the times of changes and the time of an export may be apart: clocks differ."""
    examples: int
    """Differing keys to show of each kind, with both items; 0 saves the second reading that finds them."""
    consistent: bool
    """Scan by strongly consistent reads, at twice the read units."""
    rcu_per_second: float | None
    """Read units per second that the table may be scanned with."""
    read_ratio: float | None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""


class BootstrapKeywords(WaitPolicyKeywords, LimitKeywords, CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.BootstrapOptions`."""

    log: str
    """Folder of the log of changes, which is captured meanwhile."""
    format: Literal["delta", "iceberg", "hudi"]
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"]
    """What loads the base and applies the log: this process, without a JVM, or the tasks of Spark."""
    catalog: str | None
    """Table of a catalog that is to name the lake table, as of ``apply``."""
    base: Literal["scan", "export"]
    """What the base is read from: the table, by a scan, or a full export that the service is asked for."""
    export_to: str | None
    """``s3://bucket/prefix`` for exports: the base, and those that heal gaps; without it a gap means a new base."""
    buckets: int
    """Partitions ``_b`` of a table that is made; those of a table never change."""
    rcu_per_second: float | None
    """Read units per second that the base may be scanned with."""
    read_ratio: float | None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""


class CopyKeywords(CreateLikeKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.CopyOptions`."""

    create_target: bool
    """Create the target like the source if it does not exist."""
    mode: Literal["upsert", "create"]
    """Overwrite existing items, or skip keys that already exist."""
    newer_by: str | None
    """Attribute by which an older item never replaces a newer one."""
    where: str | None
    """Items to copy, as PartiQL's WHERE: ``id = 'a' AND total > 9``. A partition key with values asks by Query."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    segments: int | None
    """TotalSegments of the scan; default follows the table's size, the budget and the lanes."""
    lanes: int | None
    """Reads, and writes, in flight at the same time; default is 8, and for writes that of a load."""
    rcu_per_second: float | None
    """Read units per second that the copy may use of the source."""
    read_ratio: float | None
    """The same as a share of the source's provisioned (or maximum on-demand) read units; provisioned: 0.5."""
    wcu_per_second: float | None
    """Write units per second that the copy may use of the target."""
    write_ratio: float | None
    """The same as a share of the target's provisioned (or maximum on-demand) write units; provisioned: 0.5."""
    warm_up: bool
    """Begin with the 4,000 WCU/s that a new on-demand table bears and double every half hour."""
    reject_to: str | None
    """Folder or s3:// prefix for items that the target refuses; without it, one such item fails the copy."""
    verify: bool
    """Compare the digest of what was read with that of the target afterwards; fail if they differ."""


class InspectKeywords(ScanKeywords, total=False):
    """Keywords of :class:`ddbio.options.InspectOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""


class LoadKeywords(SourceKeywords, WriteKeywords, total=False):
    """Keywords of :class:`ddbio.options.LoadOptions`."""

    schema: ItemSchema | pa.Schema | str | None
    """Types of CSV and plain JSON: ``ItemSchema``, ``pyarrow.Schema`` or JSON text; default is inferred."""
    types: Mapping[str, str] | str | None
    """The same for some columns by name: ``id=string,price=number,paid=bool,more=json``."""
    engine: Literal["auto", "local", "spark"]
    """Run on threads of this process (``local``), on Spark, or choose by size."""
    tasks: int | None
    """Number of Spark tasks; default is one for each 32 MiB of the source."""
    unique_keys: bool
    """Each key occurs once in the source, so that its parts may be read in any order, and need no shuffle on Spark."""
    job_id: str | None
    """Name of this load: run again under the same name, it continues after what is finished."""
    state: str | None
    """Folder or s3:// prefix for checkpoints; default is this user's state folder."""
    shared_paths: bool
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    retry_rejects: bool
    """Read the source as a folder of rejected rows, and try those again."""
    create_table: bool
    """Create the table, on demand, if it does not exist."""
    key: str | None
    """Key of the table that ``create_table`` creates: ``pk:S`` or ``pk:S,sk:N``; default is that which files state."""


class ReconcileKeywords(CaptureHealKeywords, total=False):
    """Keywords of :class:`ddbio.options.ReconcileOptions`."""

    format: Literal["auto", "delta", "iceberg", "hudi"]
    """Format of the lake table; by default its files tell."""
    engine: Literal["local", "spark"]
    """What applies the log, as of ``apply``; a Hudi table takes ``spark``."""
    since: datetime | str | None
    """Begin of the first window, with its zone; default is the end of the last one, or when the capture began."""
    until: datetime | str | None
    """End of the last window, with its zone; default is up to when all changes are captured, ten minutes ago."""


class DigestKeywords(InspectKeywords, total=False):
    """Keywords of :class:`ddbio.options.DigestOptions`."""

    nulls: Literal["merge", "keep"]
    """``merge``: NULL and missing are both null; ``keep``: each NULL is kept in ``_rescue``."""


class ExportToFilesKeywords(FilesKeywords, ExportReadKeywords, TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportToFilesOptions`."""

    format: Literal["parquet", "orc", "avro", "csv", "json", "dynamodb-json", "delta", "iceberg", "hudi"]
    """Format of the files; or ``delta``, ``iceberg``, ``hudi``: a lake table, which ``apply`` merges changes into."""
    key: str | Sequence[str] | None
    """Key attributes of a lake table that is made; default is what DynamoDB says of the export's table."""
    buckets: int
    """Partitions ``_b`` of a lake table that is made; those of a table never change."""


class ExportFoldKeywords(ExportToFilesKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportFoldOptions`."""

    as_of: datetime | str | None
    """Time, with its zone, of the wanted state: the end of a window; default is the end of the last one."""
    spill: str | None
    """Folder for intermediate rows, which all workers reach; default is a temporary one, with Spark in the target."""


class ScanToFilesKeywords(FilesKeywords, ScanKeywords, total=False):
    """Keywords of :class:`ddbio.options.ScanToFilesOptions`."""

    format: Literal[
        "parquet", "orc", "avro", "csv", "json", "dynamodb-json", "dynamodb-export", "delta", "iceberg", "hudi"
    ]
    """Format of the files; ``dynamodb-export``, the layout of a native full export: gzipped DynamoDB JSON, unchanged,
    and manifests; or ``delta``, ``iceberg``, ``hudi``: a lake table, which ``apply`` merges changes into.
    """
    buckets: int
    """Partitions ``_b`` of a lake table that is made; those of a table never change."""
    digest: bool
    """Compute the order-independent digest of the items as the service returned them."""
    page_journal: str | None
    """Folder that keeps pages until their files are complete, for jobs that are killed; ``s3://``: a PUT a page."""


class PlanScanKeywords(ScanToFilesKeywords, total=False):
    """Keywords of :class:`ddbio.options.PlanScanOptions`."""
