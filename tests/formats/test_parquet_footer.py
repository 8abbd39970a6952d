"""A footer's facts about column chunks are checked before pyarrow converts them, which may end the process."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.errors import DecodeError
from ddbio.formats.parquet_input import check_bounds, facts_of_chunks
from ddbio.items.kernel.column_chunks import BOUNDS, COMPRESSED, DICTIONARY, KIND, UNCOMPRESSED

TRUE, BYTE, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 3, 5, 6, 7, 8, 9, 12
FILE_GROUPS, GROUP_COLUMNS, CHUNK_META, CHUNK_CRYPTO = 4, 1, 3, 8
INT64, TEXT = 2, 6


def varint(number: int) -> bytes:
    """Return a number in Thrift's encoding of unsigned integers."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def integer(number: int) -> bytes:
    """Return a number in Thrift's encoding of signed integers."""
    return varint(number << 1 ^ number >> 63)


def text(value: bytes) -> bytes:
    """Return a text with its length."""
    return varint(len(value)) + value


def many(kind: int, *values: bytes) -> bytes:
    """Return a list of values of one type."""
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return head + b"".join(values)


def struct(*members: tuple[int, int, bytes]) -> bytes:
    """Return a struct; each of its members has a number, a type and a value."""
    return b"".join(bytes([kind]) + integer(number) + value for number, kind, value in members) + b"\0"


def chunk_of(*members: tuple[int, int, bytes], kind: int = INT64) -> bytes:
    """Return a column chunk with these members and the required ones."""
    members_by_number = {1: (1, I32, integer(kind)), 6: (6, I64, integer(50)), 7: (7, I64, integer(30))}
    members_by_number |= {member[0]: member for member in members}
    return struct((CHUNK_META, STRUCT, struct(*(members_by_number[number] for number in sorted(members_by_number)))))


def footer_of(*chunks: bytes, groups: int = 1, before: tuple[tuple[int, int, bytes], ...] = ()) -> bytes:
    """Return the end of a file whose row groups have these column chunks."""
    group = struct((GROUP_COLUMNS, LIST, many(STRUCT, *chunks)))
    metadata = struct(*before, (FILE_GROUPS, LIST, many(STRUCT, *[group] * groups)))
    return metadata + len(metadata).to_bytes(4, "little") + b"PAR1"


