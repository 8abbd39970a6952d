"""Rejected rows are stored completely, in either format, and can be retried."""

import gzip
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import DecodeError, NotFoundError, OptionError, PartialWriteError, SchemaError
from ddbio.jobs.rejected_rows import RejectedRow, item_text
from ddbio.load.options import LoadOptions, WriteOptions
from ddbio.load.plan import WritePlan
from ddbio.load.rejects import RejectWriter, read_rejects
from ddbio.testing import FakeDynamoDB

ROWS = pa.table({"pk": ["a", "", "b", "", "c"], "sk": [1, 2, 3, 4, 5], "v": ["x", "y", None, "zü", "w"]})


@pytest.fixture
def server():
    """Serve one empty table ``rows`` with the key pk, sk."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S,sk:N")
        yield running


def mend(folder):
    """Give every rejected row a key, as a user would with an editor."""
    for path in folder.glob("rejects-*.jsonl"):
        path.write_text(path.read_text().replace('"pk":{"S":""}', '"pk":{"S":"mended"}'))


BAD_ROWS = {
    "key_missing": {"pk": pa.array([None], pa.string())},
    "key_empty": {"pk": pa.array([""])},
    "key_length": {"pk": pa.array(["x" * 2049])},
    "item_size": {"v": pa.array(["x" * 409_600])},
    "number": {"v": pa.array([float("nan")])},
    "empty_set": {"v": pa.array([[]], pa.list_(pa.string())), "tag": "SS"},
    "duplicate": {"v": pa.array([["1", "1.0"]]), "tag": "NS"},
    "null_in_set": {"v": pa.array([["x", None]]), "tag": "SS"},
    "depth": {"v": pa.array(['{"L":[' * 32 + "]}" * 32]), "tag": "JSON"},
    "name": {"v": pa.array(['{"M":{"":{"S":"x"}}}']), "tag": "JSON"},
    "json": {"v": pa.array(["{"]), "tag": "JSON"},
}


@pytest.mark.parametrize("rule", BAD_ROWS)
def test_every_rule_rejects_its_row_alone(server, tmp_path, rule):
    """A row that breaks a rule is stored with the rule's name, and the other rows are written."""
    columns = {"pk": pa.array(["bad"]), "sk": pa.array([1]), "v": pa.array(["x"]), "tag": "S", **BAD_ROWS[rule]}
    metadata = {"v": {"ddb:type": columns.pop("tag")}} if "tag" in BAD_ROWS[rule] else {}
    columns.pop("tag", None)
    schema = pa.schema([pa.field(name, column.type, metadata=metadata.get(name)) for name, column in columns.items()])
    bad = pa.Table.from_arrays(list(columns.values()), schema=schema)
    good = pa.table({"pk": ["good", "fine"], "sk": [1, 2]})
    options = {"endpoint_url": server.endpoint_url, "reject_to": str(tmp_path)}
    report = ddbio.write_table([*bad.to_batches(), *good.to_batches()], "rows", **options)
    assert (report.written, report.rejected) == (2, 1)
    (path,) = tmp_path.glob("rejects-*.jsonl")
    stored = json.loads(path.read_text())
    assert (stored["row"], stored["rule"]) == (0, rule)


def test_parquet_has_a_column_for_each_part(server, tmp_path):
    """Rejects as Parquet have number, rule, reason and item as columns."""
    options = {"endpoint_url": server.endpoint_url, "reject_to": str(tmp_path), "reject_format": "parquet"}
    report = ddbio.write_table(ROWS, "rows", **options)
    assert (report.written, report.rejected, report.rejects_uri) == (3, 2, str(tmp_path))
    (path,) = tmp_path.glob("rejects-*.parquet")
    stored = pq.read_table(path)
    assert stored.schema.names == ["row", "file", "file_row", "line", "rule", "reason", "item"]
    assert stored.column("row").to_pylist() == [1, 3]
    assert json.loads(stored.column("item")[1].as_py()) == {"pk": {"S": ""}, "sk": {"N": "4"}, "v": {"S": "zü"}}


