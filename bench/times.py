"""Items with three times each, decoded to columns: declared, as text, and as text that pyarrow casts."""

from __future__ import annotations

import datetime as dt
import functools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import ddbio
from ddbio.items.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 50_000
FORMS = {"created_at": "iso_ms", "ttl": "epoch_s", "day": "date"}
DECLARED, TEXT, CAST = "declared times", "text", "text, cast by pyarrow"

_INSTANT = pa.timestamp("us", "UTC")


@functools.cache
def body() -> bytes:
    """Return the items as lines."""
    start = dt.datetime(2024, 2, 1, tzinfo=dt.UTC)
    lines = []
    for number in range(ITEMS):
        at = start + dt.timedelta(seconds=97 * number, milliseconds=number % 1000)
        text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        item = {"pk": {"S": f"order-{number:08}"}, "total": {"N": f"{number}.25"}, "created_at": {"S": text}}
        item |= {"ttl": {"N": str(int(at.timestamp()))}, "day": {"S": str(at.date())}}
        lines.append(json.dumps(item, separators=(",", ":")))
    return "\n".join(lines).encode()


@functools.cache
def ways() -> dict[str, Callable[[], Any]]:
    """Return the methods. Each decodes all items."""
    text = Decoder(ddbio.from_dynamodb_json(body()).schema)
    declared = Decoder(ddbio.from_dynamodb_json(body(), timestamps=FORMS).schema)
    return {
        DECLARED: functools.partial(declared.decode_batches, body(), "items"),
        TEXT: functools.partial(text.decode_batches, body(), "items"),
        CAST: lambda: [_cast(batch) for batch in text.decode_batches(body(), "items")],
    }


def _cast(batch: pa.RecordBatch) -> list[Any]:
    seconds: Any = batch.column("ttl").cast(pa.timestamp("s", "UTC"))
    return [
        pc.cast(batch.column("created_at"), _INSTANT),
        seconds.cast(_INSTANT),
        pc.cast(batch.column("day"), pa.date32()),
    ]


def check() -> None:
    """Check that the times equal those that pyarrow casts, and that writing them returns the items."""
    declared, cast = ways()[DECLARED](), ways()[CAST]()
    for batch, columns in zip(declared, cast, strict=True):
        for name, column in zip(FORMS, columns, strict=True):
            if not batch.column(name).equals(column):
                raise AssertionError(f"{name}: the declared column is not the one that pyarrow casts")
    if ddbio.digest(pa.Table.from_batches(declared)) != ddbio.digest(body()):
        raise AssertionError("writing the declared times does not give the items back")
