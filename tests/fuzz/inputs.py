"""Makes inputs from a number, sound or damaged, and reads each as ddbio does. Any misbehaviour raises an error here.

A kind is one :class:`Kind`. A reader may raise only errors of ``ddbio.errors``.
"""

# Tokens are easier to read side by side.
# ruff: noqa: SIM905

from __future__ import annotations

import functools
import gzip
import io
import json
import random
import shutil
import socket
import struct
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import fastavro.utils
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import zstandard

sys.path.insert(0, str(Path(__file__).parents[1] / "items" / "kernel"))

from comparison import assert_same, by_kernel, by_reference
from item_generator import Generator

import ddbio
from ddbio.commit.committer import CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.commit.snapshot import live_files
from ddbio.errors import DdbioError, DecodeError
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.json_rows import read_json, read_json_in_python
from ddbio.formats.orc import unwritable_type
from ddbio.formats.parquet_input import open_footer
from ddbio.formats.parquet_types import FooterFacts, stored_types
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.formats.row_files import FooterReader, RowFiles
from ddbio.items.digest import item_hash
from ddbio.items.encode import Encoder
from ddbio.items.framing import checked_items
from ddbio.items.ion import IonReader
from ddbio.items.ion_values import ion_line, ion_to_json_lines
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

_BLANKS = [" ", "\n", "\r\n", "\r", "\t", "\0", "\ufeff"]
_JSON = [*_BLANKS, "}\n{", "null\n", "9" * 40, "0." + "1" * 40, *'"\\{}[],:é']
_JSON += r'\u \ud83d null true false - 1 0 1e999 1e-200 NaN "" {} [] {"a": [[[[ ]]]] 1.0 "a":null,'.split()
_TYPED = [*_JSON, '"S"', '"N":"', '{"NULL":true}', '{"S":"a"}', '{"N":"1"}', '{"B":"AA=="}']
_TYPED += '{"SS":[]} {"L":[ {"M":{ "Items":[ "Item":{'.split()
_CSV = [*_BLANKS, '"\n"', "9" * 30, *"\",;-\\'", '""', "NA", "null", "1e400", "0x10", ",,,,"]
_ION = [*_BLANKS, *"'\"{}[],:\\", "'''", "{{", "}}", "::", "$dynamodb_SS::[", "$dynamodb_NS::", "{{aGVsbG8=}}"]
_ION += "$ion_1_0 $10 null true 1d5 1d125 -0. 007. 1_0. 1e5 1d130 -.5 Item: {Record:{ 1d99999999999999999999".split()
_HTTP = ["\r\n", "\r\n\r\n", "0\r\n\r\n", "zz\r\n", "\0", "x" * 70_000, "-1", "99999999999999", "HTTP/0.9", "200"]
_HTTP += ["Content-Length: ", "Transfer-Encoding: chunked\r\n", "HTTP/1.1 500 X\r\n", "Content-Encoding: gzip\r\n"]
_HTTP += ["Connection: close\r\n", '"Items":', '"LastEvaluatedKey":{"pk":{"S":"k1"}},']
_STATE = [*_JSON, "[" * 3000, '"../../x"', '"/etc/x"', '"a//b"', '"job_id":"../x"']
_STATE += '-1 1e9 "format":99 "format":"1" "files":5'.split()
_INTS = [0, 1, -1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 1 << 20, 1 << 32, 1 << 31, -(1 << 31), 1 << 63, -(1 << 63)]
_PACKERS = [("<b", 1), ("<h", 2), ("<i", 4), ("<q", 8), (">i", 4)]
_SCALARS = [None, True, False, 7, -1, 10**20 + 1, 1.5, 0.1, 1e300, "2026-11-21", "text", 'é\n"', "😀", "1", "x" * 50]
_MAX_LEVELS = 3
NAMES = ["pk", "n", "a", "m", "é", "_rescue", "a.b", ""]


