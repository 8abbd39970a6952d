"""Files for imports: the items of the rows, each key once, in random order, completely or not at all."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cli.main import cli
from ddbio.errors import DdbioError, EncodeError, OptionError, TargetError
from ddbio.testing import FakeDynamoDB

KEY = "pk:S,sk:N"


def rows(first, last, version=0):
    """Return rows with different keys."""
    numbers = range(first, last)
    return pa.table(
        {
            "pk": [f"user-{number // 10}" for number in numbers],
            "sk": list(numbers),
            "version": [version] * len(numbers),
            "text": [f"{number:x}" * 20 for number in numbers],
        }
    )


def items_in(uri, open_=None):
    """Return the decompressed items of all files, in the order of their names."""
    result = []
    for path in sorted(uri.iterdir()):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            data = pa.CompressedInputStream(pa.py_buffer(data), "zstd").read()
        result += [json.loads(line)["Item"] for line in data.splitlines()]
    return result


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_every_row_is_an_item_once(tmp_path, compression):
    """The files have the rows' items in another order, and the manifest is outside of their folder."""
    report = ddbio.write_import_files(
        rows(0, 5000), tmp_path / "out", key=KEY, compression=compression, target_file_bytes=100_000, digest=True
    )
    items = items_in(tmp_path / "out/data")
    numbers = [int(item["sk"]["N"]) for item in items]
    assert sorted(numbers) == list(range(5000))
    assert numbers != sorted(numbers)
    assert (report.rows, report.items, report.duplicates) == (5000, 5000, 0)
    assert 5 < len(report.files) == len(list((tmp_path / "out/data").iterdir())) < 20
    assert report.json_bytes == sum(len(json.dumps({"Item": item}, separators=(",", ":"))) + 1 for item in items)
    assert report.digest == ddbio.digest(rows(0, 5000))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"data", "_ddbio"}
    assert report.uri == f"{tmp_path}/out/data"


def test_files_of_any_format_become_files(tmp_path):
    """Parquet in several files and row groups is read completely, and a CSV's key gets its type."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        pq.write_table(rows(number * 100, number * 100 + 100), tmp_path / f"in/{number}.parquet", row_group_size=30)
    (tmp_path / "in/more.csv").write_text("pk,sk,other\n1,1000,x\n2,1001,y\n")
    report = ddbio.write_import_files(tmp_path / "in", tmp_path / "out", key=KEY)
    items = items_in(tmp_path / "out/data")
    assert report.items == len(items) == 302
    assert {"pk": {"S": "1"}, "sk": {"N": "1000"}, "other": {"S": "x"}} in items


@pytest.mark.parametrize(("duplicates", "version"), [("first", "1"), ("last", "2")])
@pytest.mark.parametrize("as_files", [False, True])
def test_one_of_equal_keys_is_kept(tmp_path, duplicates, version, as_files):
    """The first or the last of rows with one key is written, at any position."""
    source = pa.concat_tables([rows(0, 300, 1), rows(100, 400, 2)])
    if as_files:
        (tmp_path / "in").mkdir()
        pq.write_table(source.slice(0, 450), tmp_path / "in/a.parquet", row_group_size=70)
        pq.write_table(source.slice(450), tmp_path / "in/b.parquet", row_group_size=70)
        source = tmp_path / "in"
    report = ddbio.write_import_files(
        source, tmp_path / "out", key=KEY, duplicates=duplicates, target_file_bytes=65536, digest=True
    )
    items = items_in(tmp_path / "out/data")
    kept = {int(item["sk"]["N"]): item["version"]["N"] for item in items}
    assert len(items) == len(kept) == report.items == 400
    assert {kept[number] for number in range(100, 300)} == {version}
    assert report.duplicates == 200
    shared = rows(100, 300, int(version))
    assert report.digest == ddbio.digest(pa.concat_tables([rows(0, 100, 1), shared, rows(300, 400, 2)]))


@pytest.mark.parametrize("gap", [1, 5000])
def test_equal_keys_are_refused_and_nothing_is_left(tmp_path, gap):
    """A repeated key, near or far, fails the job with the key, and the target is unchanged."""
    source = pa.concat_tables([rows(0, 10), rows(10, 10 + gap), rows(3, 4)])
    with pytest.raises(EncodeError, match=r'user-0.*"3"'):
        ddbio.write_import_files(source, tmp_path / "out", key=KEY, target_file_bytes=65536)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"pk": ["a", None]}, "key is missing"), ({"pk": ["a", ""]}, "empty"), ({"text": ["", "x" * 500_000]}, "409,600")],
    ids=str,
)
def test_a_row_that_is_no_item_is_refused_and_nothing_is_left(tmp_path, change, words):
    """Items that would fail the import are an error with their row."""
    source = pa.table({"pk": ["a", "b"], "sk": [1, 2], "text": ["", ""]} | change)
    with pytest.raises(EncodeError, match=f"row 1 as read.*{words}"):
        ddbio.write_import_files(source, tmp_path / "out", key=KEY)
    assert not (tmp_path / "out").exists()


def test_a_target_in_use_is_left_alone(tmp_path):
    """Another job's files would also be imported. They are refused, or replaced on request."""
    ddbio.write_import_files(rows(0, 10), tmp_path / "out", key=KEY)
    with pytest.raises(TargetError, match="not empty"):
        ddbio.write_import_files(rows(10, 30), tmp_path / "out", key=KEY)
    ddbio.write_import_files(rows(10, 30), tmp_path / "out", key=KEY, mode="overwrite")
    assert len(items_in(tmp_path / "out/data")) == 20


