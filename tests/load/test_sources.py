"""Files as units that can be read one by one: row groups, stripes, complete text files."""

import json

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import DecodeError, NotFoundError, OptionError, SchemaError
from ddbio.formats.row_files import RowFiles
from ddbio.items.reference import items_of
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.options import LoadOptions
from ddbio.load.plan import plan_write
from ddbio.load.sources import is_one_scan
from ddbio.load.unit_reader import UnitReader, describe_source, read_unit
from ddbio.options import parse_options
from ddbio.testing import FakeDynamoDB
from tests.load.file_units import FACTS, opened, read


def test_units_are_row_groups_stripes_and_files(folder):
    """Files are in the order of their names, each with its parts. Their rows are counted without reading them."""
    source = opened(folder)
    parts = [(unit.entry.path, unit.part) for unit in source.units]
    groups = [("a.parquet", 0), ("a.parquet", 1), ("a.parquet", 2), ("a.parquet", 3)]
    assert parts == [*groups, ("b.orc", 0), ("c.jsonl", 0), ("sub/d.parquet", 0)]
    assert source.rows is None
    assert opened(f"{folder}/a*").rows == 1000


@pytest.mark.parametrize(
    ("name", "paths"),
    [("a.parquet", ["a.parquet"]), ("sub", ["d.parquet"]), ("*.orc", ["b.orc"]), ("sub/d*", ["d.parquet"])],
)
def test_names_folders_and_globs(folder, name, paths):
    """A file, a folder and a glob each load only their own files."""
    assert [entry.path for entry in opened(f"{folder}/{name}").files] == paths


@pytest.mark.parametrize("name", ["out.parquet", "out.parquet/", "file://{}/out.parquet", "odd[1].jsonl", "odd*.jsonl"])
def test_folders_named_like_files_and_files_named_like_globs(tmp_path, name):
    """Spark writes a folder ``out.parquet``. A name that matches nothing as a glob is used literally."""
    (tmp_path / "out.parquet").mkdir()
    pq.write_table(pa.table({"pk": ["a"]}), tmp_path / "out.parquet" / "part-0.parquet")
    (tmp_path / "odd[1].jsonl").write_text('{"pk":"a"}\n')
    source = opened(name.format(tmp_path) if "{}" in name else f"{tmp_path}/{name}")
    assert sum(read(source, source.units).values()) == 1


def test_a_file_of_other_columns_is_named(tmp_path):
    """If no row of a file has the key, the error has the file."""
    (tmp_path / "a.jsonl").write_text('{"pk":"a"}\n')
    (tmp_path / "b.jsonl").write_text('{"v":1}\n')
    source = opened(tmp_path)
    with pytest.raises(SchemaError, match=r"b\.jsonl: the rows have no column 'pk'"):
        read(source, source.units)


def test_an_orc_file_of_no_rows_is_a_source(tmp_path):
    """A file without stripes has neither units nor a sample."""
    pa.orc.write_table(pa.table({"pk": pa.array([], pa.string())}), tmp_path / "empty.orc")
    source = opened(tmp_path)
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    assert (source.units, describe_source(source, plan).rows) == ((), 0)


def test_a_missing_file_is_an_error(tmp_path):
    """A missing file is an error before anything is written."""
    with pytest.raises(NotFoundError, match="does not exist"):
        opened(tmp_path / "absent.parquet")


def test_files_of_one_scan_have_each_key_once(tmp_path):
    """Only files in the manifest of one scan, with the target's key, are known to have each key once."""
    with FakeDynamoDB() as server:
        options = {"endpoint_url": server.endpoint_url, "region": "us-east-1"}
        server.load("rows", b'{"pk":{"S":"a"},"v":{"S":"b"}}\n{"pk":{"S":"b"},"v":{"S":"b"}}\n', "pk:S")
        ddbio.scan_to_files("rows", str(tmp_path), **options)
        assert is_one_scan(opened(tmp_path), [("pk", "S")])
        assert not is_one_scan(opened(tmp_path), [("v", "S")])
        (file,) = tmp_path.glob("*.parquet")
        assert is_one_scan(opened(file), [("pk", "S")])
        ddbio.scan_to_files("rows", str(tmp_path), mode="append", **options)
        assert not is_one_scan(opened(tmp_path), [("pk", "S")])
        assert is_one_scan(opened(file), [("pk", "S")])
        file.rename(tmp_path / "other.parquet")
        assert not is_one_scan(opened(tmp_path / "other.parquet"), [("pk", "S")])


def rows_of(source):
    """Return the rows of all units."""
    files = RowFiles(source.store)
    return [row for unit in source.units for batch in read_unit(files, unit) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.parquet", ["a.parquet"]),
        ("**.parquet", ["a.parquet", "sub/d.parquet"]),
        ("**/*.parquet", ["a.parquet", "sub/d.parquet"]),
        ("*/*.parquet", ["sub/d.parquet"]),
        ("?.parquet", ["a.parquet"]),
        ("[ab].*", ["a.parquet", "b.orc"]),
        ("[!ab].*", ["c.jsonl"]),
        ("s*", ["sub/d.parquet"]),
        ("s*/", ["sub/d.parquet"]),
        ("**/d.*", ["sub/d.parquet"]),
    ],
)
def test_a_star_stays_within_a_folder(folder, pattern, paths):
    """One star and a question mark match no slash, two stars do. A folder matches with all its files."""
    assert [f"{entry.path}" for entry in opened(f"{folder}/{pattern}").files] == paths


