"""Tables of a fake whose changes are written to a DynamoDB stream or a data stream."""

from __future__ import annotations

import uuid


def create_table(client, name=None, *, keys=("pk:S",), view="NEW_AND_OLD_IMAGES"):
    """Create a table with these key attributes, and with a stream unless the view is None; return its name."""
    name, parts = name or f"tab-{uuid.uuid4().hex}", [key.split(":") for key in keys]
    stream = {"StreamEnabled": True, "StreamViewType": view}
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": tag} for key, tag in parts],
        KeySchema=[
            {"AttributeName": key, "KeyType": kind} for (key, _), kind in zip(parts, ["HASH", "RANGE"], strict=False)
        ],
        BillingMode="PAY_PER_REQUEST",
        **({} if view is None else {"StreamSpecification": stream}),
    )
    return name


def create_data_stream(kinesis, name, shards=2):
    """Create a data stream, and return its ARN."""
    kinesis.create_stream(StreamName=name, ShardCount=shards)
    return kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
