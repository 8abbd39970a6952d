"""Rows of the table of calls: permissions, what they are for, and when they are needed.

Resources and conditions are written in a short form. ``keys:dest`` are the objects below the option ``dest``, and
``!schema mode=create|newer_by`` holds if no schema is given and the mode is one of the two.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Permissions of a verb.

    Attributes
    ----------
    sid
        What they are for, in one word of letters.
    actions
        Separated by spaces.
    on
        The resource: its kind, and the option that names it.
    when
        The options with which they are needed; always if it is empty.
    """

    sid: str
    actions: str
    on: str
    when: str = ""


def describes(name: str, when: str = "") -> tuple[Row, ...]:
    """Return what describes a table."""
    return (Row("DescribeTheTable", "dynamodb:DescribeTable", f"table:{name}", when),)


def reads_items(name: str, when: str = "") -> tuple[Row, ...]:
    """Return what reads items of a table as ``index``, ``where`` and ``keys`` say."""
    return (
        *describes(name, when),
        Row("ReadItems", "dynamodb:Scan", f"items:{name}", f"{when} scans"),
        Row("QueryItems", "dynamodb:Query", f"items:{name}", f"{when} queries"),
        Row("LookItemsUp", "dynamodb:BatchGetItem", f"table:{name}", f"{when} keys"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def scans(name: str, when: str = "", sid: str = "ReadItems") -> tuple[Row, ...]:
    """Return what reads all items of a table."""
    return (
        Row(sid, "dynamodb:Scan", f"table:{name}", when),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def reads_place(name: str, when: str = "", sid: str = "Source") -> tuple[Row, ...]:
    """Return what reads a folder, an object or what a glob names."""
    return (
        Row(f"ListThe{sid}", "s3:ListBucket", f"bucket:{name}", when),
        Row(f"ReadThe{sid}", "s3:GetObject", f"keys:{name}", when),
        Row("UseTheBucketKey", "kms:Decrypt", f"readkey:{name}", when),
    )


def read_by_service(name: str) -> tuple[Row, ...]:
    """Return what reads objects that DynamoDB reads as well, in the name of the caller."""
    return (
        Row("ByDynamoDBList", "s3:ListBucket", f"bucket:{name}"),
        Row("ByDynamoDBRead", "s3:GetObject", f"keys:{name}"),
        Row("UseTheBucketKey", "kms:Decrypt", f"readkey:{name}"),
    )


def writes_objects(name: str, when: str = "", sid: str = "Target") -> tuple[Row, ...]:
    """Return what the options of objects need wherever objects are written."""
    return (
        Row(f"TagThe{sid}", "s3:PutObjectTagging", f"keys:{name}", f"{when} s3_tags"),
        Row(f"ShareThe{sid}", "s3:PutObjectAcl", f"keys:{name}", f"{when} s3_acl"),
        Row("EncryptObjects", "kms:GenerateDataKey", f"writekey:{name}", when),
    )


def locks_objects(name: str, when: str = "", sid: str = "Target") -> tuple[Row, ...]:
    """Return what locks objects that stay."""
    return (
        Row(f"RetainThe{sid}", "s3:PutObjectRetention", f"keys:{name}", f"{when} s3_object_lock_mode"),
        Row(f"HoldThe{sid}", "s3:PutObjectLegalHold", f"keys:{name}", f"{when} s3_object_lock_legal_hold"),
    )


def keeps_state(name: str, when: str = "", sid: str = "State") -> tuple[Row, ...]:
    """Return what a place needs in which jobs keep claims and checkpoints."""
    return (
        Row(f"ListThe{sid}", "s3:ListBucket", f"bucket:{name}", when),
        Row(f"WriteThe{sid}", "s3:GetObject s3:PutObject s3:DeleteObject", f"keys:{name}", when),
        *writes_objects(name, when, sid),
        Row("DecryptObjects", "kms:Decrypt", f"writekey:{name}", when),
    )


def keeps_log(name: str, when: str = "", sid: str = "Log") -> tuple[Row, ...]:
    """Return what a log of changes needs that is written: its files are kept, its claims are not."""
    return (*keeps_state(name, when, sid), *locks_objects(name, when, sid))


def writes_files(name: str, when: str = "", sid: str = "Target") -> tuple[Row, ...]:
    """Return what a job needs that writes files, by uploads that it completes at its end."""
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
    """Return what merging into a lake table needs: nothing is deleted."""
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
    """Return what names a table in the Glue Data Catalog."""
    tables = "glue:GetTable glue:GetDatabase glue:CreateDatabase glue:CreateTable glue:UpdateTable"
    parts = "glue:GetPartitions glue:BatchCreatePartition glue:BatchUpdatePartition glue:BatchDeletePartition"
    return (
        Row("NameTheTable", tables, f"glue:{name}", when),
        Row("NameItsPartitions", parts, f"glue:{name}", f"{when} {partitions}"),
    )


def exports(name: str, dest: str, when: str = "") -> tuple[Row, ...]:
    """Return what DynamoDB's own export needs: it writes to S3 in the name of the caller."""
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
    """Return what awaits an export."""
    return (Row("AwaitTheExport", "dynamodb:DescribeExport", f"exports:{name}", when),)


def reads_changes(name: str, when: str = "") -> tuple[Row, ...]:
    """Return what reads the stream of a table, and samples its items."""
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
    """Return what creates a table."""
    return (
        Row("DescribeTheNewTable", "dynamodb:DescribeTable", f"table:{name}", when),
        Row("CreateTheTable", "dynamodb:CreateTable", f"table:{name}", when),
    )


def creates_like(source: str, target: str, when: str = "") -> tuple[Row, ...]:
    """Return what creates a table as another one is."""
    return (
        Row("SeeTimeToLive", "dynamodb:DescribeTimeToLive", f"table:{source}", when),
        *creates(target, when),
        Row("SetTimeToLive", "dynamodb:UpdateTimeToLive", f"table:{target}", when),
        Row("EncryptTheNewTable", "kms:DescribeKey kms:CreateGrant", f"newkey:{target}", when),
    )


def writes_rows(name: str, when: str = "") -> tuple[Row, ...]:
    """Return what writing rows as ``mode`` and ``newer_by`` say needs."""
    return (
        *describes(name, when),
        Row("WriteInBatches", "dynamodb:BatchWriteItem", f"table:{name}", f"{when} writes=batch"),
        Row("PutItems", "dynamodb:PutItem", f"table:{name}", f"{when} writes=put"),
        Row("UpdateItems", "dynamodb:UpdateItem", f"table:{name}", f"{when} writes=update"),
        Row("DeleteItems", "dynamodb:DeleteItem", f"table:{name}", f"{when} writes=delete"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", when),
    )


def keeps_rejects(name: str = "reject_to", when: str = "") -> tuple[Row, ...]:
    """Return what keeps refused rows."""
    return (
        Row("KeepRejects", "s3:PutObject", f"keys:{name}", when),
        *writes_objects(name, when, "Rejects"),
        *locks_objects(name, when, "Rejects"),
    )


def restores(name: str) -> tuple[Row, ...]:
    """Return what restores a table and compares it."""
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
        Row("ByDynamoDBFill", " ".join(f"dynamodb:{each}" for each in fills.split()), f"table:{name}", "!dry_run"),
        Row("EncryptTheNewTable", "kms:DescribeKey kms:CreateGrant", f"tablekey:{name}", "!dry_run"),
        Row("UseTheTableKey", "kms:Decrypt", f"tablekey:{name}", "compares !dry_run"),
        Row("CompareTheTables", "dynamodb:DescribeTable dynamodb:Scan", "table:source", "verify !from_backup !dry_run"),
        Row(
            "CompareTheTables", "dynamodb:DescribeTable dynamodb:Scan", "backedup:source", "verify from_backup !dry_run"
        ),
    )
