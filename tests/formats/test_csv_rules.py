"""CSV follows RFC 4180, and has the same columns whether a file is read completely, in pieces or by ranges."""

import pytest

from ddbio.errors import DecodeError
from ddbio.formats.csv_records import check_quotes, header_names
from ddbio.formats.csv_rows import CSV, CsvRows, csv_columns, read_csv
from ddbio.formats.file_format import ReadOptions, TextStart
from ddbio.formats.text_reader import TextAhead, TextReader
from ddbio.formats.text_types import joined_columns
from ddbio.items.schema.arrow import normalize_schema, tag_of_field
from ddbio.storage.local_store import LocalStore

BROKEN = {
    "unclosed at the end": ('id,v\na,x\nb,"y\nc,z\nd,w\n', "line 3: the quote that opens"),
    "unclosed as the last sign": ('id,v\na,x\nb,"', "line 3: the quote that opens"),
    "unclosed after two quotes": ('id,v\na,"x""\nb,y\n', "line 2: the quote that opens"),
    "two unclosed": ('id,v\na,"x\nb,y\nc,"z\nd,w\n', "line 2: .*followed by 'z'"),
    "in the header": ('id,"v\na,x\n', "line 1: the quote that opens"),
    "backslashes": ('id,v\na,"say \\"hi\\" now"\n', r"line 2: .*followed by 'hi.*not with a backslash"),
    "a backslash at the end": ('id,v\na,"C:\\""\nb,"x"\n', "line 2: .*followed by 'x\"'"),
    "text after a quote": ('id,v\na,"x"y\n', "line 2: .*followed by 'y'"),
    "a blank after a quote": ('id,v\na,"x" \n', "line 2: .*followed by ' '"),
    "a cell after a quote": ('id,v\n"a""b"c,x\n', "line 2: .*followed by 'c,x'"),
    "after line ends in a cell": ('id,v\r\na,"1\r\n2\r\n3"4\r\n', "line 2: .*followed by '4'"),
    "next to a quote that opens nothing": ('id,v\na,5" wide\nb,"x"y\n', "line 3: .*followed by 'y'"),
    "a quote in a cell, and an unclosed one": ('id,v\na,5"\nb,"x\nc,y\n', "line 3: the quote that opens"),
}
LEGAL = {
    "doubled quotes": ('id,v\na,"say ""hi"""\n', ["a", 'say "hi"']),
    "line ends": ('id,v\na,"1\r\n2\n3"\n', ["a", "1\r\n2\n3"]),
    "empty": ('id,v\na,""\n', ["a", None]),
    "only quotes": ('id,v\na,""""""\n', ["a", '""']),
    "a backslash": ('id,v\na,"C:\\"\n', ["a", "C:\\"]),
    "quotes within a cell without quotes": ('id,v\na,5" x 3"\n', ["a", '5" x 3"']),
    "all quoted, no line end": ('"id","v"\n"a","x,y"', ["a", "x,y"]),
    "carriage returns": ('id,v\r"a","x"\r', ["a", "x"]),
}


def read(folder, text, how, **options):
    """Return the rows of CSV, read completely, in pieces, by ranges, or on threads."""
    (folder / "rows.csv").write_bytes(text.encode())
    [entry] = LocalStore(folder).list()
    store, read_options = LocalStore(folder), ReadOptions(**options)
    if how == "threads":
        ahead = TextAhead(store, entry, CSV, read_options, 8)
        batches = ahead.batches() if ahead.is_split else CSV.open_reader(store, entry, read_options).read(0, 0)
    else:
        piece_bytes = 8 if how == "pieces" else 1 << 30
        batches = TextReader(store, entry, read_options, make_rows=CsvRows, piece_bytes=piece_bytes).read(0, 0)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("how", ["whole", "pieces", "threads"])
@pytest.mark.parametrize("case", BROKEN)
def test_broken_quotes_are_an_error_with_the_line(tmp_path, case, how):
    """No row is lost, and no value changed, by any reader."""
    text, message = BROKEN[case]
    with pytest.raises(DecodeError, match=message):
        read(tmp_path, text, how)


@pytest.mark.parametrize("how", ["whole", "pieces", "threads"])
@pytest.mark.parametrize("case", LEGAL)
def test_legal_quotes_are_read(tmp_path, case, how):
    """Texts that RFC 4180 allows are read without ambiguity."""
    text, values = LEGAL[case]
    check_quotes(text.encode())
    assert [list(row.values()) for row in read(tmp_path, text, how)] == [values]
    assert header_names(b"\n" + text.encode()) == ["id", "v"]


