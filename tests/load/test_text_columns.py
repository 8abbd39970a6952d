"""Columns of text: one type over all files, or the declared one. Every file is checked before the first write."""

import gzip
import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import DecodeError, OptionError, PartialWriteError, SchemaError
from ddbio.testing import FakeDynamoDB


@pytest.fixture(scope="module")
def server():
    """Serve a fake DynamoDB."""
    with FakeDynamoDB() as running:
        yield running


@pytest.fixture
def table(server, request):
    """Return the name of an empty table, and its options."""
    name = f"t{abs(hash(request.node.name))}"
    server.load(name, b"", "pk:S")
    return name, {"endpoint_url": server.endpoint_url}


def items(table):
    """Return the items of a table by their keys."""
    name, options = table
    result = {}
    for batch in ddbio.scan_batches(name, **options):
        for line in ddbio.to_dynamodb_json(batch).splitlines():
            item = json.loads(line)
            result[item.pop("pk")["S"]] = item
    return result


def load(table, source, **options):
    """Load files."""
    return ddbio.load_files(str(source), table[0], **table[1], **options)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_csv_has_one_type_over_all_files(table, tmp_path, pack):
    """A column is text in every file if it is text in one. Integers and decimals are numbers."""
    texts = {"a": "pk,v,n,only\na,007,1,x\n", "b": "pk,v,n\nb,8,1.50\n", "c": "v,pk\n,c\n"}
    ending = ".csv" if pack is bytes else ".csv.gz"
    for name, text in texts.items():
        (tmp_path / f"{name}{ending}").write_bytes(pack(text.encode()))
    load(table, tmp_path)
    assert items(table) == {
        "a": {"v": {"S": "007"}, "n": {"N": "1"}, "only": {"S": "x"}},
        "b": {"v": {"S": "8"}, "n": {"N": "1.5"}},
        "c": {},
    }


TYPES = "zip=string,n=number,b=bool,j=json,x=B"


