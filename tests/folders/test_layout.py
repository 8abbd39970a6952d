"""``layout``: from footers and sizes, in Python and on the command line."""

import json

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli

TABLE = pa.table(
    {"pk": [f"k{n}" for n in range(100)], "a.b": range(100), "m": [{"x": n, "y": {"z": "é"}} for n in range(100)]}
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Write three partitions: Parquet of several row groups, and one with a long footer."""
    root = tmp_path_factory.mktemp("dataset")
    for day in ("1", "a%2Fb", "__HIVE_DEFAULT_PARTITION__"):
        (root / f"day={day}").mkdir()
        pq.write_table(TABLE, root / f"day={day}" / "rows.parquet", row_group_size=40)
    wide = pa.table({f"a_column_with_a_long_name_{n:04}": [n] for n in range(1000)})
    pq.write_table(wide, root / "day=1" / "wide.parquet")
    (root / "_SUCCESS").touch()
    return root


def test_footers_have_rows_groups_and_columns(dataset):
    """Sums are those of pyarrow's own reading of each footer, with nested columns as one."""
    report = ddbio.layout(dataset, small_than="10KiB")
    footers = [pq.read_metadata(path) for path in sorted(dataset.rglob("*.parquet"))]
    assert (report.files, report.rows) == (4, 301)
    assert report.bytes == sum(path.stat().st_size for path in dataset.rglob("*.parquet"))
    assert report.row_groups == sum(footer.num_row_groups for footer in footers) == 10
    assert report.small_file_ratio == 0.75
    three = pq.read_metadata(dataset / "day=a%2Fb" / "rows.parquet")
    assert [three.schema.column(index).path for index in (2, 3)] == ["m.x", "m.y.z"]
    columns = {column.name: column for column in report.columns}
    assert {"pk", "a.b", "m"} <= set(columns)
    group = [three.row_group(number) for number in range(3)]
    stored = sum(row_group.column(index).total_compressed_size for row_group in group for index in (2, 3))
    assert columns["m"].bytes == 3 * stored


def test_partitions_are_named_by_their_values(dataset):
    """Values are unescaped, and the null partition is null."""
    report = ddbio.layout(dataset)
    assert {partition.partition["day"]: (partition.files, partition.rows) for partition in report.partitions} == {
        "1": (2, 101), "a/b": (1, 100), None: (1, 100),
    }  # fmt: skip
    assert report.skew > 1


def test_other_formats_have_sizes(tmp_path):
    """ORC has a footer; for text only the size is known."""
    pyarrow.orc.write_table(TABLE.select(["pk"]), tmp_path / "a.orc")
    assert ddbio.layout(tmp_path).rows == 100
    assert ddbio.layout(tmp_path / "a.orc").row_groups == 1
    (tmp_path / "b.csv").write_text("pk\nx\n")
    report = ddbio.layout(tmp_path)
    assert (report.files, report.rows, report.formats) == (2, None, {"csv": 1, "orc": 1})


def test_what_cannot_be_reported_is_named(tmp_path):
    """An empty folder and a damaged footer are errors with their names."""
    with pytest.raises(ddbio.NotFoundError, match="no file of rows"):
        ddbio.layout(tmp_path)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ddbio.DecodeError, match=r"torn\.parquet"):
        ddbio.layout(tmp_path)


def test_command_prints_a_table_or_json_and_writes_pages(dataset, tmp_path):
    """The keys for scripts are printed; HTML and PNG are also written."""
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    done = CliRunner().invoke(cli, ["layout", str(dataset), "--json", "--html", str(page), "--png", str(picture)])
    printed = json.loads(done.stdout)
    assert {"files", "bytes", "rows", "small_file_ratio", "histogram", "partitions"} <= set(printed)
    assert (printed["files"], printed["histogram"][0]["files"]) == (4, 4)
    assert page.read_text("utf-8").count("<svg") == 3
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = CliRunner().invoke(cli, ["layout", str(dataset)]).stdout
    assert "day=a/b" in shown
    assert "301 rows" in shown
