"""CloudWatch metrics of a table and its indexes.

References
----------
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import list_pages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ddbio.aws.client import ClientSpec

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
_STATISTICS = {
    "ConsumedReadCapacityUnits": "Sum",
    "ConsumedWriteCapacityUnits": "Sum",
    "ProvisionedReadCapacityUnits": "Average",
    "ProvisionedWriteCapacityUnits": "Average",
    "ReadThrottleEvents": "Sum",
    "WriteThrottleEvents": "Sum",
}
METRICS = tuple(_STATISTICS)
"""The available metrics."""


def read_metrics(
    spec: ClientSpec,
    table: str,
    index: str | None,
    metrics: Sequence[str],
    window: tuple[datetime, datetime],
    period_seconds: int,
) -> dict[str, dict[datetime, float]]:
    """Return metrics of a table or one of its global indexes by time: sums, or means of provisioned capacity.

    Periods without data are omitted. Each metric is billed as one that GetMetricData requests.

    Parameters
    ----------
    metrics
        Some of ``METRICS``.
    period_seconds
        A multiple of 60.

    Raises
    ------
    AccessDeniedError
        If credentials are missing or lack ``cloudwatch:GetMetricData``.
    EndpointError, ServiceError
        If CloudWatch does not answer.
    """
    dimensions = [{"Name": "TableName", "Value": table}]
    if index is not None:
        dimensions.append({"Name": "GlobalSecondaryIndexName", "Value": index})
    queries = [
        {
            "Id": f"m{number}",
            "MetricStat": {
                "Metric": {"Namespace": "AWS/DynamoDB", "MetricName": metric, "Dimensions": dimensions},
                "Period": period_seconds,
                "Stat": _STATISTICS[metric],
            },
        }
        for number, metric in enumerate(metrics)
    ]
    members: dict[str, Any] = {
        "MetricDataQueries": queries,
        "StartTime": window[0],
        "EndTime": window[1],
        "ScanBy": "TimestampAscending",
    }
    values: dict[str, dict[datetime, float]] = {metric: {} for metric in metrics}
    resource = f"table {table!r}" if index is None else f"index {index!r} of table {table!r}"
    for reply in list_pages(spec, "GetMetricData", resource, members, service="cloudwatch"):
        for result in reply["MetricDataResults"]:
            metric = metrics[int(result["Id"][1:])]
            values[metric] |= dict(zip(result["Timestamps"], map(float, result["Values"]), strict=True))
    return values