class Kind(NamedTuple):
    """Functions that make the bytes of an input, and read them."""

    make: Callable[[random.Random], bytes]
    read: Callable[[bytes, random.Random], None]


# ---- damage


def damage(data: bytes, chance: random.Random, tokens: list[str]) -> bytes:
    """Return bytes of which some are cut, overwritten, dropped, repeated, moved, or replaced by tokens or numbers."""
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3, 8])):
        at = chance.randrange(len(data) + 1)
        length = chance.choice([1, 2, 4, 8, 64, 1000])
        match chance.randrange(9):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + chance.randbytes(1) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + length :]
            case 3:
                other = chance.randrange(len(data) + 1)
                data = data[:at] + data[other : other + length] + data[at:]
            case 4:
                data = data[:at] + data[at : at + length] * chance.choice([2, 3, 200]) + data[at + length :]
            case 5 if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            case 6 if not tokens:
                packer, width = chance.choice(_PACKERS)
                number = chance.choice(_INTS) + chance.choice([0, 0, 1, -1])
                bits = 8 * width
                number = (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
                # The metadata of a file is at its ends.
                end = max(1, len(data))
                at = chance.choice([at, end - chance.randrange(1, 300), chance.randrange(300)]) % end
                data = data[:at] + struct.pack(packer, number) + data[at + width :]
            case _ if tokens:
                token = chance.choice(tokens).encode()
                data = data[:at] + token + data[at + chance.choice([0, 0, 1, len(token)]) :]
    return data


def packed(data: bytes, chance: random.Random, codecs: str = "nnnnngz") -> bytes:
    """Return bytes unchanged or compressed, and then sometimes damaged."""
    codec = chance.choice(codecs)
    if codec == "n":
        return data
    data = gzip.compress(data, 1, mtime=0) if codec == "g" else zstandard.ZstdCompressor(level=1).compress(data)
    return damage(data, chance, []) if chance.random() < 0.3 else data


# ---- values


def value_of(chance: random.Random, depth: int = 0) -> Any:
    """Return any value of JSON."""
    kind = chance.randrange(10 if depth < 4 else 8)
    if kind == 8:
        return [value_of(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 9:
        return {chance.choice(NAMES): value_of(chance, depth + 1) for _ in range(chance.randrange(4))}
    return chance.choice(_SCALARS)


def _flat(chance: random.Random, rows: int) -> Any:  # noqa: PLR0911 - one line a type
    """Return an array without nested arrays."""
    texts = [chance.choice(["", "a", "é" * 9, "x" * 40, None]) for _ in range(rows)]
    numbers = [chance.randrange(-1000, 1000) for _ in range(rows)]
    match chance.randrange(7):
        case 0:
            return pa.array(numbers, chance.choice([pa.int64(), pa.int16(), pa.float32(), pa.float64()]))
        case 1:
            return pa.array(texts, chance.choice([pa.string(), pa.large_string(), pa.string_view()]))
        case 2:
            return pa.array(texts, pa.binary()).cast(chance.choice([pa.binary(), pa.large_binary(), pa.binary_view()]))
        case 3:
            return pa.array([chance.choice([True, False, None]) for _ in range(rows)])
        case 4:
            return pa.array([Decimal(number) / 4 for number in numbers], pa.decimal128(20, 2))
        case 5:
            return pa.array(numbers, pa.int64()).cast(chance.choice([pa.timestamp("ms"), pa.timestamp("us", "UTC")]))
    return pa.nulls(rows)


def _array(chance: random.Random, rows: int, depth: int = 0) -> Any:
    """Return an array of any layout."""
    inner = partial(_array, chance, depth=depth + 1)
    offsets = pa.array(sorted(chance.randrange(2 * rows + 1) for _ in range(rows + 1)), pa.int32())
    match chance.randrange(16) if depth < _MAX_LEVELS else 0:
        case 8:
            indices = [chance.choice([0, 1, 2, None]) for _ in range(rows)]
            array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), inner(3))
        case 9 if rows:
            array = pa.RunEndEncodedArray.from_arrays(pa.array([*range(1, rows), rows + 2], pa.int32()), inner(rows))
        case 10 | 11:
            array = pa.ListArray.from_arrays(offsets, inner(2 * rows + 1))
        case 12:
            starts, sizes = ([chance.randrange(most) for _ in range(rows)] for most in (rows + 1, 3))
            array = pa.ListViewArray.from_arrays(
                pa.array(starts, pa.int32()), pa.array(sizes, pa.int32()), inner(rows + 3)
            )
        case 13:
            values = inner(2 * rows)
            array = pa.FixedSizeListArray.from_arrays(values.slice(0, len(values) // 2 * 2), 2)
        case 14:
            items = inner(2 * rows + 1)
            keys = pa.array([f"k{number}" for number in range(len(items))], pa.string())
            array = pa.MapArray.from_arrays(offsets, keys, items)
        case 15:
            members = [inner(rows), inner(rows)]
            shortest = min(map(len, members))
            array = pa.StructArray.from_arrays([member.slice(0, shortest) for member in members], ["a", "é"])
        case _:
            array = _flat(chance, rows)
    return array


def _batch(chance: random.Random) -> pa.RecordBatch:
    rows = chance.choice([0, 1, 3, 20])
    columns = [_array(chance, rows) for _ in range(chance.randrange(1, 4))]
    columns.insert(0, pa.array([f"k{number}" for number in range(rows)]))
    rows = min(map(len, columns))
    names = ["pk", *(f"c{number}" for number in range(1, len(columns)))]
    return pa.RecordBatch.from_arrays([column.slice(0, rows) for column in columns], names)


def _writable(chance: random.Random, write: Callable[[pa.Table], None]) -> None:
    """Write a table of columns that a format accepts."""
    while True:
        try:
            write(pa.Table.from_batches([_batch(chance)]))
        except (pa.ArrowException, DdbioError, OSError, ValueError):
            continue
        return


# ---- files


def read_file(suffix: str, data: bytes, chance: random.Random) -> None:
    """Read a file's rows as a load does, and print their items. Digest the file, or read its head."""
    folder = Path(tempfile.mkdtemp(prefix="ddbio-fuzz-"))
    try:
        path = folder / f"rows.{suffix}"
        path.write_bytes(data)
        options = ReadOptions(takes_illegal=chance.random() < 0.3, names_nulls=chance.random() < 0.3, keys={"pk": "S"})
        store = LocalStore(folder)
        (entry,) = store.list(path.name)
        with suppress(DdbioError):
            for batch in RowFiles(store, options).read_file(entry):
                encode(batch)
        with suppress(DdbioError):
            match chance.randrange(4):
                case 0:
                    RowFiles(store).sample(entry, 10)
                case 1:
                    RowFiles(store).first_schema(entry)
                case 2:
                    ddbio.digest(str(path))
                case 3 if suffix == "parquet":
                    opened = open_footer(store, entry)
                    stored_types(opened)
                    FooterFacts().add(opened.metadata)
                    FooterReader(store).read(entry)
                case 3 if suffix == "orc":
                    unwritable_type(store, entry)
    finally:
        shutil.rmtree(folder)


def encode(batch: pa.RecordBatch) -> None:
    """Print the items of rows."""
    encoder = Encoder(batch.schema)
    encoded = encoder.encode_view(batch)
    text = encoded.buffer.tobytes()
    for row in range(min(5, batch.num_rows)):
        refused = any(refusal.row == row for refusal in encoded.refusals)
        assert refused or isinstance(json.loads(text[encoded.offsets[row] : encoded.offsets[row + 1]]), dict)


def _items(table: pa.Table) -> Any:
    items = []
    for batch in table.to_batches():
        printed = Encoder(batch.schema).encode(batch)
        text = printed.buffer.tobytes()
        refused = {refusal.row for refusal in printed.refusals}
        spans = zip(printed.offsets[:-1], printed.offsets[1:], strict=True)
        items += [
            None if row in refused else json.loads(text[a:b], object_hook=_exact) for row, (a, b) in enumerate(spans)
        ]
    return items


def _exact(value: dict[str, Any]) -> dict[str, Any]:
    return {"N": Decimal(value["N"])} if value.keys() == {"N"} and isinstance(value["N"], str) else value


def make_json(chance: random.Random) -> bytes:
    """Return lines of plain JSON."""
    columns = {chance.choice(NAMES): value_of(chance) for _ in range(4)}
    rows = [
        {
            name: values if chance.random() < 0.7 else value_of(chance)
            for name, values in columns.items()
            if chance.random() < 0.9
        }
        for _ in range(chance.choice([1, 2, 5, 40]))
    ]
    text = "\n".join(json.dumps(row, ensure_ascii=chance.random() < 0.5) for row in rows)
    if chance.random() < 0.05:
        text = chance.choice(["[", '{"a":', '[{"a":']) * 3000 + text
    return packed(damage(text.encode(errors="surrogatepass"), chance, _JSON), chance)


def read_plain_json(data: bytes, chance: random.Random) -> None:
    """Read plain JSON, and compare the items with those of the reference."""
    outcomes = []
    for read in (read_json, partial(read_json_in_python, options=ReadOptions())):
        try:
            outcomes.append(_items(read(data)))
        except DdbioError:
            outcomes.append("refused")
        except RecursionError:
            outcomes.append("deep")
    assert outcomes[0] == outcomes[1], outcomes
    read_file("jsonl", data, chance)


def make_typed(chance: random.Random) -> bytes:
    """Return DynamoDB JSON: items, lines of an export, or a page."""
    generator = Generator(chance.randrange(1 << 40))
    fields = list(generator.schema())
    items = [generator.item(fields) for _ in range(chance.choice([1, 3, 30]))]
    text = generator.document(items, chance.choice(["items", "export", "page"]))
    return packed(damage(text, chance, _TYPED), chance)


def read_typed(data: bytes, chance: random.Random) -> None:
    """Decode DynamoDB JSON by the loops and by the reference."""
    with suppress(DdbioError):
        ddbio.from_dynamodb_json(data)
    for framing in ("items", "export", "page"):
        schema = pa.schema([("pk", pa.string()), ("n", pa.int64())])
        with suppress(RecursionError):
            assert_same(
                by_kernel(KernelDecoder(schema), data, framing), by_reference(data, schema, framing), data[:1000]
            )
    read_file("jsonl", data, chance)


def make_csv(chance: random.Random) -> bytes:
    """Return CSV."""
    width = chance.randrange(1, 6)
    cells = ["", "a", "1", "-1.5", "true", "2026-11-21", "NA", "é", '"q""q"', '"a,b"', '"a\nb"', "007", "1e5", "x" * 50]
    rows = [[f"c{number}" for number in range(width)]]
    rows += [[chance.choice(cells) for _ in range(width)] for _ in range(chance.choice([0, 1, 5, 60]))]
    text = chance.choice(["\n", "\r\n"]).join(map(",".join, rows))
    return packed(damage(text.encode(), chance, _CSV), chance)


def make_ion(chance: random.Random) -> bytes:
    """Return lines of Ion, as in exports."""
    generator = Generator(chance.randrange(1 << 40))
    items = [generator.item(list(generator.schema())) for _ in range(3)]
    return damage(b"".join(ion_line({"Item": item}) for item in items), chance, _ION)


def read_ion(data: bytes, _: random.Random) -> None:
    """Read Ion by the loop and by the reference."""
    outcomes = []
    for read in (lambda: b"".join(IonReader(1 << 20).pieces(data)), lambda: ion_to_json_lines(data)):
        try:
            outcomes.append([item_hash(item) for item in checked_items(read(), "export")])
        except DecodeError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1], outcomes


def make_arrow(chance: random.Random) -> bytes:
    """Return a file or a stream of Arrow."""
    sink = io.BytesIO()
    batch = _batch(chance)
    options = pa.ipc.IpcWriteOptions(compression=chance.choice([None, None, "lz4", "zstd"]))
    opened = chance.choice([pa.ipc.new_file, pa.ipc.new_stream])
    with opened(sink, batch.schema, options=options) as writer:
        for _ in range(chance.randrange(1, 3)):
            writer.write_batch(batch)
    return packed(damage(sink.getvalue(), chance, []), chance, "nnnnnnnng")


def make_parquet(chance: random.Random) -> bytes:
    """Return a Parquet file, with any encoding, without checksums."""
    sink = io.BytesIO()

    def write(table: pa.Table) -> None:
        sink.seek(0)
        sink.truncate()
        pq.write_table(
            table,
            sink,
            compression=chance.choice(["none", "none", "zstd", "snappy", "gzip", "lz4"]),
            use_dictionary=chance.random() < 0.5,
            data_page_version=chance.choice(["1.0", "2.0"]),
            row_group_size=chance.choice([5, 100]),
            use_byte_stream_split=False,
            write_page_index=chance.random() < 0.5,
        )

    _writable(chance, write)
    return damage(sink.getvalue(), chance, [])


def make_orc(chance: random.Random) -> bytes:
    """Return an ORC file."""
    sink = io.BytesIO()

    def write(table: pa.Table) -> None:
        sink.seek(0)
        sink.truncate()
        codec = chance.choice(["uncompressed", "zlib", "zstd", "snappy", "lz4"])
        pa.orc.write_table(table, sink, compression=codec, dictionary_key_size_threshold=chance.choice([0.0, 1.0]))

    _writable(chance, write)
    return damage(sink.getvalue(), chance, [])


_AVRO_TYPES: list[Any] = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    {"type": "array", "items": "string"},
    {"type": "map", "values": ["null", "long"]},
    {"type": "enum", "name": "e", "symbols": ["A", "B"]},
    {"type": "fixed", "name": "f", "size": 3},
    {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "string"]}]},
    ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
]


