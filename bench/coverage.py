"""Cases that measure each verb and public function, and reasons why some are not measured. A test checks completeness.

Verbs are written as on the command line, functions with their package. A function is not listed if a verb of the same
words does the same with the same code: ``ddbio.list_exports`` is ``export list``. Plans are not listed either: they are
descriptions, lists of files and prices, of which ``plan scan`` has most.
"""

from __future__ import annotations

MEASURED = {
    "public": "ddbio.from_dynamodb_json, ddbio.to_dynamodb_json, ddbio.infer_schema, ddbio.digest, ddbio.read_export",
    "scan": "ddbio.scan_batches",
    "lookup": "ddbio.read_table, ddbio.spark.lookup",
    "write": "ddbio.write_table",
    "import_files": "ddbio.write_import_files",
    "delivered": "ddbio.read_changes",
    "verbs": "scan, schema, digest, load, copy, export read, export fold, import files",
    "log_verbs": (
        "read, archive, archive restore, archive expired, capture verify, changes read, changes write, replay, "
        "bootstrap, history, verify, reconcile, maintain"
    ),
    "folder_verbs": "publish, files, layout, vacuum, catalog sync, catalog ddl",
    "service_verbs": (
        "table create, table create-like, table describe, backup create, backup list, backup restore, "
        "export start, export wait, export list, export describe, "
        "import start, import wait, import list, import describe"
    ),
    "apply": "apply",
    "capture": "capture",
    "compact": "compact",
    "validate": "validate",
    "plan": "plan scan",
    "simulate": "simulate scan, simulate load",
    "demo": "demo",
    "functions": (
        "ddbio.spark.functions.decode_column, ddbio.spark.functions.encode_column, "
        "ddbio.spark.functions.from_dynamodb_json, ddbio.spark.functions.to_dynamodb_json"
    ),
    "versions": "ddbio.spark.scan, ddbio.spark.write",
    "spark_source": "ddbio.spark.register",
}
"""Commands and calls of each case, as users write them."""

BY_ANOTHER = {
    "table restore": "backup restore",
    "capture heal": "reconcile",
    "ddbio.check_import_files": "import files",
    "ddbio.copy_table": "copy",
    "ddbio.fold_exports_to_files": "export fold",
    "ddbio.heal_capture": "reconcile",
    "ddbio.list_files": "files",
    "ddbio.load_files": "load",
    "ddbio.maintain_by_policy": "maintain",
    "ddbio.read_changes_batches": "changes read",
    "ddbio.read_expired": "archive expired",
    "ddbio.read_expired_batches": "archive expired",
    "ddbio.read_export_batches": "ddbio.read_export",
    "ddbio.read_export_to_files": "export read",
    "ddbio.restore_archived": "archive restore",
    "ddbio.restore_table": "backup restore",
    "ddbio.rollback": "publish",
    "ddbio.scan_to_files": "scan",
    "ddbio.register": "ddbio.spark.register",
    "ddbio.spark.write_batch": "ddbio.spark.write",
}
"""Commands and functions that do the same work with the same code as a measured one."""

UNMEASURED = {
    "calls of the service, as those of import, which service_verbs has; boto3 has none to stand beside": (
        "bulk start, bulk wait, bulk list, bulk describe, bulk cancel, bulk report, ddbio.start_bulk_put, "
        "ddbio.wait_bulk_put, ddbio.list_bulk_puts, ddbio.describe_bulk_put, ddbio.cancel_bulk_put, "
        "ddbio.read_bulk_report"
    ),
    "requests the pages of a scan, which scan measures, and decodes no item": "count, ddbio.count_table",
    "reads some notes, and no row": "capture status, export windows",
    "asks each service once for what it is set to": "doctor",
    "arithmetic on some numbers that the service told": "advise, capacity, prices show, prices refresh",
    "prints text": "iam, view latest, view history, ddbio.iam_policy, ddbio.latest_view_sql, ddbio.history_view_sql",
    "returns what is there": "ddbio.last_report, ddbio.spark.last_report, ddbio.spark.jar, ddbio.spark.sized_files",
    "hashes one key": "ddbio.idempotency_key, ddbio.spark.functions.idempotency_key",
    "the tasks of export read as a DataFrame; versions and spark_source measure what a DataFrame adds": (
        "ddbio.spark.read_export"
    ),
    "the merge of apply on Spark, which waits for a machine of more cores": "ddbio.spark.apply_batch",
    "as export fold, in memory": "ddbio.fold_exports",
}
"""Commands and functions without a figure, by the reason."""


def named(table: dict[str, str]) -> dict[str, str]:
    """Return the key of each name in a table."""
    return {name.strip(): key for key, names in table.items() for name in names.split(",")}