def test_declared_csv_has_the_declared_types(table, tmp_path):
    """A cell that is not a value of its declared type rejects its row with its line. An empty one is missing."""
    rows = [
        "pk,zip,n,b,j,x,free",
        'a,10115,1.50,true,"{""S"":""x""}",AAE=,1',
        "b,,,,,,",
        "c,007,NA,,,,",
        "d,1,1,yes,,,",
    ]
    (tmp_path / "a.csv").write_text("\n".join([*rows, "e,1,1,,x,,", "f,1,1,,,?,"]) + "\n")
    report = load(table, tmp_path, types=TYPES, reject_to=str(tmp_path / "rejects"))
    assert items(table) == {
        "a": {
            "zip": {"S": "10115"},
            "n": {"N": "1.5"},
            "b": {"BOOL": True},
            "j": {"S": "x"},
            "x": {"B": "AAE="},
            "free": {"N": "1"},
        },
        "b": {"zip": {"S": ""}},
    }
    kept = [
        json.loads(line) for path in (tmp_path / "rejects").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    actual = {row["line"]: (row["rule"], row["reason"].partition(":")[0]) for row in kept}
    assert actual == {4: ("number", "n"), 5: ("json", "b"), 6: ("json", "j"), 7: ("json", "x")}
    assert report.rejected == 4


def test_declared_json_has_the_declared_types(table, tmp_path):
    """Quoted numbers become numbers, numbers become text, as they are written. Undeclared columns are unchanged."""
    rows = [
        '{"pk":"a","zip":10115,"n":"1.50","free":1}',
        '{"pk":"b","zip":"007","n":2,"b":true}',
        '{"pk":"c","free":"x"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "b.jsonl").write_text('{"pk":"d","zip":1.0}\n')
    load(table, tmp_path, types=TYPES)
    assert items(table) == {
        "a": {"zip": {"S": "10115"}, "n": {"N": "1.5"}, "free": {"N": "1"}},
        "b": {"zip": {"S": "007"}, "n": {"N": "2"}, "b": {"BOOL": True}},
        "c": {"free": {"S": "x"}},
        "d": {"zip": {"S": "1.0"}},
    }


@pytest.mark.parametrize("beside", ["1", "1e400", "12345678901234567890123", "null"])
def test_declared_text_is_a_number_as_it_is_written(table, tmp_path, beside):
    """Every number is text, with its exponent and digits, for any other values of its piece."""
    numbers = ["1e5", "1E+5", "1.5e-3", "0e0", "-0", "-0.00", "1.0", "1e400", "1" * 50, "0.1234567890123456789"]
    numbers.append(f"1e{10**20}")
    rows = [f'{{"pk":"{number}","zip":{number}}}\n' for number in numbers]
    (tmp_path / "a.jsonl").write_text("".join(rows) + f'{{"pk":"text","zip":"x"}}\n{{"pk":"beside","n":{beside}}}\n')
    report = load(table, tmp_path, types=TYPES, reject_to=str(tmp_path / "rejects"))
    assert report.rejected == (beside == "1e400")
    actual = items(table)
    assert {key: actual[key] for key in numbers} == {number: {"zip": {"S": number}} for number in numbers}
    assert actual["text"] == {"zip": {"S": "x"}}


def test_json_of_another_type_names_its_line(table, tmp_path):
    """An invalid number rejects its row, and the error has file and line."""
    (tmp_path / "a.jsonl").write_text('{"pk":"a",\n"n":"1"}\n{"pk":"b","n":"x"}\n')
    with pytest.raises(PartialWriteError, match=r"a\.jsonl, line 3\): json: n: .*'x' is not a DynamoDB number"):
        load(table, tmp_path, types=TYPES)


def test_a_schema_file_declares_columns(table, tmp_path):
    """The output of ``ddbio schema --json`` for another table is accepted by a load, including members of maps."""
    shape = ddbio.infer_schema(b'{"pk":{"S":"a"},"zip":{"S":"1"},"m":{"M":{"n":{"N":"1"}}},"tags":{"SS":["x"]}}\n')
    (tmp_path / "a.csv").write_text('pk,zip,m,tags\na,1,"{""n"":""2""}","[""x"",""y""]"\n')
    (tmp_path / "b.jsonl").write_text('{"pk":"b","zip":1,"m":{"n":"2","o":"3"},"tags":["x"]}\n')
    load(table, tmp_path, schema=shape.to_json())
    assert items(table) == {
        "a": {"zip": {"S": "1"}, "m": {"M": {"n": {"N": "2"}}}, "tags": {"SS": ["x", "y"]}},
        "b": {"zip": {"S": "1"}, "m": {"M": {"n": {"N": "2"}, "o": {"S": "3"}}}, "tags": {"SS": ["x"]}},
    }


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"types": "pk=number"}, SchemaError, "pk is a key of type S"),
        ({"types": "n=nothing"}, SchemaError, "'nothing' is no type"),
        ({"types": "nn=number"}, SchemaError, "nn: no file has such a column: did you mean 'n'?"),
        ({"types": "n=number", "timestamps": "n=iso"}, OptionError, "in timestamps and in types"),
    ],
)
def test_impossible_declarations_are_refused(table, tmp_path, options, error, message):
    """A key has its table's type, a type must exist, and a column is declared once."""
    (tmp_path / "a.csv").write_text("pk,n\na,1\n")
    with pytest.raises(error, match=message):
        load(table, tmp_path, **options)