def make_avro(chance: random.Random) -> bytes:
    """Return an Avro file with a random schema."""
    fields = []
    for number in range(chance.randrange(1, 5)):
        kind = json.loads(json.dumps(chance.choice(_AVRO_TYPES)))
        if isinstance(kind, dict) and "name" in kind:
            kind["name"] += str(number)
        fields.append({"name": f"c{number}", "type": kind})
    schema = {"type": "record", "name": "row", "fields": fields}
    sink = io.BytesIO()
    # It uses the global random generator.
    random.seed(chance.random())
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    records = fastavro.utils.generate_many(parsed, chance.choice([0, 1, 20]))
    codec, interval = chance.choice(["null", "null", "deflate"]), chance.choice([50, 16_000])
    fastavro.writer(sink, schema, records, codec=codec, sync_marker=b"S" * 16, sync_interval=interval)
    return damage(sink.getvalue(), chance, [])


# ---- the C data interface


class Foreign:
    """Array of another library, exported by the C interface."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self._batch.schema, [self._batch]).__arrow_c_stream__(requested_schema)


def _scramble(array: Any, chance: random.Random) -> Any:
    """Return an array that begins anywhere in its memory, with arbitrary offsets, indices and views."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType) or not len(array) or pa.types.is_dictionary(kind):
        return array.slice(chance.randrange(len(array) + 1))
    buffers = array.buffers()
    nested = kind.num_fields > 0
    if nested and not (pa.types.is_list(kind) or pa.types.is_list_view(kind) or pa.types.is_fixed_size_list(kind)):
        return array.slice(chance.randrange(len(array) + 1))
    own = (
        buffers[: 3 if pa.types.is_list_view(kind) else 1 if pa.types.is_fixed_size_list(kind) else 2]
        if nested
        else buffers
    )
    changed = [None if buffer is None else pa.py_buffer(damage_words(buffer.to_pybytes(), chance)) for buffer in own]
    start = chance.randrange(len(array) + 1)
    children = [_scramble(array.values, chance)] if nested else None
    if nested and len(children[0]) < len(array.values):
        children = [array.values]
    return pa.Array.from_buffers(kind, len(array) - start, changed, -1, start + array.offset, children=children)


