"""The kinds of streams: which one a stream or a job of a log has, and what follows from it."""

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
    """``source`` of ``capture`` may be any kind of the registry, and nothing else."""
    assert set(get_args(get_type_hints(CaptureOptions)["source"])) == STREAM_KINDS.keys()


@pytest.mark.parametrize(("head", "kind", "table"), [case[1:] for case in HEADS], ids=[case[0] for case in HEADS])
def test_the_head_of_a_job_tells_the_kind_of_its_stream(head, kind, table):
    """By the ARN of the stream; older heads name a table alone."""
    assert kind_of_job(head) is kind
    assert table_of_job(head) == table


@pytest.mark.parametrize(
    ("arn", "kind", "table_arn", "began_at"),
    [(OWN, DYNAMODB_STREAMS, OWN.partition("/stream")[0], 1793491200.0), (DATA, KINESIS, "", None)],
)
def test_an_arn_tells_the_kind_of_a_stream(arn, kind, table_arn, began_at):
    """And, of a stream of a table, the table and when it was turned on."""
    assert kind_of(arn) is kind is STREAM_KINDS[kind.name]
    assert (kind.table_arn(arn), kind.began_at(arn)) == (table_arn, began_at)
