"""Move data between Amazon DynamoDB and S3, fast and exactly.

Importing this package loads no library: each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ddbio.version import __version__

if TYPE_CHECKING:
    from ddbio.api.advice import advise, plan_capacity
    from ddbio.api.archive import archive, read_expired, read_expired_batches, restore_archived
    from ddbio.api.capture import (
        capture,
        capture_status,
        heal_capture,
        plan_capture,
        plan_heal_capture,
        verify_capture,
    )
    from ddbio.api.catalog import catalog_ddl, sync_catalog
    from ddbio.api.changes import plan_replay, read_changes, read_changes_batches, replay, write_changes
    from ddbio.api.files import (
        check_import_files,
        export_windows,
        fold_exports,
        fold_exports_to_files,
        plan_fold_exports,
        plan_import_files,
        plan_read_export,
        read_export,
        read_export_batches,
        read_export_to_files,
        write_import_files,
    )
    from ddbio.api.folders import compact, list_files, plan_compact, plan_publish, publish, rollback, vacuum
    from ddbio.api.iam import iam_policy
    from ddbio.api.inspection import doctor, layout, plan_validate, validate
    from ddbio.api.keywords import (
        AdviseKeywords,
        ApplyKeywords,
        ArchiveKeywords,
        ArchiveRestoreKeywords,
        BackupCreateKeywords,
        BootstrapKeywords,
        BulkReportKeywords,
        BulkStartKeywords,
        CaptureHealKeywords,
        CaptureKeywords,
        CaptureStatusKeywords,
        CaptureVerifyKeywords,
        CatalogDdlKeywords,
        CatalogSyncKeywords,
        ChangesReadKeywords,
        ChangesWriteKeywords,
        CompactKeywords,
        ConnectionKeywords,
        CopyKeywords,
        CreateLikeKeywords,
        CreateTableKeywords,
        DoctorKeywords,
        ExpiredReadKeywords,
        ExportFoldKeywords,
        ExportReadKeywords,
        ExportStartKeywords,
        ExportToFilesKeywords,
        ExportWindowsKeywords,
        FilesListKeywords,
        HistoryKeywords,
        IamKeywords,
        ImportFilesFromKeywords,
        ImportStartKeywords,
        ImportWaitKeywords,
        InspectKeywords,
        LayoutKeywords,
        LoadKeywords,
        MaintainKeywords,
        PlanCapacityKeywords,
        PlanCaptureKeywords,
        PublishKeywords,
        ReconcileKeywords,
        ReplayKeywords,
        RestoreKeywords,
        RollbackKeywords,
        ScanKeywords,
        ScanToFilesKeywords,
        SimulateLoadKeywords,
        SimulateScanKeywords,
        StreamEventKeywords,
        VacuumKeywords,
        ValidateKeywords,
        VerifyKeywords,
        ViewKeywords,
        WaitKeywords,
        WriteKeywords,
    )
    from ddbio.api.lake import apply, maintain, maintain_by_policy, plan_apply, plan_maintain
    from ddbio.api.lake_maintenance import bootstrap, plan_reconcile, reconcile
    from ddbio.api.lake_proof import history, history_view_sql, latest_view_sql, verify
    from ddbio.api.progress import Progress
    from ddbio.api.reading import digest, infer_schema, plan_scan, read_table, scan_batches, scan_to_files
    from ddbio.api.service_jobs import (
        cancel_bulk_put,
        create_backup,
        describe_bulk_put,
        describe_export,
        describe_import,
        list_backups,
        list_bulk_puts,
        list_exports,
        list_imports,
        plan_backup,
        plan_bulk_put,
        plan_export,
        plan_import,
        plan_restore,
        read_bulk_report,
        restore_table,
        start_bulk_put,
        start_export,
        start_import,
        wait_bulk_put,
        wait_export,
        wait_import,
    )
    from ddbio.api.setup import last_report, register, warm
    from ddbio.api.simulation import simulate_load, simulate_scan
    from ddbio.api.tables import create_table, create_table_like, describe_table
    from ddbio.api.writing import copy_table, load_files, plan_copy, plan_load, write_table
    from ddbio.core.backups import BackupJob, BackupPlan, RestoreJob, RestorePlan
    from ddbio.core.catalog.glue import CatalogReport
    from ddbio.core.doctor import DoctorReport, Finding
    from ddbio.core.exports.fold import Window
    from ddbio.core.exports.jobs import ExportEntry, ExportJob, ExportPlan
    from ddbio.core.folders.layout import LayoutReport, LayoutSummary
    from ddbio.core.imports.jobs import BulkEntry, BulkJob, BulkPlan, ImportEntry, ImportJob, ImportPlan
    from ddbio.core.items.batch_stream import RecordBatchStream
    from ddbio.core.items.changes import ChangeDecoder
    from ddbio.core.items.decode import from_dynamodb_json
    from ddbio.core.items.encode import to_dynamodb_json
    from ddbio.core.loads.idempotency import idempotency_key
    from ddbio.core.loads.plan import LoadPlan, WritePlan
    from ddbio.core.planning.advice import Advice
    from ddbio.core.planning.estimate import Estimate
    from ddbio.core.planning.prices import Cost, CostLine
    from ddbio.core.planning.provisioning import CapacityPlan
    from ddbio.core.planning.simulation import SimulationReport
    from ddbio.core.scans.plan import ScanPlan
    from ddbio.core.schema.item_schema import ItemSchema
    from ddbio.core.service_estimates import CapturePlan
    from ddbio.core.table_description import TableDescription
    from ddbio.core.validation.comparison import ValidatePlan, ValidationReport
    from ddbio.errors import (
        AccessDeniedError,
        DdbioError,
        DecodeError,
        EncodeError,
        EndpointError,
        ExportIncompleteError,
        GapError,
        LimitError,
        NotFoundError,
        OptionError,
        PartialWriteError,
        SchemaError,
        ServiceError,
        TargetError,
        ThrottledError,
        ValidationError,
    )
    from ddbio.ops.capture.archive import ArchiveReport, ArchiveRestoreReport
    from ddbio.ops.capture.audit import CaptureStatus, CaptureVerifyReport
    from ddbio.ops.capture.capture import CaptureReport
    from ddbio.ops.capture.delivery import DeliveryReport
    from ddbio.ops.capture.gaps import Gap
    from ddbio.ops.capture.heal import CaptureHealPlan, CaptureHealReport
    from ddbio.ops.capture.replay import ReplayPlan, ReplayReport
    from ddbio.ops.copy import CopyPlan, CopyReport
    from ddbio.ops.exports.fold_plan import ExportFoldPlan, ExportFoldReport
    from ddbio.ops.exports.read import ExportReadPlan, ExportReadReport
    from ddbio.ops.folders.compact import CompactPlan, CompactReport
    from ddbio.ops.folders.listing import FileList, ListedFile
    from ddbio.ops.folders.publish import PublishPlan, PublishReport
    from ddbio.ops.folders.vacuum import VacuumReport
    from ddbio.ops.imports.bulk import BulkReport, BulkSummary
    from ddbio.ops.imports.files import ImportFilesPlan, ImportFilesReport
    from ddbio.ops.job.report import FileReport, MisfitReport, ScanReport, WarmReport, WriteReport
    from ddbio.ops.lake.apply import ApplyPlan, ApplyReport
    from ddbio.ops.lake.bootstrap import BootstrapReport
    from ddbio.ops.lake.maintain import MaintainPlan, MaintainReport
    from ddbio.ops.lake.reconcile import ReconcilePlan, ReconcileReport
    from ddbio.ops.lake.verify import VerifyReport
    from ddbio.ops.tables import CreatedTable
    from ddbio.options import Credentials

__all__ = [
    "AccessDeniedError",
    "Advice",
    "AdviseKeywords",
    "ApplyKeywords",
    "ApplyPlan",
    "ApplyReport",
    "ArchiveKeywords",
    "ArchiveReport",
    "ArchiveRestoreKeywords",
    "ArchiveRestoreReport",
    "BackupCreateKeywords",
    "BackupJob",
    "BackupPlan",
    "BootstrapKeywords",
    "BootstrapReport",
    "BulkEntry",
    "BulkJob",
    "BulkPlan",
    "BulkReport",
    "BulkReportKeywords",
    "BulkStartKeywords",
    "BulkSummary",
    "CapacityPlan",
    "CaptureHealKeywords",
    "CaptureHealPlan",
    "CaptureHealReport",
    "CaptureKeywords",
    "CapturePlan",
    "CaptureReport",
    "CaptureStatus",
    "CaptureStatusKeywords",
    "CaptureVerifyKeywords",
    "CaptureVerifyReport",
    "CatalogDdlKeywords",
    "CatalogReport",
    "CatalogSyncKeywords",
    "ChangeDecoder",
    "ChangesReadKeywords",
    "ChangesWriteKeywords",
    "CompactKeywords",
    "CompactPlan",
    "CompactReport",
    "ConnectionKeywords",
    "CopyKeywords",
    "CopyPlan",
    "CopyReport",
    "Cost",
    "CostLine",
    "CreateLikeKeywords",
    "CreateTableKeywords",
    "CreatedTable",
    "Credentials",
    "DdbioError",
    "DecodeError",
    "DeliveryReport",
    "DoctorKeywords",
    "DoctorReport",
    "EncodeError",
    "EndpointError",
    "Estimate",
    "ExpiredReadKeywords",
    "ExportEntry",
    "ExportFoldKeywords",
    "ExportFoldPlan",
    "ExportFoldReport",
    "ExportIncompleteError",
    "ExportJob",
    "ExportPlan",
    "ExportReadKeywords",
    "ExportReadPlan",
    "ExportReadReport",
    "ExportStartKeywords",
    "ExportToFilesKeywords",
    "ExportWindowsKeywords",
    "FileList",
    "FileReport",
    "FilesListKeywords",
    "Finding",
    "Gap",
    "GapError",
    "HistoryKeywords",
    "IamKeywords",
    "ImportEntry",
    "ImportFilesFromKeywords",
    "ImportFilesPlan",
    "ImportFilesReport",
    "ImportJob",
    "ImportPlan",
    "ImportStartKeywords",
    "ImportWaitKeywords",
    "InspectKeywords",
    "ItemSchema",
    "LayoutKeywords",
    "LayoutReport",
    "LayoutSummary",
    "LimitError",
    "ListedFile",
    "LoadKeywords",
    "LoadPlan",
    "MaintainKeywords",
    "MaintainPlan",
    "MaintainReport",
    "MisfitReport",
    "NotFoundError",
    "OptionError",
    "PartialWriteError",
    "PlanCapacityKeywords",
    "PlanCaptureKeywords",
    "Progress",
    "PublishKeywords",
    "PublishPlan",
    "PublishReport",
    "ReconcileKeywords",
    "ReconcilePlan",
    "ReconcileReport",
    "RecordBatchStream",
    "ReplayKeywords",
    "ReplayPlan",
    "ReplayReport",
    "RestoreJob",
    "RestoreKeywords",
    "RestorePlan",
    "RollbackKeywords",
    "ScanKeywords",
    "ScanPlan",
    "ScanReport",
    "ScanToFilesKeywords",
    "SchemaError",
    "ServiceError",
    "SimulateLoadKeywords",
    "SimulateScanKeywords",
    "SimulationReport",
    "StreamEventKeywords",
    "TableDescription",
    "TargetError",
    "ThrottledError",
    "VacuumKeywords",
    "VacuumReport",
    "ValidateKeywords",
    "ValidatePlan",
    "ValidationError",
    "ValidationReport",
    "VerifyKeywords",
    "VerifyReport",
    "ViewKeywords",
    "WaitKeywords",
    "WarmReport",
    "Window",
    "WriteKeywords",
    "WritePlan",
    "WriteReport",
    "__version__",
    "advise",
    "apply",
    "archive",
    "bootstrap",
    "cancel_bulk_put",
    "capture",
    "capture_status",
    "catalog_ddl",
    "check_import_files",
    "compact",
    "copy_table",
    "create_backup",
    "create_table",
    "create_table_like",
    "describe_bulk_put",
    "describe_export",
    "describe_import",
    "describe_table",
    "digest",
    "doctor",
    "export_windows",
    "fold_exports",
    "fold_exports_to_files",
    "from_dynamodb_json",
    "heal_capture",
    "history",
    "history_view_sql",
    "iam_policy",
    "idempotency_key",
    "infer_schema",
    "last_report",
    "latest_view_sql",
    "layout",
    "list_backups",
    "list_bulk_puts",
    "list_exports",
    "list_files",
    "list_imports",
    "load_files",
    "maintain",
    "maintain_by_policy",
    "plan_apply",
    "plan_backup",
    "plan_bulk_put",
    "plan_capacity",
    "plan_capture",
    "plan_compact",
    "plan_copy",
    "plan_export",
    "plan_fold_exports",
    "plan_heal_capture",
    "plan_import",
    "plan_import_files",
    "plan_load",
    "plan_maintain",
    "plan_publish",
    "plan_read_export",
    "plan_reconcile",
    "plan_replay",
    "plan_restore",
    "plan_scan",
    "plan_validate",
    "publish",
    "read_bulk_report",
    "read_changes",
    "read_changes_batches",
    "read_expired",
    "read_expired_batches",
    "read_export",
    "read_export_batches",
    "read_export_to_files",
    "read_table",
    "reconcile",
    "register",
    "replay",
    "restore_archived",
    "restore_table",
    "rollback",
    "scan_batches",
    "scan_to_files",
    "simulate_load",
    "simulate_scan",
    "start_bulk_put",
    "start_export",
    "start_import",
    "sync_catalog",
    "to_dynamodb_json",
    "vacuum",
    "validate",
    "verify",
    "verify_capture",
    "wait_bulk_put",
    "wait_export",
    "wait_import",
    "warm",
    "write_changes",
    "write_import_files",
    "write_table",
]

# The public names of each module; a test holds them in step with the imports above.
_NAMES = {
    "ddbio.api.advice": "advise plan_capacity",
    "ddbio.api.archive": "archive read_expired read_expired_batches restore_archived",
    "ddbio.api.capture": "capture capture_status heal_capture plan_capture plan_heal_capture verify_capture",
    "ddbio.api.catalog": "catalog_ddl sync_catalog",
    "ddbio.api.changes": "plan_replay read_changes read_changes_batches replay write_changes",
    "ddbio.api.files": (
        "check_import_files export_windows fold_exports fold_exports_to_files plan_fold_exports plan_import_files "
        "plan_read_export read_export read_export_batches read_export_to_files write_import_files"
    ),
    "ddbio.api.folders": "compact list_files plan_compact plan_publish publish rollback vacuum",
    "ddbio.api.iam": "iam_policy",
    "ddbio.api.inspection": "doctor layout plan_validate validate",
    "ddbio.api.keywords": (
        "AdviseKeywords ApplyKeywords ArchiveKeywords ArchiveRestoreKeywords BackupCreateKeywords "
        "BootstrapKeywords BulkReportKeywords BulkStartKeywords CaptureHealKeywords CaptureKeywords "
        "CaptureStatusKeywords CaptureVerifyKeywords CatalogDdlKeywords CatalogSyncKeywords ChangesReadKeywords "
        "ChangesWriteKeywords CompactKeywords ConnectionKeywords CopyKeywords CreateLikeKeywords "
        "CreateTableKeywords DoctorKeywords ExpiredReadKeywords ExportFoldKeywords ExportReadKeywords "
        "ExportStartKeywords ExportToFilesKeywords ExportWindowsKeywords FilesListKeywords HistoryKeywords "
        "IamKeywords ImportFilesFromKeywords ImportStartKeywords ImportWaitKeywords InspectKeywords LayoutKeywords "
        "LoadKeywords MaintainKeywords PlanCapacityKeywords PlanCaptureKeywords PublishKeywords ReconcileKeywords "
        "ReplayKeywords RestoreKeywords RollbackKeywords ScanKeywords ScanToFilesKeywords SimulateLoadKeywords "
        "SimulateScanKeywords StreamEventKeywords VacuumKeywords ValidateKeywords VerifyKeywords ViewKeywords "
        "WaitKeywords WriteKeywords"
    ),
    "ddbio.api.lake": "apply maintain maintain_by_policy plan_apply plan_maintain",
    "ddbio.api.lake_proof": "history history_view_sql latest_view_sql verify",
    "ddbio.api.lake_maintenance": "bootstrap plan_reconcile reconcile",
    "ddbio.api.progress": "Progress",
    "ddbio.api.reading": "digest infer_schema plan_scan read_table scan_batches scan_to_files",
    "ddbio.api.service_jobs": (
        "cancel_bulk_put create_backup describe_bulk_put describe_export describe_import list_backups list_bulk_puts "
        "list_exports list_imports plan_backup plan_bulk_put plan_export plan_import plan_restore "
        "read_bulk_report restore_table start_bulk_put start_export start_import wait_bulk_put wait_export "
        "wait_import"
    ),
    "ddbio.api.setup": "last_report register warm",
    "ddbio.api.simulation": "simulate_load simulate_scan",
    "ddbio.api.tables": "create_table create_table_like describe_table",
    "ddbio.api.writing": "copy_table load_files plan_copy plan_load write_table",
    "ddbio.core.planning.advice": "Advice",
    "ddbio.core.backups": "BackupJob BackupPlan RestoreJob RestorePlan",
    "ddbio.core.doctor": "DoctorReport Finding",
    "ddbio.core.items.batch_stream": "RecordBatchStream",
    "ddbio.core.catalog.glue": "CatalogReport",
    "ddbio.core.items.changes": "ChangeDecoder",
    "ddbio.core.items.decode": "from_dynamodb_json",
    "ddbio.core.items.encode": "to_dynamodb_json",
    "ddbio.core.planning.estimate": "Estimate",
    "ddbio.core.exports.fold": "Window",
    "ddbio.core.exports.jobs": "ExportEntry ExportJob ExportPlan",
    "ddbio.core.imports.jobs": "BulkEntry BulkJob BulkPlan ImportEntry ImportJob ImportPlan",
    "ddbio.core.folders.layout": "LayoutReport LayoutSummary",
    "ddbio.core.loads.idempotency": "idempotency_key",
    "ddbio.core.loads.plan": "LoadPlan WritePlan",
    "ddbio.core.planning.prices": "Cost CostLine",
    "ddbio.core.planning.provisioning": "CapacityPlan",
    "ddbio.core.scans.plan": "ScanPlan",
    "ddbio.core.schema.item_schema": "ItemSchema",
    "ddbio.core.service_estimates": "CapturePlan",
    "ddbio.core.planning.simulation": "SimulationReport",
    "ddbio.core.table_description": "TableDescription",
    "ddbio.core.validation.comparison": "ValidatePlan ValidationReport",
    "ddbio.errors": (
        "AccessDeniedError DdbioError DecodeError EncodeError EndpointError ExportIncompleteError GapError LimitError "
        "NotFoundError OptionError PartialWriteError SchemaError ServiceError TargetError ThrottledError "
        "ValidationError"
    ),
    "ddbio.ops.capture.archive": "ArchiveReport ArchiveRestoreReport",
    "ddbio.ops.capture.audit": "CaptureStatus CaptureVerifyReport",
    "ddbio.ops.capture.gaps": "Gap",
    "ddbio.ops.capture.heal": "CaptureHealPlan CaptureHealReport",
    "ddbio.ops.capture.capture": "CaptureReport",
    "ddbio.ops.capture.delivery": "DeliveryReport",
    "ddbio.ops.capture.replay": "ReplayPlan ReplayReport",
    "ddbio.ops.copy": "CopyPlan CopyReport",
    "ddbio.ops.exports.fold_plan": "ExportFoldPlan ExportFoldReport",
    "ddbio.ops.exports.read": "ExportReadPlan ExportReadReport",
    "ddbio.ops.folders.compact": "CompactPlan CompactReport",
    "ddbio.ops.folders.listing": "FileList ListedFile",
    "ddbio.ops.folders.publish": "PublishPlan PublishReport",
    "ddbio.ops.folders.vacuum": "VacuumReport",
    "ddbio.ops.imports.bulk": "BulkReport BulkSummary",
    "ddbio.ops.imports.files": "ImportFilesPlan ImportFilesReport",
    "ddbio.ops.job.report": "FileReport MisfitReport ScanReport WarmReport WriteReport",
    "ddbio.ops.lake.apply": "ApplyPlan ApplyReport",
    "ddbio.ops.lake.bootstrap": "BootstrapReport",
    "ddbio.ops.lake.maintain": "MaintainPlan MaintainReport",
    "ddbio.ops.lake.reconcile": "ReconcilePlan ReconcileReport",
    "ddbio.ops.lake.verify": "VerifyReport",
    "ddbio.ops.tables": "CreatedTable",
    "ddbio.options": "Credentials",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name from its module at first use."""
    if name == "capacity":
        return importlib.import_module("ddbio.capacity")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
