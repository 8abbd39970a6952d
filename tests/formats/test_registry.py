"""Rows of every type through every format and codec, and back."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import get_args

import pyarrow as pa
import pytest

from ddbio.errors import DecodeError, OptionError
from ddbio.formats.avro import COLUMNS_KEY
from ddbio.formats.file_facts import FILE_FACTS
from ddbio.formats.registry import FORMATS, INPUT_FORMATS, MAGIC_BYTES, format_of, format_of_bytes
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.formats.row_files import read_batches
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.schema.arrow import normalize_schema
from ddbio.lake_formats.registry import TABLE_FORMATS
from ddbio.options.format_names import CompactFormat, FileFormatName, InputFormat, LakeFormatName
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

CODECS = [(name, codec) for name, file_format in FORMATS.items() for codec in file_format.extensions]


def tagged(name, arrow_type, tag):
    """Return a field with DynamoDB's type."""
    return pa.field(name, arrow_type, metadata={b"ddb:type": tag.encode()})


SCHEMA = normalize_schema(
    pa.schema(
        [
            pa.field("pk", pa.string()),
            pa.field("n", pa.int64()),
            pa.field("u", pa.uint64()),
            pa.field("f", pa.float64()),
            pa.field("d", pa.decimal128(38, 30)),
            tagged("wide", pa.string(), "N"),
            pa.field("b", pa.binary()),
            pa.field("t", pa.bool_()),
            tagged("nothing", pa.string(), "NULL"),
            tagged("ss", pa.list_(pa.string()), "SS"),
            tagged("ns", pa.list_(pa.decimal128(38, 2)), "NS"),
            tagged("bs", pa.large_list(pa.binary()), "BS"),
            pa.field("l", pa.list_(pa.int64())),
            tagged("any", pa.string(), "JSON"),
            pa.field("m", pa.struct([("a", pa.int64()), ("q w", pa.struct([("b", pa.binary())]))])),
            tagged("a b-c", pa.string(), "S"),
            pa.field("a_b_c", pa.large_string()),
            tagged("at", pa.timestamp("us", "UTC"), "S"),
            tagged("local", pa.timestamp("ns"), "S"),
            tagged("day", pa.date32(), "S"),
        ]
    )
)
MAPS = normalize_schema(
    pa.schema([*list(SCHEMA)[:-1], pa.field("map", pa.map_(pa.string(), tagged("value", pa.list_(pa.binary()), "BS")))])
)
ROWS = [
    {
        "pk": '"1\n,\\x\x00é\u2028',
        "n": -(2**63),
        "u": 2**64 - 1,
        "f": 0.1,
        "d": Decimal("1E-30"),
        "wide": "-1.5E+120",
        "b": b"\0\xff",
        "t": True,
        "ss": ["a", "", "x\ny"],
        "ns": [Decimal("1.5"), Decimal(2)],
        "bs": [b"", b"x"],
        "l": [1, None, -5],
        "any": '{"L":[{"N":"1"},{"S":"x"}]}',
        "m": {"a": 1, "q w": {"b": b"zz"}},
        "map": [('k"\n', [b"1"]), ("z", [b"2"])],
        "at": 10**15 + 1,
        "local": 10**18 + 1,
        "day": -30_000,
        "_rescue": '{"kept":{"NULL":true},"other":{"N":"5"}}',
    },
    {"pk": "", "m": {}, "l": [], "map": [], "a b-c": "x", "a_b_c": ""},
    {"pk": "NULL", "m": {"q w": {}}, "d": Decimal("12345678.5"), "t": False, "b": b"", "at": -1},
    {"pk": "1", "a b-c": "null", "a_b_c": "NaN"},
]


def write(tmp_path, name, codec, batches):
    """Write batches as one file; return its store and path."""
    store = LocalStore(tmp_path / "out")
    options = FileOptions(format=name, compression=codec)
    writer = RollingWriter(store, FileNaming("job", 0, 1), batches[0].schema, options)
    for batch in batches:
        writer.write(batch)
    [staged] = writer.finish(keep_empty=True)
    store.complete(staged)
    assert staged.size_bytes == len(store.read(staged.path))
    return store, staged.path