# For each case: the cells of three parts of a file, the values, and the type.
COLUMNS = {
    "words only": (["NA", "null", ""], ["NA", "null", ""], "S"),
    "words of other programs": (["n/a", "nan", "#N/A"], ["n/a", "nan", "#N/A"], "S"),
    "empty only": (["", "", ""], [None, None, None], "NULL"),
    "numbers and words": (["1", "NA", ""], [1, None, None], "N"),
    "numbers and nan": (["1.5", "nan", ""], ["1.5", "nan", ""], "S"),
    "numbers and infinity": (["1.5", "Infinity", "-inf"], ["1.5", "Infinity", "-inf"], "S"),
    "numbers and n/a": (["1", "n/a", "2"], ["1", "n/a", "2"], "S"),
    "numbers without end": (["1e400", "1", ""], ["1e400", "1", None], "N"),
    "booleans": (["true", "null", "FALSE"], [True, None, False], "BOOL"),
    "booleans and numbers": (["true", "1", ""], ["true", "1", ""], "S"),
    "text and words": (["x", "NA", ""], ["x", "NA", ""], "S"),
    "codes": (["007", "8", ""], ["007", "8", None], "S"),
    "codes of several kinds": (["0x1F", "1.5", "NA"], ["0x1F", "1.5", None], "S"),
    "times": (["2024-01-01 10:00:00", "NA", "2024-01-01"], ["2024-01-01 10:00:00", None, "2024-01-01"], "S"),
    "days and words": (["2024-01-01", "NA", "2024-02-30"], ["2024-01-01", None, "2024-02-30"], "S"),
    "times and codes": (["10:00", "007", ""], ["10:00", "007", ""], "S"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_a_column_is_the_same_however_its_parts_are_read(tmp_path, case):
    """The values of one file, of its pieces or of several files are those of all cells together."""
    cells, values, tag = COLUMNS[case]
    text = "id,v\n" + "".join(f"{number},{cell}\n" for number, cell in enumerate(cells))
    for how in ("whole", "pieces", "threads"):
        assert [row["v"] for row in read(tmp_path, text, how)] == values
    parts = [f"id,v\n{number},{cell}\n".encode() for number, cell in enumerate(cells)]
    for order in (parts, parts[::-1]):
        columns = joined_columns(map(csv_columns, order))
        tables = [read_csv(part, columns=columns) for part in parts]
        assert [value for table in tables for value in table.column("v").to_pylist()] == values
        assert {tag_of_field(normalize_schema(table.schema).field("v")) for table in tables} == {tag}


@pytest.mark.parametrize("how", ["whole", "pieces", "threads"])
@pytest.mark.parametrize("words", [("NA", "n/a"), ("nan",), ("-", "\\N"), ("",)])
def test_null_values_are_missing_in_every_column(tmp_path, words, how):
    """The words apply to text, numbers, keys and declared columns, and no other words do."""
    lines = [f"{word},{word},{word}" for word in words]
    text = "\n".join(["s,n,k", "text,1,k", *lines, "null,2,NULL"])
    rows = read(tmp_path, text, how, null_values=words, keys={"k": "S"})
    assert [row["s"] for row in rows] == ["text", *[None] * len(words), "null"]
    assert [row["n"] for row in rows] == [1, *[None] * len(words), 2]
    assert [row["k"] for row in rows] == ["k", *[None] * len(words), "NULL"]


def test_a_cell_that_never_ends_is_found_before_memory_does(tmp_path, monkeypatch):
    """A row that is larger than any item is an error, before the rest of the file is read."""
    monkeypatch.setattr("ddbio.formats.text_reader.MAX_ROW_BYTES", 1000)
    text = "id,v\n" + "a,x\n" * 100 + 'b,"y\n' + "c,z\n" * 1000
    with pytest.raises(DecodeError, match=r"larger than .* not closed"):
        read(tmp_path, text, "pieces")
    (tmp_path / "rows.csv").write_text(text)
    [entry] = LocalStore(tmp_path).list()
    starts = (TextStart(0, 0), TextStart(5, 1), TextStart(len(text), 0))
    options = ReadOptions(splits_text=True, range_bytes=10, starts=starts)
    with pytest.raises(DecodeError, match=r"larger than .* not closed"):
        list(TextReader(LocalStore(tmp_path), entry, options, make_rows=CsvRows).read(1, 0))
