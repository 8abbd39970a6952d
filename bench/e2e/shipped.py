"""Take the figures that the package carries, which ``ddbio bench`` shows beside those of its user.

It is the verb itself, once in this process and once in two tasks of Spark, on a table that a fake serves.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import ddbio
from bench import orders, serving
from bench.e2e import record
from ddbio.core.sample_orders import KEY, order_lines
from ddbio.testing import FakeDynamoDB

ITEMS = 50_000


def main() -> None:
    """Append one row."""
    arguments = record.parser("shipped")
    arguments.add_argument("--items", type=int, default=ITEMS)
    arguments.add_argument("--master", default="local[2]")
    asked = arguments.parse_args()
    serving.isolate()
    record.append("shipped", asked, measure(asked.items, asked.master))


def measure(items: int, master: str) -> dict[str, Any]:
    """Return the report of this process, with the figures of Spark's tasks, which have names of their own."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("orders", order_lines(items), KEY)
        fake.load("scratch", b"", orders.KEY)
        asked: dict[str, Any] = {"items": items, "endpoint_url": fake.endpoint_url}
        here = ddbio.bench("orders", write_to="scratch", engine="local", **asked)
        there = ddbio.bench("orders", engine="spark", master=master, **asked)
    figures = [dataclasses.replace(each, shipped=None, ratio=None) for each in (*here.figures, *there.figures)]
    return {**dataclasses.replace(here, figures=tuple(figures)).to_dict(), "tasks_on_spark": there.tasks}


if __name__ == "__main__":
    main()
