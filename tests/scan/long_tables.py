"""Tables with several pages in each of four segments: one of single items, and one of item collections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ddbio.testing import FakeDynamoDB

COUNT = 6_000
ITEMS = [
    {"pk": {"S": f"k{number:06}"}, "n": {"N": str(number)}, "day": {"S": f"d{number % 7}"}, "text": {"S": "x" * 900}}
    for number in range(COUNT)
]
ORDERS = [
    {"pk": {"S": f"c{number % 60}"}, "n": {"N": str(number // 60)}, "text": {"S": "x" * 900}} for number in range(COUNT)
]


@contextlib.contextmanager
def long_tables() -> Iterator[FakeDynamoDB]:
    """Serve both tables."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("long", ITEMS, "pk")
        fake.load("orders", ORDERS, "pk,n:N")
        yield fake
