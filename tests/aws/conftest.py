"""Share botocore's models between the clients of all tests."""

from __future__ import annotations

import functools

import botocore.loaders
import botocore.session
import pytest

# Otherwise each session would read the models of its services again.
shared_loader = functools.lru_cache(botocore.loaders.create_loader)


@pytest.fixture(autouse=True)
def _models_are_read_once(monkeypatch):
    monkeypatch.setattr(botocore.session, "create_loader", shared_loader)