def metadata_of(column: pa.Array, **options: int) -> pq.FileMetaData:
    """Return pyarrow's metadata of a file with one column."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": column}), sink, **options)
    return pq.read_metadata(sink)


NUMBERS, TEXTS = metadata_of(pa.array([1])), metadata_of(pa.array(["a"]))
LISTS = metadata_of(pa.array([[1]]))
SOUND = chunk_of()
SHORT_BOUND = (12, STRUCT, struct((5, BINARY, text(b"123"))))

REFUSED = {
    "another type": (footer_of(chunk_of(kind=TEXT)), NUMBERS, "do not fit its type"),
    "no such type": (footer_of(chunk_of(kind=2 + (1 << 32))), NUMBERS, "do not fit its type"),
    "bytes of texts": (
        footer_of(chunk_of((16, STRUCT, struct((1, I64, integer(5)))))),
        NUMBERS,
        "do not fit its type",
    ),
    "three levels of one": (
        footer_of(chunk_of((16, STRUCT, struct((3, LIST, many(I64, *[integer(0)] * 3)))))),
        NUMBERS,
        "do not fit its type",
    ),
    "levels of another": (
        footer_of(chunk_of((16, STRUCT, struct((2, LIST, many(I64, *[integer(0)] * 5)))))),
        LISTS,
        "do not fit its type",
    ),
    "encrypted": (
        footer_of(struct((CHUNK_META, STRUCT, SOUND[2:-1]), (CHUNK_CRYPTO, STRUCT, struct()))),
        NUMBERS,
        "column a is encrypted",
    ),
    "no facts": (footer_of(struct(), before=((1, BINARY, text(bytes(20))),)), NUMBERS, "do not fit its type"),
    "duplicate facts": (footer_of(SOUND[:-1] + SOUND), NUMBERS, "does not follow the format"),
    "a number beyond 16 bits": (
        footer_of(SOUND[:-1] + struct((CHUNK_META + (1 << 16), STRUCT, SOUND[2:-1]))),
        NUMBERS,
        "does not follow the format",
    ),
    "a list of others": (
        footer_of(chunk_of((2, LIST, many(BINARY, text(b"\0"))))),
        NUMBERS,
        "does not follow the format",
    ),
    "a list where none is known": (
        footer_of(SOUND, before=((2, LIST, many(STRUCT, struct((1, LIST, many(BINARY, text(b"x")))))),)),
        NUMBERS,
        "does not follow the format",
    ),
    "a number for a struct": (footer_of(struct((CHUNK_META, I32, integer(1)))), NUMBERS, "does not follow the format"),
    "no column": (footer_of(before=((1, BINARY, text(bytes(20))),)), NUMBERS, "does not follow the format"),
    "two columns of one": (footer_of(SOUND, SOUND), NUMBERS, "does not follow the format"),
    "two row groups of one": (footer_of(SOUND, groups=2), NUMBERS, "does not follow the format"),
    "nested deeply": (footer_of(SOUND, before=((1, LIST, b"\x19" * 40),)), NUMBERS, "does not follow the format"),
    "a list of very many": (
        footer_of(SOUND, before=((2, LIST, b"\xfc" + varint(1 << 40)),)),
        NUMBERS,
        "does not follow the format",
    ),
    "a text of very many": (
        footer_of(SOUND, before=((1, BINARY, varint((1 << 63) - 1)),)),
        NUMBERS,
        "does not follow the format",
    ),
    "a map": (footer_of(SOUND, before=((3, 11, b"\0"),)), NUMBERS, "does not follow the format"),
    "cut": (footer_of(SOUND)[:9] + (9).to_bytes(4, "little") + b"PAR1", NUMBERS, "does not follow the format"),
}


@pytest.mark.parametrize(("tail", "metadata", "why"), REFUSED.values(), ids=REFUSED)
def test_what_pyarrow_crashes_on_is_refused(tail, metadata, why):
    """Facts that would crash pyarrow, or that readers interpret differently, are errors of ddbio."""
    with pytest.raises(DecodeError, match=why):
        facts_of_chunks(tail, metadata)


@pytest.mark.parametrize(
    "extra",
    [
        (),
        ((20, TRUE, b""), (21, BYTE, b"x"), (22, DOUBLE, bytes(8)), (40, LIST, many(BINARY, text(b"a")))),
        ((2, LIST, b"\0"), (16, STRUCT, struct((2, LIST, b"\x06"), (3, LIST, many(I64, integer(0), integer(1)))))),
        ((9, I64, integer(-(1 << 63))), (17, STRUCT, struct((1, STRUCT, struct()), (2, LIST, many(I32, integer(7)))))),
        ((11, I64, integer(-1)), (18, LIST, many(LIST, many(I32)))),
    ],
    ids=["nothing", "unknown members", "empty lists", "an invalid offset", "no dictionary"],
)
def test_unused_fields_are_skipped(extra):
    """Members of later formats, and unused numbers, are ignored."""
    facts = facts_of_chunks(footer_of(chunk_of(*extra)), NUMBERS)
    assert facts[0, 0, [KIND, UNCOMPRESSED, COMPRESSED]].tolist() == [INT64, 50, 30]


def test_only_bounds_that_are_used_must_fit():
    """A bound of a wrong length is an error for readers of bounds, not for readers of rows."""
    facts = facts_of_chunks(footer_of(chunk_of(SHORT_BOUND)), NUMBERS)
    with pytest.raises(DecodeError, match="column a do not fit its type"):
        check_bounds(facts, NUMBERS)
    check_bounds(facts_of_chunks(footer_of(chunk_of(SHORT_BOUND, kind=TEXT)), TEXTS), TEXTS)


def test_many_row_groups_of_many_columns_take_no_memory():
    """A row group of a few bytes cannot have a hundred thousand columns."""
    wide = metadata_of(pa.array([1]), row_group_size=1)

    class Many:
        num_row_groups, num_columns, schema = 1 << 20, 1 << 20, wide.schema

    with pytest.raises(DecodeError, match="does not follow the format"):
        facts_of_chunks(footer_of(SOUND), Many)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "compression": "none"},
        {"row_group_size": 7, "write_page_index": True},
        {"write_statistics": False, "store_decimal_as_integer": True},
        {"use_deprecated_int96_timestamps": True, "data_page_version": "2.0"},
        {"compression": "zstd", "version": "1.0"},
    ],
)
def test_facts_are_those_of_pyarrow(options):
    """Both readers of footers return the same facts as pyarrow, for each type."""
    rows = {
        "texts": pa.array([f"{n}" * (n % 5) for n in range(30)]),
        "numbers": pa.array(range(30)),
        "doubles": pa.array([n / 3 for n in range(30)]),
        "truth": pa.array([n % 3 == 0 or None for n in range(30)]),
        "decimals": pa.array(range(30), pa.int32()).cast(pa.decimal128(12, 2)),
        "wide": pa.array(range(30), pa.int32()).cast(pa.decimal128(30, 2)),
        "times": pa.array(range(30), pa.timestamp("us")),
        "lists": pa.array([[n] * (n % 3) for n in range(30)]),
        "structs": pa.array([{"é": {"b": n}} for n in range(30)]),
        "maps": pa.array([[("k", b"v")]] * 30, pa.map_(pa.string(), pa.binary())),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink, **options)
    metadata, tail = pq.read_metadata(sink), sink.getvalue()
    facts = facts_of_chunks(tail, metadata)
    check_bounds(facts, metadata)
    for number, group in enumerate(facts):
        for index, column_chunk in enumerate(group):
            chunk = metadata.row_group(number).column(index)
            assert column_chunk[[COMPRESSED, UNCOMPRESSED]].tolist() == [
                chunk.total_compressed_size,
                chunk.total_uncompressed_size,
            ]
            assert (column_chunk[DICTIONARY] >= 0) == chunk.has_dictionary_page
            assert (column_chunk[BOUNDS + 2] >= 0) == (chunk.statistics is not None and chunk.statistics.has_min_max)