@pytest.mark.parametrize("mode", ["upsert", "delete"])
def test_rejects_name_their_file_and_the_row_in_it(server, tmp_path, mode):
    """Each rejected row of a load has its origin, for any order of reading row groups and files."""
    keys = [f"{n:04}" if n % 97 else "" for n in range(1000)]
    source = tmp_path / "rows"
    source.mkdir()
    pq.write_table(pa.table({"pk": keys, "sk": range(1000)}), source / "a.parquet", row_group_size=130)
    lines = [json.dumps({"pk": {"S": key}, "sk": {"N": str(n)}}) for n, key in enumerate(keys)]
    (source / "b.jsonl").write_text("\n".join(lines))
    (source / "c.csv").write_text("pk,sk\nx,1\ny,2\nz,0x\n")
    options = {"endpoint_url": server.endpoint_url, "mode": mode, "reject_to": str(tmp_path / "rejects")}
    report = ddbio.load_files(str(source), "rows", **options)
    stored = [
        json.loads(line) for path in (tmp_path / "rejects").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    actual = sorted((row["file"].removeprefix(f"{source}/"), row["file_row"]) for row in stored)
    bad = range(0, 1000, 97)
    assert actual == [*(("a.parquet", row) for row in bad), *(("b.jsonl", row) for row in bad), ("c.csv", 2)]
    assert all(row["item"]["sk"] == {"N": str(row["file_row"])} for row in stored if "c.csv" not in row["file"])
    assert report.rejected == len(stored)
    message = rf"cannot be written to table 'rows' \({source}/a.parquet, row 0\): key_empty"
    with pytest.raises(PartialWriteError, match=message):
        ddbio.load_files(str(source / "a.parquet"), "rows", endpoint_url=server.endpoint_url)


def csv_of(keys):
    """Return CSV whose cells have line ends, with an empty line, and the line of each record."""
    text, lines = "pk,sk,note\n\n", []
    for number, key in enumerate(keys):
        lines.append(text.count("\n") + 1)
        text += f'{key},{number},"' + "\n" * (number % 3) + '"\n'
    return text, lines


def json_of(keys, *, typed, indent=None, packed=False):
    """Return rows as JSON, over several lines each or some of them on one, and the line of each."""
    text, lines = "", []
    for number, key in enumerate(keys):
        lines.append(text.count("\n") + 1)
        row = {"pk": {"S": key}, "sk": {"N": str(number)}} if typed else {"pk": key, "sk": number}
        text += json.dumps(row, indent=indent) + ("" if packed and number % 2 else "\n\n" if number % 5 == 0 else "\n")
    return text, lines


TEXTS = {
    "quoted.csv": csv_of,
    "plain.jsonl": lambda keys: json_of(keys, typed=False),
    "indented.json": lambda keys: json_of(keys, typed=False, indent=1),
    "packed.json": lambda keys: json_of(keys, typed=False, packed=True),
    "typed.jsonl": lambda keys: json_of(keys, typed=True),
    "typed-indented.json": lambda keys: json_of(keys, typed=True, indent=2),
    "typed-packed.json": lambda keys: json_of(keys, typed=True, packed=True),
}


@pytest.mark.parametrize("mode", ["upsert", "update"])
def test_rejects_name_their_line(server, tmp_path, mode):
    """Each rejected row of text has its first line, for any number of lines per row. An error also has it."""
    keys, source = [f"{n:03}" if n % 7 else "" for n in range(200)], tmp_path / "rows"
    source.mkdir()
    expected = set()
    for name, make in TEXTS.items():
        text, lines = make(keys)
        packed = gzip.compress(text.encode()) if "typed" in name else text.encode()
        (source / name).with_suffix(".json.gz" if "typed" in name else source.joinpath(name).suffix).write_bytes(packed)
        stored = name.rpartition(".")[0] + ".json.gz" if "typed" in name else name
        expected |= {(stored, row, lines[row]) for row in range(0, 200, 7)}
    options = {"endpoint_url": server.endpoint_url, "mode": mode}
    ddbio.load_files(str(source), "rows", reject_to=str(tmp_path / "rejects"), **options)
    paths = (tmp_path / "rejects").glob("*.jsonl")
    kept = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert {(row["file"].removeprefix(f"{source}/"), row["file_row"], row["line"]) for row in kept} == expected
    with pytest.raises(PartialWriteError, match=r"\(.*/quoted\.csv, line 3\): key_empty"):
        ddbio.load_files(str(source / "quoted.csv"), "rows", **options)


def test_the_failure_counts_accepted_rows(server):
    """Without reject_to the error has the refused row and the counts."""
    with pytest.raises(PartialWriteError, match=r"row 1 cannot be written.*the key is empty.*, 2 rejected") as caught:
        ddbio.write_table(ROWS, "rows", endpoint_url=server.endpoint_url)
    assert (caught.value.rejected, caught.value.rejects_uri) == (2, None)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_more_rejects_than_allowed_fail_the_job(server, tmp_path, most):
    """The allowed number is a success. One more ends the job, and is stored like the others."""
    options = {"endpoint_url": server.endpoint_url, "reject_to": str(tmp_path), "max_rejects": most}
    batches = [batch for row in range(ROWS.num_rows) for batch in ROWS.slice(row, 1).to_batches()]
    if most == 2:
        assert ddbio.write_table(batches, "rows", **options).rejected == 2
    else:
        with pytest.raises(PartialWriteError, match=rf"max_rejects is {most}") as caught:
            ddbio.write_table(batches, "rows", **options)
        assert (caught.value.rejected, caught.value.rejects_uri) == (most + 1, str(tmp_path))
    (path,) = tmp_path.glob("rejects-*.jsonl")
    assert len(path.read_text().splitlines()) == min(2, most + 1)


def test_a_bound_of_rejects_needs_reject_to(server):
    """Without reject_to the first one fails the job, for any bound."""
    with pytest.raises(OptionError, match="max_rejects needs reject_to"):
        ddbio.write_table(ROWS, "rows", endpoint_url=server.endpoint_url, max_rejects=5)


def test_rejects_are_kept_when_the_job_fails(server, tmp_path):
    """A job that ends later with another error has written its rejects, and the error has their number and location."""

    def batches():
        yield from ROWS.to_batches()
        yield pa.record_batch({"other": [1]})

    with pytest.raises(SchemaError, match=rf"2 rejected rows are in {tmp_path}"):
        ddbio.write_table(batches(), "rows", endpoint_url=server.endpoint_url, reject_to=str(tmp_path))
    (path,) = tmp_path.glob("rejects-*.jsonl")
    assert len(path.read_text().splitlines()) == 2


def test_corrected_rows_are_written(server, tmp_path):
    """A retry writes the fixed rows, rejects the others again, and moves the files that it has tried."""
    bad, worse = tmp_path / "bad", tmp_path / "worse"
    ddbio.write_table(ROWS, "rows", endpoint_url=server.endpoint_url, reject_to=str(bad))
    options = {"endpoint_url": server.endpoint_url, "retry_rejects": True}
    still = ddbio.load_files(bad, "rows", reject_to=str(worse), **options)
    assert (still.rows, still.written, still.rejected) == (2, 0, 2)
    assert [path.parent.name for path in bad.rglob("rejects-*")] == ["_retried"]
    mend(worse)
    assert ddbio.load_files(worse, "rows", **options).written == 2
    rows = ddbio.read_table("rows", endpoint_url=server.endpoint_url).to_pylist()
    assert {(row["sk"], row["v"]) for row in rows if row["pk"] == "mended"} == {(2, "y"), (4, "zü")}
    with pytest.raises(NotFoundError, match="holds no rejects"):
        ddbio.load_files(worse, "rows", **options)


def test_parquet_rejects_are_tried_again(server, tmp_path):
    """Rejects as Parquet are retried the same way."""
    options = {"endpoint_url": server.endpoint_url, "reject_to": str(tmp_path), "reject_format": "parquet"}
    ddbio.write_table(ROWS, "rows", **options)
    report = ddbio.load_files(tmp_path, "rows", retry_rejects=True, **options)
    assert (report.rows, report.rejected) == (2, 2)
    assert len(list(tmp_path.glob("rejects-*"))) == 1


LACKING = {
    "r": ["no object", {"pk": "a"}],
    "key_missing": [{"v": {"S": "x"}}, {"pk": {"NULL": True}, "sk": {"N": "1"}}],
    "key_type": [{"pk": {"N": "1"}, "sk": {"N": "1"}}],
    "newer_by": [{"pk": {"S": "b"}, "sk": {"N": "1"}, "op": {"S": "put"}}],
    "operation": [{"pk": {"S": "b"}, "sk": {"N": "1"}, "at": {"N": "1"}}],
}


@pytest.mark.parametrize("rule", LACKING)
def test_rows_that_all_lack_something_are_rejected_again(server, tmp_path, rule):
    """If no row has the key, or each has one of another type, each is rejected separately, and others are written."""
    options = {"newer_by": "at", "operation_by": "op", "endpoint_url": server.endpoint_url}
    good = {"pk": {"S": "a"}, "sk": {"N": "1"}, "at": {"N": "1"}, "op": {"S": "put"}}
    for name, items in (("1", LACKING[rule]), ("2", [good])):
        lines = [json.dumps({"row": n, "rule": "r", "reason": "why", "item": item}) for n, item in enumerate(items)]
        (tmp_path / f"rejects-{name}-0000.jsonl").write_text("\n".join(lines))
    report = ddbio.load_files(tmp_path, "rows", retry_rejects=True, reject_to=str(tmp_path / "again"), **options)
    assert (report.written, report.rejected) == (1, len(LACKING[rule]))
    (path,) = (tmp_path / "again").glob("*.jsonl")
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["rule"], row["item"]) for row in stored] == [(rule, item) for item in LACKING[rule]]