def damage_words(data: bytes, chance: random.Random) -> bytes:
    """Return the same number of bytes, some of them changed."""
    data = bytearray(data)
    for _ in range(chance.choice([0, 0, 1, 1, 3])):
        packer, width = chance.choice(_PACKERS)
        if len(data) >= width:
            at = chance.randrange(len(data) - width + 1) // width * width
            bits = 8 * width
            number = (chance.choice(_INTS) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
            struct.pack_into(packer, data, at, number)
    return bytes(data)


def read_c_data(data: bytes, _: random.Random) -> None:
    """Make arrays whose memory is damaged, and export them by the C data interface."""
    chance = random.Random(data)
    batch = _batch(chance)
    with suppress(pa.ArrowException, ValueError, NotImplementedError, TypeError):
        columns = [_scramble(column, chance) for column in batch.columns]
        rows = min(map(len, columns))
        batch = pa.RecordBatch.from_arrays([column.slice(0, rows) for column in columns], batch.schema.names)
    for use in (ddbio.to_dynamodb_json, ddbio.digest):
        with suppress(DdbioError):
            use(Foreign(batch))


# ---- state files


def make_state(chance: random.Random) -> bytes:
    """Return the name of a state file, and its text, damaged."""
    names = sorted(_state_files())
    name = chance.choice(names)
    return name.encode() + b"\0" + damage(_state_files()[name], chance, _STATE)


_JOB, _OTHER_JOB, _NEXT_JOB = (f"20260101T000000Z_aaaaaaa{letter}" for letter in "abc")
_STATES: dict[str, Any] = {
    "claim": {"format": 1, "job_id": _OTHER_JOB, "mode": "append", "owner": "x"},
    "intent": {
        "format": 1,
        "job_id": _OTHER_JOB,
        "staged": [],
        "replaced": [],
        "change": {"removed": []},
        "manifest": {},
        "deletes": False,
    },
}
_known_states: dict[str, bytes] = {}


def _state_files() -> dict[str, bytes]:
    if not _known_states:
        with tempfile.TemporaryDirectory() as folder:
            _commit(Path(folder))
            texts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*.json")}
        _known_states.update({name: text for name, text in texts.items() if name.startswith("_ddbio/")})
        for kind, state in _STATES.items():
            _known_states[f"_ddbio/{_OTHER_JOB}.{kind}.json"] = json.dumps(state).encode()
    return _known_states


def _commit(folder: Path) -> None:
    schema = normalize_schema(pa.schema([("pk", pa.string())]))
    rows = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), pa.nulls(2, pa.string())], schema=schema)
    store = LocalStore(folder)
    options = FileOptions(format="json", compression="none")
    with publishing(Target(store=store, mode="error"), _JOB) as publish:
        writer = RollingWriter(store, FileNaming(_JOB, 0), schema, options)
        writer.write(rows)
        publish(writer.finish(), CommitInfo(created_at="", source={}, schema=schema_to_json(schema)))


