import csv
import io
import json
from functools import partial

import pyarrow as pa
import pytest

from ddbio.errors import DecodeError
from ddbio.formats.csv_rows import CsvRows
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.json_rows import JsonRows
from ddbio.formats.registry import FORMATS
from ddbio.formats.text_reader import TextAhead, TextReader, side_by_side
from ddbio.storage.staged import StoredObject

ROWS = [{"pk": f"k{n}", "n": n if n % 7 else n / 8, "text": f'"{n}"\n, ' + "x" * (n % 50)} for n in range(1000)]
ROWS[900:] = [{**row, "late": 1} for row in ROWS[900:]]
RANGE_BYTES = 7_000


def _csv(rows):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["pk", "n", "text", "late"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _typed(row):
    return {"pk": {"S": row["pk"]}, "n": {"N": str(row["n"])}, "text": {"S": row["text"]}}


TEXTS = {
    "plain.jsonl": ("json", JsonRows, "".join(json.dumps(row) + "\n" for row in ROWS)),
    "typed.json": ("json", JsonRows, "".join(json.dumps({"Item": _typed(row)}) + "\n" for row in ROWS)),
    "rows.csv": ("csv", CsvRows, _csv(ROWS)),
}
SCHEMA = pa.schema([("pk", pa.string()), ("n", pa.float64()), ("text", pa.string()), ("late", pa.int64())])


@pytest.mark.parametrize(
    ("name", "schema"),
    [("plain.jsonl", None), ("plain.jsonl", SCHEMA), ("rows.csv", None), ("rows.csv", SCHEMA), ("typed.json", None)],
)
def test_ranges_are_read_as_the_complete_file(make_store, name, schema):
    """The rows have the order of the file and the columns that all of them need, the same as without threads."""
    form, make_rows, text = TEXTS[name]
    store, entry = make_store(), StoredObject(name, len(text.encode()))
    store.put(name, text.encode())
    options = ReadOptions(schema=schema)
    expected = list(TextReader(store, entry, options, make_rows=make_rows, piece_bytes=RANGE_BYTES).read(0, 1))
    ahead = TextAhead(store, entry, FORMATS[form], options, RANGE_BYTES)
    assert ahead.is_split
    assert ahead.has_items == (name == "typed.json")
    batches = list(ahead.batches())
    assert len(batches) > 1
    assert all(batch.schema.equals(expected[0].schema, check_metadata=True) for batch in batches)
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches(expected))


def test_an_error_in_a_range_names_the_line_of_the_file(make_store):
    """The first error of the file is raised, and all threads end."""
    lines = [json.dumps(row) for row in ROWS]
    lines[700] = '{"pk": nonsense}'
    store, text = make_store(), "\n".join(lines).encode()
    store.put("bad.jsonl", text)
    ahead = TextAhead(store, StoredObject("bad.jsonl", len(text)), FORMATS["json"], ReadOptions(), RANGE_BYTES)
    with pytest.raises(DecodeError) as error:
        list(ahead.batches())
    assert error.value.line == 701


def test_small_and_compressed_files_have_no_ranges(make_store):
    """They are read completely."""
    store = make_store()
    store.put("a.json.gz", bytes.fromhex("1f8b08000000000000") + b"x" * 9_000)
    opened = partial(TextAhead, store, file_format=FORMATS["json"], options=ReadOptions())
    assert not opened(entry=StoredObject("a.json.gz", 9_008), range_bytes=RANGE_BYTES).is_split
    assert not opened(entry=StoredObject("a.json.gz", 9_008), range_bytes=10_000).is_split


def test_what_threads_make_comes_in_order():
    """Only a few results are computed ahead, and an error is raised in order."""
    numbers = iter(range(100))
    results = side_by_side(lambda number: 10 // (5 - number), numbers)
    assert [next(results) for _ in range(5)] == [2, 2, 3, 5, 10]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert next(numbers) <= 20
