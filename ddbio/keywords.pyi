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
    """DynamoDB endpoint, for example of a local fake."""
    region: str | None
    """AWS region of the table."""
    profile: str | None
    """Named profile of the shared AWS configuration."""
    session: Any
    """``boto3.Session`` (Python only, not for Spark workers)."""
    credentials: Credentials | Mapping[str, str] | None
    """``Credentials`` or botocore credentials (Python only), sent to Spark workers and not refreshed."""
    role_arn: str | None
    """Role to assume. Its credentials are refreshed."""
    external_id: str | None
    """External ID that the role's trust policy requires."""
    role_session_name: str | None
    """Session name of the role in CloudTrail. Default: ddbio and its version."""
    role_duration_seconds: int | None
    """Lifetime of the role's credentials. Default: one hour."""
    source_identity: str | None
    """Source identity of the role session, kept through role chaining."""
    s3_endpoint_url: str | None
    """S3 endpoint. The environment variable AWS_ENDPOINT_URL_S3 also sets it."""
    s3_sse_kms_key_id: str | None
    """KMS key for objects written to S3 (ARN or ``aws/s3``). Default: the bucket's encryption setting."""
    s3_sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None
    """Encryption of written objects. Default: ``aws:kms`` with a key, else the bucket's setting."""
    s3_bucket_key: bool | None
    """Use an S3 Bucket Key, which needs fewer KMS requests."""
    s3_storage_class: str | None
    """Storage class of data files and rejected rows. Job objects stay in STANDARD."""
    s3_tags: str | None
    """Tags of written objects, at most ten: ``team=data&stage=raw``."""
    s3_acl: str | None
    """Canned ACL of written objects."""
    s3_checksum: Literal["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] | None
    """Checksum sent with each object and kept by S3. Default: CRC32."""
    s3_object_lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None
    """Object Lock mode of data files, manifests, snapshots and rejected rows. Needs ``s3_object_lock_until``."""
    s3_object_lock_until: datetime | str | None
    """End of the retention (with time zone)."""
    s3_object_lock_legal_hold: bool
    """Put a legal hold on the same objects."""
    s3_requester_pays: bool
    """Pay for requests to Requester Pays buckets."""
    s3_expected_bucket_owner: str | None
    """Account that must own every bucket. S3 refuses other buckets."""
    allow_http: bool
    """Allow unencrypted ``http://`` endpoints on other machines."""
    deadline_seconds: float
    """Fail if no request succeeds for this time."""


class IamKeywords(TypedDict, total=False):
    """Keywords of :class:`ddbio.options.IamOptions`."""

    account: str | None
    """Account of resources without an ARN. Default: the role's account, else any."""
    principal: Literal["job", "target", "caller"]
    """Identity: the job, the target (``target_role_arn``, ``target_profile``), or the caller that assumes the roles."""
    vpc_endpoint: str | Sequence[str] | None
    """Comma-separated IDs of the VPC endpoints of all requests."""
    bucket_kms_key: str | None
    """KMS key of the buckets' default encryption."""
    table_kms_key: str | None
    """Customer managed KMS key of the tables."""
    partition_key: str | None
    """Partition key of the table or index, to choose Query or Scan for ``where``."""


class SimulateKeywords(TypedDict, total=False):
    """Keywords of :class:`ddbio.options.SimulateOptions`."""

    tasks: int
    """Number of parallel tasks."""
    lanes: int | None
    """Parallel requests: of a scan, or of each task of a load."""
    skew: float
    """Inequality of segments or tasks. At 0.5, the largest of 1,000 is 16 times the mean."""
    hot_key: float
    """Share of the data in one partition key."""
    partitions: int | None
    """Physical partitions. Default: from the table's size (10 GB each) and the budget."""
    table_rate: float | None
    """Capacity units per second of the table. Default: those of its partitions."""
    account_rate: float | None
    """Capacity units per second of the account. Default: unlimited."""
    other_rate: float
    """Capacity units per second that other clients consume."""
    burst_seconds: float
    """Burst capacity at the start, in seconds."""
    fixed_partitions: bool
    """Give each partition an equal share of ``table_rate``: no adaptive capacity."""
    split_seconds: float | None
    """Split a partition after this time at its limit. Default: never."""
    lose: Sequence[tuple[int, float]] | str
    """Lost executors: ``2@600`` for two after 600 s, comma-separated."""
    join: Sequence[tuple[int, float]] | str
    """Added executors, in the same format."""
    executor_tasks: int
    """Parallel tasks of one executor."""
    static_shares: bool
    """Give each task a fixed share of the budget instead of leases."""
    spread: float
    """Standard deviation of the logarithm of request times. At 0.3, 1 % take twice as long."""
    seed: int
    """Random seed."""
    chart: str | None
    """File for the chart of the job: ``.html`` or ``.png``."""


class ArchiveKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ArchiveOptions`."""

    log: str | None
    """Folder of the log for the changes of table ``source``."""
    ttl: str | None
    """TTL attribute. Default: the table's, or the time of each delete."""
    infer: bool
    """Also archive unmarked deletes of expired items, such as those from other Regions."""
    job_id: str | None
    """Name of the archive job, to resume it. Default: from the log."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class BulkReportKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.BulkReportOptions`."""

    reject_to: str | None
    """Folder for refused items, which ``load`` with ``retry_rejects`` reads."""


class CaptureStatusKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureStatusOptions`."""

    job_id: str | None
    """Name of the capture. Default: all captures of the log."""
    offline: bool
    """Read only the log, without lag and lost records of the stream."""


class CaptureVerifyKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureVerifyOptions`."""

    job_id: str | None
    """Name of the capture. Default: all captures of the log."""
    images: bool
    """Also read rows, to find repeated sequence numbers and, with old images, missing changes."""
    since: datetime | str | None
    """Read rows from this time on (with time zone), in memory."""
    until: datetime | str | None
    """Read rows before this time."""


class CatalogConnectionKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CatalogConnectionOptions`."""

    glue_endpoint_url: str | None
    """Glue endpoint. The environment variable AWS_ENDPOINT_URL_GLUE also sets it."""


class CatalogDdlKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CatalogDdlOptions`."""

    name: str | None
    """Table ``database.table``; Spark, Unity, Trino and Snowflake: also ``catalog.schema.table``. Default: the last
    part of the path, in ``default`` (DuckDB: ``main``).
    """
    projection: bool
    """Athena: use partition projection instead of registered partitions."""


class ChangesWriteKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ChangesWriteOptions`."""

    prefix: str
    """Object prefix, with ``!{timestamp:…}``, ``!{firehose:random-string}``, ``!{partitionKeyFromLambda:…}``."""
    error_prefix: str
    """Prefix of records that are not changes, also with ``!{firehose:error-output-type}``."""
    name: str
    """Name of the delivery stream: the start of object names."""
    records: Literal["lines", "raw"]
    """Write plain JSON lines or raw records."""
    gzip: bool
    """Compress the objects. Their names end with ``.gz``."""
    buffer_bytes: int
    """Size of the text at which an object is closed."""


class ColumnKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ColumnOptions`."""

    schema: ItemSchema | pa.Schema | str | None
    """``ItemSchema``, ``pyarrow.Schema`` or JSON text (``ddbio schema --json``). Default: inferred."""
    on_misfit: Literal["rescue", "fail", "drop"]
    """Values that do not fit a column: keep in ``_rescue``, fail, or drop those of ``drop``."""
    drop: str | Sequence[str] | None
    """Attributes whose misfits are counted and discarded. Others are kept in ``_rescue``."""
    timestamps: Mapping[str, str] | str | None
    """Date and time attributes: ``created_at=iso,ts=epoch_s,day=date``."""
    types: Mapping[str, str] | str | None
    """Column types by attribute: ``price=decimal(38, 9),payload=json``. Default: inferred."""
    numbers: Literal["exact", "float64", "text"]
    """Type of number columns. ``float64`` rounds unless all are whole; ``text`` is exact."""
    nulls: Literal["merge", "keep"]
    """``merge``: NULL and missing are both null. ``keep``: NULL is kept in ``_rescue``."""
    sample_items: int
    """Items to sample for the schema."""


class DeliveredKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.DeliveredOptions`."""

    keys: Any
    """Key attributes, partition key first. Default: from the first change record. Transformed lines need it."""
    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items. Default: inferred."""
    old_image: bool
    """Keep the item before each change in column ``_old_image``."""
    reject_to: str | None
    """Folder for records that are not changes (Firehose error format). If unset, the first one is an error."""


class DoctorKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.DoctorOptions`."""


class ExpiredReadKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExpiredReadOptions`."""

    ttl: str | None
    """TTL attribute. Default: the table's."""
    at: datetime | str | None
    """Time of expiry (with time zone). Default: now."""
    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items."""
    rcu_per_second: float | None
    """Read budget of the whole job, in RCU/s."""


class ExportWindowsKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportWindowsOptions`."""

    until: datetime | str | None
    """End of the changes (with time zone). Default: now."""


class FilesListKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.FilesListOptions`."""

    at_version: int | None
    """Version of the folder. Default: the newest."""


class HistoryKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.HistoryOptions`."""

    key: str | None
    """Key of the item: ``S:user#7|N:19`` (as in ``_key``), ``{"pk": "user#7", "sk": 19}``, or a plain value. Default:
    all items.
    """


class LayoutKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.LayoutOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files. Default: detected by name, else by content."""
    small_than: int | str
    """Size below which a file counts as small."""
    columns: str | Sequence[str] | None
    """Columns of a query whose cost is also reported."""
    partition: str | Sequence[str] | None
    """Partition of a query whose cost is also reported: ``day=2026-11-01``, ``year=2026,month=11``."""
    prices: str | None
    """Price book file of ddbio. Default: the newest local book of the region."""
    html: str | None
    """HTML file for the report and its charts."""
    png: str | None
    """PNG file for the charts."""


class MetricsConnectionKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.MetricsConnectionOptions`."""

    cloudwatch_endpoint_url: str | None
    """CloudWatch endpoint. With ``endpoint_url`` alone, CloudWatch is not called."""


class PriceKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.PriceOptions`."""

    max_usd: float | None
    """Refuse a job with a more expensive plan. Stop it at 110 %."""
    prices: str | None
    """Price book file of ddbio. Default: the newest local book of the region."""
    compute: str | None
    """Compute for the price: ``glue:G.1X*10``, ``emr-serverless:4vCPU-16GB*10``, ``ec2:m5.xlarge*10``."""


class PricesRefreshKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.PricesRefreshOptions`."""

    pricing_endpoint_url: str | None
    """Endpoint of the Price List. Default: that of AWS."""


class SimulateLoadKeywords(SimulateKeywords, total=False):
    """Keywords of :class:`ddbio.options.SimulateLoadOptions`."""

    source_bytes: int | str
    """Size of all items as DynamoDB counts it, such as ``10TB``."""
    item_bytes: float
    """Mean item size in bytes."""
    mode: Literal["upsert", "create", "delete", "update"]
    """Load mode. ``create`` and ``update`` send one row per request."""
    indexes: int
    """Global secondary indexes with all attributes. Each costs as much as the table."""
    wcu_per_second: float
    """Write budget in WCU/s, by default the on-demand quota."""
    warm_up: bool
    """Start at the capacity of a new on-demand table; double every 30 minutes."""
    request_seconds: float
    """Median time of a request."""


class SimulateScanKeywords(SimulateKeywords, total=False):
    """Keywords of :class:`ddbio.options.SimulateScanOptions`."""

    table_bytes: int | str
    """Table size as in DescribeTable, such as ``80TB``."""
    item_bytes: float
    """Mean item size in bytes."""
    segments: int | None
    """TotalSegments. Default: from ``policy``."""
    policy: Literal["planner", "task", "gib", "128mb"] | None
    """Segments: planned, one per task (default of ``static_shares``), per GiB, or per 128 MB."""
    rcu_per_second: float
    """Read budget in RCU/s, by default the on-demand quota."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    page_seconds: float
    """Median time of a full page."""


class SourceKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.SourceOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files. Default: detected by name, else by content."""
    json_format: Literal["auto", "plain", "dynamodb"]
    """Plain rows or DynamoDB JSON. ``auto``: by the first value of each file."""
    null_values: str | Sequence[str] | None
    """CSV values that mean missing, such as ``NA,null,n/a``. Default: ``NA,null``, except in text."""
    hive_partitions: Literal["add", "ignore", "refuse"]
    """Folders ``name=value``: add as columns, ignore, or refuse."""


class StreamEventKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.StreamEventOptions`."""

    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items. Default: inferred from the first event."""
    old_image: bool
    """Keep the item before each change in column ``_old_image``."""
    reject_to: str | None
    """Folder for records that are not changes. If unset, Lambda retries them until they expire."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class VacuumKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.VacuumOptions`."""

    older_than: str
    """Keep younger files, and the newest versions of this time: ``12h``, ``7d``, ``4w``."""


class ViewKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ViewOptions`."""

    name: str | None
    """Name of the view. Default: only the query."""
    log_relation: str | None
    """Name of the log's table in the engine. Default: its folder."""
    lake_relation: str | None
    """Name of the lake table in the engine. Default: its folder."""
    format: Literal["auto", "delta", "iceberg", "hudi"]
    """Format of the lake table. ``auto`` detects it."""


class WaitPolicyKeywords(ConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.WaitPolicyOptions`."""

    wait_seconds: float
    """Maximum waiting time. The service's job continues."""
    poll_seconds: float
    """Longest pause between status requests."""


class AdviseKeywords(MetricsConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.AdviseOptions`."""

    from_file: str | None
    """JSON file with a DescribeTable response and figures."""
    freshness: float
    """Update interval of the copy: ``1d``, ``1h``, ``1m``, or seconds."""
    point_in_time: bool
    """The copy must show the table at one point in time."""
    changes_per_second: float | None
    """Item writes per second. Default: from the file, or 14 days of CloudWatch."""
    item_bytes: float | None
    """Mean item size in bytes. Default: table size divided by item count."""
    rcu_per_second: float | None
    """Read budget of a scan, in RCU/s. Default: half of provisioned, or all on-demand capacity."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity."""
    prices: str | None
    """Price book file of ddbio. Default: the newest local book of the region."""
    html: str | None
    """HTML file for the report and its charts."""
    png: str | None
    """PNG file for the charts."""


class ApplyKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.ApplyOptions`."""

    format: Literal["delta", "iceberg", "hudi"]
    """Format of the lake table. ``hudi`` needs engine ``spark``: Spark 3.5 with the Hudi jar."""
    engine: Literal["local", "spark"]
    """Merge in this process without a JVM, or by Spark tasks. Delta and Iceberg need no jar."""
    shared_paths: bool
    """All Spark workers see the same local paths, for example by NFS."""
    catalog: str | None
    """Catalog table of the lake table: ``glue://database.table`` (S3 only); Iceberg:
    ``iceberg://catalog/namespace.table`` (pyiceberg: REST, Hive, SQL); Hudi: ``hive://database.table`` (metastore of
    the Spark session).
    """
    job_id: str | None
    """Capture whose changes are applied. Default: all of the log. For rows: their writer."""
    key: str | Sequence[str] | None
    """Key attributes of a new table, for rows only."""
    stream: str | None
    """Stream of the rows, which ``_sequence`` orders. Default: ``rows``."""
    batch_id: int | None
    """Number of the batch of rows. Applied numbers are skipped."""
    buckets: int
    """Buckets (partitions ``_b``) of a new lake table. They never change."""
    max_records_per_batch: int
    """Approximate changes per commit (complete batches of the log)."""
    target_file_bytes: int | str
    """Size at which a file is closed."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class CaptureKeywords(PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureOptions`."""

    stream: str | None
    """Kinesis data stream (name or ARN), if the table has several."""
    fan_out: str | None
    """Consumer (name or ARN) for enhanced fan-out. A missing one is registered and kept."""
    leases: int
    """Leases of the shards: the most processes that share a capture."""
    available_now: bool
    """Stop after the existing changes."""
    max_seconds: float | None
    """Stop after this time, with all captured changes written."""
    job_id: str | None
    """Name of the capture, to resume it. Default: from table and stream."""
    start: Literal["trim-horizon", "latest"]
    """Start of a new capture: the oldest change of the stream, or now."""
    on_gap: Literal["fail", "continue"]
    """Changes that expired unread: fail, or record the gap and continue."""
    flush_seconds: float
    """Longest time before changes are written."""
    flush_bytes: int | str
    """Most bytes of records before changes are written."""
    old_image: bool
    """Keep the item before each change in column ``_old_image``."""
    schema: ItemSchema | pa.Schema | str | None
    """Columns of the items. Default: inferred from the table and the first changes."""
    numbers: Literal["exact", "float64", "text"]
    """Type of number columns. ``float64`` rounds unless all are whole; ``text`` is exact."""
    types: Mapping[str, str] | str | None
    """Column types by attribute: ``price=decimal(38, 9),payload=json``. Default: inferred."""
    sample_items: int
    """Items to sample for the schema."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class CatalogSyncKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.CatalogSyncOptions`."""


class ChangesReadKeywords(DeliveredKeywords, total=False):
    """Keywords of :class:`ddbio.options.ChangesReadOptions`."""

    since: datetime | str | None
    """Read changes from this time on (with time zone). S3 objects a day older are skipped."""
    until: datetime | str | None
    """Read changes before this time."""


class CreateLikeKeywords(WaitPolicyKeywords, total=False):
    """Keywords of :class:`ddbio.options.CreateLikeOptions`."""

    target_endpoint_url: str | None
    """DynamoDB endpoint of the target. Default: the source's."""
    target_region: str | None
    """AWS region of the target. Default: the source's."""
    target_profile: str | None
    """Named profile for the target. Default: the source's."""
    target_role_arn: str | None
    """Role to assume for the target. Default: the source's."""
    target_external_id: str | None
    """External ID of the target's role."""
    billing: Literal["like", "on_demand"]
    """Billing of the new table: like the source, or on-demand."""
    kms_key: str | None
    """KMS key: ARN, ``aws/dynamodb`` or ``none`` (AWS owned key). Default: the source's."""
    warm_write_units: int | None
    """Warm throughput in WCU/s. AWS bills units above 4,000."""
    warm_read_units: int | None
    """Warm throughput in RCU/s. AWS bills units above 12,000."""
    copy_tags: bool
    """Also copy the tags of the source."""
    copy_policy: bool
    """Also copy the resource policy of the source, with the ARN of the new table."""


class CreateTableKeywords(WaitPolicyKeywords, total=False):
    """Keywords of :class:`ddbio.options.CreateTableOptions`."""

    key: str
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``."""
    gsi: str | Sequence[str]
    """Global indexes, separated by ``;``: ``name=pk:S,sk:N``, keys joined by ``+``, ``/KEYS_ONLY`` appended."""
    billing: Literal["on_demand", "provisioned"]
    """Billing mode of the table."""
    rcu: int | None
    """Provisioned RCU/s of the table and of each index."""
    wcu: int | None
    """Provisioned WCU/s of the table and of each index."""


class ExportReadKeywords(ColumnKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportReadOptions`."""

    where: str | None
    """PartiQL condition of the rows: ``total > 9``. Python evaluates it, slower than a full read."""
    columns: str | Sequence[str] | None
    """Attributes to read. Default: all."""


class FilesKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.FilesOptions`."""

    mode: Literal["error", "append", "overwrite"]
    """Action if the target already has files."""
    shared_paths: bool
    """All Spark workers see the same local paths, for example by NFS."""
    overwrite_foreign: bool
    """Let ``mode=overwrite`` also delete files that ddbio did not write."""
    job_id: str | None
    """Name of the run. A committed run is reported, not repeated."""
    engine: Literal["auto", "local", "spark"]
    """Threads of this process (``local``) or Spark. ``auto``: by size."""
    target_file_bytes: int | str
    """Size at which a file is closed."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None
    """Codec of the files. Default: zstd, for text gzip."""
    tasks: int | None
    """Number of tasks. Default: the engine's parallelism, or fewer."""
    partition_by: str | Sequence[str] | None
    """Partition attributes, or ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``. Folders are ``name=value``."""
    partition_time_unit: Literal["auto", "iso", "s", "ms", "us", "ns"]
    """Format of ``ts``: ISO 8601, or units since 1970. ``auto`` detects numbers by magnitude."""
    partition_time_zone: str
    """Time zone of ``year(ts)`` and the others, such as ``Europe/Berlin``."""
    keep_partition_columns: bool
    """Also write the partition columns to the files."""
    overwrite_partitions: bool
    """Replace only the partitions that the job writes (``mode`` is then ``overwrite``)."""
    catalog: str | None
    """Table ``glue://database.table`` to create or update after the commit, on S3 only."""


class MaintainKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.MaintainOptions`."""

    format: Literal["delta", "iceberg", "hudi"]
    """Format of the lake table. ``hudi`` needs engine ``spark``: Spark 3.5 with the Hudi jar."""
    engine: Literal["local", "spark"]
    """Rewrite in this process without a JVM, or by Hudi's services on Spark (Hudi only)."""
    catalog: str | None
    """Catalog table of the lake table, as for ``apply``."""
    tombstones_older_than: str | None
    """Remove items deleted this long before the newest change: ``7d``, at least ``48h``."""
    vacuum_older_than: str | None
    """Delete files unused since then: ``7d``, at least ``24h``, and longer than readers and jobs run."""
    expire_snapshots_older_than: str | None
    """Remove versions replaced this long ago from the table's log: ``30d``, at least ``24h``."""
    sort_by: str | Sequence[str] | None
    """Sort the rows of each bucket by these attributes, in memory."""
    z_order_by: str | Sequence[str] | None
    """Delta: cluster by these attributes (Z-order). Each run rewrites all files."""
    target_file_bytes: int | str
    """Combine files of a bucket below three quarters of this."""


class PlanCapacityKeywords(MetricsConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.PlanCapacityOptions`."""

    csv: str | None
    """Consumption file instead of CloudWatch: time, read and write, in units per second."""
    days: float
    """CloudWatch days: by minute up to 15, by 5 minutes up to 63, then by hour."""
    table_class: Literal["standard", "standard-ia"] | None
    """Table class, with ``csv`` only. Default: standard."""
    table_gb: float | None
    """Table size for storage costs, with ``csv`` only."""
    prices: str | None
    """Price book file of ddbio. Default: the newest local book of the region."""
    html: str | None
    """HTML file for the report and its charts."""
    png: str | None
    """PNG file for the charts."""


class PlanCaptureKeywords(PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.PlanCaptureOptions`."""

    records_per_second: float
    """Mean item changes per second."""
    item_bytes: float
    """Mean item size in bytes."""
    through: Literal["streams", "lambda", "kinesis", "firehose"]
    """Reader of the changes: a polling process, Lambda, Kinesis, or Kinesis with Firehose."""
    view: Literal["keys_only", "new_image", "old_image", "new_and_old_images"]
    """Images in stream records. Kinesis has both."""
    poll_seconds: float
    """Time between two reads of a shard of the stream."""
    file_seconds: float
    """Time span of a file."""


class RollbackKeywords(CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.RollbackOptions`."""

    to_version: int | None
    """Version whose files become live again. Default: the one before the newest."""
    catalog: str | None
    """Table ``glue://database.table`` to create or move to the newest version, on S3 only."""


class TimeLimitKeywords(PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.TimeLimitOptions`."""

    max_seconds: float | None
    """Refuse a job with a longer expected time. Stop it at 110 %."""


class WaitKeywords(WaitPolicyKeywords, total=False):
    """Keywords of :class:`ddbio.options.WaitOptions`."""


class CompactKeywords(CatalogConnectionKeywords, PriceKeywords, total=False):
    """Keywords of :class:`ddbio.options.CompactOptions`."""

    target_bytes: int | str
    """Size at which a file is closed."""
    small_than: int | str | None
    """Rewrite only smaller files. Default: three quarters of ``target_bytes``."""
    partition: str | Sequence[str] | None
    """Rewrite only these partitions: ``column=value``."""
    closed_hours: str | None
    """Rewrite only ``year=…/month=…/day=…/hour=…`` folders that ended this long ago: ``1h``, ``1d``."""
    format: Literal["parquet", "orc", "avro", "csv", "json"] | None
    """Format of the new files. Default: unchanged."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None
    """Codec of the new files. Default: unchanged."""
    sort_by: str | Sequence[str] | None
    """Sort rewritten rows by these columns, nulls last. Default: file order."""
    verify: Literal["digest", "rewritten", "rows"]
    """``digest``: compare digests of rewritten rows and report the folder's. ``rewritten``: only compare. ``rows``:
    only count rows.
    """
    catalog: str | None
    """Table ``glue://database.table`` to create or update after the commit, on S3 only."""
    keep_old: bool
    """Keep old files until a vacuum, for readers of older versions. Listings show both."""
    max_seconds: float | None
    """Start no rewrite after this time, and publish the finished ones."""
    shared_paths: bool
    """All Spark workers see the same local paths, for example by NFS."""
    job_id: str | None
    """Name of the run. A committed run is reported, not repeated."""
    engine: Literal["auto", "local", "spark"]
    """Threads of this process (``local``) or Spark. ``auto``: Spark if a session is running."""
    tasks: int | None
    """Number of tasks. Default: the engine's parallelism."""


class ImportFilesKeywords(TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportFilesOptions`."""

    key: str | None
    """Key of the new table: ``pk:S`` or ``pk:S,sk:N``."""
    like: str | None
    """Table with the same key, or a ``.json`` file with its DescribeTable response."""
    timestamps: Mapping[str, str] | str | None
    """Format of date and time columns: ``created_at=iso,ttl=epoch_s``. Default: ISO 8601."""
    duplicates: Literal["fail", "first", "last"]
    """Rows with the same key: fail, or write the first or last."""
    gsi: str | Sequence[str]
    """Global secondary indexes, as for ``import start``, whose keys are checked."""
    format: Literal["dynamodb_json", "ion", "csv"]
    """Format of the objects. Ion is slower than JSON; CSV has text except in keys."""
    delimiter: Literal[",", ";", ":", "|", "\t", " "] | None
    """CSV delimiter: comma, semicolon, colon, bar, tab or space. Default: comma."""
    csv_strings: bool
    """Write non-key numbers, booleans and dates as text. The table then has strings."""
    compression: Literal["zstd", "gzip", "none"]
    """Compression of the objects."""
    target_file_bytes: int | str
    """Size of an object before compression. Peak memory is several times this."""
    if_absent: bool
    """Bulk put: only if the key does not exist. Experimental: unverified format."""
    newer_by: str | None
    """Bulk put: only if no item as new by this attribute exists. Experimental: unverified format."""
    mode: Literal["error", "overwrite"]
    """Action if the target already has files."""
    overwrite_foreign: bool
    """Let ``mode=overwrite`` also delete files that ddbio did not write."""
    job_id: str | None
    """Name of the run. A committed run is reported, not repeated."""
    digest: bool
    """Compute the order-independent digest of the items."""


class ImportWaitKeywords(WaitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportWaitOptions`."""

    verify: bool
    """Scan the new table (billed), and compare count and digest."""


class LimitKeywords(TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.LimitOptions`."""

    max_units: float | None
    """Refuse a job that needs more capacity units. Stop it at 110 %."""


class ArchiveRestoreKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ArchiveRestoreOptions`."""

    from_key: str | Sequence[str] | None
    """First key to restore: partition key, sort key."""
    to_key: str | Sequence[str] | None
    """Last key to restore. Without a sort key: all items of the partition."""
    since: datetime | str | None
    """Restore items that expired from this time on."""
    until: datetime | str | None
    """Restore items that expired before this time."""
    mode: Literal["create", "upsert"]
    """``create`` keeps existing items, ``upsert`` replaces them."""
    ttl: Literal["drop", "keep"]
    """Drop or keep the TTL attribute. The service deletes kept items again."""
    wcu_per_second: float | None
    """Write budget of the whole job, in WCU/s."""


class BulkStartKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.BulkStartOptions`."""

    format: Literal["dynamodb_json", "ion"] | None
    """Format of the objects. Default: from the manifest, else ``dynamodb_json``."""
    compression: Literal["zstd", "gzip", "none"] | None
    """Compression of all objects. Default: from the manifest."""
    wcu_per_second: int | None
    """Write budget in WCU/s, at least 1,024. Default: the service's."""
    tier: Literal["standard", "accelerated"]
    """Performance tier."""
    kms_key: str | None
    """KMS key for the reports. Default: the bucket's encryption setting."""
    bucket_owner: str | None
    """Account that owns the bucket, if another one."""
    client_token: str | None
    """Idempotency token, valid for eight hours. Default: a new one."""


class CountKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.CountOptions`."""

    index: str | None
    """Secondary index to count instead of the table."""
    where: str | None
    """PartiQL condition: ``id = 'a' AND total > 9``. Partition key values use Query."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    sample: float | None
    """Count only this share of the segments, chosen at random, and estimate the total."""
    segments: int | None
    """TotalSegments. Default: from the table's size, the budget, the lanes and the sample."""
    lanes: int | None
    """Segments that are counted in parallel."""
    rcu_per_second: float | None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""


class ExportStartKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportStartOptions`."""

    at: datetime | str | None
    """Time of a full export (with time zone). Default: now."""
    from_time: datetime | str | None
    """Start of an incremental export (with time zone)."""
    to_time: datetime | str | None
    """End of an incremental export, 15 minutes to 24 hours after its start."""
    view: Literal["new_image", "new_and_old_images"]
    """Images in an incremental export."""
    format: Literal["dynamodb_json", "ion"]
    """Format of the data files."""
    kms_key: str | None
    """KMS key for the objects. Default: SSE-S3."""
    bucket_owner: str | None
    """Account that owns the bucket, if another one."""
    client_token: str | None
    """Idempotency token, valid for eight hours. Default: a new one."""
    enable_pitr: bool
    """Turn on point-in-time recovery if it is off. AWS bills it."""
    where: str | None
    """PartiQL condition of the exported items: ``id = 'a' AND total > 9``. One partition key value reads less."""
    columns: str | Sequence[str] | None
    """Attributes to export. Default: all."""


class ImportStartKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportStartOptions`."""

    key: str | None
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``. Default: from the manifest."""
    gsi: str | Sequence[str]
    """Global secondary indexes, as for ``table create``. Default: from the manifest."""
    billing: Literal["on_demand", "provisioned"]
    """Billing mode of the table."""
    rcu: int | None
    """Provisioned RCU/s of the table and of each index."""
    wcu: int | None
    """Provisioned WCU/s of the table and of each index."""
    format: Literal["dynamodb_json", "ion", "csv"] | None
    """Format of the objects. Default: from the manifest, else ``dynamodb_json``."""
    compression: Literal["zstd", "gzip", "none"] | None
    """Compression of all objects. Default: from the manifest."""
    delimiter: str | None
    """CSV delimiter: comma, semicolon, colon, bar, tab or space. Default: comma."""
    bucket_owner: str | None
    """Account that owns the bucket, if another one."""
    client_token: str | None
    """Idempotency token, valid while the import runs. Default: a new one."""


class PublishKeywords(CatalogConnectionKeywords, TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.PublishOptions`."""

    expect_rows: int | None
    """Publish only if the files have this number of rows."""
    expect_digest: str | None
    """Publish only if the rows have this digest (``ddbio digest``)."""
    rules: str | None
    """Publish only if the rows pass these quality rules (YAML file)."""
    catalog: str | None
    """Table ``glue://database.table`` to create or move to the newest version, on S3 only."""
    job_id: str | None
    """Name of the run. A committed run is reported, not repeated."""


class ValidateKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ValidateOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files. Default: detected by name, else by content."""
    key: str | Sequence[str] | None
    """Key attributes. Default: from the table or the files' manifest."""
    schema: ItemSchema | pa.Schema | str | None
    """``ItemSchema``, ``pyarrow.Schema`` or JSON text: column types of both sides."""
    nulls: Literal["auto", "keep", "merge"]
    """``keep``: NULL and missing differ. ``merge``: they are equal. ``auto``: by the files."""
    sample: float
    """Share of the keys to compare, by key hash."""
    examples: int
    """Differing keys of each kind, with both items. 0 saves the second read."""
    rules: str | None
    """Quality rules (YAML file) for the target, or for a source alone."""
    html: str | None
    """HTML file for the report."""
    engine: Literal["auto", "local", "spark"]
    """This process or Spark tasks. ``auto``: Spark if a session is running."""
    shared_paths: bool
    """All Spark workers see the same local paths, for example by NFS."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    segments: int | None
    """TotalSegments. Default: from the table's size, the budget and the lanes."""
    lanes: int | None
    """Segments that are read in parallel."""
    rcu_per_second: float | None
    """Read budget of each table in turn, in RCU/s."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    sample_items: int
    """Items to sample, if nothing else defines the schema."""
    target_endpoint_url: str | None
    """DynamoDB endpoint of the target. Default: the source's."""
    target_region: str | None
    """AWS region of the target. Default: the source's."""
    target_profile: str | None
    """Named profile for the target. Default: the source's."""
    target_role_arn: str | None
    """Role to assume for the target. Default: the source's."""
    target_external_id: str | None
    """External ID of the target's role."""


class WriteKeywords(LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.WriteOptions`."""

    mode: Literal["upsert", "create", "delete", "update"]
    """``upsert`` replaces items, ``create`` adds missing ones, ``delete`` deletes, ``update`` sets attributes."""
    newer_by: str | None
    """Version attribute: older rows never replace or delete newer items."""
    timestamps: Mapping[str, str] | str | None
    """Format of date and time columns: ``created_at=iso,ttl=epoch_s``. Default: ISO 8601."""
    operation_by: str | None
    """Column with put, delete or update for each row. It is not written."""
    wcu_per_second: float | None
    """Write budget of the whole job, in WCU/s."""
    write_ratio: float | None
    """Write budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    warm_up: bool
    """Start at 4,000 WCU/s (new on-demand table); double every 30 minutes."""
    reject_to: str | None
    """Folder for rejected rows. If unset, one such row fails the job."""
    max_rejects: int | None
    """Fail after more rejected rows than this. Default: no limit."""
    reject_format: Literal["json", "parquet"]
    """Format of rejected rows: JSON Lines or Parquet."""
    lanes: int | None
    """Parallel requests. Default: 8, or by the budget for requests of one row."""
    compress_requests: bool
    """Compress large requests: fewer bytes for more CPU."""


class BackupCreateKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.BackupCreateOptions`."""

    name: str | None
    """Name of the backup. Default: table name and time."""
    digest: bool
    """Scan the table for count and digest. Stop writers meanwhile."""


class CaptureHealKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.CaptureHealOptions`."""

    export_to: str | None
    """``s3://bucket/prefix`` for the incremental exports that ddbio requests."""
    from_export: str | Sequence[str] | None
    """Existing incremental exports that together cover a gap. No other is requested."""
    job_id: str | None
    """Name of the capture. Default: all captures of the log."""
    rcu_per_second: float
    """Read budget in RCU/s, for items read from the table."""


class ImportFilesFromKeywords(SourceKeywords, ImportFilesKeywords, total=False):
    """Keywords of :class:`ddbio.options.ImportFilesFromOptions`."""


class ReplayKeywords(DeliveredKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ReplayOptions`."""

    source_table: str | None
    """Table whose changes are replayed. Default: ``table``."""
    newer_by: str | None
    """With ``table``. Version attribute: older changes never replace or delete newer items."""
    wcu_per_second: float | None
    """With ``table``. Write budget of the whole job, in WCU/s."""
    job_id: str | None
    """Name of the replay, which replays each object once. Default: from source and target."""
    state: str | None
    """With ``table``. Folder for progress. Default: ``_ddbio/`` of the source."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"]
    """Codec of the files."""


class RestoreKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.RestoreOptions`."""

    at: datetime | str | None
    """Point in time to restore (with time zone). Default: the latest."""
    expect_digest: str | None
    """Digest that the new table must have. The table is scanned."""
    verify: bool
    """Compare count and digest with the current source table. Both are scanned."""


class ScanKeywords(ColumnKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ScanOptions`."""

    index: str | None
    """Secondary index to scan instead of the table."""
    columns: str | Sequence[str] | None
    """Attributes to read (ProjectionExpression). Default: all."""
    where: str | None
    """PartiQL condition: ``id = 'a' AND total > 9``. Partition key values use Query."""
    keys: Any
    """Keys (BatchGetItem) or partition keys (Query): a list, Arrow table or data frame."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    segments: int | None
    """TotalSegments. Default: from the table's size, the budget and the lanes."""
    lanes: int | None
    """Segments that are read in parallel, over all tasks."""
    rcu_per_second: float | None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    limit: int | None
    """Stop after this number of items. Their choice is undefined."""
    accept_encoding: Literal["identity", "gzip"]
    """``gzip`` compresses pages: fewer bytes for more CPU."""


class VerifyKeywords(WaitPolicyKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.VerifyOptions`."""

    format: Literal["auto", "delta", "iceberg", "hudi"]
    """Format of the lake table. ``auto`` detects it."""
    at: datetime | str | None
    """Compare as of this time (with time zone), by a full export. Default: now, by a scan."""
    export_to: str | None
    """``s3://bucket/prefix`` for the full export that ddbio requests."""
    log: str | None
    """Folder of the applied log, for earlier states of changed items."""
    version: int | None
    """Version of the lake table. Default: the newest."""
    margin_seconds: float
    """Allowed clock difference between changes and the export."""
    examples: int
    """Differing keys of each kind, with both items. 0 saves the second read."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    rcu_per_second: float | None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""


class BootstrapKeywords(WaitPolicyKeywords, LimitKeywords, CatalogConnectionKeywords, total=False):
    """Keywords of :class:`ddbio.options.BootstrapOptions`."""

    log: str
    """Folder of the log, into which changes are captured."""
    format: Literal["delta", "iceberg", "hudi"]
    """Format of the lake table. ``hudi`` needs engine ``spark``: Spark 3.5 with the Hudi jar."""
    engine: Literal["local", "spark"]
    """Load and merge in this process without a JVM, or by Spark tasks."""
    catalog: str | None
    """Catalog table of the lake table, as for ``apply``."""
    base: Literal["scan", "export"]
    """Source of the base: a scan, or a full export that ddbio requests."""
    export_to: str | None
    """``s3://bucket/prefix`` for exports. Without it, a gap needs a new base."""
    buckets: int
    """Buckets (partitions ``_b``) of a new lake table. They never change."""
    rcu_per_second: float | None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""


class CopyKeywords(CreateLikeKeywords, LimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.CopyOptions`."""

    create_target: bool
    """Create a missing target like the source."""
    mode: Literal["upsert", "create"]
    """Overwrite existing items, or keep them."""
    newer_by: str | None
    """Version attribute: older items never replace newer ones."""
    where: str | None
    """PartiQL condition: ``id = 'a' AND total > 9``. Partition key values use Query."""
    consistent: bool
    """Use strongly consistent reads, at twice the read units."""
    segments: int | None
    """TotalSegments. Default: from the table's size, the budget and the lanes."""
    lanes: int | None
    """Parallel reads and writes. Default: 8 reads, and the writes of a load."""
    rcu_per_second: float | None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: float | None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    wcu_per_second: float | None
    """Write budget of the whole job, in WCU/s."""
    write_ratio: float | None
    """Write budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    warm_up: bool
    """Start at 4,000 WCU/s (new on-demand table); double every 30 minutes."""
    reject_to: str | None
    """Folder for items that the target refuses. If unset, one such item fails the job."""
    verify: bool
    """Compare the digests of items read and of the target; fail if they differ."""


class InspectKeywords(ScanKeywords, total=False):
    """Keywords of :class:`ddbio.options.InspectOptions`."""

    input_format: Literal["parquet", "orc", "avro", "json", "csv", "arrow"] | None
    """Format of all files. Default: detected by name, else by content."""


class LoadKeywords(SourceKeywords, WriteKeywords, total=False):
    """Keywords of :class:`ddbio.options.LoadOptions`."""

    schema: ItemSchema | pa.Schema | str | None
    """Types of CSV and plain JSON: ``ItemSchema``, ``pyarrow.Schema`` or JSON text. Default: inferred."""
    types: Mapping[str, str] | str | None
    """Types of single columns: ``id=string,price=number,paid=bool,more=json``."""
    engine: Literal["auto", "local", "spark"]
    """Threads of this process (``local``) or Spark. ``auto``: by size."""
    tasks: int | None
    """Number of Spark tasks. Default: one per 32 MiB of the source."""
    unique_keys: bool
    """Keys are unique in the source: any read order, no shuffle."""
    job_id: str | None
    """Name of the load. A rerun resumes after the finished parts."""
    state: str | None
    """Folder for checkpoints. Default: the user's state folder."""
    shared_paths: bool
    """All Spark workers see the same local paths, for example by NFS."""
    retry_rejects: bool
    """Read the source as a folder of rejected rows, and retry them."""
    create_table: bool
    """Create a missing table (on-demand)."""
    key: str | None
    """Key for ``create_table``: ``pk:S`` or ``pk:S,sk:N``. Default: from the files."""


class ReconcileKeywords(CaptureHealKeywords, total=False):
    """Keywords of :class:`ddbio.options.ReconcileOptions`."""

    format: Literal["auto", "delta", "iceberg", "hudi"]
    """Format of the lake table. ``auto`` detects it."""
    engine: Literal["local", "spark"]
    """Engine of ``apply``. A Hudi table needs ``spark``."""
    since: datetime | str | None
    """Start of the first window (with time zone). Default: end of the last window, or start of the capture."""
    until: datetime | str | None
    """End of the last window (with time zone). Default: ten minutes ago, or earlier if the capture lags."""


class DigestKeywords(InspectKeywords, total=False):
    """Keywords of :class:`ddbio.options.DigestOptions`."""

    nulls: Literal["merge", "keep"]
    """``merge``: NULL and missing are both null. ``keep``: NULL is kept in ``_rescue``."""


class ExportToFilesKeywords(FilesKeywords, ExportReadKeywords, TimeLimitKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportToFilesOptions`."""

    format: Literal["parquet", "orc", "avro", "csv", "json", "dynamodb-json", "delta", "iceberg", "hudi"]
    """File format, or a lake table for ``apply``: ``delta``, ``iceberg``, ``hudi``."""
    key: str | Sequence[str] | None
    """Key attributes of a new lake table. Default: from DescribeTable."""
    buckets: int
    """Buckets (partitions ``_b``) of a new lake table. They never change."""


class ExportFoldKeywords(ExportToFilesKeywords, total=False):
    """Keywords of :class:`ddbio.options.ExportFoldOptions`."""

    as_of: datetime | str | None
    """End of the last window to apply (with time zone). Default: the last one."""
    spill: str | None
    """Folder for intermediate rows that all workers reach. Default: temporary; on Spark, in the target."""


class ScanToFilesKeywords(FilesKeywords, ScanKeywords, total=False):
    """Keywords of :class:`ddbio.options.ScanToFilesOptions`."""

    format: Literal[
        "parquet", "orc", "avro", "csv", "json", "dynamodb-json", "dynamodb-export", "delta", "iceberg", "hudi"
    ]
    """File format; ``dynamodb-export`` (native full export); or a lake table for ``apply``: ``delta``, ``iceberg``,
    ``hudi``.
    """
    buckets: int
    """Buckets (partitions ``_b``) of a new lake table. They never change."""
    digest: bool
    """Compute the order-independent digest of the items."""
    page_journal: str | None
    """Folder for pages of unfinished files, to resume a killed job. On S3: one PUT per page."""


class PlanScanKeywords(ScanToFilesKeywords, total=False):
    """Keywords of :class:`ddbio.options.PlanScanOptions`."""
