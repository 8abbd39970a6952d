"""Reproducible items: export-shaped, order-like, real flights, and real names in all languages.

Sizes scale with ``$BENCH_SCALE``.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import random
import string
from typing import Any, Literal

from bench.territories import territory_lines

Shape = Literal["export", "orders", "flights", "territories"]

SEED = 20130101
KEYS: dict[Shape, str] = {
    "export": "pk:S,sk:S",
    "orders": "order_id:S,customer_id:S",
    "flights": "carrier_flight:S,time_hour:S",
    "territories": "locale:S,territory:S",
}

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html: a page contains 1 MB of items, without the
# quotes of names and the tags: as JSON it is about twice as large.
PAGE_WIRE_BYTES = 1_900_000

_LETTERS = string.ascii_letters + string.digits + "    "


def scale() -> float:
    """Return the factor of every size."""
    return float(os.environ.get("BENCH_SCALE", "1"))


def scaled(count: int) -> int:
    """Return a count of items at the current scale, at least 20."""
    return max(20, round(count * scale()))


@functools.lru_cache(maxsize=32)
def lines(shape: Shape, count: int) -> tuple[bytes, ...]:
    """Return ``count`` items as bare lines of DynamoDB JSON, without line ends."""
    if shape == "flights":
        from ddbio.testing.flights import flight_lines  # noqa: PLC0415 - only this shape needs the data's package

        return tuple(line.rstrip(b"\n") for line in flight_lines(count))
    if shape == "territories":
        return tuple(territory_lines(count))
    make = {"export": _export_item, "orders": _order}[shape]
    rng = random.Random(SEED)
    return tuple(_compact(make(rng, number)) for number in range(count))


def export_lines(shape: Shape, count: int) -> bytes:
    """Return items as in a DynamoDB export: ``{"Item":{…}}`` per line."""
    return b"".join(b'{"Item":%b}\n' % line for line in lines(shape, count))


def page(shape: Shape, count: int) -> bytes:
    """Return items as the Items member of a Scan response."""
    return b'{"Items":[%b]}' % b",".join(lines(shape, count))


def page_count(shape: Shape) -> int:
    """Return the number of items of a response page at the current scale."""
    return scaled(PAGE_WIRE_BYTES // (sum(map(len, lines(shape, 200))) // 200 + 1))


def items(shape: Shape, count: int) -> list[dict[str, Any]]:
    """Return the items as parsed by ``json.loads``."""
    return [json.loads(line) for line in lines(shape, count)]


def _compact(item: dict[str, Any]) -> bytes:
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()


def _export_item(rng: random.Random, number: int) -> dict[str, Any]:
    """Eleven attributes: four S, three N, BOOL, SS, an M of two S and an L of two N, and one that is NULL or S."""
    return {
        "pk": {"S": f"user#{rng.randrange(10**8):08d}"},
        "sk": {"S": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}#{number:09d}"},
        "name": {"S": _text(rng, 12, 24)},
        "status": {"S": rng.choice(("active", "suspended", "closed"))},
        "count": {"N": str(rng.randrange(10**6))},
        "price": {"N": _decimal(rng, 10**6)},
        "balance": {"N": _decimal(rng, 10**9, signed=True)},
        "enabled": {"BOOL": rng.random() < 0.5},
        "tags": {"SS": sorted(rng.sample(("red", "green", "blue", "new", "sale", "gift"), 3))},
        "address": {
            "M": {
                "city": {"S": _text(rng, 6, 14)},
                "street": {"S": _text(rng, 10, 22)},
                "at": {"L": [{"N": _decimal(rng, 18_000)}, {"N": _decimal(rng, 9_000, signed=True)}]},
            }
        },
        "note": {"NULL": True} if rng.random() < 0.5 else {"S": _text(rng, 10, 40)},
    }


def _order(rng: random.Random, number: int) -> dict[str, Any]:
    """Thirteen attributes: S, N, BOOL, SS, B, NULL, an M of three and an L of two M."""
    return {
        "order_id": {"S": f"o-{rng.getrandbits(64):016x}"},
        "customer_id": {"S": f"c-{rng.randrange(10**7):07d}"},
        "placed_at": {"S": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:00Z"},
        "status": {"S": rng.choice(("placed", "paid", "shipped", "delivered", "returned"))},
        "quantity": {"N": str(rng.randrange(1, 50))},
        "total": {"N": _decimal(rng, 10**6)},
        "discount": {"N": _decimal(rng, 10**4)},
        "gift": {"BOOL": rng.random() < 0.1},
        "labels": {"SS": sorted(rng.sample(("fragile", "express", "bulky", "cold", "signed"), 2))},
        "receipt": {"B": base64.b64encode(rng.randbytes(24)).decode()},
        "cancelled_at": {"NULL": True},
        "address": {
            "M": {
                "street": {"S": _text(rng, 10, 22)},
                "city": {"S": _text(rng, 6, 14)},
                "zip": {"N": str(rng.randrange(10_000, 99_999))},
            }
        },
        "lines": {
            "L": [
                {"M": {"sku": {"S": f"sku-{rng.randrange(10**6):06d}"}, "price": {"N": _decimal(rng, 10**5)}}}
                for _ in range(2)
            ]
        },
    }


def _text(rng: random.Random, shortest: int, longest: int) -> str:
    return "".join(rng.choices(_LETTERS, k=rng.randint(shortest, longest)))


def _decimal(rng: random.Random, below: int, *, signed: bool = False) -> str:
    """Return a number with up to two decimals in the notation of the service."""
    cents = rng.randrange(100 * below) * (-1 if signed and rng.random() < 0.5 else 1)
    units, cents_left = divmod(abs(cents), 100)
    text = f"{units}.{cents_left:02d}".rstrip("0").rstrip(".")
    return f"-{text}" if cents < 0 else text
