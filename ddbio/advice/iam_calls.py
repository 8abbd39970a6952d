"""Table of the AWS calls of each verb and its options. IAM policies and their page are generated from it."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Permissions of a verb.

    Attributes
    ----------
    sid
        Purpose, as one word of letters.
    actions
        Actions, separated by spaces.
    on
        Resource: its kind, and the option that names it.
    when
        Options that require the permissions; empty if they are always required.
    """

    sid: str
    actions: str
    on: str
    when: str = ""


def describes(name: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to describe a table."""
    return (Row("DescribeTheTable", "dynamodb:DescribeTable", f"table:{name}", when),)


def reads_items(name: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to read items of a table with ``index``, ``where`` and ``keys``."""
    return (
        *describes(name, when),
        Row("ReadItems", "dynamodb:Scan", f"items:{name}", f"{when} scans"),
        Row("QueryItems", "dynamodb:Query", f"items:{name}", f"{when} queries"),
        Row("LookItemsUp", "dynamodb:BatchGetItem", f"table:{name}", f"{when} keys"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def scans(name: str, when: str = "", sid: str = "ReadItems") -> tuple[Row, ...]:
    """Return the permissions to read all items of a table."""
    return (
        Row(sid, "dynamodb:Scan", f"table:{name}", when),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def reads_location(name: str, when: str = "", sid: str = "Source") -> tuple[Row, ...]:
    """Return the permissions to read a folder, an object or the objects that match a glob."""
    return (
        Row(f"ListThe{sid}", "s3:ListBucket", f"bucket:{name}", when),
        Row(f"ReadThe{sid}", "s3:GetObject", f"keys:{name}", when),
        Row("UseTheBucketKey", "kms:Decrypt", f"readkey:{name}", when),
    )


def read_by_service(name: str) -> tuple[Row, ...]:
    """Return the permissions to read objects that DynamoDB also reads on behalf of the caller."""
    return (
        Row("ByDynamoDBList", "s3:ListBucket", f"bucket:{name}"),
        Row("ByDynamoDBRead", "s3:GetObject", f"keys:{name}"),
        Row("UseTheBucketKey", "kms:Decrypt", f"readkey:{name}"),
    )


def writes_objects(name: str, when: str = "", sid: str = "Target") -> tuple[Row, ...]:
    """Return the permissions that object options require where objects are written."""
    return (
        Row(f"TagThe{sid}", "s3:PutObjectTagging", f"keys:{name}", f"{when} s3_tags"),
        Row(f"ShareThe{sid}", "s3:PutObjectAcl", f"keys:{name}", f"{when} s3_acl"),
        Row("EncryptObjects", "kms:GenerateDataKey", f"writekey:{name}", when),
    )


def locks_objects(name: str, when: str = "", sid: str = "Target") -> tuple[Row, ...]:
    """Return the permissions to lock retained objects."""
    return (
        Row(f"RetainThe{sid}", "s3:PutObjectRetention", f"keys:{name}", f"{when} s3_object_lock_mode"),
        Row(f"HoldThe{sid}", "s3:PutObjectLegalHold", f"keys:{name}", f"{when} s3_object_lock_legal_hold"),
    )


def keeps_state(name: str, when: str = "", sid: str = "State") -> tuple[Row, ...]:
    """Return the permissions for a folder of claims and checkpoints."""
    return (
        Row(f"ListThe{sid}", "s3:ListBucket", f"bucket:{name}", when),
        Row(f"WriteThe{sid}", "s3:GetObject s3:PutObject s3:DeleteObject", f"keys:{name}", when),
        *writes_objects(name, when, sid),
        Row("DecryptObjects", "kms:Decrypt", f"writekey:{name}", when),
    )


def keeps_log(name: str, when: str = "", sid: str = "Log") -> tuple[Row, ...]:
    """Return the permissions to write a log of changes. Its files are kept; its claims are deleted."""
    return (*keeps_state(name, when, sid), *locks_objects(name, when, sid))


def writes_files(name: str, when: str = "", sid: str = "Target") -> tuple[Row, ...]:
    """Return the permissions of a job that writes files by multipart uploads and completes them at its end."""
    return (
        Row(f"ListThe{sid}", "s3:ListBucket", f"bucket:{name}", when),
        Row(f"FindUploadsTo{sid}", "s3:ListBucketMultipartUploads", f"uploads:{name}", when),
        Row(
            f"WriteThe{sid}",
            "s3:GetObject s3:PutObject s3:DeleteObject s3:AbortMultipartUpload",
            f"keys:{name}",
            when,
        ),
        *writes_objects(name, when, sid),
        *locks_objects(name, when, sid),
        Row("DecryptObjects", "kms:Decrypt", f"writekey:{name}", when),
    )


def merges(name: str, when: str = "", sid: str = "Lake") -> tuple[Row, ...]:
    """Return the permissions to merge into a lake table. Nothing is deleted."""
    return (
        Row(f"ListThe{sid}", "s3:ListBucket", f"bucket:{name}", when),
        Row(f"FindUploadsTo{sid}", "s3:ListBucketMultipartUploads", f"uploads:{name}", when),
        Row(f"WriteThe{sid}", "s3:GetObject s3:PutObject s3:AbortMultipartUpload", f"keys:{name}", when),
        *writes_objects(name, when, sid),
        *locks_objects(name, when, sid),
        Row("DecryptObjects", "kms:Decrypt", f"writekey:{name}", when),
        Row(f"LetHudiCleanThe{sid}", "s3:DeleteObject", f"keys:{name}", f"{when} format=hudi"),
    )


def names_table(name: str = "catalog", when: str = "", partitions: str = "partition_by") -> tuple[Row, ...]:
    """Return the permissions to register a table in the Glue Data Catalog."""
    tables = "glue:GetTable glue:GetDatabase glue:CreateDatabase glue:CreateTable glue:UpdateTable"
    parts = "glue:GetPartitions glue:BatchCreatePartition glue:BatchUpdatePartition glue:BatchDeletePartition"
    return (
        Row("NameTheTable", tables, f"glue:{name}", when),
        Row("NameItsPartitions", parts, f"glue:{name}", f"{when} {partitions}"),
    )


def exports(name: str, dest: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions of a DynamoDB export, which writes to S3 on behalf of the caller."""
    service = "s3:PutObject s3:PutObjectAcl s3:AbortMultipartUpload"
    return (
        *describes(name, when),
        Row("SeeRecovery", "dynamodb:DescribeContinuousBackups", f"table:{name}", when),
        Row("StartTheExport", "dynamodb:ExportTableToPointInTime", f"table:{name}", when),
        Row("ByDynamoDBExport", service, f"keys:{dest}", when),
        Row("ByDynamoDBEncrypt", "kms:GenerateDataKey kms:Decrypt", f"exportkey:{dest}", when),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def awaits_export(name: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to wait for an export."""
    return (Row("AwaitTheExport", "dynamodb:DescribeExport", f"exports:{name}", when),)


def reads_changes(name: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to read the stream of a table and to sample its items."""
    return (
        *describes(name, when),
        Row(
            "ReadTheStream",
            "dynamodb:DescribeStream dynamodb:GetShardIterator dynamodb:GetRecords",
            f"stream:{name}",
            f"{when} source!=kinesis",
        ),
        Row(
            "FindTheKinesisStream",
            "dynamodb:DescribeKinesisStreamingDestination",
            f"table:{name}",
            f"{when} source=kinesis",
        ),
        Row(
            "DescribeTheKinesisStream",
            "kinesis:DescribeStreamSummary kinesis:ListShards",
            "kinesis:stream",
            f"{when} source=kinesis",
        ),
        Row(
            "ReadTheKinesisStream",
            "kinesis:GetShardIterator kinesis:GetRecords",
            "kinesis:stream",
            f"{when} source=kinesis !fan_out",
        ),
        Row(
            "FindTheConsumer",
            "kinesis:DescribeStreamConsumer kinesis:RegisterStreamConsumer",
            "kinesis:stream",
            f"{when} source=kinesis registers",
        ),
        Row(
            "DescribeTheConsumer",
            "kinesis:DescribeStreamConsumer",
            "consumer:fan_out",
            f"{when} source=kinesis fan_out !registers",
        ),
        Row("ReadByTheConsumer", "kinesis:SubscribeToShard", "consumer:fan_out", f"{when} source=kinesis fan_out"),
        Row("SampleItems", "dynamodb:Scan", f"table:{name}", f"{when} !schema"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def creates(name: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to create a table."""
    return (
        Row("DescribeTheNewTable", "dynamodb:DescribeTable", f"table:{name}", when),
        Row("CreateTheTable", "dynamodb:CreateTable", f"table:{name}", when),
    )


def creates_like(source: str, target: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to create a table with the settings of another table."""
    return (
        Row("SeeTimeToLive", "dynamodb:DescribeTimeToLive", f"table:{source}", when),
        *creates(target, when),
        Row("SetTimeToLive", "dynamodb:UpdateTimeToLive", f"table:{target}", when),
        Row("EncryptTheNewTable", "kms:DescribeKey kms:CreateGrant", f"newkey:{target}", when),
        Row("ReadTheTags", "dynamodb:ListTagsOfResource", f"table:{source}", f"{when} copy_tags"),
        Row("TagTheNewTable", "dynamodb:TagResource", f"table:{target}", f"{when} copy_tags"),
        Row("ReadThePolicy", "dynamodb:GetResourcePolicy", f"table:{source}", f"{when} copy_policy"),
        Row("SetThePolicy", "dynamodb:PutResourcePolicy", f"table:{target}", f"{when} copy_policy"),
    )


def writes_rows(name: str, when: str = "") -> tuple[Row, ...]:
    """Return the permissions to write rows with ``mode`` and ``newer_by``."""
    return (
        *describes(name, when),
        Row("WriteInBatches", "dynamodb:BatchWriteItem", f"table:{name}", f"{when} writes=batch"),
        Row("PutItems", "dynamodb:PutItem", f"table:{name}", f"{when} writes=put"),
        Row("UpdateItems", "dynamodb:UpdateItem", f"table:{name}", f"{when} writes=update"),
        Row("DeleteItems", "dynamodb:DeleteItem", f"table:{name}", f"{when} writes=delete"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def keeps_rejects(name: str = "reject_to", when: str = "") -> tuple[Row, ...]:
    """Return the permissions to keep rejected rows."""
    return (
        Row("KeepRejects", "s3:PutObject", f"keys:{name}", when),
        *writes_objects(name, when, "Rejects"),
        *locks_objects(name, when, "Rejects"),
    )


def restores(name: str) -> tuple[Row, ...]:
    """Return the permissions to restore a table and to compare it."""
    fills = "BatchWriteItem DeleteItem GetItem PutItem Query Scan UpdateItem"
    starts = (
        Row("DescribeTheBackup", "dynamodb:DescribeBackup", "arn:source", "from_backup"),
        Row("RestoreTheBackup", "dynamodb:RestoreTableFromBackup", "arn:source", "from_backup !dry_run"),
        Row(
            "DescribeTheTable",
            "dynamodb:DescribeTable dynamodb:DescribeContinuousBackups",
            "table:source",
            "!from_backup",
        ),
        Row("RestoreTheTable", "dynamodb:RestoreTableToPointInTime", "table:source", "!from_backup !dry_run"),
        Row("MakeTheNewTable", "dynamodb:RestoreTableFromBackup", f"table:{name}", "from_backup !dry_run"),
        Row("MakeTheNewTable", "dynamodb:RestoreTableToPointInTime", f"table:{name}", "!from_backup !dry_run"),
    )
    return (
        *starts,
        Row("DescribeTheNewTable", "dynamodb:DescribeTable", f"table:{name}"),
        Row(
            "ByDynamoDBFill",
            " ".join(f"dynamodb:{operation}" for operation in fills.split()),
            f"table:{name}",
            "!dry_run",
        ),
        Row("EncryptTheNewTable", "kms:DescribeKey kms:CreateGrant", f"tablekey:{name}", "!dry_run"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", "compares !dry_run"),
        Row("CompareTheTables", "dynamodb:DescribeTable dynamodb:Scan", "table:source", "verify !from_backup !dry_run"),
        Row(
            "CompareTheTables", "dynamodb:DescribeTable dynamodb:Scan", "backedup:source", "verify from_backup !dry_run"
        ),
    )


_IMPORT_LOGS = (
    "logs:CreateLogGroup logs:CreateLogStream logs:DescribeLogGroups logs:DescribeLogStreams logs:PutLogEvents "
    "logs:PutRetentionPolicy"
)
_METRICS = Row("SeeWhatItConsumes", "cloudwatch:GetMetricData", "all:", "!csv !from_file")
_PLAN_EXPORT = (*describes("table"), Row("SeeRecovery", "dynamodb:DescribeContinuousBackups", "table:table"))
_BASE = (
    *describes("table"),
    Row("ReadItems", "dynamodb:Scan", "items:table"),
    Row("UseTheTableKey", "kms:Decrypt", "tablekey:table"),
)
_HEALED = (
    *keeps_log("dest"),
    *describes("table"),
    Row("LookItemsUp", "dynamodb:BatchGetItem", "table:table"),
    Row("UseTheTableKey", "kms:Decrypt", "tablekey:table"),
    *exports("table", "export_to", "export_to"),
    *awaits_export("table", "export_to"),
    *reads_location("export_to", "export_to", "Export"),
    *reads_location("from_export", "from_export", "Export"),
)

TABLE: dict[str, tuple[Row, ...]] = {
    "advise": (
        *describes("table", "!from_file"),
        _METRICS._replace(when="!from_file !changes_per_second"),
    ),
    "apply": (
        *reads_location("source", sid="Log"),
        *merges("table", "!dry_run"),
        *reads_location("table", "dry_run", "Lake"),
        *names_table(partitions="format=hudi", when="!dry_run"),
    ),
    "archive": (
        *describes("source"),
        Row("SeeTimeToLive", "dynamodb:DescribeTimeToLive", "table:source", "!ttl"),
        *reads_location("source", "!log", "Log"),
        *reads_changes("source", "log"),
        *keeps_log("log"),
        *keeps_log("dest", sid="Archive"),
    ),
    "archive expired": (
        *reads_items("source"),
        Row("SeeTimeToLive", "dynamodb:DescribeTimeToLive", "table:source", "!ttl"),
        *reads_location("source"),
    ),
    "archive restore": (*reads_location("source", sid="Archive"), *writes_rows("table")),
    "backup create": (
        *describes("table"),
        Row("MakeTheBackup", "dynamodb:CreateBackup", "table:table", "!dry_run"),
        Row("AwaitTheBackup", "dynamodb:DescribeBackup", "backups:table", "!dry_run"),
        *scans("table", "digest !dry_run"),
    ),
    "backup list": (Row("ListBackups", "dynamodb:ListBackups", "all:"),),
    "backup restore": restores("target"),
    "bootstrap": (
        *reads_changes("table"),
        *keeps_log("log"),
        *writes_files("target", sid="Lake"),
        *scans("table", "base=scan"),
        *exports("table", "export_to", "export_to"),
        *awaits_export("table", "export_to"),
        *reads_location("export_to", "export_to", "Export"),
        Row("LookItemsUp", "dynamodb:BatchGetItem", "table:table", "export_to"),
        *names_table(partitions="format=hudi"),
    ),
    "bulk cancel": (Row("CancelTheOperation", "dynamodb:CancelBulkOperation", "arn:arn"),),
    "bulk describe": (Row("DescribeTheOperation", "dynamodb:DescribeBulkOperation", "arn:arn"),),
    "bulk list": (Row("ListOperations", "dynamodb:ListBulkOperations", "all:"),),
    "bulk report": (*reads_location("place", sid="Reports"), *keeps_rejects()),
    "bulk start": (
        *describes("table"),
        Row("StartTheOperation", "dynamodb:StartBulkPutItems", "table:table", "!dry_run"),
        *read_by_service("source"),
        Row("ByDynamoDBReport", "s3:PutObject", "keys:reports", "!dry_run"),
        Row("ByDynamoDBEncrypt", "kms:GenerateDataKey", "reportkey:reports", "!dry_run"),
    ),
    "bulk wait": (Row("DescribeTheOperation", "dynamodb:DescribeBulkOperation", "arn:arn"),),
    "capacity": (*describes("table"), _METRICS),
    "capture": (*reads_changes("table"), *keeps_log("dest")),
    "capture heal": _HEALED,
    "capture status": (
        *reads_location("dest", sid="Log"),
        Row(
            "ReadTheStreams",
            "dynamodb:DescribeStream dynamodb:GetShardIterator dynamodb:GetRecords",
            "allstreams:",
            "!offline",
        ),
    ),
    "capture verify": reads_location("dest", sid="Log"),
    "catalog ddl": reads_location("path", sid="Folder"),
    "catalog sync": (*reads_location("path", sid="Folder"), *names_table("target", partitions="")),
    "changes read": (*reads_location("source"), *keeps_rejects()),
    "changes write": (
        Row("WriteTheTarget", "s3:PutObject", "keys:dest"),
        *writes_objects("dest"),
        *locks_objects("dest"),
    ),
    "compact": (
        *writes_files("path", "!dry_run", "Folder"),
        *reads_location("path", "dry_run", "Folder"),
        *names_table(when="!dry_run", partitions=""),
    ),
    "copy": (
        *reads_items("source"),
        *creates_like("source", "target", "create_target !dry_run"),
        Row("SeeTimeToLive", "dynamodb:DescribeTimeToLive", "table:source", "create_target dry_run"),
        Row("ReadTheTags", "dynamodb:ListTagsOfResource", "table:source", "create_target copy_tags dry_run"),
        Row("DescribeTheTarget", "dynamodb:DescribeTable", "table:target"),
        Row("WriteInBatches", "dynamodb:BatchWriteItem", "table:target", "writes=batch !dry_run"),
        Row("PutItems", "dynamodb:PutItem", "table:target", "writes=put !dry_run"),
        *scans("target", "verify !dry_run", "VerifyTheTarget"),
        *keeps_rejects(),
    ),
    "count": (
        *describes("table"),
        Row("ReadItems", "dynamodb:Scan", "items:table", "!dry_run scans"),
        Row("QueryItems", "dynamodb:Query", "items:table", "!dry_run queries"),
        Row("UseTheTableKey", "kms:Decrypt", "tablekey:table", "!dry_run"),
    ),
    "demo": (),
    "digest": (*reads_items("source"), *reads_location("source")),
    # A missing permission is a finding.
    "doctor": (
        Row(
            "SeeTheTable",
            "dynamodb:DescribeTable dynamodb:DescribeContinuousBackups dynamodb:DescribeKinesisStreamingDestination",
            "table:table",
        ),
        Row("FindTheBucket", "s3:ListBucket", "bucket:location"),
        Row(
            "SeeTheBucket",
            "s3:GetEncryptionConfiguration s3:GetBucketVersioning s3:GetBucketPublicAccessBlock "
            "s3:GetLifecycleConfiguration s3:GetBucketObjectLockConfiguration",
            "uploads:location",
        ),
    ),
    "export describe": (Row("DescribeTheExport", "dynamodb:DescribeExport", "arn:arn"),),
    "export fold": (
        *reads_location("base", sid="Export"),
        *reads_location("increments", sid="Increments"),
        *writes_files("dest", "!dry_run"),
        *keeps_state("spill", "!dry_run", "Spill"),
        Row("FindUploadsToSpill", "s3:ListBucketMultipartUploads", "uploads:spill", "!dry_run"),
        *names_table(when="!dry_run"),
    ),
    "export list": (*describes("table", "table"), Row("ListExports", "dynamodb:ListExports", "all:")),
    "export read": (
        *reads_location("source", sid="Export"),
        *writes_files("dest", "!dry_run"),
        *names_table(when="!dry_run"),
        Row("FindTheKey", "dynamodb:DescribeTable", "alltables:", "format=delta|iceberg|hudi !key !dry_run"),
    ),
    "export start": (
        *exports("table", "dest", "!dry_run"),
        *((row._replace(when="dry_run")) for row in _PLAN_EXPORT),
        Row("TurnRecoveryOn", "dynamodb:UpdateContinuousBackups", "table:table", "enable_pitr !dry_run"),
        *awaits_export("table", "waits !dry_run"),
    ),
    "export wait": (Row("AwaitTheExport", "dynamodb:DescribeExport", "arn:arn"),),
    "export windows": (*reads_location("base", sid="Export"), *reads_location("increments", sid="Increments")),
    "files": reads_location("path", sid="Folder"),
    "history": reads_location("source"),
    "import describe": (Row("DescribeTheImport", "dynamodb:DescribeImport", "arn:arn"),),
    "import files": (*reads_location("source"), *writes_files("dest", "!dry_run"), *describes("like", "like")),
    "import list": (*describes("table", "table"), Row("ListImports", "dynamodb:ListImports", "all:")),
    "import start": (
        *read_by_service("source"),
        Row("StartTheImport", "dynamodb:ImportTable", "table:table", "!dry_run"),
        Row("ByDynamoDBLog", _IMPORT_LOGS, "importlogs:", "!dry_run"),
    ),
    "import wait": (
        Row("AwaitTheImport", "dynamodb:DescribeImport", "arn:arn"),
        Row("VerifyTheTable", "dynamodb:DescribeTable dynamodb:Scan", "imported:arn", "verify"),
    ),
    "layout": reads_location("path", sid="Folder"),
    "load": (
        *writes_rows("table", "!dry_run"),
        *describes("table", "dry_run"),
        *creates("table", "create_table !dry_run"),
        *reads_location("source"),
        *reads_location("retry_rejects", sid="Retried"),
        *keeps_state("state", "!dry_run"),
        *keeps_rejects(when="!dry_run"),
    ),
    "maintain": (
        *merges("table", "!dry_run"),
        Row("DeleteOldFiles", "s3:DeleteObject", "keys:table", "!dry_run deletes"),
        *reads_location("table", "dry_run", "Lake"),
        *names_table(partitions="format=hudi", when="!dry_run"),
    ),
    "prices refresh": (Row("ReadPrices", "pricing:GetProducts", "all:"),),
    "prices show": (),
    "publish": (
        *reads_location("staging"),
        *writes_files("dest", "!dry_run"),
        *names_table(when="!dry_run", partitions=""),
    ),
    "read": (*reads_items("source"), *reads_location("source")),
    "reconcile": (
        *_HEALED,
        Row("ReadTheStream", "dynamodb:DescribeStream dynamodb:GetShardIterator dynamodb:GetRecords", "stream:table"),
        *merges("target", "!dry_run"),
        *reads_location("target", "dry_run", "Lake"),
    ),
    "replay": (
        *reads_location("source"),
        *keeps_log("dest"),
        *keeps_state("replayed"),
        *writes_rows("table", "table"),
        *keeps_rejects(),
    ),
    "scan": (
        *reads_items("table"),
        *writes_files("dest", "!dry_run"),
        *reads_location("dest", "dry_run", "Target"),
        *names_table(when="!dry_run"),
    ),
    "schema": (*reads_items("source"), *reads_location("source")),
    "simulate load": (),
    "simulate scan": (),
    "table create": creates("table"),
    "table create-like": (*describes("source"), *creates_like("source", "target")),
    "table describe": describes("table"),
    "table restore": restores("target"),
    "vacuum": (
        *writes_files("path", "!dry_run", "Folder"),
        *reads_location("path", "dry_run", "Folder"),
        Row("FindUploadsToFolder", "s3:ListBucketMultipartUploads", "uploads:path", "dry_run"),
    ),
    "validate": (
        *reads_items("source"),
        *reads_location("source"),
        *reads_items("target", "!dry_run"),
        *describes("target", "dry_run"),
        *reads_location("target", sid="Target"),
    ),
    "verify": (
        *reads_items("table"),
        *reads_location("target", sid="Lake"),
        *reads_location("log", sid="Log"),
        *reads_location("table", sid="Export"),
        *exports("table", "export_to", "export_to"),
        *awaits_export("table", "export_to"),
        *reads_location("export_to", "export_to", "Export"),
    ),
    "view history": reads_location("source", sid="Log"),
    "view latest": (*reads_location("source", sid="Log"), *reads_location("target", sid="Lake")),
}
