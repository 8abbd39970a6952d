"""Lines of items that are hard for a decoder in one respect each, decoded by ddbio, the peers and the limits.

Sizes scale with ``$BENCH_SCALE``. ``order`` is the shape ``orders``: flat and nested attributes of every type.
"""

from __future__ import annotations

import functools
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from bench import data, decoders
from bench.pyarrow_json.tagged import tagged_struct
from ddbio.items.decode import Decoder, infer_schema_of_body
from ddbio.items.json_text import compact_json
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema

if TYPE_CHECKING:
    from collections.abc import Callable

MEMCPY, UTF8 = "memcpy", "UTF-8 check"
DRIFTS = {"drifted_0.1%": 0.001, "drifted_1%": 0.01, "drifted_10%": 0.1, "drifted_100%": 1.0}
PROFILES = ("order", "shuffled", "flat", "nested", "wide_sparse", "numeric", "large_strings", *DRIFTS)
BASE = "order"
"""The profiles without drift that correspond to the drifted ones."""

WIDE_ATTRIBUTES, WIDE_PRESENT = 300, 20
_BODY_BYTES = 8_000_000
_SAMPLED = 2_000
_LARGE_CHARACTERS = 8_000


@functools.lru_cache(maxsize=4)
def body_of(profile: str) -> bytes:
    """Return about 8 MB of lines, at the current scale."""
    sample = _lines(profile, 200)
    return b"".join(line + b"\n" for line in _lines(profile, data.scaled(_BODY_BYTES * 200 // sum(map(len, sample)))))


@functools.lru_cache(maxsize=4)
def schema_of(profile: str) -> pa.Schema:
    """Return the schema of a sample, which contains no drift."""
    settled = BASE if profile == "shuffled" or profile in DRIFTS else profile
    return normalize_schema(infer_schema_of_body(b"\n".join(_lines(settled, _SAMPLED))).to_arrow())


def ways_of(profile: str) -> dict[str, Callable[[bytes], Any]]:
    """Return ddbio, the peers, and upper limits of any decoder. ``pyarrow.json`` accepts no rows with drift."""
    decoder = Decoder(schema_of(profile))
    ways: dict[str, Callable[[bytes], Any]] = {decoders.DDBIO: lambda body: decoder.decode_batches(body, "items")}
    if profile not in DRIFTS:
        ways[decoders.PYARROW] = functools.partial(_parse, _parse_options(profile))
    ways |= decoders.line_loaders()
    return {**ways, MEMCPY: bytearray, UTF8: _check_utf8}


def check(profile: str) -> None:
    """Raise if a decoder does not return every item with every value right."""
    body = body_of(profile)
    items = [json.loads(line) for line in body.splitlines()]
    batches = Decoder(schema_of(profile)).decode_batches(body, "items")
    reference = RowBuilder(schema_of(profile), keep_nulls=False).batch(items, MisfitLog())
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([reference]))
    if profile not in DRIFTS:
        assert reference.column("_rescue").null_count == len(items)
        assert _parse(_parse_options(profile), body).num_rows == len(items)


def _lines(profile: str, count: int) -> list[bytes]:
    rng = random.Random(data.SEED)
    if profile in {"order", "shuffled", *DRIFTS}:
        items = data.items("orders", count)
        return [compact_json(_disturbed(item, profile, rng)).encode() for item in items]
    return [compact_json(_MAKERS[profile](rng)).encode() for _ in range(count)]


def _disturbed(item: dict[str, Any], profile: str, rng: random.Random) -> dict[str, Any]:
    if profile == "shuffled":
        return dict(rng.sample(list(item.items()), len(item)))
    if rng.random() < DRIFTS.get(profile, 0):
        return {**item, "quantity": {"S": "many"}}
    return item


def _flat(rng: random.Random) -> dict[str, Any]:
    names = {f"text_{number}": {"S": rng.randbytes(8).hex()} for number in range(6)}
    return {**names, "count": {"N": str(rng.randrange(10**6))}, "paid": {"BOOL": rng.random() < 0.5}}


def _nested(rng: random.Random) -> dict[str, Any]:
    def entry() -> dict[str, Any]:
        return {"M": {"sku": {"S": rng.randbytes(4).hex()}, "sizes": {"L": [{"N": str(rng.randrange(99))}] * 3}}}

    where = {"M": {"city": {"S": "Springfield"}, "at": {"M": {"x": {"N": "1.5"}, "y": {"N": "-2.5"}}}}}
    return {"id": {"S": rng.randbytes(8).hex()}, "where": where, "entries": {"L": [entry() for _ in range(4)]}}


def _wide_sparse(rng: random.Random) -> dict[str, Any]:
    present = sorted(rng.sample(range(WIDE_ATTRIBUTES), WIDE_PRESENT))
    return {f"attr_{number:03d}": _text_or_number(number, rng) for number in present}


def _text_or_number(number: int, rng: random.Random) -> dict[str, str]:
    return {"S": f"value {rng.randrange(10**6)}"} if number % 3 else {"N": str(rng.randrange(10**9))}


def _numeric(rng: random.Random) -> dict[str, Any]:
    integers = {f"i{number}": {"N": str(rng.randrange(-(10**number), 10**number))} for number in (2, 4, 6, 9, 12, 18)}
    decimals = {f"d{number}": {"N": f"{rng.randrange(10**number)}.{rng.randrange(1, 10)}"} for number in (1, 3, 6, 9)}
    return {**integers, **decimals, "ns": {"NS": [str(rng.randrange(10**6)) for _ in range(3)]}}


def _large_strings(rng: random.Random) -> dict[str, Any]:
    return {"id": {"S": rng.randbytes(8).hex()}, "text": {"S": rng.randbytes(_LARGE_CHARACTERS // 2).hex()}}


_MAKERS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "flat": _flat,
    "nested": _nested,
    "wide_sparse": _wide_sparse,
    "numeric": _numeric,
    "large_strings": _large_strings,
}


def _parse_options(profile: str) -> pj.ParseOptions:
    tagged = tagged_struct(list(schema_of(profile))[:-1], "", frozenset())
    assert tagged is not None
    return pj.ParseOptions(explicit_schema=pa.schema(list(tagged)), unexpected_field_behavior="error")


def _parse(options: pj.ParseOptions, body: bytes) -> pa.Table:
    read = pj.ReadOptions(use_threads=False, block_size=4 << 20)
    return pj.read_json(pa.BufferReader(body), read_options=read, parse_options=options)


def _check_utf8(body: bytes) -> None:
    offsets = np.array([0, len(body)], np.int64)
    buffers: list[pa.Buffer | None] = [None, pa.py_buffer(offsets.data), pa.py_buffer(body)]
    text: Any = pa.Array.from_buffers(pa.large_string(), 1, buffers)
    text.validate(full=True)
