"""Types of the public names. Generated: ``python tests/api/generated.py``."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

import pyarrow as pa

from datetime import datetime
from ddbio.advice.advice import Advice as Advice
from ddbio.advice.doctor import DoctorReport as DoctorReport, Finding as Finding
from ddbio.advice.provisioning import CapacityPlan as CapacityPlan
from ddbio.advice.simulation import SimulationReport as SimulationReport
from ddbio.aws.table_description import TableDescription as TableDescription
from ddbio.catalog.glue import CatalogReport as CatalogReport
from ddbio.cdc.archive import ArchiveReport as ArchiveReport, ArchiveRestoreReport as ArchiveRestoreReport
from ddbio.cdc.audit import CaptureStatus as CaptureStatus, CaptureVerifyReport as CaptureVerifyReport
from ddbio.cdc.capture import CaptureReport as CaptureReport
from ddbio.cdc.delivery import DeliveryReport as DeliveryReport
from ddbio.cdc.gaps import Gap as Gap
from ddbio.cdc.heal import CaptureHealPlan as CaptureHealPlan, CaptureHealReport as CaptureHealReport
from ddbio.cdc.replay import ReplayPlan as ReplayPlan, ReplayReport as ReplayReport
from ddbio.errors import AccessDeniedError as AccessDeniedError, DdbioError as DdbioError, DecodeError as DecodeError, EncodeError as EncodeError, EndpointError as EndpointError, ExportIncompleteError as ExportIncompleteError, GapError as GapError, KernelError as KernelError, LimitError as LimitError, NotFoundError as NotFoundError, OptionError as OptionError, PartialWriteError as PartialWriteError, SchemaError as SchemaError, ServiceError as ServiceError, TargetError as TargetError, ThrottledError as ThrottledError, ValidationError as ValidationError
from ddbio.export.backups import BackupJob as BackupJob, BackupPlan as BackupPlan, RestoreJob as RestoreJob, RestorePlan as RestorePlan
from ddbio.export.bulk_puts import BulkEntry as BulkEntry, BulkJob as BulkJob, BulkPlan as BulkPlan
from ddbio.export.bulk_reports import BulkReport as BulkReport, BulkSummary as BulkSummary
from ddbio.export.exports import ExportEntry as ExportEntry, ExportJob as ExportJob, ExportPlan as ExportPlan
from ddbio.export.fold import ExportFoldPlan as ExportFoldPlan, ExportFoldReport as ExportFoldReport
from ddbio.export.fold_rows import Window as Window
from ddbio.export.imports import ImportEntry as ImportEntry, ImportJob as ImportJob, ImportPlan as ImportPlan
from ddbio.export.read import ExportReadPlan as ExportReadPlan, ExportReadReport as ExportReadReport
from ddbio.folders.compact import CompactPlan as CompactPlan, CompactReport as CompactReport
from ddbio.folders.listing import FileList as FileList, ListedFile as ListedFile
from ddbio.folders.publish import PublishPlan as PublishPlan, PublishReport as PublishReport
from ddbio.folders.vacuum import VacuumReport as VacuumReport
from ddbio.formats.layout import LayoutReport as LayoutReport, LayoutSummary as LayoutSummary
from ddbio.formats.scanned_bytes import QueryCost as QueryCost
from ddbio.items.batch_stream import RecordBatchStream as RecordBatchStream
from ddbio.items.changes import ChangeDecoder as ChangeDecoder
from ddbio.items.decode import from_dynamodb_json as from_dynamodb_json
from ddbio.items.encode import to_dynamodb_json as to_dynamodb_json
from ddbio.items.schema.item_schema import ItemSchema as ItemSchema
from ddbio.jobs.estimate import Estimate as Estimate
from ddbio.jobs.prices import Cost as Cost, CostLine as CostLine
from ddbio.jobs.report import FileReport as FileReport, MisfitReport as MisfitReport, ScanReport as ScanReport, WriteReport as WriteReport
from ddbio.jobs.service_estimates import CapturePlan as CapturePlan
from ddbio.jobs.watch import Progress as Progress
from ddbio.keywords import AdviseKeywords as AdviseKeywords, ApplyKeywords as ApplyKeywords, ArchiveKeywords as ArchiveKeywords, ArchiveRestoreKeywords as ArchiveRestoreKeywords, BackupCreateKeywords as BackupCreateKeywords, BootstrapKeywords as BootstrapKeywords, BulkReportKeywords as BulkReportKeywords, BulkStartKeywords as BulkStartKeywords, CaptureHealKeywords as CaptureHealKeywords, CaptureKeywords as CaptureKeywords, CaptureStatusKeywords as CaptureStatusKeywords, CaptureVerifyKeywords as CaptureVerifyKeywords, CatalogDdlKeywords as CatalogDdlKeywords, CatalogSyncKeywords as CatalogSyncKeywords, ChangesReadKeywords as ChangesReadKeywords, ChangesWriteKeywords as ChangesWriteKeywords, CompactKeywords as CompactKeywords, ConnectionKeywords as ConnectionKeywords, CopyKeywords as CopyKeywords, CountKeywords as CountKeywords, CreateLikeKeywords as CreateLikeKeywords, CreateTableKeywords as CreateTableKeywords, DigestKeywords as DigestKeywords, DoctorKeywords as DoctorKeywords, ExpiredReadKeywords as ExpiredReadKeywords, ExportFoldKeywords as ExportFoldKeywords, ExportReadKeywords as ExportReadKeywords, ExportStartKeywords as ExportStartKeywords, ExportToFilesKeywords as ExportToFilesKeywords, ExportWindowsKeywords as ExportWindowsKeywords, FilesListKeywords as FilesListKeywords, HistoryKeywords as HistoryKeywords, IamKeywords as IamKeywords, ImportFilesFromKeywords as ImportFilesFromKeywords, ImportStartKeywords as ImportStartKeywords, ImportWaitKeywords as ImportWaitKeywords, InspectKeywords as InspectKeywords, LayoutKeywords as LayoutKeywords, LoadKeywords as LoadKeywords, MaintainKeywords as MaintainKeywords, PlanCapacityKeywords as PlanCapacityKeywords, PlanCaptureKeywords as PlanCaptureKeywords, PlanScanKeywords as PlanScanKeywords, PublishKeywords as PublishKeywords, ReconcileKeywords as ReconcileKeywords, ReplayKeywords as ReplayKeywords, RestoreKeywords as RestoreKeywords, RollbackKeywords as RollbackKeywords, ScanKeywords as ScanKeywords, ScanToFilesKeywords as ScanToFilesKeywords, SimulateLoadKeywords as SimulateLoadKeywords, SimulateScanKeywords as SimulateScanKeywords, StreamEventKeywords as StreamEventKeywords, VacuumKeywords as VacuumKeywords, ValidateKeywords as ValidateKeywords, VerifyKeywords as VerifyKeywords, ViewKeywords as ViewKeywords, WaitKeywords as WaitKeywords, WriteKeywords as WriteKeywords
from ddbio.lake.apply import ApplyPlan as ApplyPlan, ApplyReport as ApplyReport
from ddbio.lake.bootstrap import BootstrapReport as BootstrapReport
from ddbio.lake.maintain import MaintainPlan as MaintainPlan, MaintainReport as MaintainReport
from ddbio.lake.reconcile import ReconcilePlan as ReconcilePlan, ReconcileReport as ReconcileReport
from ddbio.lake.verify import VerifyReport as VerifyReport
from ddbio.load.copy import CopyPlan as CopyPlan, CopyReport as CopyReport
from ddbio.load.idempotency import idempotency_key as idempotency_key
from ddbio.load.import_files import ImportFilesPlan as ImportFilesPlan, ImportFilesReport as ImportFilesReport
from ddbio.load.plan import LoadPlan as LoadPlan, WritePlan as WritePlan
from ddbio.load.sources import Rows
from ddbio.load.tables import CreatedTable as CreatedTable
from ddbio.options import Credentials as Credentials
from ddbio.public import last_report as last_report, register as register
from ddbio.scan.count import CountPlan as CountPlan, CountReport as CountReport
from ddbio.scan.infer import Source
from ddbio.scan.plan import ScanPlan as ScanPlan
from ddbio.scan.segment_counts import SegmentCount as SegmentCount, SegmentSkew as SegmentSkew
from ddbio.validation.comparison import ValidatePlan as ValidatePlan, ValidationReport as ValidationReport
from ddbio.validation.digest import DigestSource
from ddbio.version import __version__ as __version__
from ddbio import capacity as capacity

def read_table(table: str, **options: Unpack[ScanKeywords]) -> pa.Table:
    """Return a DynamoDB table as an Arrow table, every value exact; no JVM is started.

    Values that do not fit their column are in the last column, ``_rescue``, as DynamoDB JSON.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    **options
        See :class:`ddbio.ScanKeywords`.

    Returns
    -------
    pyarrow.Table
        ``[n_items × n_columns]``; DynamoDB's own types are in the field metadata (``ddb:type``).

    Raises
    ------
    DdbioError
        As :func:`scan_batches`.
    """
    ...

def scan_batches(table: str, **options: Unpack[ScanKeywords]) -> RecordBatchStream:
    """Return a DynamoDB table as an iterator of record batches of one schema, while several lanes read ahead.

    Memory is bounded, regardless of the table's size. Closing the iterator stops the lanes. Readers of Arrow streams
    (DuckDB, polars, Delta) accept the result directly.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    **options
        See :class:`ddbio.ScanKeywords`.

    Raises
    ------
    DdbioError
        At the call: errors of the table, credentials or endpoint. During iteration: the error that ended the scan.
    """
    ...

def scan_to_files(table: str, dest: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None, progress: Callable[[Progress], None] | None = None, **options: Unpack[ScanToFilesKeywords]) -> ScanReport:
    """Scan a DynamoDB table into files that become visible together, with a manifest, or not at all.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    master : str | None
        Spark master and configuration for a new session.
    conf : Mapping[str, str] | None
        Spark master and configuration for a new session.
    progress : Callable[[Progress], None] | None
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        See :class:`ddbio.ScanToFilesKeywords`.

    Raises
    ------
    DdbioError
        Nothing of this job is then visible at the target, and the job can be run again.
    """
    ...

def plan_scan(table: str, dest: str | os.PathLike[str] | None = None, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[PlanScanKeywords]) -> ScanPlan:
    """Return the plan of a scan after describing and sampling the table; nothing is written.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str] | None
        Target of the scan, which is also checked. Default: a scan into memory.
    from_file : str | os.PathLike[str] | None
        JSON that describes the table, which then need not exist: the response of DescribeTable with ``AverageItemSizeBytes``.
    **options
        See :class:`ddbio.PlanScanKeywords`.

    Raises
    ------
    DdbioError
        If the scan would be refused.
    """
    ...

def count_table(table: str, *, progress: Callable[[Progress], None] | None = None, **options: Unpack[CountKeywords]) -> CountReport:
    """Count the items of a table or an index, in all segments or in a random sample of them.

    The service reads and charges the same items as a scan, but transfers only their number.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    progress : Callable[[Progress], None] | None
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        See :class:`ddbio.CountKeywords`.

    Raises
    ------
    OptionError
        If the condition or the index is invalid, or ``sample`` is combined with a condition of the partition key.
    LimitError
        If the plan or the run exceeds a limit of the options.
    DdbioError
        The error that ended the count.
    """
    ...

def plan_count(table: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[CountKeywords]) -> CountPlan:
    """Return the plan of a count after describing the table. No item is read.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    from_file : str | os.PathLike[str] | None
        JSON that describes the table, which then need not exist: the response of DescribeTable with ``AverageItemSizeBytes``.
    **options
        See :class:`ddbio.CountKeywords`.

    Raises
    ------
    DdbioError
        If the count would be refused.
    """
    ...

def infer_schema(source: Source, **options: Unpack[InspectKeywords]) -> ItemSchema:
    """Return the schema of a source's items, which can be merged, compared, saved and passed as ``schema=``.

    Parameters
    ----------
    source : Source
        Bytes are DynamoDB JSON; an ``s3://`` URI, a path with a slash or the name of a data file is a file, a folder or
        a native export; any other text is the name of a table.
    **options
        See :class:`ddbio.InspectKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such table, or no file to read.
    OptionError
        If a name is that of an existing local folder, but may also be the name of a table.
    DecodeError
        If the data is not DynamoDB JSON.
    """
    ...

def digest(source: DigestSource, **options: Unpack[DigestKeywords]) -> str:
    """Return the digest of a source's items. It does not depend on their order, files or column types.

    NULL and missing are different in a table.

    Parameters
    ----------
    source : DigestSource
        A ``pyarrow`` table, batch or reader, or any other data frame with an Arrow C stream, for which ``schema``
        declares
        types that the fields' metadata lacks, such as sets; a Spark DataFrame, which is digested in its partitions;
        bytes
        of DynamoDB JSON; an ``s3://`` URI, a path with a slash or the name of a data file, of Parquet or JSON lines;
        any
        other text is the name of a table, which is scanned.
    **options
        See :class:`ddbio.DigestKeywords`.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    DdbioError
        The errors of ``digest_source``.
    """
    ...

def write_table(data: Rows, table: str, **options: Unpack[WriteKeywords]) -> WriteReport:
    """Write rows into a live table. Returns when every row is written, skipped or rejected. No JVM is started.

    Parameters
    ----------
    data : Rows
        Arrow table, record batch, reader, any iterable of these, or a data frame; or dictionaries: an iterable of rows,
        or one of lists by column. Null means missing.
    table : str
        Name or ARN of the table.
    **options
        See :class:`ddbio.WriteKeywords`.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    DdbioError
        The error that ended the write. Rows that were acknowledged before stay written.
    """
    ...

def load_files(source: str | os.PathLike[str], table: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, progress: Callable[[Progress], None] | None = None, **options: Unpack[LoadKeywords]) -> WriteReport:
    """Write the rows of files into a live table; see :func:`write_table`.

    Parameters
    ----------
    source : str | os.PathLike[str]
        File, folder or glob of Parquet, ORC, Avro, JSON Lines, CSV or Arrow.
    table : str
        Name or ARN of the table.
    master : str | None
        Spark master and configuration, if a session has to be started.
    conf : Mapping[str, str] | None
        Spark master and configuration, if a session has to be started.
    progress : Callable[[Progress], None] | None
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        See :class:`ddbio.LoadKeywords`.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    OptionError
        If the job ``job_id`` was started with another source, table or mode.
    DdbioError
        The error that ended the load. The message has the command to continue it.
    """
    ...

def plan_load(source: str | os.PathLike[str], table: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[LoadKeywords]) -> LoadPlan:
    """Return the plan of a load, after describing the table and sampling one file. Nothing is written.

    Parameters
    ----------
    source : str | os.PathLike[str]
        File, folder or glob of Parquet, ORC, Avro, JSON Lines, CSV or Arrow.
    table : str
        Name or ARN of the table.
    from_file : str | os.PathLike[str] | None
        JSON that describes the table, which then need not exist: DescribeTable's response.
    **options
        See :class:`ddbio.LoadKeywords`.

    Raises
    ------
    DdbioError
        The error with which the load would fail at its start.
    """
    ...

def copy_table(source: str, target: str, *, progress: Callable[[Progress], None] | None = None, **options: Unpack[CopyKeywords]) -> CopyReport:
    """Copy every item of a table, exactly as it is, into another table, also of another region or account.

    Parameters
    ----------
    source : str
        Name or ARN of the source table.
    target : str
        Name of the new table.
    progress : Callable[[Progress], None] | None
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        See :class:`ddbio.CopyKeywords`.

    Raises
    ------
    SchemaError
        If the tables' keys differ.
    PartialWriteError
        If the target refuses an item and ``reject_to`` is not given.
    ValidationError
        If ``verify`` is given and the target then has other items.
    DdbioError
        The error that ended the copy. Items that were acknowledged before stay written.
    """
    ...

def plan_copy(source: str, target: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[CopyKeywords]) -> CopyPlan:
    """Return the plan of a copy, after describing both tables and sampling the source. Nothing is written.

    Parameters
    ----------
    source : str
        Name or ARN of the source table.
    target : str
        Name of the new table.
    from_file : str | os.PathLike[str] | None
        JSON that describes the source, which then need not exist, and a new target like it: DescribeTable's response
        with ``AverageItemSizeBytes``.
    **options
        See :class:`ddbio.CopyKeywords`.

    Raises
    ------
    SchemaError
        If the tables' keys differ.
    DdbioError
        See :func:`copy`.
    """
    ...

def create_table(table: str, **options: Unpack[CreateTableKeywords]) -> CreatedTable:
    """Create a table, wait until it is ACTIVE, and return its name and the request that created it.

    Parameters
    ----------
    table : str
        Name of the new table.
    **options
        See :class:`ddbio.CreateTableKeywords`.

    Raises
    ------
    TargetError
        If it exists.
    OptionError
        If key or indexes are malformed.
    DdbioError
        If it cannot be created.
    """
    ...

def create_table_like(source: str, target: str, **options: Unpack[CreateLikeKeywords]) -> CreatedTable:
    """Create a table like another one, wait until it is ACTIVE, and return its name and the request that created it.

    Keys, indexes, billing, streams, encryption, table class, deletion protection and time to live are the source's,
    with ``copy_tags`` and ``copy_policy`` also tags and resource policy.

    Parameters
    ----------
    source : str
        Name or ARN of the source table.
    target : str
        Name of the new table.
    **options
        See :class:`ddbio.CreateLikeKeywords`.

    Raises
    ------
    TargetError
        If the target exists.
    DdbioError
        If the source cannot be described or the target not be created.
    """
    ...

def describe_table(table: str, **options: Unpack[ConnectionKeywords]) -> TableDescription:
    """Return key, size, billing and indexes of a table.

    Parameters
    ----------
    table : str
        Name or ARN.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    NotFoundError
        If the table does not exist.
    DdbioError
        If it cannot be described.
    """
    ...

def read_export(source: str | os.PathLike[str], **options: Unpack[ExportReadKeywords]) -> pa.Table:
    """Return a native export as an Arrow table, verified against its manifests; no JVM is started.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    **options
        See :class:`ddbio.ExportReadKeywords`.

    Raises
    ------
    NotFoundError
        If there is no export at the source.
    ExportIncompleteError
        If a manifest, a file's checksum or a count is wrong; the message names the file.
    DecodeError
        If a file is not DynamoDB JSON.
    """
    ...

def read_export_batches(source: str | os.PathLike[str], **options: Unpack[ExportReadKeywords]) -> RecordBatchStream:
    """Return a native export as an iterator of record batches of one schema, in bounded memory.

    A file is verified only when its last row has been yielded.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    **options
        See :class:`ddbio.ExportReadKeywords`.

    Raises
    ------
    DdbioError
        As :func:`read_export`.
    """
    ...

def read_export_to_files(source: str | os.PathLike[str], dest: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None, progress: Callable[[Progress], None] | None = None, **options: Unpack[ExportToFilesKeywords]) -> ExportReadReport:
    """Write a native export as files that become visible together, after everything is verified, or not at all.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    dest : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    master : str | None
        Spark master and configuration for a new session.
    conf : Mapping[str, str] | None
        Spark master and configuration for a new session.
    progress : Callable[[Progress], None] | None
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        See :class:`ddbio.ExportToFilesKeywords`.

    Raises
    ------
    DdbioError
        No file of this job is then visible at the target.
    """
    ...

def plan_read_export(source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ExportToFilesKeywords]) -> ExportReadPlan:
    """Return the plan of reading an export, after verifying its manifests and finding its files; nothing is written.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    dest : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    **options
        See :class:`ddbio.ExportToFilesKeywords`.

    Raises
    ------
    NotFoundError, ExportIncompleteError, DecodeError
        As :func:`read_export`.
    """
    ...

def fold_exports(source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], **options: Unpack[ExportReadKeywords]) -> pa.Table:
    """Return a table's state after a full export and the following incremental exports, in memory.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    increments : Sequence[str | os.PathLike[str]]
        Incremental exports of the same table, in any order; there must be no gap between their windows.
    **options
        See :class:`ddbio.ExportReadKeywords`.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or there is a gap between the windows.
    SchemaError
        If a key does not fit its column.
    """
    ...

def fold_exports_to_files(source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], dest: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None, **options: Unpack[ExportFoldKeywords]) -> ExportFoldReport:
    """Write a table's state after a full export and the following increments, as files that appear together.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    increments : Sequence[str | os.PathLike[str]]
        Incremental exports of the same table, in any order; there must be no gap between their windows.
    dest : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    master : str | None
        Spark master and configuration for a new session.
    conf : Mapping[str, str] | None
        Spark master and configuration for a new session.
    **options
        See :class:`ddbio.ExportFoldKeywords`.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or there is a gap between the windows; the message names the missing window.
    SchemaError
        If a key does not fit its column.
    """
    ...

def plan_fold_exports(source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], dest: str | os.PathLike[str], **options: Unpack[ExportFoldKeywords]) -> ExportFoldPlan:
    """Return the plan of :func:`fold_exports_to_files`, after verifying all manifests; nothing is written.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local.
    increments : Sequence[str | os.PathLike[str]]
        Incremental exports of the same table, in any order; there must be no gap between their windows.
    dest : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    **options
        See :class:`ddbio.ExportFoldKeywords`.

    Raises
    ------
    ExportIncompleteError
        If an export is damaged, or there is a gap between the windows; the message names the missing window.
    LimitError
        If the plan exceeds a limit.
    """
    ...

def export_windows(source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]] = (), **options: Unpack[ExportWindowsKeywords]) -> list[Window]:
    """Return the windows of the incremental exports that are missing after a full export.

    Nothing is requested: pass ``start`` and ``end`` of each to :func:`start_export` as ``from_time`` and ``to_time``.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of the full export.
    increments : Sequence[str | os.PathLike[str]]
        Existing incremental exports.
    **options
        See :class:`ddbio.ExportWindowsKeywords`.

    Raises
    ------
    ExportIncompleteError
        If a manifest is damaged, or an export is not an unfiltered export of the same table.
    """
    ...

def start_export(table: str, dest: str, **options: Unpack[ExportStartKeywords]) -> ExportJob:
    """Start the service's own export of a table to S3 and return immediately; it uses no read units.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str
        ``s3://bucket/prefix``. The service writes to ``AWSDynamoDB/ID`` below it.
    **options
        See :class:`ddbio.ExportStartKeywords`.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No export was started.
    """
    ...

def plan_export(table: str, dest: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[ExportStartKeywords]) -> ExportPlan:
    """Return the plan of :func:`start_export`, after the same checks; nothing is started.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str
        ``s3://bucket/prefix``. The service writes to ``AWSDynamoDB/ID`` below it.
    from_file : str | os.PathLike[str] | None
        File with the JSON response of DescribeTable; the table need not exist.
    **options
        See :class:`ddbio.ExportStartKeywords`.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.exports.plan_export` and :func:`ddbio.aws.control_plane.check_bucket`.
    LimitError
        If the plan exceeds a limit.
    """
    ...

def wait_export(arn: str, **options: Unpack[WaitKeywords]) -> ExportJob:
    """Return an export once it has completed.

    Parameters
    ----------
    arn : str
        ARN of the job.
    **options
        See :class:`ddbio.WaitKeywords`.

    Raises
    ------
    NotFoundError, AccessDeniedError, ServiceError
        If it has failed; the class of the error depends on the code of the service.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    ...

