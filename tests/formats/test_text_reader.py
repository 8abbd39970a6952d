"""Text files in pieces: the same rows as when they are read completely, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.errors import DecodeError
from ddbio.formats.csv_records import complete_records_end, header_names
from ddbio.formats.csv_rows import CsvRows
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.json_rows import JsonRows
from ddbio.formats.text_reader import TextReader
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.reference import items_of
from ddbio.storage.local_store import LocalStore

PIECE_BYTES = 64 * 1024


def reader(tmp_path, name, text, make_rows, **options):
    """Return a reader of a file with that text in pieces of 64 KiB, and one that reads it completely."""
    (tmp_path / name).write_bytes(text)
    store = LocalStore(tmp_path)
    [entry] = store.list(name)
    options = ReadOptions(**options)
    return [TextReader(store, entry, options, make_rows=make_rows, piece_bytes=size) for size in (PIECE_BYTES, 1 << 40)]


def rows_of(file):
    """Return all rows, and the number of their batches."""
    batches = list(file.read(0, 0))
    return pa.Table.from_batches(batches), len(batches)


def csv_text(count, *, odd=False):
    """Return CSV whose cells have line ends and quotes, and a column whose type is clear only late."""
    rng = random.Random(1)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["pk", "note", "late", "n", "price", "none"])
    for number in range(count):
        note = rng.choice(["plain", "two\nlines", 'a "quote"', "comma, and\r\nline", "", "NA", '"', '""\n""'])
        late = "x" if odd and number > count - 9 else number
        writer.writerow([f"k{number}", note, late, number, number if number < count // 2 else f"{number}.5", ""])
    return out.getvalue().encode()


def test_csv_in_pieces_is_csv(tmp_path):
    """Each column has one type in the complete file, and no record is cut at a line end in a cell."""
    for odd in (False, True):
        pieces, complete = reader(tmp_path, "a.csv", csv_text(6_000, odd=odd), CsvRows)
        rows, expected = rows_of(pieces)[0], rows_of(complete)[0]
        assert rows.num_rows == 6_000
        for name in ("pk", "note", "late", "n", "none"):
            assert rows.column(name).equals(expected.column(name).cast(rows.schema.field(name).type)), name
        assert rows.schema.field("late").type == (pa.string() if odd else pa.int64())
        assert digest_of_batches(rows.to_batches()) == digest_of_batches(expected.to_batches())


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_json_in_pieces_is_json(tmp_path, indent, pack):
    """Plain rows, on one line or several; a late member, and numbers that doubles cannot store."""
    rows = [{"pk": f"k{n}", "n": n, "m": {"a": n, "l": [n, None]}, "text": '}\n{"x":1}'} for n in range(3_000)]
    rows[-1] |= {"late": True, "n": 12345678901234567890123}
    rows[1_500]["m"] = {"b": "x"}
    rows[2_000] |= {"n": "12", "text": 5, "_rescue": "mine"}
    text = "\n".join(json.dumps(row, indent=indent) for row in rows).encode()
    pieces, complete = reader(tmp_path, "a.json", pack(text), JsonRows)
    read_rows, batches = rows_of(pieces)
    assert read_rows.num_rows == 3_000
    assert batches > 1
    assert digest_of_batches(read_rows.to_batches()) == digest_of_batches(rows_of(complete)[0].to_batches())


def test_dynamodb_json_in_pieces_is_dynamodb_json(tmp_path):
    """All pieces have the columns that all items need."""
    items = [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}, "pad": {"S": "x" * 100}} for n in range(3_000)]
    items[-1] |= {"late": {"BOOL": True}, "n": {"S": "none"}, "no": {"NULL": True}}
    text = "\n".join(json.dumps(item) for item in items).encode()
    pieces, complete = reader(tmp_path, "a.json", text, JsonRows)
    rows, batches = rows_of(pieces)
    assert batches > 1
    assert digest_of_batches(rows.to_batches()) == digest_of_batches(rows_of(complete)[0].to_batches())


def test_an_error_names_the_line_of_the_file(tmp_path):
    """Lines are counted over all pieces."""
    lines = [json.dumps({"pk": f"k{n}", "pad": "x" * 100}) for n in range(3_000)]
    lines[2_900] = lines[2_900][:-1]
    pieces, _ = reader(tmp_path, "a.json", "\n".join(lines).encode(), JsonRows, schema=None, json_format="plain")
    with pytest.raises(DecodeError) as raised:
        rows_of(pieces)
    assert raised.value.line == 2_902


def test_declared_columns_are_declared_in_every_piece(tmp_path):
    """Declared types also apply to later pieces, and columns of other files stay in this one."""
    types = {name: pa.field(name, pa.string(), metadata={"ddb:type": tag}) for name, tag in (("zip", "S"), ("n", "N"))}
    rows = [{"pk": f"k{n}", "zip": n if n % 2 else f"0{n}", "n": f"{n}.50", "pad": "x" * 50} for n in range(3_000)]
    expected = [{"zip": {"S": str(row["zip"])}, "n": {"N": f"{n}.5"}} for n, row in enumerate(rows)]
    header = "pk,zip,n,pad\n"
    texts = {
        "a.json": ("\n".join(map(json.dumps, rows)), JsonRows),
        "a.csv": (header + "\n".join(",".join(map(str, row.values())) for row in rows), CsvRows),
    }
    for name, (text, make_rows) in texts.items():
        chosen = pa.schema([*((name, pa.string()) for name in header.strip().split(",")), ("v", pa.int64())])
        for columns in (None, chosen) if make_rows is CsvRows else (None,):
            for file in reader(tmp_path, name, text.encode(), make_rows, types=types, columns=columns):
                file_items = [item for batch in file.read(0, 0) for item in items_of(batch.select(["zip", "n"]))]
                assert file_items == expected, (name, columns is None)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("k,1", r"line 2702: Expected 3 columns, got 2"),
        ('"k\n\n",1,2,3', r"line 2702: Expected 3 columns, got 4"),
        ("k\udcff,1,2", r"line 2702: column 'pk' holds bytes that are not UTF-8"),
    ],
)
def test_broken_csv_names_its_line(tmp_path, bad, message):
    """Line ends within cells and lines before the piece are counted; the line is that of the record's start."""
    records = [f'k{n},"{n}\n",{"x" * 30}' for n in range(3_000)]
    records[1_350] = bad
    text = "pk,n,pad\n" + "\n".join(records) + "\n"
    for file in reader(tmp_path, "a.csv", text.encode(errors="surrogateescape"), CsvRows):
        with pytest.raises(DecodeError, match=message) as raised:
            rows_of(file)
        assert raised.value.line == 2_702


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused_with_advice(tmp_path, encoding):
    """Excel's 'Unicode text' is UTF-16: the message has an advice."""
    text = ("\ufeff" if encoding == "utf-16-be" else "") + "pk,n\nx,1\n"
    pieces, _ = reader(tmp_path, "a.csv", text.encode(encoding), CsvRows)
    for read in (rows_of, lambda file: file.sample(1)):
        with pytest.raises(DecodeError, match=r"UTF-16 or UTF-32.*write it in UTF-8"):
            read(pieces)