def test_rows_are_tried_again_in_their_order(server, tmp_path):
    """Of rows of one key the last of the source wins, in any order of rejection."""
    items = [{"pk": {"S": "a"}, "sk": {"N": "1"}, "v": {"N": str(n)}} for n in range(3)]
    lines = [json.dumps({"row": n, "rule": "r", "reason": "why", "item": items[n]}) for n in (2, 0, 1)]
    (tmp_path / "rejects-1-0000.jsonl").write_text("\n".join(lines))
    ddbio.load_files(tmp_path, "rows", retry_rejects=True, endpoint_url=server.endpoint_url)
    assert ddbio.read_table("rows", endpoint_url=server.endpoint_url).column("v").to_pylist() == [2]


def test_files_are_retried_in_the_order_of_their_start(server, tmp_path):
    """Of rows of one key in several files, and of several runs, the last rejected one wins."""
    began = ["20261121T000000000001-ffffffff", "20261121T000000000002-00000000"]
    for version, name in enumerate([f"{began[0]}-000000", f"{began[0]}-000001", f"{began[1]}-000000"]):
        item = {"pk": {"S": "a"}, "sk": {"N": "1"}, "v": {"N": str(version)}}
        line = json.dumps({"row": 9 - version, "rule": "r", "reason": "why", "item": item})
        (tmp_path / f"rejects-job-{name}.jsonl").write_text(line)
    assert ddbio.load_files(tmp_path, "rows", retry_rejects=True, endpoint_url=server.endpoint_url).written == 3
    assert ddbio.read_table("rows", endpoint_url=server.endpoint_url).column("v").to_pylist() == [2]


