"""Serve a fake DynamoDB with capacity and throttling over real HTTP; refuses to decide by expressions over items."""

from __future__ import annotations

from ddbio.testing.fake import FakeDynamoDB

__all__ = ["FakeDynamoDB"]
