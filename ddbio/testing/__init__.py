"""Serve fakes for AWS over real HTTP: a fake DynamoDB with capacity and throttling, and moto's S3.

Refuses to filter and to evaluate expressions beyond what conditional writes need.
"""

from __future__ import annotations

from ddbio.testing.fake import FakeDynamoDB
from ddbio.testing.faults import Faults, Storm
from ddbio.testing.moto import MotoServer

__all__ = ["FakeDynamoDB", "Faults", "MotoServer", "Storm"]