@pytest.fixture
def days(tmp_path):
    """Return a folder partitioned as Hive, Spark and Arrow do."""
    for number, folder in enumerate(["day=2026-11-21/n=1", "day=a%2Fb/n=20", f"day={NO_VALUE}/n={NO_VALUE}"]):
        (tmp_path / "days" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"pk": [f"{number}"]}), tmp_path / "days" / folder / "x.parquet")
    return tmp_path / "days"


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def test_folders_that_name_a_value_are_columns(days):
    """Folders named name=value are columns, numbers if all values are, unquoted. Without a value they are null."""
    source = opened(days)
    first, second, third = sorted(rows_of(source), key=lambda row: row["pk"])
    assert (first["day"], first["n"]) == ("2026-11-21", "1")
    assert (second["day"], second["n"]) == ("a/b", "20")
    assert (third["day"], third["n"]) == (None, None)
    items = [
        item for unit in source.units for batch in read_unit(RowFiles(source.store), unit) for item in items_of(batch)
    ]
    assert {"pk": {"S": "0"}, "day": {"S": "2026-11-21"}, "n": {"N": "1"}} in items
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    assert describe_source(source, plan).columns == ("pk", "day", "n")


def test_columns_of_folders_have_the_types_of_keys(days):
    """A key attribute has its own type, regardless of its values."""
    actual = {name: tag for unit in opened(days, {"n": "S", "day": "B"}).units for name, tag, _ in unit.columns}
    assert actual == {"day": "B", "n": "S"}


def test_a_column_of_the_rows_stays(days):
    """Columns of the rows are not replaced by folders of the same name."""
    pq.write_table(pa.table({"pk": ["x"], "n": [7]}), days / "day=2026-11-21/n=1" / "x.parquet")
    assert [row["n"] for row in rows_of(opened(days)) if row["pk"] == "x"] == [7]


def test_folders_may_be_left_out_or_refused(days):
    """On request, a load ignores or refuses columns of folders."""
    assert {tuple(row) for row in rows_of(opened(days, hive_partitions="ignore"))} == {("pk",)}
    with pytest.raises(OptionError, match="day, n: they are refused"):
        opened(days, hive_partitions="refuse")


def test_digests_know_the_columns_of_folders(days, tmp_path):
    """The digest of a partitioned folder is that of its rows as they would be loaded."""
    rows = {"pk": ["0", "1", "2"], "day": ["2026-11-21", "a/b", None], "n": [1, 20, None]}
    assert ddbio.digest(days) == ddbio.digest(pa.table(rows))


PLAIN, TYPED = '{"size":{"S":3}}', '{"size":{"S":"a"}}'


@pytest.mark.parametrize(
    ("text", "json_format", "row"),
    [
        (PLAIN, "plain", {"size": {"S": 3}}),
        (TYPED, "plain", {"size": {"S": "a"}}),
        (TYPED, "auto", {"size": "a", "_rescue": None}),
        (TYPED, "dynamodb", {"size": "a", "_rescue": None}),
        ('{"Items":[{"a":{"S":"x"}}],"ScannedCount":1}', "plain", {"Items": [{"a": {"S": "x"}}], "ScannedCount": 1}),
    ],
)
def test_json_has_the_stated_format(tmp_path, text, json_format, row):
    """Plain rows that look like DynamoDB JSON, and the reverse, are read in the stated format."""
    (tmp_path / "x.jsonl").write_text(text + "\n")
    source = opened(tmp_path, json_format=json_format)
    assert rows_of(source) == [row]
    assert RowFiles(source.store).sample(source.files[0], 1, json_format).batch.to_pylist() == [row]


def test_json_of_another_format_is_refused(tmp_path):
    """Plain rows with the stated format DynamoDB JSON are refused."""
    (tmp_path / "x.jsonl").write_text(PLAIN + "\n")
    with pytest.raises(DecodeError, match=r"x\.jsonl"):
        rows_of(opened(tmp_path, json_format="dynamodb"))


@pytest.mark.parametrize("name", ["x.jsonl.zst", "x.json.zst", "x.csv.zst"])
def test_zstd_is_read(tmp_path, name):
    """Text compressed by zstd, in one frame or several, is read and sampled. Truncated text is refused."""
    lines = ["a\n", *(f"{number}\n" for number in range(90_000))]
    if "json" in name:
        lines = [f'{{"a":{number}}}\n' for number in range(90_000)]
    halves = ["".join(part).encode() for part in (lines[:5], lines[5:])]
    stored = b"".join(pa.Codec("zstd").compress(half).to_pybytes() for half in halves)
    (tmp_path / name).write_bytes(stored)
    source = opened(tmp_path)
    assert [row["a"] for row in rows_of(source)] == list(range(90_000))
    assert RowFiles(source.store).sample(source.files[0], 2).batch.num_rows == 2
    (tmp_path / name).write_bytes(stored[:-20])
    with pytest.raises(DecodeError, match=name):
        rows_of(opened(tmp_path))


def test_text_that_is_written_as_it_is_has_the_columns_of_its_folders(tmp_path):
    """Lines of DynamoDB JSON, saved responses and lines after a byte order mark get the columns of folders."""
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    page, line = b'{"Items":[{"pk":{"S":"0"}}],"Count":1}', b'{"pk":{"S":"1"}}\n'
    for name, text in {"a.json": page, "b.jsonl": b"\xef\xbb\xbf" + line, "n=1/c.jsonl": line}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    source = opened(tmp_path)
    actual = list(UnitReader(source.store, plan).read(source.units, lambda *_: None))
    items = [batch for batch in actual if not isinstance(batch, Checkpoint)]
    assert items[0].to_pylist() == [{"pk": "0", "_rescue": None}]
    assert json.loads(items[1].item_text(0)) == {"pk": {"S": "1"}}
    assert items[2].to_pylist() == [{"pk": "1", "n": "1", "_rescue": None}]
