"""Server of generated tables in a separate process, one per table, so that the client's process is not affected."""

from __future__ import annotations

import atexit
import functools
import os
from contextlib import ExitStack
from dataclasses import dataclass

from bench import data, orders
from ddbio.testing import FakeDynamoDB

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}

_running = ExitStack()
atexit.register(_running.close)


@dataclass(frozen=True)
class Table:
    """Address and content of a table."""

    shape: data.Shape
    endpoint_url: str
    count: int
    line_bytes: int

    @property
    def name(self) -> str:
        """The table's name."""
        return self.shape

    @property
    def key_names(self) -> list[str]:
        """Partition key and sort key."""
        return [part.partition(":")[0] for part in data.KEYS[self.shape].split(",")]


def isolate() -> None:
    """Replace every AWS variable of this process and its children, so that no account and no proxy is reached.

    Children use compiled modules, as after an installation by pip.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(_ENVIRONMENT)


@functools.lru_cache(maxsize=4)
def serve(shape: data.Shape, count: int, latency_seconds: float = 0.0) -> Table:
    """Return a table of ``count`` items without stated capacity, served until this process ends."""
    isolate()
    fake = _running.enter_context(FakeDynamoDB(process=True, latency_seconds=latency_seconds))
    lines = data.lines(shape, count)
    fake.load(shape, lines, data.KEYS[shape])
    return Table(shape, fake.endpoint_url, len(lines), sum(map(len, lines)))


@functools.lru_cache(maxsize=2)
def serve_orders(count: int, latency_seconds: float = 0.0) -> str:
    """Return the mixed orders of ``bench.orders`` as table ``orders``, next to an empty one, ``target``."""
    isolate()
    fake = _running.enter_context(FakeDynamoDB(process=True, latency_seconds=latency_seconds))
    fake.load("orders", orders.lines("mixed", count), orders.KEY)
    fake.load("target", b"", orders.KEY)
    return fake.endpoint_url


def stop() -> None:
    """Stop all servers."""
    serve.cache_clear()
    serve_orders.cache_clear()
    _running.close()
