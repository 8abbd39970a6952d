"""Public functions that work in memory, compared with their loops and with ``pyarrow.json``, with checks of the
results.

Each method processes all bodies once, so that no byte is already in a cache.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pj
from isal import igzip

import ddbio
from bench import data, orders
from bench.pairs import interleave, speed_ratio
from bench.pyarrow_json.tagged import tagged_struct
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.digest_json import JsonDigest
from ddbio.items.encode import Encoder
from ddbio.items.item_key import key_hashes
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog
from ddbio.testing.export import ExportWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.orders import Kind

DDBIO, KERNEL, KEPT, PYARROW = "ddbio", "kernel", "kernel, NULL kept", "pyarrow.json"
INFERRING, CHAIN = "pyarrow.json, inferring", "isal + pyarrow.json"
READ = pj.ReadOptions(use_threads=False, block_size=2 * orders.BODY_BYTES)
ROUNDS = 3

_CHECKED = 300


@dataclass(frozen=True)
class Call:
    """Methods that do the work of one public function, ddbio first, and the bytes of JSON."""

    ways: dict[str, Callable[[], Any]]
    json_bytes: int


def decode(kind: Kind, *, small: bool = False) -> Call:
    """``from_dynamodb_json`` with a schema. ``pyarrow.json`` keeps the tags, and omits the tail."""
    bodies = orders.bodies(kind, small=small)
    schema = orders.schema_of(kind)
    decoder, parse = Decoder(schema), functools.partial(parse_json, tagged_schema(kind))
    return _over(
        bodies,
        {
            DDBIO: lambda body: ddbio.from_dynamodb_json(body, schema),
            KERNEL: lambda body: decoder.decode_batches(body, "items"),
            PYARROW: parse,
        },
    )


def decode_unknown(kind: Kind, *, small: bool = False) -> Call:
    """``from_dynamodb_json`` without a schema, which keeps NULL. The kernels and ``pyarrow.json`` have a schema."""
    bodies = orders.bodies(kind, small=small)
    merging, keeping = (Decoder(orders.schema_of(kind), nulls=nulls) for nulls in ("merge", "keep"))
    return _over(
        bodies,
        {
            DDBIO: ddbio.from_dynamodb_json,
            KERNEL: lambda body: merging.decode_batches(body, "items"),
            KEPT: lambda body: keeping.decode_batches(body, "items"),
            PYARROW: functools.partial(parse_json, tagged_schema(kind)),
        },
    )


def encode(kind: Kind) -> Call:
    """``to_dynamodb_json``. The kernel writes only the columns, ``pyarrow.json`` decodes the output."""
    schema = orders.schema_of(kind)
    batches = [Decoder(schema).decode(body, "items") for body in orders.bodies(kind)]
    columns = [batch.drop_columns(["_rescue"]) for batch in batches]
    encoder = Encoder(columns[0].schema)
    written = [ddbio.to_dynamodb_json(batch) for batch in batches]
    parse = functools.partial(parse_json, tagged_schema(kind))
    return Call(
        {
            DDBIO: lambda: [len(ddbio.to_dynamodb_json(batch)) for batch in batches],
            KERNEL: lambda: [len(encoder.encode_lines(batch)) for batch in columns],
            PYARROW: lambda: [parse(body).num_rows for body in written],
        },
        sum(map(len, written)),
    )


def infer(kind: Kind) -> Call:
    """``infer_schema`` of lines. The kernel decodes them with the inferred schema."""
    decoder = Decoder(orders.schema_of(kind))
    return _over(
        orders.bodies(kind),
        {
            DDBIO: ddbio.infer_schema,
            KERNEL: lambda body: decoder.decode_batches(body, "items"),
            PYARROW: functools.partial(parse_json, tagged_schema(kind)),
            INFERRING: functools.partial(parse_json, None),
        },
    )


def digest_bytes(kind: Kind) -> Call:
    """``digest`` of lines. The kernel is the walk over their bytes."""
    return _over(
        orders.bodies(kind),
        {
            DDBIO: ddbio.digest,
            KERNEL: lambda body: JsonDigest().add(body, "items"),
            PYARROW: functools.partial(parse_json, tagged_schema(kind)),
        },
    )


def digest_columns(kind: Kind) -> Call:
    """``digest`` of tables. The kernel hashes the columns, without rescued values."""
    bodies = orders.bodies(kind)
    tables = [pa.Table.from_batches([Decoder(orders.schema_of(kind)).decode(body, "items")]) for body in bodies]
    columns = [batch for table in tables for batch in table.drop_columns(["_rescue"]).to_batches()]
    parse = functools.partial(parse_json, tagged_schema(kind))
    return Call(
        {
            DDBIO: lambda: [ddbio.digest(table) for table in tables],
            KERNEL: lambda: [ColumnDigest().add_batch(batch) for batch in columns],
            PYARROW: lambda: [parse(body).num_rows for body in bodies],
        },
        sum(map(len, bodies)),
    )


def hash_keys(kind: Kind) -> Call:
    """Hashes of the keys, which distribute rows. The kernel decodes the rows."""
    bodies = orders.bodies(kind)
    decoder = Decoder(orders.schema_of(kind))
    batches = [decoder.decode(body, "items") for body in bodies]
    return Call(
        {
            DDBIO: lambda: [len(key_hashes(batch, orders.KEYS)) for batch in batches],
            KERNEL: lambda: [len(decoder.decode_batches(body, "items")) for body in bodies],
        },
        sum(map(len, bodies)),
    )


def read_export(kind: Kind, folder: Path) -> Call:
    """``read_export`` with a schema. The kernel is ``isal`` and the decoder, file by file."""
    home = ExportWriter(folder, files=4, empty_files=0).full(orders.items(kind, data.scaled(orders.ITEMS)))
    files = sorted((home / "data").iterdir())
    schema, decoder = orders.schema_of(kind), Decoder(orders.schema_of(kind))
    tagged = pa.schema([pa.field("Item", pa.struct(list(tagged_schema(kind))))])
    return Call(
        {
            DDBIO: lambda: ddbio.read_export(home, schema=schema).num_rows,
            KERNEL: lambda: [len(decoder.decode_batches(_unzipped(file), "export")) for file in files],
            CHAIN: lambda: [parse_json(tagged, _unzipped(file)).num_rows for file in files],
        },
        sum(len(_unzipped(file)) for file in files),
    )


def changes(kind: Kind) -> Call:
    """``ChangeDecoder``, one per body. The kernel decodes only the images."""
    schema = orders.schema_of(kind)
    texts = orders.lines(kind, data.scaled(orders.ITEMS))
    step = max(2, len(texts) // 8 & ~1)
    pieces = [texts[start : start + step] for start in range(0, len(texts) - 1, step)]
    bodies = [b"".join(map(_change_line, piece[::2], piece[1::2])) for piece in pieces]
    images = [b"\n".join(piece) for piece in pieces]
    decoder, tagged = Decoder(schema), tagged_schema(kind)
    image = pa.struct(list(tagged))
    micros = pa.struct([pa.field("WriteTimestampMicros", pa.struct([pa.field("N", pa.string())]))])
    key = pa.struct([tagged.field(name) for name in orders.KEYS])
    document = pa.schema({"Metadata": micros, "Keys": key, "OldImage": image, "NewImage": image})
    return Call(
        {
            DDBIO: lambda: [ddbio.ChangeDecoder(schema, orders.KEYS).decode(body).num_rows for body in bodies],
            KERNEL: lambda: [len(decoder.decode_batches(body, "items")) for body in images],
            PYARROW: lambda: [parse_json(document, body).num_rows for body in bodies],
        },
        sum(map(len, bodies)),
    )


def tagged_schema(kind: Kind) -> pa.Schema:
    """Return the explicit schema that a user would write manually for ``pyarrow.json``, with NULL where it occurs."""
    tagged = tagged_struct(list(orders.schema_of(kind))[:-1], "", orders.NULL_PATHS)
    assert tagged is not None
    return pa.schema(list(tagged))


def parse_json(schema: pa.Schema | None, body: bytes) -> pa.Table:
    """Return lines parsed by ``pyarrow.json``: with tags, and without attributes that the schema does not have."""
    unknown = "infer" if schema is None else "ignore"
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
    return pj.read_json(pa.BufferReader(body), read_options=READ, parse_options=options)


@functools.cache
def check(kind: Kind) -> None:
    """Raise if a function does not return every item with every value right."""
    body, *_ = orders.bodies(kind)
    lines = body.splitlines()
    some = b"\n".join(lines[:_CHECKED])
    items = [json.loads(line) for line in lines]
    schema = orders.schema_of(kind)
    batch = ddbio.from_dynamodb_json(body, schema)
    assert pa.Table.from_batches([batch]).equals(pa.Table.from_batches(Decoder(schema).decode_batches(body, "items")))
    assert batch.slice(0, _CHECKED).equals(RowBuilder(schema, keep_nulls=False).batch(items[:_CHECKED], MisfitLog()))
    rescued = len(items) - batch.column("_rescue").null_count
    assert rescued == 0 or kind == "tailed"
    assert parse_json(tagged_schema(kind), body).num_rows == batch.num_rows == len(items)
    # Without a schema NULL is distinguished from missing. So all digests are of the same items.
    wanted = Digest()
    wanted.add_items(items[:_CHECKED])
    unknown = ddbio.from_dynamodb_json(some)
    again = ddbio.to_dynamodb_json(ddbio.from_dynamodb_json(some, schema, nulls="keep"))
    for same in (some, unknown, pa.Table.from_batches([unknown]), again):
        assert ddbio.digest(same) == wanted.hexdigest()
    _check_rest(kind, items)


def _check_rest(kind: Kind, items: list[dict[str, Any]]) -> None:
    schema = orders.schema_of(kind)
    with tempfile.TemporaryDirectory() as folder:
        home = ExportWriter(Path(folder), files=2).full(items[:_CHECKED])
        rows = ddbio.read_export(home, schema=schema, nulls="keep")
        wanted = Digest()
        wanted.add_items(items[:_CHECKED])
        assert ddbio.digest(rows) == wanted.hexdigest()
    change = ddbio.ChangeDecoder(schema, orders.KEYS).decode(_change_line(*orders.lines(kind, 2)))
    image = ddbio.from_dynamodb_json(orders.lines(kind, 2)[1], schema).drop_columns(["_rescue"])
    assert change.column("new_image").to_pylist() == image.to_pylist()


class Public:
    """The public functions, on a tenth of the bytes, which asv creates again in every process."""

    params = (["ascii", "mixed", "tailed"],)
    param_names = ("kind",)
    timer = time.process_time
    timeout = 600

    def setup(self, kind: Kind) -> None:
        check(kind)

    @staticmethod
    def check(kind: Kind) -> None:
        check(kind)

    def track_decode_share_of_kernel(self, kind: Kind) -> float:
        return self._ratio(decode(kind), KERNEL)

    def track_unknown_ratio_to_pyarrow(self, kind: Kind) -> float:
        return self._ratio(decode_unknown(kind), PYARROW)

    def track_encode_ratio_to_pyarrow(self, kind: Kind) -> float:
        return self._ratio(encode(kind), PYARROW)

    def track_infer_ratio_to_pyarrow(self, kind: Kind) -> float:
        return self._ratio(infer(kind), PYARROW)

    def _ratio(self, call: Call, beside: str) -> float:
        ways = {name: call.ways[name] for name in (DDBIO, beside)}
        return speed_ratio(interleave(ways, ROUNDS, collecting=True), DDBIO, beside)

    track_decode_share_of_kernel.unit = "x"  # type: ignore[attr-defined]
    track_unknown_ratio_to_pyarrow.unit = "x"  # type: ignore[attr-defined]
    track_encode_ratio_to_pyarrow.unit = "x"  # type: ignore[attr-defined]
    track_infer_ratio_to_pyarrow.unit = "x"  # type: ignore[attr-defined]


def _over(bodies: Sequence[bytes], ways: dict[str, Callable[[bytes], Any]]) -> Call:
    def run(way: Callable[[bytes], Any]) -> None:
        for body in bodies:
            way(body)

    return Call({name: functools.partial(run, way) for name, way in ways.items()}, sum(map(len, bodies)))


def _unzipped(file: Path) -> bytes:
    with igzip.open(file) as opened:
        read: bytes = opened.read()
    return read


def _change_line(old: bytes, new: bytes) -> bytes:
    """Return a line of an incremental export. The images are of two items, which no reader checks."""
    key = {name: value for name, value in json.loads(new).items() if name in orders.KEYS}
    metadata = b'{"Metadata":{"WriteTimestampMicros":{"N":"1600000000000000"}},"Keys":'
    return b'%b%b,"OldImage":%b,"NewImage":%b}\n' % (
        metadata, json.dumps(key, separators=(",", ":")).encode(), old, new,
    )  # fmt: skip