def test_names_sort_in_the_order_of_their_start(tmp_path):
    """For any random part of the names, files of later runs and of higher numbers come later."""
    options = WriteOptions(table="rows", reject_to=str(tmp_path))
    written = []
    for _ in range(5):
        rejects = RejectWriter(options, "job")
        for row in range(12):
            rejects.add([RejectedRow(row, "r", "why", "{}")])
            rejects.flush()
            written += [path.name for path in tmp_path.glob("rejects-*") if path.name not in written]
    assert written == sorted(written)


def test_a_file_is_moved_after_its_rejects_are_stored(tmp_path):
    """A kill in between leaves a row twice, never nowhere."""
    line = json.dumps({"row": 0, "rule": "r", "reason": "why", "item": {"pk": {"S": "a"}}})
    path = tmp_path / "rejects-job-1-0-000000.jsonl"
    path.write_text(line)
    options = LoadOptions(source=str(tmp_path), table="rows", retry_rejects=True)
    plan = WritePlan("rows", (("pk", "S"),), "upsert", None, None, 1, None)
    was_there = []
    _, checkpoint = read_rejects(options, plan, lambda: was_there.append(path.exists()))
    assert (was_there, path.exists()) == ([], True)
    checkpoint.reached()
    assert (was_there, path.exists()) == ([True], False)
    assert (tmp_path / "_retried" / path.name).read_text() == line


def test_unsupported_values_are_never_written(server, tmp_path):
    """A value that DynamoDB does not support is stored as text.

    A retry rejects it again and does not write the text.
    """
    table = pa.table({"pk": ["a", "b"], "sk": [1, 2], "v": [math.nan, 1.5]})
    ddbio.write_table(table, "rows", endpoint_url=server.endpoint_url, reject_to=str(tmp_path / "bad"))
    options = {"endpoint_url": server.endpoint_url, "retry_rejects": True, "reject_to": str(tmp_path / "worse")}
    report = ddbio.load_files(tmp_path / "bad", "rows", **options)
    assert (report.rows, report.written, report.rejected) == (1, 0, 1)
    (path,) = (tmp_path / "worse").glob("rejects-*.jsonl")
    assert json.loads(path.read_text())["item"]["v"] == {"N": "nan"}