def describe_export(arn: str, **options: Unpack[ConnectionKeywords]) -> ExportJob:
    """Return the description of an export.

    Parameters
    ----------
    arn : str
        As :func:`start_export` returned it.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def list_exports(table: str | None = None, **options: Unpack[ConnectionKeywords]) -> list[ExportEntry]:
    """Return the exports of the last 90 days, of a table or of all.

    Parameters
    ----------
    table : str | None
        Name or ARN.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def write_import_files(source: Rows | str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ImportFilesFromKeywords]) -> ImportFilesReport:
    """Write rows as files for the service's own import of a new table. They become visible together, or not at all.

    Parameters
    ----------
    source : Rows | str | os.PathLike[str]
        A string or a path is a file, folder or glob. Anything else is rows, as for :func:`write_table`.
    dest : str | os.PathLike[str]
        Folder. The objects are written to ``data`` below it.
    **options
        See :class:`ddbio.ImportFilesFromKeywords`.

    Raises
    ------
    NotFoundError, DecodeError
        If the file does not exist, or its format is not that of its name.
    EncodeError
        If a row is not a valid item, or has the key of another row.
    DdbioError
        After any error, the target has no new visible file.
    """
    ...

def plan_import_files(source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ImportFilesFromKeywords]) -> ImportFilesPlan:
    """Return the time and cost of :func:`write_import_files`, from the list of the files alone.

    Parameters
    ----------
    source : str | os.PathLike[str]
        File, folder or glob of Parquet, ORC, Avro, JSON Lines, CSV or Arrow.
    dest : str | os.PathLike[str]
        Folder. The objects are written to ``data`` below it.
    **options
        See :class:`ddbio.ImportFilesFromKeywords`.

    Raises
    ------
    NotFoundError, DecodeError
        If the file does not exist, or its format is not that of its name.
    LimitError
        If the plan is above a limit.
    """
    ...

