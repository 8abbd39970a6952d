"""Calls of each pure kernel on the same small body of orders, once warm and then counted. The gate runs it in
callgrind.

``python -m bench.gate.kernels`` only calls them, which compiles them.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import orders
from bench.gate.callgrind import Counter
from ddbio.capacity import item_bytes, item_bytes_of_json
from ddbio.items.changes import ChangeDecoder
from ddbio.items.decode import Decoder, infer_schema_of_bodies
from ddbio.items.digest_columns import ColumnDigest, digest_of_batches
from ddbio.items.digest_json import JsonDigest
from ddbio.items.encode import Encoder
from ddbio.items.item_key import key_hashes

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 500
"""About 340 KB: enough that one-time costs are negligible, and few enough that callgrind takes only seconds."""

NAMES = (
    "decode",
    "decode_rescued",
    "decode_changes",
    "infer_schema",
    "encode",
    "digest_columns",
    "digest_json",
    "key_hashes",
    "item_bytes",
    "item_bytes_of_json",
)


def kernels(items: int = ITEMS) -> dict[str, Callable[[], Any]]:
    """Return each kernel's call, with results checked against each other."""
    lines = orders.lines("mixed", items)
    body = _joined(b"%b\n", lines)
    tailed = _joined(b"%b\n", orders.lines("tailed", items))
    schema = infer_schema_of_bodies([(body, "items")]).to_arrow()
    decoder, changes = Decoder(schema), ChangeDecoder(schema, orders.KEYS)
    batch = decoder.decode(body, "items")
    columns = batch.drop_columns(["_rescue"])
    encoder = Encoder(columns.schema)
    keyed = b'{"Metadata":{"WriteTimestampMicros":{"N":"1"}},"Keys":{"order_id":{"S":"o"},"placed_at":{"S":"p"}},'
    changed = _joined(keyed + b'"NewImage":%b}\n', lines)
    calls = {
        "decode": lambda: decoder.decode(body, "items"),
        "decode_rescued": lambda: decoder.decode(tailed, "items"),
        "decode_changes": lambda: changes.decode(changed),
        "infer_schema": lambda: infer_schema_of_bodies([(body, "items")]),
        "encode": lambda: encoder.encode_lines(columns),
        "digest_columns": lambda: ColumnDigest().add_batch(batch),
        "digest_json": lambda: JsonDigest().add(body, "items"),
        "key_hashes": lambda: key_hashes(batch, orders.KEYS),
        "item_bytes": lambda: item_bytes(batch),
        "item_bytes_of_json": lambda: item_bytes_of_json(body),
    }
    assert tuple(calls) == NAMES
    check(body, schema, calls)
    return calls


def check(body: bytes, schema: pa.Schema, calls: dict[str, Callable[[], Any]]) -> None:
    """Raise unless the kernels agree about the items."""
    rows = Decoder(schema, nulls="keep").decode(body, "items")
    walked = JsonDigest()
    walked.add(body, "items")
    assert digest_of_batches([rows]) == walked.digest
    assert item_bytes(rows).to_pylist() == calls["item_bytes_of_json"]().to_pylist()
    assert Decoder(schema).decode(calls["encode"](), "items").equals(calls["decode"]())
    assert calls["decode_rescued"]().column("_rescue").null_count < len(rows)
    assert len(set(calls["key_hashes"]().tolist())) == len(rows)


@functools.cache
def _joined(form: bytes, lines: tuple[bytes, ...]) -> bytes:
    return b"".join(form % line for line in lines)


def main() -> int:
    """Call all kernels, and count them if callgrind runs this process."""
    pa.set_cpu_count(1)
    calls = kernels()
    for call in calls.values():
        call()
    gc.collect()
    gc.disable()
    Counter().count(calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
