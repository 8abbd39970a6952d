"""The verbs: one row for each public function, from which ``ddbio.<name>`` is made.

A row names the parameters, the options class and the function that runs. The parameters of the options are added by
:mod:`ddbio.public`, with their types and descriptions.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A public function.

    Attributes
    ----------
    name
        Its name in ``ddbio``.
    arguments
        Its leading parameters, separated by spaces. ``table`` is an option of that name, or a parameter of ``run`` if
        there is none; ``path/`` may be a path; ``table?`` may be omitted; ``log=source`` fills the option ``source``;
        ``data:rows`` may be data in memory, for which the option has the text ``rows`` and which ``run`` gets.
    options
        Its options class, in :mod:`ddbio.options`.
    run
        The function that runs, as ``module:function`` below ``ddbio``. Its first parameter are the checked options.
    more
        Keyword parameters that ``run`` has besides, separated by spaces.
    """

    name: str
    arguments: str
    options: str
    run: str
    more: str = ""


VERBS = {
    verb.name: verb
    for verb in (
        # Read tables.
        Verb("read_table", "table", "ScanOptions", "scan.read:read_table"),
        Verb("scan_batches", "table", "ScanOptions", "scan.read:scan_batches"),
        Verb(
            "scan_to_files",
            "table dest/",
            "ScanToFilesOptions",
            "scan.to_files:scan_to_files",
            "master conf progress",
        ),
        Verb("plan_scan", "table dest/?", "PlanScanOptions", "scan.describe:plan", "from_file"),
        Verb("infer_schema", "source=table:bytes", "InspectOptions", "scan.infer:infer_schema"),
        Verb("digest", "source=table:data", "DigestOptions", "validation.digest:digest"),
        # Write tables.
        Verb("write_table", "data table", "WriteOptions", "load.load:write_table"),
        Verb("load_files", "source/ table", "LoadOptions", "load.load:load_files", "master conf progress"),
        Verb("plan_load", "source/ table", "LoadOptions", "load.load:load_plan_of", "from_file"),
        Verb("copy_table", "source target", "CopyOptions", "load.copy:copy", "progress"),
        Verb("plan_copy", "source target", "CopyOptions", "load.copy:plan_copy", "from_file"),
        Verb("create_table", "table", "CreateTableOptions", "load.tables:create"),
        Verb("create_table_like", "source target", "CreateLikeOptions", "load.tables:create_like"),
        Verb("describe_table", "table", "ConnectionOptions", "load.tables:describe"),
        # Exports.
        Verb("read_export", "source/", "ExportReadOptions", "export.read:read_export"),
        Verb("read_export_batches", "source/", "ExportReadOptions", "export.read:read_export_batches"),
        Verb(
            "read_export_to_files",
            "source/ dest/",
            "ExportToFilesOptions",
            "export.read:read_export_to_files",
            "master conf progress",
        ),
        Verb("plan_read_export", "source/ dest/", "ExportToFilesOptions", "export.read:plan_of"),
        Verb("fold_exports", "source/ increments", "ExportReadOptions", "export.fold:fold_exports"),
        Verb(
            "fold_exports_to_files",
            "source/ increments dest/",
            "ExportFoldOptions",
            "export.fold:fold_to_files",
            "master conf",
        ),
        Verb("plan_fold_exports", "source/ increments dest/", "ExportFoldOptions", "export.fold:plan_of"),
        Verb("export_windows", "source/ increments?", "ExportWindowsOptions", "export.fold:windows_to_request"),
        Verb("start_export", "table dest", "ExportStartOptions", "export.jobs:start"),
        Verb("plan_export", "table dest", "ExportStartOptions", "export.jobs:plan_of", "from_file"),
        Verb("wait_export", "arn", "WaitOptions", "export.jobs:wait"),
        Verb("describe_export", "arn", "ConnectionOptions", "export.jobs:describe"),
        Verb("list_exports", "table?", "ConnectionOptions", "export.jobs:list_of"),
        # Imports and bulk puts.
        Verb("write_import_files", "source:data dest/", "ImportFilesFromOptions", "load.import_files:write"),
        Verb("plan_import_files", "source/ dest/", "ImportFilesFromOptions", "load.import_files:plan_of"),
        Verb("check_import_files", "source/ dest/", "ImportFilesFromOptions", "load.import_files:check_files"),
        Verb("start_import", "source table", "ImportStartOptions", "export.imports:start"),
        Verb("plan_import", "source table", "ImportStartOptions", "export.imports:plan_of"),
        Verb("wait_import", "arn", "ImportWaitOptions", "export.imports:wait"),
        Verb("describe_import", "arn", "ConnectionOptions", "export.imports:describe"),
        Verb("list_imports", "table?", "ConnectionOptions", "export.imports:list_of"),
        Verb("start_bulk_put", "source table reports", "BulkStartOptions", "export.bulk:start"),
        Verb("plan_bulk_put", "source table reports", "BulkStartOptions", "export.bulk:plan_of", "from_file"),
        Verb("wait_bulk_put", "arn", "WaitOptions", "export.bulk:wait"),
        Verb("describe_bulk_put", "arn", "ConnectionOptions", "export.bulk:describe"),
        Verb("cancel_bulk_put", "arn", "ConnectionOptions", "export.bulk:cancel"),
        Verb("list_bulk_puts", "", "ConnectionOptions", "export.bulk:list_of"),
        Verb("read_bulk_report", "place/", "BulkReportOptions", "export.bulk:read_reports"),
        # Backups.
        Verb("create_backup", "table", "BackupCreateOptions", "export.backup:create"),
        Verb("plan_backup", "table", "BackupCreateOptions", "export.backup:plan_of_backup", "from_file"),
        Verb("list_backups", "table?", "ConnectionOptions", "export.backup:list_of"),
        Verb("restore_table", "source target", "RestoreOptions", "export.backup:restore"),
        Verb("plan_restore", "source target", "RestoreOptions", "export.backup:plan_of", "from_file"),
        # Changes.
        Verb("capture", "table dest/", "CaptureOptions", "cdc.capture:capture", "stop"),
        Verb("plan_capture", "", "PlanCaptureOptions", "jobs.costs:plan_capture"),
        Verb("capture_status", "dest/", "CaptureStatusOptions", "cdc.audit:capture_status"),
        Verb("verify_capture", "dest/", "CaptureVerifyOptions", "cdc.audit:verify_capture"),
        Verb("heal_capture", "table dest/", "CaptureHealOptions", "cdc.heal:heal_capture"),
        Verb("plan_heal_capture", "table dest/", "CaptureHealOptions", "cdc.heal:plan_of"),
        Verb("read_changes", "source/", "ChangesReadOptions", "cdc.delivered:read_changes"),
        Verb("read_changes_batches", "source/", "ChangesReadOptions", "cdc.delivered:read_changes_batches"),
        Verb("write_changes", "changes dest/", "ChangesWriteOptions", "cdc.delivery:write_changes"),
        Verb("replay", "source/ dest/?", "ReplayOptions", "cdc.replay:replay"),
        Verb("plan_replay", "source/ dest/?", "ReplayOptions", "cdc.replay:plan_replay"),
        Verb("archive", "source/ dest/", "ArchiveOptions", "cdc.archive:archive"),
        Verb("restore_archived", "source/ table", "ArchiveRestoreOptions", "cdc.archive:restore_archived"),
        Verb("read_expired", "source/", "ExpiredReadOptions", "cdc.archive:read_expired"),
        Verb("read_expired_batches", "source/", "ExpiredReadOptions", "cdc.archive:read_expired_batches"),
        # Lake tables.
        Verb("apply", "log=source:rows table/", "ApplyOptions", "lake.apply:apply"),
        Verb("plan_apply", "log=source/ table/", "ApplyOptions", "lake.apply:plan_apply"),
        Verb("maintain", "table/", "MaintainOptions", "lake.maintain:maintain"),
        Verb("plan_maintain", "table/", "MaintainOptions", "lake.maintain:plan_maintain"),
        Verb("maintain_by_policy", "path/", "ConnectionOptions", "lake.policy:maintain_by_policy"),
        Verb("bootstrap", "table target/", "BootstrapOptions", "lake.bootstrap:bootstrap"),
        Verb("reconcile", "table dest/ target/?", "ReconcileOptions", "lake.reconcile:reconcile"),
        Verb("plan_reconcile", "table dest/", "ReconcileOptions", "lake.reconcile:plan_reconcile"),
        Verb("verify", "table/ lake=target/", "VerifyOptions", "lake.verify:verify"),
        Verb("history", "source/", "HistoryOptions", "lake.history:history"),
        Verb("history_view_sql", "log=source/", "ViewOptions", "lake.views:history_view_sql"),
        Verb("latest_view_sql", "log=source/ lake=target/", "ViewOptions", "lake.views:latest_view_sql"),
        # Folders and catalogs.
        Verb("list_files", "path/", "FilesListOptions", "folders.listing:list_files"),
        Verb("compact", "path/", "CompactOptions", "folders.compact:compact", "master conf"),
        Verb("plan_compact", "path/", "CompactOptions", "folders.compact:plan_compact"),
        Verb("vacuum", "path/", "VacuumOptions", "folders.vacuum:vacuum", "dry_run"),
        Verb("publish", "source/ dest/", "PublishOptions", "folders.publish:publish", "check"),
        Verb("plan_publish", "source/ dest/", "PublishOptions", "folders.publish:plan_publish"),
        Verb("rollback", "path/", "RollbackOptions", "folders.publish:rollback"),
        Verb("layout", "path/", "LayoutOptions", "folders.layout:layout"),
        Verb("sync_catalog", "path/ target", "CatalogSyncOptions", "catalog.sync:sync"),
        Verb("catalog_ddl", "path/ dialect", "CatalogDdlOptions", "catalog.sync:write_ddl"),
        # Compare, plan, look.
        Verb("validate", "source:data target:data?", "ValidateOptions", "validation.validate:validate", "master conf"),
        Verb(
            "plan_validate",
            "source:data target:data?",
            "ValidateOptions",
            "validation.validate:plan_validate",
            "from_file",
        ),
        Verb("advise", "table?", "AdviseOptions", "advice.advise:advise"),
        Verb("plan_capacity", "table", "PlanCapacityOptions", "advice.capacity:plan_capacity"),
        Verb("simulate_scan", "scenario?", "SimulateScanOptions", "advice.simulate:simulate_scan"),
        Verb("simulate_load", "", "SimulateLoadOptions", "advice.simulate:simulate_load"),
        Verb("doctor", "table? location?", "DoctorOptions", "advice.doctor:doctor"),
        Verb("iam_policy", "verb arguments", "IamOptions", "advice.iam_policy:iam_policy"),
    )
}
