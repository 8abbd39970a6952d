"""The definitions of the service's jobs, compared with botocore's model, and descriptions with missing members."""

from __future__ import annotations

import dataclasses

import botocore.session
import pytest

from ddbio.export.backups import BACKUP
from ddbio.export.bulk_puts import BULK, BulkEntry
from ddbio.export.exports import EXPORT, ExportEntry
from ddbio.export.imports import IMPORT

KINDS = (BACKUP, BULK, EXPORT, IMPORT)
MODEL = botocore.session.get_session().get_service_model("dynamodb")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_name_what_the_service_has(kind):
    """Calls and members of requests and responses are in botocore's model; fields are those of the dataclass."""
    describe, listing = MODEL.operation_model(f"Describe{kind.noun}"), MODEL.operation_model(f"List{kind.noun}s")
    assert f"{kind.noun}Arn" in describe.input_shape.members
    description = describe.output_shape.members[kind.description].members
    for part in kind.parts:
        description = {**description, **description[part].members}
    for path in (pair.split("=")[1] for pair in kind.members.split()):
        members = description
        for name in path.split("."):
            assert name in members, path
            members = getattr(members[name], "members", {})
    assert kind.entries in listing.output_shape.members
    asked = {*kind.filters, *filter(None, (kind.table, kind.tokens[-1]))}
    assert asked <= listing.input_shape.members.keys()
    assert kind.tokens[0] in listing.output_shape.members
    fields = {field.name for field in dataclasses.fields(kind.job)}
    assert {pair.split("=")[0] for pair in kind.members.split()} | kind.computed.keys() <= fields


def test_a_member_that_is_left_out_has_its_default():
    """Missing counts are 0, texts are empty, and other fields are None; an entry of a list has the known fields."""
    job = BULK.parse({"BulkOperationArn": "arn:b", "BulkOperationStatus": "IN_PROGRESS"}, BULK.job)
    assert (job.processed_items, job.source, job.table, job.total_bytes, job.ended_at) == (0, "", "", None, None)
    assert BULK.parse({"BulkOperationArn": "arn:b", "BulkOperationStatus": "FAILED"}, BULK.entry) == BulkEntry(
        "arn:b", "FAILED", None, None
    )
    export = {"ExportArn": "arn:e", "ExportStatus": "COMPLETED"}
    assert EXPORT.parse(export, EXPORT.entry) == ExportEntry("arn:e", "COMPLETED", "full")
    job = EXPORT.parse(
        export | {"S3Bucket": "b", "ExportManifest": "p/AWSDynamoDB/1/manifest-summary.json"}, EXPORT.job
    )
    assert (job.uri, job.filtered, job.view) == ("s3://b/p/AWSDynamoDB/1", False, None)
