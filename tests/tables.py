"""Tables of the fake that tests only read."""

from __future__ import annotations

import base64
import json

import pytest

from ddbio.testing import FakeDynamoDB
from ddbio.testing.flights import KEY, flight_lines


def every_type(number: int) -> dict[str, dict[str, object]]:
    """Return an item with all ten types."""
    return {
        "pk": {"S": f"item-{number:05d}"},
        "n": {"N": str(number)},
        "price": {"N": f"{number}.25"},
        "big": {"N": "12345678901234567890123456789012345678"},
        "b": {"B": base64.b64encode(number.to_bytes(4, "big")).decode()},
        "flag": {"BOOL": number % 2 == 0},
        "none": {"NULL": True},
        "ss": {"SS": ["x", "y"]},
        "ns": {"NS": ["1", "2.5"]},
        "bs": {"BS": [base64.b64encode(b"z").decode()]},
        "list": {"L": [{"N": "1"}, {"N": "2"}]},
        "map": {"M": {"city": {"S": "Ulm"}, "zip": {"N": "89073"}}},
    }


def lines(items) -> bytes:
    """Return items as bare lines."""
    return b"".join(json.dumps(item, separators=(",", ":")).encode() + b"\n" for item in items)


@pytest.fixture(scope="session")
def fake():
    """Serve the fake for the whole run. Each table is made once and only read."""
    with FakeDynamoDB() as server:
        server.load("flights", b"".join(flight_lines(20_000)), KEY)
        server.load("types", lines(map(every_type, range(500))), "pk:S")
        drifted = [every_type(number) for number in range(3000)]
        drifted[2990]["n"] = {"S": "not a number"}
        drifted[2991]["late"] = {"S": "attribute"}
        server.load("drifted", lines(drifted), "pk:S")
        server.load("empty", b"", "pk:S,sk:N")
        yield server