def test_retried_updates_change_only_attributes_of_their_rows(server, tmp_path):
    """Rows with different columns are tried separately: a missing column removes nothing."""
    ddbio.write_table(ROWS.slice(0, 1), "rows", endpoint_url=server.endpoint_url)
    keys = [{"pk": {"S": pk}, "sk": {"N": "1"}} for pk in "ad"]
    items = [keys[0] | {"w": {"N": "7"}}, keys[1] | {"v": {"S": "y"}}]
    lines = [json.dumps({"row": n, "rule": "r", "reason": "w", "item": item}) for n, item in enumerate(items)]
    (tmp_path / "rejects-job-1-0000.jsonl").write_text("\n".join(lines))
    options = {"endpoint_url": server.endpoint_url, "retry_rejects": True, "mode": "update"}
    assert ddbio.load_files(tmp_path, "rows", **options).written == 2
    rows = ddbio.read_table("rows", endpoint_url=server.endpoint_url).to_pylist()
    assert {row["pk"]: (row["v"], row["w"]) for row in rows} == {"a": ("x", 7), "d": ("y", None)}


def test_a_null_of_an_item_is_a_value(server, tmp_path):
    """Lines of DynamoDB JSON, and retried rejects, are written with their NULLs."""
    item = {"pk": {"S": "a"}, "sk": {"N": "1"}, "v": {"NULL": True}}
    (tmp_path / "items.jsonl").write_text(json.dumps(item))
    (tmp_path / "bad").mkdir()
    reject = {"row": 0, "rule": "r", "reason": "w", "item": item | {"sk": {"N": "2"}}}
    (tmp_path / "bad" / "rejects-job-1-0000.jsonl").write_text(json.dumps(reject))
    options = {"endpoint_url": server.endpoint_url}
    assert ddbio.load_files(tmp_path / "items.jsonl", "rows", **options).written == 1
    assert ddbio.load_files(tmp_path / "bad", "rows", retry_rejects=True, **options).written == 1
    rows = ddbio.read_table("rows", nulls="keep", **options).to_pylist()
    assert [row["_rescue"] for row in rows] == ['{"v":{"NULL":true}}'] * 2


def test_a_file_without_rejects_is_an_error(server, tmp_path):
    """A file of that name with other content is an error with its name. A job id is invalid for a retry."""
    (tmp_path / "rejects-job-1-0000.jsonl").write_text('{"a": 1}\n')
    options = {"endpoint_url": server.endpoint_url, "retry_rejects": True}
    with pytest.raises(DecodeError, match=r"rejects-job-1-0000\.jsonl holds no rejects"):
        ddbio.load_files(tmp_path, "rows", **options)
    with pytest.raises(OptionError, match="leave job_id and state out"):
        ddbio.load_files(tmp_path, "rows", job_id="x", **options)


@pytest.mark.parametrize(
    ("column", "member"),
    [
        (pa.array([None], pa.int64()), ""),
        (pa.array([[1, 2]]), '"v":{"L":[{"N":"1"},{"N":"2"}]}'),
        (pa.array([b"\xff"]), '"v":{"B":"/w=="}'),
        (pa.array([{"a": math.inf}]), '"v":{"N":"{\'a\': inf}"}'),
        (pa.array([b"\xff"]).view(pa.string()), '"v":{"N":"b\'\\\\xff\'"}'),
        (pa.array([2**62]).cast(pa.timestamp("s")), f'"v":{{"N":"{2**62}"}}'),
        (pa.array([2**31 - 1], pa.int32()).view(pa.date32()), f'"v":{{"N":"{2**31 - 1}"}}'),
        (
            pa.array([{"a": b"\xff"}]).cast(pa.struct([("a", pa.binary())])).view(pa.struct([("a", pa.string())])),
            '"v":{"N":"struct<a: string> that no text shows"}',
        ),
    ],
)
def test_a_row_is_dynamodb_json(column, member):
    """Every supported value is stored. Null is missing, or NULL on request."""
    row = pa.record_batch({"v": column})
    assert item_text(row, nulls=False) == f"{{{member}}}"
    assert item_text(row, nulls=True) == (f"{{{member}}}" if member else '{"v":{"NULL":true}}')
