"""Kinds of streams: the kind of a stream or a job of a log, and its properties."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from ddbio.cdc.dynamodb_streams import DYNAMODB_STREAMS
from ddbio.cdc.kinesis_streams import KINESIS
from ddbio.cdc.options import CaptureOptions
from ddbio.cdc.stream_registry import STREAM_KINDS, kind_of, kind_of_job, table_of_job

OWN = "arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026-11-01T00:00:00.000"
DATA = "arn:aws:kinesis:us-east-1:000000000000:stream/data"

HEADS = [
    ("a capture of a stream", {"stream": OWN}, DYNAMODB_STREAMS, "orders"),
    ("a capture of a data stream", {"stream": DATA, "table": "orders"}, KINESIS, "orders"),
    ("a heal of an older version", {"heals": "job", "table": "orders"}, KINESIS, "orders"),
    ("a replay", {"source": "s3://lake/in", "target": "log"}, DYNAMODB_STREAMS, ""),
    ("a stream of no known ARN", {"stream": "a"}, DYNAMODB_STREAMS, ""),
]


def test_the_option_names_the_kinds():
    """The option ``source`` of ``capture`` accepts exactly the kinds of the registry."""
    assert set(get_args(get_type_hints(CaptureOptions)["source"])) == STREAM_KINDS.keys()


@pytest.mark.parametrize(("head", "kind", "table"), [case[1:] for case in HEADS], ids=[case[0] for case in HEADS])
def test_the_head_of_a_job_has_the_kind_of_its_stream(head, kind, table):
    """The ARN of the stream has the kind. Older heads have only a table."""
    assert kind_of_job(head) is kind
    assert table_of_job(head) == table


@pytest.mark.parametrize(
    ("arn", "kind", "table_arn", "began_at"),
    [(OWN, DYNAMODB_STREAMS, OWN.partition("/stream")[0], 1793491200.0), (DATA, KINESIS, "", None)],
)
def test_an_arn_has_the_kind_of_a_stream(arn, kind, table_arn, began_at):
    """For a stream of a table, the ARN also has the table and the time when it was turned on."""
    assert kind_of(arn) is kind is STREAM_KINDS[kind.name]
    assert (kind.table_arn(arn), kind.began_at(arn)) == (table_arn, began_at)