def check_import_files(source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ImportFilesFromKeywords]) -> ImportFilesReport:
    """Read and check every row as :func:`write_import_files` does, and write nothing.

    Parameters
    ----------
    source : str | os.PathLike[str]
        File, folder or glob of Parquet, ORC, Avro, JSON Lines, CSV or Arrow.
    dest : str | os.PathLike[str]
        Folder. The objects are written to ``data`` below it.
    **options
        See :class:`ddbio.ImportFilesFromKeywords`.

    Raises
    ------
    EncodeError
        If a row is not a valid item, or has the key of another row.
    DdbioError
        Any other error.
    """
    ...

def start_import(source: str, table: str, **options: Unpack[ImportStartKeywords]) -> ImportJob:
    """Start the service's own import of objects into a new table and return immediately; it uses no write units.

    Parameters
    ----------
    source : str
        ``s3://bucket/prefix`` of the objects: the target of ``import files``, or its ``data``.
    table : str
        Name of the new table.
    **options
        See :class:`ddbio.ImportStartKeywords`.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No import was started.
    """
    ...

def plan_import(source: str, table: str, **options: Unpack[ImportStartKeywords]) -> ImportPlan:
    """Return the plan of :func:`start_import`, after the same checks; nothing is started.

    Parameters
    ----------
    source : str
        ``s3://bucket/prefix`` of the objects: the target of ``import files``, or its ``data``.
    table : str
        Name of the new table.
    **options
        See :class:`ddbio.ImportStartKeywords`.

    Raises
    ------
    NotFoundError
        If the prefix has no items, because the service would create an empty table.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.imports.plan_import`.
    """
    ...

