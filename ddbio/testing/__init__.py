"""Fake AWS services over real HTTP: a fake DynamoDB with capacity and throttling, and moto's S3.

The fake evaluates no filters. Of expressions, it supports only those of conditional writes, projections and key
conditions.
"""

from __future__ import annotations

from ddbio.testing.fake import FakeDynamoDB
from ddbio.testing.faults import Faults, Storm
from ddbio.testing.policy import Permission, PolicyProxy
from ddbio.testing.proxy import MotoServer

__all__ = ["FakeDynamoDB", "Faults", "MotoServer", "Permission", "PolicyProxy", "Storm"]