def read_state(data: bytes, _: random.Random) -> None:
    """Put a state file into a folder of a job, and start another job there. Nothing outside may be damaged."""
    name, _, text = data.partition(b"\0")
    with tempfile.TemporaryDirectory(prefix="ddbio-fuzz-") as above:
        folder = Path(above, "target")
        beside = Path(above, "x")
        beside.write_text("untouched")
        _commit(folder)
        path = folder / name.decode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        store = LocalStore(folder)
        for use in (
            lambda: live_files(store),
            lambda: ddbio.digest(str(folder)),
            lambda: Target(store=store, mode="append", lease_seconds=0.01).prepare(_NEXT_JOB),
        ):
            with suppress(DdbioError):
                use()
        assert beside.read_text() == "untouched"
        assert sorted(path.name for path in Path(above).iterdir()) == ["target", "x"]


# ---- HTTP

_ROWS, _MOST_ROWS = 5, 10_000
_TABLE = {
    "TableName": "orders",
    "TableArn": "arn:aws:dynamodb:us-east-1:000000000000:table/orders",
    "TableId": "1",
    "TableStatus": "ACTIVE",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "ItemCount": _ROWS,
    "TableSizeBytes": 50,
    "CreationDateTime": 1.7e9,
    "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
}
_PAGE = {
    "Items": [{"pk": {"S": f"k{number}"}} for number in range(_ROWS)],
    "Count": _ROWS,
    "ScannedCount": _ROWS,
    "ConsumedCapacity": {"TableName": "orders", "CapacityUnits": 1.0},
}