@pytest.mark.parametrize("schema", [SCHEMA, MAPS], ids=["columns", "maps"])
@pytest.mark.parametrize(("name", "codec"), CODECS)
def test_every_type_comes_back(tmp_path, name, codec, schema):
    """A file of any format and compression returns the same types and the same digest."""
    rows = [{key: value for key, value in row.items() if key in schema.names} for row in ROWS]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    store, path = write(tmp_path, name, codec, [batch.slice(0, 1), batch.slice(1)])
    assert path.endswith(FORMATS[name].extensions[codec])
    assert format_of(path) is FORMATS["json" if name == "dynamodb-json" else name]
    declared = None if FORMATS[name].keeps_types or name == "dynamodb-json" else schema
    back = list(read_batches(store, next(store.list(path)), declared))
    assert digest_of_batches(back) == digest_of_batches([batch])
    if declared is not None:
        assert back[0].schema.equals(schema, check_metadata=True)
        plain = [column for column in schema.names if column not in {"wide", "_rescue"}]
        assert pa.Table.from_batches(back).select(plain).equals(pa.Table.from_batches([batch]).select(plain))


@pytest.mark.parametrize(
    ("name", "codec"), [format_and_codec for format_and_codec in CODECS if format_and_codec[1] == "none"]
)
def test_a_file_may_have_no_rows(tmp_path, name, codec):
    """A file without rows has no rows when read."""
    store, path = write(tmp_path, name, codec, [pa.RecordBatch.from_pylist([], SCHEMA)])
    assert not sum(batch.num_rows for batch in read_batches(store, next(store.list(path)), SCHEMA))


def test_a_header_of_avro_whose_columns_were_damaged_is_refused(tmp_path):
    """No changed byte of the header changes values of rows: its two descriptions of the columns must agree."""
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    store, path = write(tmp_path, "avro", "snappy", [batch])
    file = tmp_path / "out" / path
    intact, wanted = file.read_bytes(), digest_of_batches([batch])
    # Without its key, the second description does not exist.
    key = intact.index(COLUMNS_KEY.encode())
    ends = Counter()
    for index in range(intact.rindex(b"}")):
        if not key <= index < key + len(COLUMNS_KEY):
            file.write_bytes(intact[:index] + bytes([intact[index] ^ 1]) + intact[index + 1 :])
            try:
                assert digest_of_batches(read_batches(store, next(store.list(path)), None)) == wanted
                ends["same"] += 1
            except DecodeError:
                ends["refused"] += 1
    assert ends["refused"] > ends["same"] > 0


def test_a_codec_that_a_format_lacks_is_refused():
    """The message lists the codecs of the format; Arrow files are not written."""
    assert FORMATS["csv"].codec(None) == "gzip"
    assert FORMATS["avro"].codec(None) == "zstd"
    with pytest.raises(OptionError, match="format csv has no compression snappy: give gzip, zstd, none"):
        FORMATS["csv"].codec("snappy")
    with pytest.raises(OptionError, match="format avro has no compression lz4"):
        FORMATS["avro"].codec("lz4")
    with pytest.raises(OptionError, match="files of format arrow are not written"):
        FORMATS["arrow"].codec(None)


def test_options_and_facts_name_the_formats_of_the_registry():
    """The formats of options and catalogs are those that can be read and written."""
    written = {name for name, file_format in FORMATS.items() if file_format.open_writer is not None}
    assert set(get_args(InputFormat)) == set(INPUT_FORMATS)
    assert set(get_args(FileFormatName)) == written
    assert set(get_args(CompactFormat)) == written & set(INPUT_FORMATS) == FILE_FACTS.keys()
    assert set(get_args(LakeFormatName)) == LAKE_FORMATS.keys() == TABLE_FORMATS.keys()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_detected_by_its_first_and_last_bytes(tmp_path, name):
    """The bytes of a file determine its format, except for text."""
    if FORMATS[name].open_writer is None:
        return
    store, path = write(tmp_path, name, "none", [pa.RecordBatch.from_pylist(ROWS, SCHEMA)])
    data = store.read(path)
    detected = format_of_bytes(data[:MAGIC_BYTES], data[-MAGIC_BYTES:])
    assert detected == (None if FORMATS[name].text_rows else name)
    assert format_of_bytes(data[:MAGIC_BYTES], None) == detected
