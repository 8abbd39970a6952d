"""Table of the verbs: a row for each public function ``ddbio.<name>``.

A row names the parameters, the options class and the function that runs. :mod:`ddbio.public` adds the parameters of
the options, with their types and descriptions.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A public function.

    Attributes
    ----------
    name
        Name in ``ddbio``.
    arguments
        Leading parameters, separated by spaces. ``table`` is the option of that name, or else a parameter of ``run``.
        ``path/`` accepts a path, ``table?`` is optional, and ``log=source`` sets the option ``source``. ``data:rows``
        accepts data in memory, which is passed to ``run``; the option is then the text ``rows``.
    options_home
        Options class, as ``module:class`` below ``ddbio``.
    run
        Function that runs, as ``module:function`` below ``ddbio``. Its first parameter is the checked options.
    more
        Further keyword parameters of ``run``, separated by spaces.
    results
        Public classes of the result, separated by spaces: names in the module of ``run``, or ``module:class`` below
        ``ddbio``. If several verbs share a class, the first has it.
    """

    name: str
    arguments: str
    options_home: str
    run: str
    more: str = ""
    results: str = ""

    @property
    def options(self) -> str:
        """Return the name of the options class."""
        return self.options_home.partition(":")[2]

    @property
    def result_homes(self) -> dict[str, str]:
        """Return the modules of the public classes of the result, by name."""
        own = self.run.partition(":")[0]
        results = (text.rpartition(":") for text in self.results.split())
        return {name: f"ddbio.{module or own}" for module, _, name in results}