def _answer(body: bytes, head: str = "", *, checksum: bool = True) -> bytes:
    crc = f"x-amz-crc32: {zlib.crc32(body)}\r\n" if checksum else ""
    return f"HTTP/1.1 200 OK\r\n{crc}{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def make_http(chance: random.Random) -> bytes:
    """Return a damaged response: its head and body, or a body of another length or checksum."""
    body = json.dumps(_PAGE).encode()
    match chance.randrange(4):
        case 0:
            return damage(_answer(body), chance, _HTTP)
        case 1:
            return damage(_answer(gzip.compress(body, mtime=0), "Content-Encoding: gzip\r\n"), chance, [])
        case 2:
            # With a matching checksum, the body itself is hostile.
            return _answer(damage(body, chance, _TYPED))
    chunked = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    return damage(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, chance, _HTTP)


_left: list[bytes] = []


def read_http(data: bytes, _: random.Random) -> None:
    """Scan a table whose first response is damaged. The later ones are valid."""
    _left[:] = [data]
    with suppress(DdbioError):
        rows = ddbio.read_table("orders", endpoint_url=_server(), region="us-east-1", deadline_seconds=3)
        assert rows.num_rows <= _MOST_ROWS


@functools.cache
def _server() -> str:
    # Many threads with the default stack size would not fit into the available memory.
    threading.stack_size(512 * 1024)
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(server,), daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def _accept(server: socket.socket) -> None:
    while True:
        threading.Thread(target=_serve, args=(server.accept()[0],), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    with suppress(OSError, ValueError), connection, connection.makefile("rb") as file:
        while file.readline():
            size, operation = 0, ""
            while (line := file.readline().decode("latin-1")) not in ("\r\n", ""):
                name, _, text = line.partition(":")
                size = int(text) if name.lower() == "content-length" else size
                operation = text.strip() if name.lower() == "x-amz-target" else operation
            file.read(size)
            if "Scan" in operation and _left:
                connection.sendall(_left.pop())
                return
            connection.sendall(_answer(json.dumps({"Table": _TABLE} if "Describe" in operation else _PAGE).encode()))


def _of_file(suffix: str, make: Callable[[random.Random], bytes]) -> Kind:
    return Kind(make, partial(read_file, suffix))


KINDS: dict[str, Kind] = {
    "dynamodb-json": Kind(make_typed, read_typed),
    "json": Kind(make_json, read_plain_json),
    "csv": _of_file("csv", make_csv),
    "ion": Kind(make_ion, read_ion),
    "arrow": _of_file("arrow", make_arrow),
    "c-data": Kind(lambda chance: chance.randbytes(8), read_c_data),
    "parquet": _of_file("parquet", make_parquet),
    "avro": _of_file("avro", make_avro),
    "orc": _of_file("orc", make_orc),
    "state": Kind(make_state, read_state),
    "http": Kind(make_http, read_http),
}