def test_types_are_for_text(table, tmp_path):
    """Parquet files have the types of their columns."""
    pq.write_table(pa.table({"pk": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(OptionError, match="are for CSV and plain JSON"):
        load(table, tmp_path, types="n=number")


def write_ipc(path, columns):
    """Write an Arrow file without compression."""
    pyarrow.feather.write_feather(pa.table(columns), path, compression="uncompressed")


def broken_ipc(path):
    """Write an Arrow file without its footer."""
    write_ipc(path, {"pk": ["z"] * 100})
    path.write_bytes(path.read_bytes()[:-20])


BROKEN = {
    "z.csv": (lambda path: path.write_text("pk,n\nz,1\nz\n"), r"z\.csv: line 3: Expected 2 columns"),
    "y.csv": (lambda path: path.write_text("key,n\nz,1\n"), r"y\.csv: the rows have no column 'pk'"),
    "z.parquet": (lambda path: pq.write_table(pa.table({"key": ["z"]}), path), r"z\.parquet: the rows have no column"),
    "y.parquet": (lambda path: path.write_bytes(b"PAR1 no more"), r"y\.parquet cannot be read"),
    "z.arrow": (broken_ipc, r"z\.arrow cannot be read"),
    "y.arrow": (lambda path: write_ipc(path, {"key": ["z"]}), r"y\.arrow: the rows have no column 'pk'"),
    "z.jsonl": (lambda path: path.write_text('{"pk":"z"}\n{"pk":\n'), r"z\.jsonl: line 3"),
    "z.json": (lambda path: path.write_text('[{"pk":"z"}]\n'), r"z\.json: line 1: this is no object"),
    "z.csv.gz": (lambda path: path.write_bytes(gzip.compress(b"pk\nz\n")[:-9]), r"z\.csv\.gz"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_found_before_anything_is_written(server, table, tmp_path, name):
    """For any number of good files before it, the plan reports the bad one and nothing is written."""
    for good in range(20):
        (tmp_path / f"a{good:02}.jsonl").write_text(f'{{"pk":"{good}"}}\n')
    write, message = BROKEN[name]
    write(tmp_path / name)
    for act in (load, lambda *arguments: ddbio.plan_load(str(arguments[1]), table[0], **table[1])):
        with pytest.raises((DecodeError, SchemaError), match=message):
            act(table, tmp_path)
    assert items(table) == {}


def test_csv_broken_in_the_middle_is_found_before_a_write_if_read_twice(table, tmp_path):
    """The last line of the second file is checked when the columns of both are determined."""
    (tmp_path / "a.csv").write_text("pk,n\na,1\n")
    (tmp_path / "b.csv").write_text("pk,n\n" + "".join(f"b{n},{n}\n" for n in range(20_000)) + "c\n")
    with pytest.raises(DecodeError, match=r"b\.csv: line 20002: Expected 2 columns, got 1"):
        load(table, tmp_path)
    assert items(table) == {}


def test_a_load_that_continues_has_the_same_types(table, tmp_path):
    """Other declared types are another job."""
    (tmp_path / "a.csv").write_text("pk,n\na,1\n")
    options = {"job_id": "typed", "state": str(tmp_path / "state")}
    assert load(table, tmp_path, types="n=string", **options).written == 1
    with pytest.raises(OptionError, match="typed"):
        load(table, tmp_path, **options)


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv", "csv.gz", "jsonl", "orc"])
def test_times_of_a_missing_column_are_refused(table, tmp_path, ending):
    """In any format, a time format must have a column of some file. Otherwise nothing is written."""
    rows = pa.table({"pk": ["a"], "expires_at": pa.array([0], pa.timestamp("us", "UTC"))})
    path = tmp_path / f"rows.{ending}"
    if ending in {"parquet", "feather", "orc"}:
        write = {"parquet": pq.write_table, "feather": pyarrow.feather.write_feather, "orc": pyarrow.orc.write_table}
        write[ending](rows, path)
    else:
        text = '{"pk":"a","expires_at":"x"}' if ending == "jsonl" else "pk,expires_at\na,2026-01-01"
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    with pytest.raises(SchemaError, match="expire_at: no file has such a column: did you mean 'expires_at'"):
        load(table, path, timestamps="expire_at=epoch_s")
    assert items(table) == {}


@pytest.mark.parametrize("form", ["parquet", "orc", "avro", "csv", "json", "delta"])
def test_formats_of_times_in_files_of_a_scan(server, table, tmp_path, form):
    """Columns in a manifest or the metadata of a lake table are known, and no other is accepted."""
    server.load(f"{table[0]}of", b'{"pk":{"S":"a"},"at":{"N":"1700000000"}}\n', "pk:S")
    # Lake tables have the types of DynamoDB, which has no times.
    times = {} if form == "delta" else {"timestamps": "at=epoch_s"}
    ddbio.scan_to_files(f"{table[0]}of", tmp_path / "rows", format=form, **times, **table[1])
    load(table, tmp_path / "rows", **times)
    assert items(table) == {"a": {"at": {"N": "1700000000"}}}
    with pytest.raises(SchemaError, match="att: no file has such a column: did you mean 'at'"):
        load(table, tmp_path / "rows", timestamps="att=epoch_s")