def test_overwriting_never_deletes_the_source(tmp_path):
    """A target that has the rows' own file is refused, and the file is kept."""
    pq.write_table(rows(0, 10), tmp_path / "rows.parquet")
    with pytest.raises(TargetError, match=r"rows.parquet, which mode overwrite would delete"):
        CliRunner().invoke(
            cli,
            ["import", "files", f"{tmp_path}/*.parquet", str(tmp_path), "--key", KEY, "--mode", "overwrite"],
            catch_exceptions=False,
        )
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows == 10


def test_the_key_comes_from_a_table(tmp_path):
    """With like, the key is that of another table or of its description. Without key and like nothing is started."""
    with FakeDynamoDB() as fake:
        fake.load("orders", b"", KEY)
        report = ddbio.write_import_files(
            rows(0, 10), tmp_path / "out", like="orders", endpoint_url=fake.endpoint_url, region="us-east-1"
        )
        client = ClientSpec(endpoint_url=fake.endpoint_url, region="us-east-1").client("dynamodb")
        described = client.describe_table(TableName="orders")
    assert report.key == KEY
    (tmp_path / "orders.json").write_text(json.dumps(described, default=str))
    like = str(tmp_path / "orders.json")
    assert ddbio.write_import_files(rows(0, 10), tmp_path / "of-file", like=like).key == KEY
    (tmp_path / "orders.json").write_text("[]")
    with pytest.raises(OptionError, match="DescribeTable"):
        ddbio.write_import_files(rows(0, 10), tmp_path / "of-nothing", like=like)
    with pytest.raises(OptionError, match="key"):
        ddbio.write_import_files(rows(0, 10), tmp_path / "other")


def test_the_command_line_writes_files(tmp_path):
    """The verb prints its report as JSON or text. A dry run prints the same and writes nothing."""
    pq.write_table(rows(0, 50), tmp_path / "in.parquet")
    words = ["import", "files", str(tmp_path / "in.parquet"), str(tmp_path / "out"), "--key", KEY]
    checked = json.loads(CliRunner().invoke(cli, [*words, "--dry-run", "--json"], catch_exceptions=False).stdout)
    assert (checked["items"], checked["files"], (tmp_path / "out").exists()) == (50, [], False)
    report = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)
    assert {**checked, **dict.fromkeys(("files", "job_id", "layout", "seconds", "cpu_seconds", "actual"))} == {
        **report,
        **dict.fromkeys(("files", "job_id", "layout", "seconds", "cpu_seconds", "actual")),
    }
    assert (report["items"], report["compression"]) == (50, "zstd")
    assert report["planned"]["bytes"] == report["actual"]["bytes"] == (tmp_path / "in.parquet").stat().st_size
    shown = CliRunner().invoke(cli, [*words, "--mode", "overwrite"], catch_exceptions=False).stdout
    assert "50 of 50 rows" in shown


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (["day", ""], "row 1 as read: day: "),
        (["day", "x" * 2049], "row 1 as read: day: the key of index 'by_day' has more than 2,048 bytes"),
        ([1, 2], "the key of index 'by_day' is N"),
    ],
)
def test_keys_of_indexes_are_checked(tmp_path, column, match):
    """An empty, too long or differently typed key of an index is an error with its row. A missing one is allowed."""
    table = pa.table({"pk": ["a", "b"], "day": column})
    with pytest.raises(DdbioError, match=match):
        ddbio.write_import_files(table, tmp_path / "no", key="pk:S", gsi="by_day=day:S,pk:S")
    assert not (tmp_path / "no").exists()
    sparse = pa.table({"pk": ["a", "b"], "day": ["x", None]})
    report = ddbio.write_import_files(sparse, tmp_path / "out", key="pk:S", gsi="by_day=day:S,pk:S")
    assert (report.items, report.gsi) == (2, ("by_day=day:S,pk:S",))


def test_objects_of_csv_have_one_header(tmp_path):
    """Each object starts with the same header. Batches of other columns are refused, and equal keys are shown."""
    table = pa.table({"pk": [f"k{n}" for n in range(9000)], "text": ["x" * 20] * 9000})
    ddbio.write_import_files(
        table, tmp_path / "out", key="pk:S", format="csv", compression="none", target_file_bytes=64 * 1024
    )
    texts = [path.read_text() for path in (tmp_path / "out/data").iterdir()]
    assert len(texts) > 2
    assert {text.splitlines()[0] for text in texts} == {"pk,text"}
    assert sum(text.count("\n") - 1 for text in texts) == 9000
    other = pa.RecordBatch.from_pydict({"pk": ["z"], "more": ["y"]})
    with pytest.raises(OptionError, match="same columns"):
        ddbio.write_import_files([table.to_batches()[0], other], tmp_path / "no", key="pk:S", format="csv")
    with pytest.raises(EncodeError, match=r'two rows have the key \{"pk": \{"S": "k1"\}\}'):
        ddbio.write_import_files(pa.table({"pk": ["k1", "k1"]}), tmp_path / "no", key="pk:S", format="csv")
