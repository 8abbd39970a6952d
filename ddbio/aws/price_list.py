"""Ask the AWS Price List.

References
----------
https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.aws.control_plane import call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.aws.client import ClientSpec
    from ddbio.jobs.price_list import PriceQuery


def read_offers(spec: ClientSpec, query: PriceQuery) -> Iterator[str]:
    """Yield the products that a query finds, each as JSON; asking is free.

    Raises
    ------
    AccessDeniedError
        If credentials lack ``pricing:GetProducts``.
    EndpointError, ServiceError
        If the Price List does not answer.
    """
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in query.attributes]
    members = {"ServiceCode": query.service, "Filters": filters, "FormatVersion": "aws_v1"}
    while True:
        reply = call(spec, "GetProducts", f"prices of {query.service}", members, service="pricing")
        yield from reply["PriceList"]
        if not reply.get("NextToken"):
            return
        members["NextToken"] = reply["NextToken"]