_ROWS = (
    # Read tables.
    Verb("read_table", "table", "scan.options:ScanOptions", "scan.read:read_table"),
    Verb("scan_batches", "table", "scan.options:ScanOptions", "scan.read:scan_batches",
        results="items.batch_stream:RecordBatchStream"),
    Verb("scan_to_files", "table dest/", "scan.options:ScanToFilesOptions", "scan.to_files:scan_to_files",
        "master conf progress", results="jobs.report:ScanReport"),
    Verb("plan_scan", "table dest/?", "scan.options:PlanScanOptions", "scan.describe:plan", "from_file",
        results="scan.plan:ScanPlan"),
    Verb("count_table", "table", "scan.options:CountOptions", "scan.count:count_table", "progress",
        results="CountReport scan.segment_counts:SegmentCount scan.segment_counts:SegmentSkew"),
    Verb("plan_count", "table", "scan.options:CountOptions", "scan.count:plan_count", "from_file",
        results="CountPlan"),
    Verb("infer_schema", "source=table:bytes", "scan.options:InspectOptions", "scan.infer:infer_schema",
        results="items.schema.item_schema:ItemSchema"),
    Verb("digest", "source=table:data", "scan.options:DigestOptions", "validation.digest:digest"),
    # Write tables.
    Verb("write_table", "data table", "load.options:WriteOptions", "load.load:write_table",
        results="jobs.report:WriteReport"),
    Verb("load_files", "source/ table", "load.options:LoadOptions", "load.load:load_files", "master conf progress"),
    Verb("plan_load", "source/ table", "load.options:LoadOptions", "load.load:load_plan_of", "from_file",
        results="load.plan:LoadPlan"),
    Verb("copy_table", "source target", "load.options:CopyOptions", "load.copy:copy", "progress", results="CopyReport"),
    Verb("plan_copy", "source target", "load.options:CopyOptions", "load.copy:plan_copy", "from_file",
        results="CopyPlan"),
    Verb("create_table", "table", "load.options:CreateTableOptions", "load.tables:create", results="CreatedTable"),
    Verb("create_table_like", "source target", "load.options:CreateLikeOptions", "load.tables:create_like"),
    Verb("describe_table", "table", "options.connection:ConnectionOptions", "load.tables:describe",
        results="aws.table_description:TableDescription"),
    # Exports.
    Verb("read_export", "source/", "export.options:ExportReadOptions", "export.read:read_export"),
    Verb("read_export_batches", "source/", "export.options:ExportReadOptions", "export.read:read_export_batches"),
    Verb("read_export_to_files", "source/ dest/", "export.options:ExportToFilesOptions",
        "export.read:read_export_to_files", "master conf progress", results="ExportReadReport"),
    Verb("plan_read_export", "source/ dest/", "export.options:ExportToFilesOptions", "export.read:plan_of",
        results="ExportReadPlan"),
    Verb("fold_exports", "source/ increments", "export.options:ExportReadOptions", "export.fold:fold_exports"),
    Verb("fold_exports_to_files", "source/ increments dest/", "export.options:ExportFoldOptions",
        "export.fold:fold_to_files", "master conf", results="export.fold:ExportFoldReport"),
    Verb("plan_fold_exports", "source/ increments dest/", "export.options:ExportFoldOptions", "export.fold:plan_of",
        results="export.fold:ExportFoldPlan"),
    Verb("export_windows", "source/ increments?", "export.options:ExportWindowsOptions",
        "export.fold:windows_to_request", results="export.fold_rows:Window"),
    Verb("start_export", "table dest", "export.options:ExportStartOptions", "export.exports:start",
        results="ExportJob"),
    Verb("plan_export", "table dest", "export.options:ExportStartOptions", "export.exports:plan_of", "from_file",
        results="ExportPlan"),
    Verb("wait_export", "arn", "export.options:WaitOptions", "export.exports:wait"),
    Verb("describe_export", "arn", "options.connection:ConnectionOptions", "export.exports:describe"),
    Verb("list_exports", "table?", "options.connection:ConnectionOptions", "export.exports:list_of",
        results="ExportEntry"),
    # Imports and bulk puts.
    Verb("write_import_files", "source:data dest/", "load.options:ImportFilesFromOptions", "load.import_files:write",
        results="ImportFilesReport"),
    Verb("plan_import_files", "source/ dest/", "load.options:ImportFilesFromOptions", "load.import_files:plan_of",
        results="ImportFilesPlan"),
    Verb("check_import_files", "source/ dest/", "load.options:ImportFilesFromOptions", "load.import_files:check_files"),
    Verb("start_import", "source table", "export.options:ImportStartOptions", "export.imports:start",
        results="ImportJob"),
    Verb("plan_import", "source table", "export.options:ImportStartOptions", "export.imports:plan_of",
        results="ImportPlan"),
    Verb("wait_import", "arn", "export.options:ImportWaitOptions", "export.imports:wait"),
    Verb("describe_import", "arn", "options.connection:ConnectionOptions", "export.imports:describe"),
    Verb("list_imports", "table?", "options.connection:ConnectionOptions", "export.imports:list_of",
        results="ImportEntry"),
    Verb("start_bulk_put", "source table reports", "export.options:BulkStartOptions", "export.bulk_puts:start",
        results="BulkJob"),
    Verb("plan_bulk_put", "source table reports", "export.options:BulkStartOptions", "export.bulk_puts:plan_of",
        "from_file", results="BulkPlan"),
    Verb("wait_bulk_put", "arn", "export.options:WaitOptions", "export.bulk_puts:wait"),
    Verb("describe_bulk_put", "arn", "options.connection:ConnectionOptions", "export.bulk_puts:describe"),
    Verb("cancel_bulk_put", "arn", "options.connection:ConnectionOptions", "export.bulk_puts:cancel"),
    Verb("list_bulk_puts", "", "options.connection:ConnectionOptions", "export.bulk_puts:list_of",
        results="BulkEntry"),
    Verb("read_bulk_report", "place/", "export.options:BulkReportOptions", "export.bulk_reports:read_reports",
        results="BulkReport"),
    # Backups.
    Verb("create_backup", "table", "export.options:BackupCreateOptions", "export.backups:create",
        results="BackupJob"),
    Verb("plan_backup", "table", "export.options:BackupCreateOptions", "export.backups:plan_of_backup", "from_file",
        results="BackupPlan"),
    Verb("list_backups", "table?", "options.connection:ConnectionOptions", "export.backups:list_of"),
    Verb("restore_table", "source target", "export.options:RestoreOptions", "export.backups:restore",
        results="RestoreJob"),
    Verb("plan_restore", "source target", "export.options:RestoreOptions", "export.backups:plan_of", "from_file",
        results="RestorePlan"),
    # Changes.
    Verb("capture", "table dest/", "cdc.options:CaptureOptions", "cdc.capture:capture", "stop",
        results="CaptureReport"),
    Verb("plan_capture", "", "advice.options:PlanCaptureOptions", "jobs.costs:plan_capture",
        results="jobs.service_estimates:CapturePlan"),
    Verb("capture_status", "dest/", "cdc.options:CaptureStatusOptions", "cdc.audit:capture_status",
        results="CaptureStatus"),
    Verb("verify_capture", "dest/", "cdc.options:CaptureVerifyOptions", "cdc.audit:verify_capture",
        results="CaptureVerifyReport"),
    Verb("heal_capture", "table dest/", "cdc.options:CaptureHealOptions", "cdc.heal:heal_capture",
        results="CaptureHealReport"),
    Verb("plan_heal_capture", "table dest/", "cdc.options:CaptureHealOptions", "cdc.heal:plan_of",
        results="CaptureHealPlan"),
    Verb("read_changes", "source/", "cdc.options:ChangesReadOptions", "cdc.delivered:read_changes"),
    Verb("read_changes_batches", "source/", "cdc.options:ChangesReadOptions", "cdc.delivered:read_changes_batches"),
    Verb("write_changes", "changes dest/", "cdc.options:ChangesWriteOptions", "cdc.delivery:write_changes",
        results="DeliveryReport"),
    Verb("replay", "source/ dest/?", "cdc.options:ReplayOptions", "cdc.replay:replay", results="ReplayReport"),
    Verb("plan_replay", "source/ dest/?", "cdc.options:ReplayOptions", "cdc.replay:plan_replay",
        results="ReplayPlan"),
    Verb("archive", "source/ dest/", "cdc.options:ArchiveOptions", "cdc.archive:archive", results="ArchiveReport"),
    Verb("restore_archived", "source/ table", "cdc.options:ArchiveRestoreOptions", "cdc.archive:restore_archived",
        results="ArchiveRestoreReport"),
    Verb("read_expired", "source/", "cdc.options:ExpiredReadOptions", "cdc.archive:read_expired"),
    Verb("read_expired_batches", "source/", "cdc.options:ExpiredReadOptions", "cdc.archive:read_expired_batches"),
    # Lake tables.
    Verb("apply", "log=source:rows table/", "lake.options:ApplyOptions", "lake.apply:apply", results="ApplyReport"),
    Verb("plan_apply", "log=source/ table/", "lake.options:ApplyOptions", "lake.apply:plan_apply", results="ApplyPlan"),
    Verb("maintain", "table/", "lake.options:MaintainOptions", "lake.maintain:maintain", results="MaintainReport"),
    Verb("plan_maintain", "table/", "lake.options:MaintainOptions", "lake.maintain:plan_maintain",
        results="MaintainPlan"),
    Verb("maintain_by_policy", "path/", "options.connection:ConnectionOptions", "lake.policy:maintain_by_policy"),
    Verb("bootstrap", "table target/", "lake.options:BootstrapOptions", "lake.bootstrap:bootstrap",
        results="BootstrapReport"),
    Verb("reconcile", "table dest/ target/?", "lake.options:ReconcileOptions", "lake.reconcile:reconcile",
        results="ReconcileReport"),
    Verb("plan_reconcile", "table dest/", "lake.options:ReconcileOptions", "lake.reconcile:plan_reconcile",
        results="ReconcilePlan"),
    Verb("verify", "table/ lake=target/", "lake.options:VerifyOptions", "lake.verify:verify", results="VerifyReport"),
    Verb("history", "source/", "lake.options:HistoryOptions", "lake.history:history"),
    Verb("history_view_sql", "log=source/", "lake.options:ViewOptions", "lake.views:history_view_sql"),
    Verb("latest_view_sql", "log=source/ lake=target/", "lake.options:ViewOptions", "lake.views:latest_view_sql"),
    # Folders and catalogs.
    Verb("list_files", "path/", "folders.options:FilesListOptions", "folders.listing:list_files", results="FileList"),
    Verb("compact", "path/", "folders.options:CompactOptions", "folders.compact:compact", "master conf",
        results="CompactReport"),
    Verb("plan_compact", "path/", "folders.options:CompactOptions", "folders.compact:plan_compact",
        results="CompactPlan"),
    Verb("vacuum", "path/", "folders.options:VacuumOptions", "folders.vacuum:vacuum", "dry_run",
        results="VacuumReport"),
    Verb("publish", "source/ dest/", "folders.options:PublishOptions", "folders.publish:publish", "check",
        results="PublishReport"),
    Verb("plan_publish", "source/ dest/", "folders.options:PublishOptions", "folders.publish:plan_publish",
        results="PublishPlan"),
    Verb("rollback", "path/", "folders.options:RollbackOptions", "folders.publish:rollback"),
    Verb("layout", "path/", "folders.options:LayoutOptions", "folders.layout:layout",
        results="formats.layout:LayoutReport formats.scanned_bytes:QueryCost"),
    Verb("sync_catalog", "path/ target", "catalog.options:CatalogSyncOptions", "catalog.sync:sync",
        results="catalog.glue:CatalogReport"),
    Verb("catalog_ddl", "path/ dialect", "catalog.options:CatalogDdlOptions", "lake.registering:write_ddl"),
    # Compare, plan and inspect.
    Verb("validate", "source:data target:data?", "validation.options:ValidateOptions", "validation.validate:validate",
        "master conf", results="validation.comparison:ValidationReport"),
    Verb("plan_validate", "source:data target:data?", "validation.options:ValidateOptions",
        "validation.validate:plan_validate", "from_file", results="validation.comparison:ValidatePlan"),
    Verb("advise", "table?", "advice.options:AdviseOptions", "advice.advise:advise", results="advice.advice:Advice"),
    Verb("plan_capacity", "table", "advice.options:PlanCapacityOptions", "advice.capacity:plan_capacity",
        results="advice.provisioning:CapacityPlan"),
    Verb("simulate_scan", "scenario?", "advice.options:SimulateScanOptions", "advice.simulate:simulate_scan",
        results="advice.simulation:SimulationReport"),
    Verb("simulate_load", "", "advice.options:SimulateLoadOptions", "advice.simulate:simulate_load"),
    Verb("doctor", "table? location?", "advice.options:DoctorOptions", "advice.doctor:doctor",
        results="advice.doctor:DoctorReport"),
    Verb("iam_policy", "verb arguments", "advice.options:IamOptions", "advice.iam_policy:iam_policy"),
)  # fmt: skip
VERBS = {verb.name: verb for verb in _ROWS}