_CELL = st.text(alphabet='",\n\r x', max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.text(alphabet='",\nx\r', max_size=4), min_size=2, max_size=2), min_size=1, max_size=6))
def test_lines_of_records_are_those_of_python(rows):
    """A record starts on the line after all line ends that were written before it."""
    text, expected = "", []
    for row in [["a", "b"], *rows]:
        expected.append(text.count("\n") + 1)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(row)
        text += out.getvalue()
    lines = CsvRows(ReadOptions()).lines(text.encode(), len(rows), 1)
    assert list(lines) == expected[1:]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(_CELL, min_size=2, max_size=3), min_size=1, max_size=5), st.booleans())
def test_records_end_where_python_ends_them(rows, quote_all):
    """CSV that ends within a record is cut after the last complete one; stray quotes are characters."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(rows)
    text = out.getvalue().encode()
    assert complete_records_end(text) == len(text)
    ends = [0]
    for count in range(len(rows)):
        part = io.StringIO()
        csv.writer(part, lineterminator="\n", quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(
            rows[: count + 1]
        )
        ends.append(len(part.getvalue().encode()))
    for end in range(len(text) + 1):
        end_of_records = complete_records_end(text[:end])
        assert end_of_records in ends
        assert end_of_records <= end


def test_stray_quotes_end_no_record():
    """A quote in the middle of a cell opens nothing, so that the next line end ends the record."""
    text = b'a,5" pipe\nb,"two\nlines"\nc,6" x\n"open'
    assert complete_records_end(text) == text.index(b'"open')
    assert header_names(b'"a ""b""","c\nd",e\n1,2,3\n') == ['a "b"', "c\nd", "e"]
