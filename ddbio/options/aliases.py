"""Option names of other connectors, and ours. Names are matched in any case.

The EMR DynamoDB connector and AWS Glue write ``dynamodb.input.tableName``, audienceproject's spark-dynamodb
``targetCapacity``.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# https://github.com/awslabs/emr-dynamodb-connector: DynamoDBConstants.java
# https://docs.aws.amazon.com/glue/latest/dg/aws-glue-programming-etl-connect-dynamodb-home.html
# https://github.com/audienceproject/spark-dynamodb: README
_BOTH = {
    "path": "table",
    "tableName": "table",
    "dynamodb.table.name": "table",
    "dynamodb.endpoint": "endpoint_url",
    "dynamodb.region": "region",
    "dynamodb.regionid": "region",
    "dynamodb.sts.roleArn": "role_arn",
    "dynamodb.sts.roleSessionName": "role_session_name",
}
_READ = {
    **_BOTH,
    "dynamodb.input.tableName": "table",
    "dynamodb.throughput.read": "rcu_per_second",
    "dynamodb.throughput.read.percent": "read_ratio",
    "dynamodb.throughput.read.ratio": "read_ratio",
    "dynamodb.consistentRead": "consistent",
    "dynamodb.scan.segments": "segments",
    "dynamodb.splits": "tasks",
    "dynamodb.max.map.tasks": "tasks",
    "indexName": "index",
    "readPartitions": "tasks",
    "stronglyConsistentReads": "consistent",
    "targetCapacity": "read_ratio",
    "throughput": "rcu_per_second",
}
_WRITE = {
    **_BOTH,
    "dynamodb.output.tableName": "table",
    "dynamodb.throughput.write": "wcu_per_second",
    "dynamodb.throughput.write.percent": "write_ratio",
    "dynamodb.throughput.write.ratio": "write_ratio",
    "dynamodb.output.numParallelTasks": "tasks",
    "targetCapacity": "write_ratio",
    "throughput": "wcu_per_second",
}
ALIASES: dict[str, Mapping[str, str]] = {"read": _READ, "write": _WRITE}
"""Option names of other connectors for reads and writes, and ours."""

# Boolean options of other connectors, and the write mode for each.
_MODES = {"update": "update", "delete": "delete", "dynamodb.deletion.mode": "delete"}

_CREDENTIALS = "leave keys out: every node uses its default credential chain, or profile and roleArn"
_PACED = "leave it out: the budget follows the responses of the service"
_ADVICE = {
    "dynamodb.awsAccessKeyId": _CREDENTIALS,
    "dynamodb.awsSecretAccessKey": _CREDENTIALS,
    "dynamodb.awsSessionToken": _CREDENTIALS,
    "dynamodb.customAWSCredentialsProvider": _CREDENTIALS,
    "dynamodb.column.mapping": "rename columns of the DataFrame",
    "dynamodb.filter.pushdown": "give the condition as where",
    "filterPushdown": "give the condition as where",
    "dynamodb.export": "start an export by ddbio.start_export, and read it by format('dynamodb-export')",
    "dynamodb.item.average.size": _PACED,
    "dynamodb.item.size.check.enabled": "leave it out: every item is checked",
    "dynamodb.max.batch.items": "leave it out: requests are always as large as the service takes",
    "dynamodb.max.batch.size": "leave it out: requests are always as large as the service takes",
    "dynamodb.null.serialization": "give nulls",
    "dynamodb.output.batchSize": "leave it out: requests are always as large as the service takes",
    "dynamodb.output.retry": "give deadlineSeconds",
    "dynamodb.throughput.read.autoscaling": _PACED,
    "dynamodb.throughput.write.autoscaling": _PACED,
    "dynamodb.type.mapping": "give types or schema",
    "bytesPerRCU": _PACED,
    "defaultParallelism": "give tasks",
    "inferSchema": "give a schema, by .schema() or the option",
    "maxPartitionBytes": "give tasks",
    "writeBatchSize": "leave it out: requests are always as large as the service takes",
}


def known_names(values: Mapping[str, Any], kind: Literal["read", "write"]) -> dict[str, Any]:
    """Return the options of a read or a write under ddbio's names. Unknown names are kept for the options class.

    Raises
    ------
    OptionError
        If an option is set twice, or is an option of another connector without an equivalent.
    """
    aliases = {name.lower(): own for name, own in ALIASES[kind].items()}
    advice = {name.lower(): text for name, text in _ADVICE.items()}
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name, new_value = key.lower(), value
        if name in advice:
            raise OptionError(f"option {key!r} of another connector has no equivalent: {advice[name]}")
        if kind == "write" and name in _MODES:
            new_value = _MODES[name] if _is_true(key, value) else None
            own = "mode"
        else:
            own = aliases.get(name, key)
        if own == key and "." in key:
            raise OptionError(f"unknown option {key!r}: {_suggestion(name, aliases)}")
        if new_value is not None and renamed.setdefault(own, new_value) != new_value:
            raise OptionError(f"option {own!r} is set twice, as {renamed[own]!r} and as {new_value!r}: keep one")
    return renamed


def _is_true(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in {"true", "false"}:
        raise OptionError(f"option {name!r} has value {value!r}: give true or false")
    return text == "true"


def _suggestion(name: str, aliases: Iterable[str]) -> str:
    spelling = {name.lower(): name for names in ALIASES.values() for name in names}
    near = difflib.get_close_matches(name, list(aliases), n=1, cutoff=0.6)
    return f"did you mean {spelling[near[0]]!r}?" if near else "ddbio knows no connector with this option"
