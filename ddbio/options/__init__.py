"""Check the options of every verb in one place, whether they come as Python keywords, Spark options or CLI flags.

Each verb has one frozen options class. A name may be written in snake_case, in camelCase or, as PySpark passes it to a
data source, in lower case. Values may be text. Any mistake is one :class:`~ddbio.errors.OptionError`.

Each module is loaded when a name of it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddbio.options.archive import ArchiveOptions, ArchiveRestoreOptions, ExpiredReadOptions
    from ddbio.options.capture import CaptureOptions
    from ddbio.options.capture_audit import CaptureHealOptions, CaptureStatusOptions, CaptureVerifyOptions
    from ddbio.options.catalog import CatalogConnectionOptions, CatalogDdlOptions, CatalogSyncOptions
    from ddbio.options.changes import (
        ChangesReadOptions,
        ChangesWriteOptions,
        DeliveredOptions,
        ReplayOptions,
        StreamEventOptions,
    )
    from ddbio.options.connection import (
        ConnectionOptions,
        Credentials,
        LocalSession,
        WaitPolicyOptions,
        connection_of,
        export_connection_of,
    )
    from ddbio.options.files import (
        Compression,
        ExportFoldOptions,
        ExportToFilesOptions,
        FilesOptions,
        Mode,
        ScanToFilesOptions,
    )
    from ddbio.options.folders import (
        CompactOptions,
        FilesListOptions,
        PublishOptions,
        RollbackOptions,
        VacuumOptions,
    )
    from ddbio.options.iam import IamOptions
    from ddbio.options.inspection import DoctorOptions, LayoutOptions, ValidateOptions
    from ddbio.options.lake import ApplyOptions, MaintainOptions
    from ddbio.options.lake_maintenance import BootstrapOptions, ReconcileOptions
    from ddbio.options.lake_proof import HistoryOptions, VerifyOptions, ViewOptions
    from ddbio.options.limits import LimitOptions, PriceOptions, TimeLimitOptions
    from ddbio.options.parsing import Engine, camel_case, descriptions_of, parse_options
    from ddbio.options.planning import (
        AdviseOptions,
        MetricsConnectionOptions,
        PlanCapacityOptions,
        PlanCaptureOptions,
        PricesRefreshOptions,
    )
    from ddbio.options.reading import (
        AcceptEncoding,
        ColumnOptions,
        ExportReadOptions,
        ExportWindowsOptions,
        InspectOptions,
        ScanOptions,
    )
    from ddbio.options.service_jobs import (
        BackupCreateOptions,
        BulkReportOptions,
        BulkStartOptions,
        ExportStartOptions,
        ImportStartOptions,
        ImportWaitOptions,
        RestoreOptions,
        WaitOptions,
    )
    from ddbio.options.simulation import SimulateLoadOptions, SimulateOptions, SimulateScanOptions
    from ddbio.options.writing import (
        CopyOptions,
        CreateLikeOptions,
        CreateTableOptions,
        ImportFilesFromOptions,
        ImportFilesOptions,
        JsonFormat,
        LoadOptions,
        SourceOptions,
        WriteOptions,
    )

__all__ = [
    "AcceptEncoding",
    "AdviseOptions",
    "ApplyOptions",
    "ArchiveOptions",
    "ArchiveRestoreOptions",
    "BackupCreateOptions",
    "BootstrapOptions",
    "BulkReportOptions",
    "BulkStartOptions",
    "CaptureHealOptions",
    "CaptureOptions",
    "CaptureStatusOptions",
    "CaptureVerifyOptions",
    "CatalogConnectionOptions",
    "CatalogDdlOptions",
    "CatalogSyncOptions",
    "ChangesReadOptions",
    "ChangesWriteOptions",
    "ColumnOptions",
    "CompactOptions",
    "Compression",
    "ConnectionOptions",
    "CopyOptions",
    "CreateLikeOptions",
    "CreateTableOptions",
    "Credentials",
    "DeliveredOptions",
    "DigestOptions",
    "DoctorOptions",
    "Engine",
    "ExpiredReadOptions",
    "ExportFoldOptions",
    "ExportReadOptions",
    "ExportStartOptions",
    "ExportToFilesOptions",
    "ExportWindowsOptions",
    "FilesListOptions",
    "FilesOptions",
    "HistoryOptions",
    "IamOptions",
    "ImportFilesFromOptions",
    "ImportFilesOptions",
    "ImportStartOptions",
    "ImportWaitOptions",
    "InspectOptions",
    "JsonFormat",
    "LayoutOptions",
    "LimitOptions",
    "LoadOptions",
    "LocalSession",
    "MaintainOptions",
    "MetricsConnectionOptions",
    "Mode",
    "PlanCapacityOptions",
    "PlanCaptureOptions",
    "PlanScanOptions",
    "PriceOptions",
    "PricesRefreshOptions",
    "PublishOptions",
    "ReconcileOptions",
    "ReplayOptions",
    "RestoreOptions",
    "RollbackOptions",
    "ScanOptions",
    "ScanToFilesOptions",
    "SimulateLoadOptions",
    "SimulateOptions",
    "SimulateScanOptions",
    "SourceOptions",
    "StreamEventOptions",
    "TimeLimitOptions",
    "VacuumOptions",
    "ValidateOptions",
    "VerifyOptions",
    "ViewOptions",
    "WaitOptions",
    "WaitPolicyOptions",
    "WriteOptions",
    "camel_case",
    "connection_of",
    "descriptions_of",
    "export_connection_of",
    "parse_options",
]

# The names of each module.
_NAMES = {
    "archive": "ArchiveOptions ArchiveRestoreOptions ExpiredReadOptions",
    "capture": "CaptureOptions",
    "capture_audit": "CaptureHealOptions CaptureStatusOptions CaptureVerifyOptions",
    "catalog": "CatalogConnectionOptions CatalogDdlOptions CatalogSyncOptions",
    "changes": "ChangesReadOptions ChangesWriteOptions DeliveredOptions ReplayOptions StreamEventOptions",
    "connection": "ConnectionOptions Credentials LocalSession WaitPolicyOptions connection_of export_connection_of",
    "files": "Compression ExportFoldOptions ExportToFilesOptions FilesOptions Mode PlanScanOptions ScanToFilesOptions",
    "iam": "IamOptions",
    "inspection": "DoctorOptions LayoutOptions ValidateOptions",
    "folders": "CompactOptions FilesListOptions PublishOptions RollbackOptions VacuumOptions",
    "lake": "ApplyOptions MaintainOptions",
    "lake_proof": "HistoryOptions VerifyOptions ViewOptions",
    "lake_maintenance": "BootstrapOptions ReconcileOptions",
    "limits": "LimitOptions PriceOptions TimeLimitOptions",
    "parsing": "Engine camel_case descriptions_of parse_options",
    "planning": ("AdviseOptions MetricsConnectionOptions PlanCapacityOptions PlanCaptureOptions PricesRefreshOptions"),
    "reading": (
        "AcceptEncoding ColumnOptions DigestOptions ExportReadOptions ExportWindowsOptions InspectOptions ScanOptions"
    ),
    "service_jobs": (
        "BackupCreateOptions BulkReportOptions BulkStartOptions ExportStartOptions ImportStartOptions "
        "ImportWaitOptions RestoreOptions WaitOptions"
    ),
    "simulation": "SimulateLoadOptions SimulateOptions SimulateScanOptions",
    "writing": (
        "CopyOptions CreateLikeOptions CreateTableOptions ImportFilesFromOptions ImportFilesOptions JsonFormat "
        "LoadOptions SourceOptions WriteOptions"
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a name from its module at first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
