"""Keep every test away from real accounts: fake keys, no configuration files, no metadata service, no endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

FAKE_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "eu-west-1",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@pytest.fixture(scope="session")
def original_environment() -> Mapping[str, str]:
    """Return the environment as the caller set it, for the suite that tests an endpoint of the caller's."""
    return dict(os.environ)


@pytest.fixture(scope="session", autouse=True)
def hermetic_environment(original_environment: Mapping[str, str]) -> Iterator[None]:
    """Replace every AWS variable before a server, a client or a JVM is started."""
    with pytest.MonkeyPatch.context() as patch:
        for name in original_environment:
            if name.startswith("AWS_"):
                patch.delenv(name)
        for name, value in FAKE_ENVIRONMENT.items():
            patch.setenv(name, value)
        yield
