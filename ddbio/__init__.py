"""Move data between Amazon DynamoDB and S3, fast and exactly.

Importing this package loads no library: each name is made, or loaded from its module, when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from ddbio.verbs import VERBS
from ddbio.version import __version__ as __version__

# The modules of the public names that are no verbs.
_NAMES = {
    "ddbio.export.backups": "BackupJob BackupPlan RestoreJob RestorePlan",
    "ddbio.catalog.glue": "CatalogReport",
    "ddbio.advice.doctor_checks": "DoctorReport Finding",
    "ddbio.export.fold_rows": "Window",
    "ddbio.export.job": "ExportEntry ExportJob ExportPlan",
    "ddbio.formats.layout": "LayoutReport LayoutSummary",
    "ddbio.export.import_job": "BulkEntry BulkJob BulkPlan ImportEntry ImportJob ImportPlan",
    "ddbio.items.batch_stream": "RecordBatchStream",
    "ddbio.items.changes": "ChangeDecoder",
    "ddbio.items.decode": "from_dynamodb_json",
    "ddbio.items.encode": "to_dynamodb_json",
    "ddbio.load.idempotency": "idempotency_key",
    "ddbio.load.plan": "LoadPlan WritePlan",
    "ddbio.advice.advice": "Advice",
    "ddbio.jobs.estimate": "Estimate",
    "ddbio.jobs.prices": "Cost CostLine",
    "ddbio.advice.provisioning": "CapacityPlan",
    "ddbio.advice.simulation": "SimulationReport",
    "ddbio.scan.plan": "ScanPlan",
    "ddbio.items.schema.item_schema": "ItemSchema",
    "ddbio.jobs.service_estimates": "CapturePlan",
    "ddbio.aws.table_description": "TableDescription",
    "ddbio.validation.comparison": "ValidatePlan ValidationReport",
    "ddbio.errors": (
        "AccessDeniedError DdbioError DecodeError EncodeError EndpointError ExportIncompleteError GapError LimitError "
        "NotFoundError OptionError PartialWriteError SchemaError ServiceError TargetError ThrottledError "
        "ValidationError"
    ),
    "ddbio.cdc.archive": "ArchiveReport ArchiveRestoreReport",
    "ddbio.cdc.audit": "CaptureStatus CaptureVerifyReport",
    "ddbio.cdc.capture": "CaptureReport",
    "ddbio.cdc.delivery": "DeliveryReport",
    "ddbio.cdc.gaps": "Gap",
    "ddbio.cdc.heal": "CaptureHealPlan CaptureHealReport",
    "ddbio.cdc.replay": "ReplayPlan ReplayReport",
    "ddbio.load.copy": "CopyPlan CopyReport",
    "ddbio.export.fold": "ExportFoldPlan ExportFoldReport",
    "ddbio.export.read": "ExportReadPlan ExportReadReport",
    "ddbio.folders.compact": "CompactPlan CompactReport",
    "ddbio.folders.listing": "FileList ListedFile",
    "ddbio.folders.publish": "PublishPlan PublishReport",
    "ddbio.folders.vacuum": "VacuumReport",
    "ddbio.export.bulk": "BulkReport BulkSummary",
    "ddbio.load.import_files": "ImportFilesPlan ImportFilesReport",
    "ddbio.jobs.progress": "Progress",
    "ddbio.jobs.report": "FileReport MisfitReport ScanReport WarmReport WriteReport",
    "ddbio.lake.apply": "ApplyPlan ApplyReport",
    "ddbio.lake.bootstrap": "BootstrapReport",
    "ddbio.lake.maintain": "MaintainPlan MaintainReport",
    "ddbio.lake.reconcile": "ReconcilePlan ReconcileReport",
    "ddbio.lake.verify": "VerifyReport",
    "ddbio.load.tables": "CreatedTable",
    "ddbio.advice.warming": "warm",
    "ddbio.public": "last_report register",
    "ddbio.options": "Credentials",
}
# The options classes whose keywords are public: ``ScanKeywords`` are those of ``ScanOptions``.
_OPTIONS = (
    "Advise Apply Archive ArchiveRestore BackupCreate Bootstrap BulkReport BulkStart CaptureHeal Capture "
    "CaptureStatus CaptureVerify CatalogDdl CatalogSync ChangesRead ChangesWrite Compact Connection Copy "
    "CreateLike CreateTable Digest Doctor ExpiredRead ExportFold ExportRead ExportStart ExportToFiles "
    "ExportWindows FilesList History Iam ImportFilesFrom ImportStart ImportWait Inspect Layout Load Maintain "
    "PlanCapacity PlanCapture PlanScan Publish Reconcile Replay Restore Rollback Scan ScanToFiles "
    "SimulateLoad SimulateScan StreamEvent Vacuum Validate Verify View Wait Write"
)
_KEYWORDS = [f"{name}Keywords" for name in _OPTIONS.split()]
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["__version__", *VERBS, *_KEYWORDS, *_HOMES])  # noqa: PLE0605 - __init__.pyi has the names


def __getattr__(name: str) -> Any:
    """Make or load a public name at its first use."""
    if name == "capacity":
        return importlib.import_module("ddbio.capacity")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in VERBS:
        value = importlib.import_module("ddbio.public").public_function(name)
    elif name in _KEYWORDS:
        value = importlib.import_module("ddbio.public").keyword_class(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return [*globals(), *__all__]