def wait_import(arn: str, **options: Unpack[ImportWaitKeywords]) -> ImportJob:
    """Return an import once it has completed with the number of items of its files.

    Parameters
    ----------
    arn : str
        ARN of the job.
    **options
        See :class:`ddbio.ImportWaitKeywords`.

    Raises
    ------
    NotFoundError, AccessDeniedError, ServiceError
        If it has failed; the class of the error depends on the code of the service.
    ValidationError
        If the table does not have the items of the files.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    ...

def describe_import(arn: str, **options: Unpack[ConnectionKeywords]) -> ImportJob:
    """Return the description of an import.

    Parameters
    ----------
    arn : str
        As :func:`start_import` returned it.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def list_imports(table: str | None = None, **options: Unpack[ConnectionKeywords]) -> list[ImportEntry]:
    """Return the imports of the last 90 days, of a table or of all.

    Parameters
    ----------
    table : str | None
        Name or ARN.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def start_bulk_put(source: str, table: str, reports: str, **options: Unpack[BulkStartKeywords]) -> BulkJob:
    """Start the service's own put of objects into an existing table, and return immediately; experimental.

    Parameters
    ----------
    source : str
        ``s3://bucket/prefix`` of the objects: the target of ``import files``, or its ``data``.
    table : str
        Name or ARN of an existing table.
    reports : str
        ``s3://bucket/prefix`` for reports of failed items, outside the source.
    **options
        See :class:`ddbio.BulkStartKeywords`.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No bulk put was started.
    """
    ...

def plan_bulk_put(source: str, table: str, reports: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[BulkStartKeywords]) -> BulkPlan:
    """Return the plan of :func:`start_bulk_put`, after the same checks; nothing is started.

    Parameters
    ----------
    source : str
        ``s3://bucket/prefix`` of the objects: the target of ``import files``, or its ``data``.
    table : str
        Name or ARN of an existing table.
    reports : str
        ``s3://bucket/prefix`` for reports of failed items, outside the source.
    from_file : str | os.PathLike[str] | None
        File with the JSON response of DescribeTable; the table need not exist.
    **options
        See :class:`ddbio.BulkStartKeywords`.

    Raises
    ------
    NotFoundError
        If the table, the objects or the bucket for reports do not exist.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.bulk_puts.plan_bulk`.
    """
    ...

def wait_bulk_put(arn: str, **options: Unpack[WaitKeywords]) -> BulkJob:
    """Return a bulk put once it has put all items of its objects.

    Parameters
    ----------
    arn : str
        ARN of the job.
    **options
        See :class:`ddbio.WaitKeywords`.

    Raises
    ------
    PartialWriteError
        If some items were refused; the message contains the location of the reports.
    NotFoundError, AccessDeniedError, ServiceError
        If it failed or was cancelled; the items that it has put stay in the table.
    ValidationError
        If it read a different number of items than the files contain.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    ...

def describe_bulk_put(arn: str, **options: Unpack[ConnectionKeywords]) -> BulkJob:
    """Return the description of a bulk put.

    Parameters
    ----------
    arn : str
        As :func:`start_bulk_put` returned it.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def cancel_bulk_put(arn: str, **options: Unpack[ConnectionKeywords]) -> BulkJob:
    """Stop a bulk put; the items that it has put stay.

    Parameters
    ----------
    arn : str
        As for :func:`describe_bulk_put`.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def list_bulk_puts(**options: Unpack[ConnectionKeywords]) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days.

    Parameters
    ----------
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def read_bulk_report(place: str | os.PathLike[str], **options: Unpack[BulkReportKeywords]) -> BulkReport:
    """Return the items that a bulk put did not put, from the service's reports: rows and counts; experimental.

    Parameters
    ----------
    place : str | os.PathLike[str]
        ARN of the bulk operation, or the folder of its reports.
    **options
        See :class:`ddbio.BulkReportKeywords`.

    Raises
    ------
    NotFoundError
        If there is no report, or no such bulk operation.
    AccessDeniedError, EndpointError
        If the reports cannot be read.
    """
    ...

def create_backup(table: str, **options: Unpack[BackupCreateKeywords]) -> BackupJob:
    """Create a backup of a table, and return when it can be restored.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    **options
        See :class:`ddbio.BackupCreateKeywords`.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        If the backup cannot be created.
    ThrottledError
        If it is not ready after ``wait_seconds``.
    """
    ...

def plan_backup(table: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[BackupCreateKeywords]) -> BackupPlan:
    """Return the plan and the monthly cost of :func:`create_backup`; nothing is started.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    from_file : str | os.PathLike[str] | None
        File with the JSON response of DescribeTable; the table need not exist.
    **options
        See :class:`ddbio.BackupCreateKeywords`.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError
        If the table cannot be described.
    LimitError
        If the plan exceeds a limit.
    """
    ...

def list_backups(table: str | None = None, **options: Unpack[ConnectionKeywords]) -> list[BackupJob]:
    """Return the backups of a table or of all, those of AWS Backup included.

    Parameters
    ----------
    table : str | None
        Name or ARN.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    ...

def restore_table(source: str, target: str, **options: Unpack[RestoreKeywords]) -> RestoreJob:
    """Create a table from a backup, or from the state of a table at a time; return when it can be used.

    Parameters
    ----------
    source : str
        ARN of a backup, or a table (name or ARN) with point-in-time recovery.
    target : str
        Name of the new table.
    **options
        See :class:`ddbio.RestoreKeywords`.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        Nothing was started.
    ValidationError
        If count or digest differ from the expected ones; the new table stays.
    ThrottledError
        If it is not ready after ``wait_seconds``; the restore continues.
    """
    ...

def plan_restore(source: str, target: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[RestoreKeywords]) -> RestorePlan:
    """Return the plan of :func:`restore_table`, after the same checks; nothing is started.

    Parameters
    ----------
    source : str
        ARN of a backup, or a table (name or ARN) with point-in-time recovery.
    target : str
        Name of the new table.
    from_file : str | os.PathLike[str] | None
        File with the JSON response of DescribeTable for the restored table; AWS is not called.
    **options
        See :class:`ddbio.RestoreKeywords`.

    Raises
    ------
    OptionError
        If the target table exists, or the time is outside the recovery window.
    NotFoundError, AccessDeniedError, EndpointError
        If the source cannot be described.
    """
    ...

def capture(table: str, dest: str | os.PathLike[str], *, stop: threading.Event | None = None, source: Literal["streams", "kinesis"] = 'streams', **options: Unpack[CaptureKeywords]) -> CaptureReport:
    """Write every change of a table once into a log of Parquet files.

    A later run resumes where the last one stopped.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str]
        Folder of the log.
    stop : threading.Event | None
        Set it from another thread to end the capture after its current batch.
    **options
        See :class:`ddbio.CaptureKeywords`.

    Raises
    ------
    NotFoundError, OptionError
        If the table does not exist, or it has no stream; if the log belongs to another table, or to a deleted table
        with the same name.
    GapError
        If changes were trimmed before they were read, or the table has another stream than in the last run. The changes
        between two streams are in neither of them.
    TargetError
        If another process captures under this job id.
    LimitError
        If the cost exceeds ``max_usd`` by more than 10 %. The captured changes are written.
    """
    ...

def plan_capture(**options: Unpack[PlanCaptureKeywords]) -> CapturePlan:
    """Plan the capture of a table's changes for a month, with its cost. No service is called.

    Parameters
    ----------
    **options
        See :class:`ddbio.PlanCaptureKeywords`.

    Raises
    ------
    OptionError
        If the file is no price book.
    LimitError
        If the plan is above a limit.
    """
    ...

def capture_status(dest: str | os.PathLike[str], **options: Unpack[CaptureStatusKeywords]) -> list[CaptureStatus]:
    """Return the status of each capture that writes a log: positions, batches, and whether it runs.

    Parameters
    ----------
    dest : str | os.PathLike[str]
        Folder of the log.
    **options
        See :class:`ddbio.CaptureStatusKeywords`.

    Raises
    ------
    NotFoundError
        If the log has no capture.
    """
    ...

def verify_capture(dest: str | os.PathLike[str], **options: Unpack[CaptureVerifyKeywords]) -> CaptureVerifyReport:
    """Compare the files of a log with the records of its batches, and count lost changes.

    Parameters
    ----------
    dest : str | os.PathLike[str]
        Folder of the log.
    **options
        See :class:`ddbio.CaptureVerifyKeywords`.

    Raises
    ------
    NotFoundError
        If the log or the job does not exist.
    """
    ...

def heal_capture(table: str, dest: str | os.PathLike[str], **options: Unpack[CaptureHealKeywords]) -> CaptureHealReport:
    """Fill the gaps of a log from incremental exports: items with lost changes get rows in the log.

    A healed gap is not changed. A stopped run is resumed.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str]
        Folder of the log.
    **options
        See :class:`ddbio.CaptureHealKeywords`.

    Raises
    ------
    NotFoundError
        If the capture or the table does not exist.
    OptionError
        If exports have to be requested and ``export_to`` is missing, or recovery does not reach back to a gap.
    ExportIncompleteError
        If the given exports do not cover a gap, or one is damaged.
    TargetError
        If another process heals this log.
    """
    ...

def plan_heal_capture(table: str, dest: str | os.PathLike[str], **options: Unpack[CaptureHealKeywords]) -> CaptureHealPlan:
    """Return the gaps of a log, with the time and cost of healing them. Nothing is exported or written.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str]
        Folder of the log.
    **options
        See :class:`ddbio.CaptureHealKeywords`.

    Raises
    ------
    NotFoundError
        If the capture or the table does not exist.
    OptionError
        If the table's point-in-time recovery does not reach back to a gap.
    LimitError
        If the plan is above a limit.
    """
    ...

def read_changes(source: str | os.PathLike[str], *, table: str | None = None, **options: Unpack[ChangesReadKeywords]) -> pa.Table:
    """Return the changes under a prefix as an Arrow table.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of the objects.
    **options
        See :class:`ddbio.ChangesReadKeywords`.

    Raises
    ------
    NotFoundError
        If there are no objects.
    OptionError
        If there are changes of several tables, and ``table`` is not given.
    DecodeError
        If a record is not a change, and ``reject_to`` is not given.
    """
    ...

def read_changes_batches(source: str | os.PathLike[str], *, table: str | None = None, **options: Unpack[ChangesReadKeywords]) -> RecordBatchStream:
    """Return the same changes as :func:`read_changes` as a stream of batches, one for each object.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of the objects.
    **options
        See :class:`ddbio.ChangesReadKeywords`.

    Raises
    ------
    NotFoundError, OptionError, DecodeError
        As for :func:`read_changes`.
    """
    ...

def write_changes(changes: Iterable[bytes], dest: str | os.PathLike[str], *, table: str | None = None, **options: Unpack[ChangesWriteKeywords]) -> DeliveryReport:
    """Write change records below a prefix in the layout of Firehose.

    Invalid records are written below the error prefix.

    Parameters
    ----------
    changes : Iterable[bytes]
        Texts with any number of change records each. Replies of GetRecords are also accepted.
    dest : str | os.PathLike[str]
        Folder of the prefixes.
    **options
        See :class:`ddbio.ChangesWriteKeywords`.

    Raises
    ------
    OptionError
        If a prefix has an unknown expression. Nothing is written then.
    """
    ...

def replay(source: str | os.PathLike[str], dest: str | os.PathLike[str] | None = None, *, table: str | None = None, **options: Unpack[ReplayKeywords]) -> ReplayReport:
    """Replay changes that Firehose has delivered, or written under its error prefix. Each object is replayed once.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of the objects.
    dest : str | os.PathLike[str] | None
        Folder of the log.
    **options
        See :class:`ddbio.ReplayKeywords`.

    Raises
    ------
    NotFoundError
        If there are no objects, or the table does not exist.
    DecodeError
        If a record is not a change, and there is no ``reject_to``.
    OptionError
        If the job was started with another source, target or table; if there are changes of several tables.
    TargetError
        If another process runs this replay.
    """
    ...

def plan_replay(source: str | os.PathLike[str], dest: str | os.PathLike[str] | None = None, *, table: str | None = None, **options: Unpack[ReplayKeywords]) -> ReplayPlan:
    """Return the objects that :func:`replay` would read. Nothing is written.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of the objects.
    dest : str | os.PathLike[str] | None
        Folder of the log.
    **options
        See :class:`ddbio.ReplayKeywords`.

    Raises
    ------
    NotFoundError
        If there are no objects.
    """
    ...

def archive(source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ArchiveKeywords]) -> ArchiveReport:
    """Archive the items that the time to live has deleted, from the log of a table's changes. Each is archived once.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Log folder with old images. With ``log``: the table.
    dest : str | os.PathLike[str]
        Folder of the archive. ``s3_storage_class`` applies to its files.
    **options
        See :class:`ddbio.ArchiveKeywords`.

    Raises
    ------
    NotFoundError
        If the log or the table does not exist.
    OptionError
        If the log has no old images, or no expired item has the attribute.
    TargetError
        If another process archives under this job id.
    """
    ...

def restore_archived(source: str | os.PathLike[str], table: str, **options: Unpack[ArchiveRestoreKeywords]) -> ArchiveRestoreReport:
    """Restore archived items into a table, each in its state when it last expired.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of the archive.
    table : str
        Name or ARN of the table.
    **options
        See :class:`ddbio.ArchiveRestoreKeywords`.

    Raises
    ------
    NotFoundError
        If the archive or the table does not exist.
    """
    ...

def read_expired(source: str | os.PathLike[str], **options: Unpack[ExpiredReadKeywords]) -> pa.Table:
    """Return the items of a table or an export that are expired and not deleted yet, as one Arrow table.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Table, or folder of an export.
    **options
        See :class:`ddbio.ExpiredReadKeywords`.

    Raises
    ------
    OptionError
        If the attribute with the expiry time is unknown, or it is not a number.
    """
    ...

def read_expired_batches(source: str | os.PathLike[str], **options: Unpack[ExpiredReadKeywords]) -> RecordBatchStream:
    """Return the same items as :func:`read_expired`, as a stream of batches.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Table, or folder of an export.
    **options
        See :class:`ddbio.ExpiredReadKeywords`.

    Raises
    ------
    OptionError
        If the attribute with the expiry time is unknown, or it is not a number.
    """
    ...

def apply(log: Any, table: str | os.PathLike[str], **options: Unpack[ApplyKeywords]) -> ApplyReport:
    """Merge the new changes of a log into a lake table; the newest state of an item wins.

    Parameters
    ----------
    log : Any
        Folder of a log of :func:`capture`, or of an incremental export. Or changes as rows with the columns of a log:
        an Arrow table, or a DataFrame of polars, pandas or Spark.
    table : str | os.PathLike[str]
        Folder of the lake table, which is created if missing.
    **options
        See :class:`ddbio.ApplyKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such log, or it has no changes yet.
    OptionError
        If changes cannot be applied to the table, or it has another key.
    SchemaError
        If the rows are not changes.
    ExportIncompleteError
        If an export is damaged, or there is a gap between the table's changes and the export.
    TargetError
        If other writers repeatedly win the race for a commit, or the log lacks batches that were applied.
    """
    ...

def plan_apply(log: str | os.PathLike[str], table: str | os.PathLike[str], **options: Unpack[ApplyKeywords]) -> ApplyPlan:
    """Return the expected effect of :func:`apply`; nothing is written.

    Parameters
    ----------
    log : str | os.PathLike[str]
        Folder of a log or of an incremental export.
    table : str | os.PathLike[str]
        Folder of the lake table, which is created if missing.
    **options
        See :class:`ddbio.ApplyKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such log, or no such table yet.
    """
    ...

def maintain(table: str | os.PathLike[str], **options: Unpack[MaintainKeywords]) -> MaintainReport:
    """Rewrite small files of a lake table as larger ones, and remove old tombstones, versions and files.

    Parameters
    ----------
    table : str | os.PathLike[str]
        Folder of the lake table.
    **options
        See :class:`ddbio.MaintainKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not create the table.
    TargetError
        If other writers repeatedly win the race for a commit, or the catalog has another table of this name.
    """
    ...

def plan_maintain(table: str | os.PathLike[str], **options: Unpack[MaintainKeywords]) -> MaintainPlan:
    """Return the files that :func:`maintain` would rewrite and delete; nothing is written.

    Parameters
    ----------
    table : str | os.PathLike[str]
        Folder of the lake table.
    **options
        See :class:`ddbio.MaintainKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not create the table.
    """
    ...

def maintain_by_policy(path: str | os.PathLike[str], **options: Unpack[ConnectionKeywords]) -> tuple[MaintainReport, ...]:
    """Maintain the lake tables of a policy file in TOML or YAML.

    Parameters
    ----------
    path : str | os.PathLike[str]
        The file, with ``defaults`` and ``tables``, a list of options that include ``table``.
    **options
        See :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such file, or no such table.
    OptionError
        If the file is invalid; the message names the table.
    TargetError
        If other writers repeatedly win the race for a commit.
    """
    ...

def bootstrap(table: str, target: str | os.PathLike[str], **options: Unpack[BootstrapKeywords]) -> BootstrapReport:
    """Create a lake table with the content of a DynamoDB table, or bring it up to date: log, base, and changes.

    Parameters
    ----------
    table : str
        Name or ARN of the table, which needs a stream.
    target : str | os.PathLike[str]
        Folder of the lake table.
    **options
        See :class:`ddbio.BootstrapKeywords`.

    Raises
    ------
    NotFoundError, OptionError
        If there is no such table, or it has no stream, or the catalog cannot have a table of this name.
    TargetError
        If another process writes the log or the lake table, or changes are lost repeatedly, or the catalog has another
        table of this name.
    EndpointError
        If the catalog is unavailable.
    """
    ...

def reconcile(table: str, dest: str | os.PathLike[str], target: str | os.PathLike[str] | None = None, **options: Unpack[ReconcileKeywords]) -> ReconcileReport:
    """Compare each closed window of a log of changes with an incremental export; count and repair lost changes.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str]
        Folder of the log.
    target : str | os.PathLike[str] | None
        Folder of the lake table to update afterwards.
    **options
        See :class:`ddbio.ReconcileKeywords`.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    OptionError
        If exports are needed and ``export_to`` is missing, or the window is too old for exports.
    ExportIncompleteError
        If the given exports do not cover a window, or one is damaged.
    TargetError
        If another process reconciles this log.
    """
    ...

def plan_reconcile(table: str, dest: str | os.PathLike[str], *, target: str | None = None, **options: Unpack[ReconcileKeywords]) -> ReconcilePlan:
    """Return the windows that :func:`reconcile` would compare, and the cost of their exports; nothing is started.

    Parameters
    ----------
    table : str
        Name or ARN of the table.
    dest : str | os.PathLike[str]
        Folder of the log.
    **options
        See :class:`ddbio.ReconcileKeywords`.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    LimitError
        If the plan exceeds a limit.
    """
    ...

def verify(table: str | os.PathLike[str], lake: str | os.PathLike[str], **options: Unpack[VerifyKeywords]) -> VerifyReport:
    """Compare a lake table with its DynamoDB table, now or as of a time, and return the differences.

    Parameters
    ----------
    table : str | os.PathLike[str]
        Name or ARN of the table, or folder of its full export.
    lake : str | os.PathLike[str]
        Folder of the lake table.
    **options
        See :class:`ddbio.VerifyKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such table, export or lake table.
    OptionError
        If ``at`` is set without an export or ``export_to``; or if the base of the lake table is newer.
    ExportIncompleteError
        If the export is damaged.
    """
    ...

def history(source: str | os.PathLike[str], **options: Unpack[HistoryKeywords]) -> pa.Table:
    """Return the states of one or all items, with ``valid_from``, ``valid_to`` and ``operation``.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder of a log or of a lake table.
    **options
        See :class:`ddbio.HistoryKeywords`.

    Raises
    ------
    NotFoundError
        If there is neither a log nor a lake table.
    OptionError
        If the key is not a key of the table.
    """
    ...

def history_view_sql(log: str | os.PathLike[str], *, target: str | None = None, dialect: Literal["spark", "duckdb", "athena"] = 'spark', **options: Unpack[ViewKeywords]) -> str:
    """Return the SQL of the history of all items of a log (SCD2), for Spark, DuckDB or Athena.

    Parameters
    ----------
    log : str | os.PathLike[str]
        Folder of the log.
    **options
        See :class:`ddbio.ViewKeywords`.

    Raises
    ------
    NotFoundError
        If there is no log.
    OptionError
        If the log has changes of several streams, or the engine cannot read folders.
    """
    ...

def latest_view_sql(log: str | os.PathLike[str], lake: str | os.PathLike[str], *, dialect: Literal["spark", "duckdb", "athena"] = 'spark', **options: Unpack[ViewKeywords]) -> str:
    """Return the SQL of the newest state of all items, from a lake table and the newer changes of the log.

    Parameters
    ----------
    log : str | os.PathLike[str]
        Folder of the log.
    lake : str | os.PathLike[str]
        Folder of the lake table. A history view needs none.
    **options
        See :class:`ddbio.ViewKeywords`.

    Raises
    ------
    NotFoundError
        If there is no log, or no lake table.
    OptionError
        If the log has changes of several streams, the engine cannot read folders, or column types do not match.
    """
    ...

def list_files(path: str | os.PathLike[str], **options: Unpack[FilesListKeywords]) -> FileList:
    """Return the live files of a folder of ddbio; pass their ``paths`` to a reader of files.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    **options
        See :class:`ddbio.FilesListKeywords`.

    Raises
    ------
    NotFoundError
        If the folder has no such version.
    OptionError
        If it is a lake table, or the output of a Spark stream.
    """
    ...

def compact(path: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None, **options: Unpack[CompactKeywords]) -> CompactReport:
    """Rewrite the small files of a folder as a few large ones, which replace them in one commit.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    master : str | None
        Spark master and configuration, for a session that has to be started.
    conf : Mapping[str, str] | None
        Spark master and configuration, for a session that has to be started.
    **options
        See :class:`ddbio.CompactKeywords`.

    Raises
    ------
    NotFoundError
        If the folder has no live file.
    TargetError
        If another job replaces files of the folder now, or did in the meantime; the folder then keeps the state of that
        job. Or if the files could not be the table that ``catalog`` names.
    """
    ...

def plan_compact(path: str | os.PathLike[str], **options: Unpack[CompactKeywords]) -> CompactPlan:
    """Return the plan of :func:`compact`, from the list of the live files alone.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    **options
        See :class:`ddbio.CompactKeywords`.

    Raises
    ------
    NotFoundError
        If the folder has no live file.
    """
    ...

def vacuum(path: str | os.PathLike[str], *, dry_run: bool = False, **options: Unpack[VacuumKeywords]) -> VacuumReport:
    """Delete old versions of a folder, files that only they name, and remains of dead jobs; other files stay.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    dry_run : bool
        Delete nothing, and report what would be deleted.
    **options
        See :class:`ddbio.VacuumKeywords`.

    Raises
    ------
    TargetError
        If another job replaces files of the folder now.
    """
    ...

def publish(source: str | os.PathLike[str], dest: str | os.PathLike[str], *, check: Callable[[list[str]], None] | None = None, **options: Unpack[PublishKeywords]) -> PublishReport:
    """Make the live files of a folder the next version of another; its readers see the old version or the new one.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder whose live files are published.
    dest : str | os.PathLike[str]
        Folder that readers use.
    check : Callable[[list[str]], None] | None
        Called with the URIs or local paths of the files; nothing is published if it raises.
    **options
        See :class:`ddbio.PublishKeywords`.

    Raises
    ------
    NotFoundError
        If the source has no live file, or one of them does not exist.
    TargetError
        If the files do not have the expected contents, or break a rule, or another job replaces files of the target
        now.
        Or if they could not be the table that ``catalog`` names.
    """
    ...

def plan_publish(source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[PublishKeywords]) -> PublishPlan:
    """Return the copies, resources and cost of :func:`publish`, from the list of the live files alone.

    Parameters
    ----------
    source : str | os.PathLike[str]
        Folder whose live files are published.
    dest : str | os.PathLike[str]
        Folder that readers use.
    **options
        See :class:`ddbio.PublishKeywords`.

    Raises
    ------
    NotFoundError
        If the source has no live file.
    LimitError
        If the plan is above a limit.
    """
    ...

def rollback(path: str | os.PathLike[str], **options: Unpack[RollbackKeywords]) -> PublishReport:
    """Make an older version of a folder its newest version again.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    **options
        See :class:`ddbio.RollbackKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such version, or its files do not exist.
    TargetError
        If another job replaces files of the folder now.
    """
    ...

def layout(path: str | os.PathLike[str], **options: Unpack[LayoutKeywords]) -> LayoutReport:
    """Return the layout of a dataset: file sizes, small files, row groups, partitions, bytes of columns, query costs.

    Only the footers of Parquet and ORC are read, and no row.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    **options
        See :class:`ddbio.LayoutKeywords`.

    Raises
    ------
    NotFoundError
        If the folder has no file of rows.
    DecodeError
        If the footer of a file is damaged.
    OptionError
        If charts are requested and matplotlib is not installed, or no file has a requested column or partition.
    TargetError
        If a page cannot be written.
    """
    ...

def sync_catalog(path: str | os.PathLike[str], target: str, **options: Unpack[CatalogSyncKeywords]) -> CatalogReport:
    """Create or update the Glue table of a folder's live files, and register its partitions.

    Columns are only added, at the end. Repeating the call changes nothing.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` of the files.
    target : str
        Table ``glue://database.table``. A missing database or table is created.
    **options
        See :class:`ddbio.CatalogSyncKeywords`.

    Raises
    ------
    NotFoundError
        If the folder has no files.
    SchemaError, TargetError
        If :func:`check_catalog` raises it.
    AccessDeniedError, EndpointError, ServiceError
        If Glue refuses.
    """
    ...

def catalog_ddl(path: str | os.PathLike[str], dialect: Literal["athena", "hive", "spark", "unity", "duckdb", "redshift", "trino", "snowflake"], **options: Unpack[CatalogDdlKeywords]) -> str:
    """Return the DDL of the table of a folder's live files, or of a lake table in the folder.

    Parameters
    ----------
    path : str | os.PathLike[str]
        ``s3://bucket/prefix`` or a local folder.
    dialect : Literal["athena", "hive", "spark", "unity", "duckdb", "redshift", "trino", "snowflake"]
        SQL dialect.
    **options
        See :class:`ddbio.CatalogDdlKeywords`.

    Raises
    ------
    NotFoundError
        If the folder has no files.
    OptionError
        If the dialect cannot describe it.
    SchemaError
        If the dialect has no type for a column.
    """
    ...

def validate(source: Any, target: Any | None = None, *, master: str | None = None, conf: Mapping[str, str] | None = None, **options: Unpack[ValidateKeywords]) -> ValidationReport:
    """Return whether two sides contain the same items, the differing keys, and the results of quality rules.

    Parameters
    ----------
    source : Any
        A ``pyarrow`` table or batch, a data frame with an Arrow C stream, or a Spark DataFrame; an ``s3://`` URI, a
        path
        with a slash or the name of a data file, for files or a native export; any other text is the name of a table.
        Without a target only rules are evaluated.
    target : Any | None
        A ``pyarrow`` table or batch, a data frame with an Arrow C stream, or a Spark DataFrame; an ``s3://`` URI, a
        path
        with a slash or the name of a data file, for files or a native export; any other text is the name of a table.
        Without a target only rules are evaluated.
    master : str | None
        Spark master and configuration, for a session that has to be started.
    conf : Mapping[str, str] | None
        Spark master and configuration, for a session that has to be started.
    **options
        See :class:`ddbio.ValidateKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such table, folder or file.
    OptionError
        If the key is unknown, or the file of rules is invalid.
    SchemaError
        If a row lacks its key, or a column has a type that DynamoDB cannot represent exactly.
    DecodeError
        If a file is damaged.
    TargetError
        If the page cannot be written.
    """
    ...

def plan_validate(source: Any, target: Any | None = None, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[ValidateKeywords]) -> ValidatePlan:
    """Return the plan of a validation: its reads, cost and key.

    Parameters
    ----------
    source : Any
        As for :func:`validate`.
    target : Any | None
        As for :func:`validate`.
    from_file : str | os.PathLike[str] | None
        JSON file in the format of DescribeTable that describes the tables among the sides, which need not exist.
    **options
        See :class:`ddbio.ValidateKeywords`.

    Raises
    ------
    DdbioError
        As :func:`validate`.
    """
    ...

def advise(table: str | None = None, **options: Unpack[AdviseKeywords]) -> Advice:
    """Compare the methods to keep a copy of a table in S3: costs, times, limits, and the cheapest one.

    Methods are scans, full and incremental exports, streams with Firehose, Kinesis Data Streams, zero-ETL, Glue and EMR
    Serverless. The table is described, and CloudWatch returns the rate of changes. No item is read.

    Parameters
    ----------
    table : str | None
        Name or ARN of the table.
    **options
        See :class:`ddbio.AdviseKeywords`.

    Raises
    ------
    OptionError
        If the table's file or the prices cannot be used, or the rate of changes is unknown.
    NotFoundError
        If the table does not exist.
    DdbioError
        If the table cannot be described, or a page cannot be written.
    """
    ...

def plan_capacity(table: str, *, target: float = 0.7, **options: Unpack[PlanCapacityKeywords]) -> CapacityPlan:
    """Recommend mode, capacity and class of a table from the consumption of the table and its indexes.

    The consumption comes from CloudWatch or from a file, and is replayed against auto scaling. Nothing is changed, and
    no item is read.

    Parameters
    ----------
    table : str
        Name or ARN of the table. With ``csv`` it need not exist.
    **options
        See :class:`ddbio.PlanCapacityKeywords`.

    Raises
    ------
    NotFoundError
        If the table does not exist, or CloudWatch has no metrics of its consumption.
    OptionError
        If the file or the prices cannot be used.
    DdbioError
        If the table cannot be described, or a page cannot be written.
    """
    ...

def simulate_scan(scenario: Literal["long-tail"] | None = None, **options: Unpack[SimulateScanKeywords]) -> SimulationReport:
    """Simulate a scan of a table that need not exist: time, units, throttling. No service is called.

    The planner, the budget and its pacer are those of real scans, on a virtual clock. The table's partitions and the
    times of pages are a model. The same options return the same report.

    Parameters
    ----------
    scenario : Literal["long-tail"] | None
        Named simulation. Other options override its values.
    **options
        See :class:`ddbio.SimulateScanKeywords`.

    Raises
    ------
    OptionError
        If all executors are lost, or a chart needs matplotlib.
    TargetError
        If the chart cannot be written.
    """
    ...

def simulate_load(**options: Unpack[SimulateLoadKeywords]) -> SimulationReport:
    """Simulate a load into a table that need not exist: time, units, throttling. No service is called.

    The planner, the budget and its pacer are those of real loads, on a virtual clock. The table's partitions and the
    times of requests are a model. The same options return the same report.

    Parameters
    ----------
    **options
        See :class:`ddbio.SimulateLoadKeywords`.

    Raises
    ------
    OptionError
        If all executors are lost, or a chart needs matplotlib.
    TargetError
        If the chart cannot be written.
    """
    ...

def doctor(table: str | None = None, location: str | None = None, **options: Unpack[DoctorKeywords]) -> DoctorReport:
    """Check this machine, credentials, endpoints, a table and a bucket, and recommend what to do.

    Failed requests, including missing permissions, are findings and not errors. Nothing is changed, and no item or
    object is read. No check takes longer than 30 s.

    Parameters
    ----------
    table : str | None
        Name or ARN of the table that a job reads or writes.
    location : str | None
        ``s3://bucket/prefix`` that a job reads or writes.
    **options
        See :class:`ddbio.DoctorKeywords`.

    Raises
    ------
    OptionError
        If an option is invalid.
    """
    ...

def iam_policy(verb: str, arguments: Mapping[str, Any], **options: Unpack[IamKeywords]) -> dict[str, Any]:
    """Return the IAM policy that allows what a verb does with these arguments, and nothing else. Nothing is called.

    Parameters
    ----------
    verb : str
        Words of the command: ``scan``, ``export start``, ``plan copy``.
    arguments : Mapping[str, Any]
        The verb's arguments and options by name, such as ``{"table": "orders", "dest": "s3://bucket/prefix"}``.
    **options
        See :class:`ddbio.IamKeywords`.

    Returns
    -------
    dict
        The policy as JSON.

    Raises
    ------
    OptionError
        If the verb or an option does not exist.
    """
    ...

