"""``layout``: from footers and sizes, in Python and on the command line."""

import json
import random

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


def test_a_query_scans_the_chunks_of_its_columns(dataset):
    """All columns, two columns and one partition have the compressed bytes of pyarrow's own footers."""
    report = ddbio.layout(dataset, columns="pk,m,day", partition="day=a/b")
    everything, part = report.queries
    footers = {path: pq.read_metadata(path) for path in dataset.rglob("*.parquet")}
    chunks = [
        (path, chunk.path_in_schema.split(".")[0], chunk.total_compressed_size)
        for path, footer in footers.items()
        for group in range(footer.num_row_groups)
        for chunk in map(footer.row_group(group).column, range(footer.num_columns))
    ]
    assert (everything.columns, everything.partition, everything.files) == (None, {}, 4)
    assert everything.bytes == sum(size for _, _, size in chunks)
    assert (part.columns, part.partition, part.files) == (("pk", "m", "day"), {"day": "a/b"}, 1)
    expected = [size for path, name, size in chunks if "a%2Fb" in str(path) and name in {"pk", "m"}]
    assert part.bytes == sum(expected) < everything.bytes


def test_a_query_costs_the_price_of_its_megabytes(tmp_path):
    """A query is billed for at least 10 MB, and for started megabytes, at the price of the book."""
    (tmp_path / "small.csv").write_bytes(b"a\n")
    least = ddbio.layout(tmp_path).queries[0]
    assert least.athena_usd == least.spectrum_usd == pytest.approx(5 * 10 / 1024**2)
    (tmp_path / "large.csv").write_bytes(bytes(11 * 1024**2))
    assert ddbio.layout(tmp_path).queries[0].athena_usd == pytest.approx(5 * 12 / 1024**2)
    price = {"usd": 7, "per": 1, "unit": "TB", "usage_type": "x", "source": "y", "date": "2026-11-01"}
    (tmp_path.parent / "book.json").write_text(json.dumps({"region": "r", "prices": {"athena_scan": price}}))
    other = ddbio.layout(tmp_path, prices=str(tmp_path.parent / "book.json"), region="r")
    assert (other.queries[0].athena_usd, other.queries[0].spectrum_usd) == (pytest.approx(7 * 12 / 1024**2), None)
    assert other.notes == ()


@pytest.mark.parametrize("compression", ["UNCOMPRESSED", "ZLIB", "SNAPPY", "LZ4", "ZSTD"])
def test_a_query_scans_the_streams_of_orc(tmp_path, compression):
    """A column has the streams of all its members, in each stripe; a file of one column has the same streams."""
    draw = random.Random(1)
    texts = [draw.randbytes(8).hex() for _ in range(40_000)]
    members = [{"x": draw.getrandbits(30), "y": {"z": text}} for text in texts]
    rows = pa.table({"pk": texts, "a.b": [draw.getrandbits(30) for _ in texts], "m": members})
    settings = {"compression": compression, "stripe_size": 64 * 1024, "batch_size": 1024}
    pyarrow.orc.write_table(rows, tmp_path / "all.orc", **settings)
    pyarrow.orc.write_table(rows.select(["m"]), tmp_path / "m.orc", **settings)
    sizes = {name: ddbio.layout(tmp_path / "all.orc", columns=[name]).queries[1].bytes for name in ("pk", "a.b", "m")}
    size = (tmp_path / "all.orc").stat().st_size
    assert ddbio.layout(tmp_path / "all.orc").row_groups > 1
    assert 0.98 * size < sum(sizes.values()) < size
    assert 0 < sizes["a.b"] < sizes["pk"] < sizes["m"]
    alone = ddbio.layout(tmp_path / "m.orc", columns="m").queries[1].bytes
    assert sizes["m"] == pytest.approx(alone, rel=0.02)
    assert ddbio.layout(tmp_path / "all.orc").queries[0].bytes == size


def test_a_query_scans_whole_files_of_text(tmp_path):
    """A text file is read completely for one column, whose name is not checked."""
    (tmp_path / "a.csv").write_text("pk,n\nx,1\n")
    assert ddbio.layout(tmp_path, columns="n").queries[1].bytes == 9


def test_a_query_of_nothing_is_an_error(dataset):
    """A column or a partition that no file has is named."""
    with pytest.raises(ddbio.OptionError, match="no file has a column 'nope'"):
        ddbio.layout(dataset, columns="pk,nope")
    with pytest.raises(ddbio.OptionError, match="no file is in day=7"):
        ddbio.layout(dataset, partition="day=7")
    with pytest.raises(ddbio.OptionError, match="column=value"):
        ddbio.layout(dataset, partition="day")


def test_the_null_partition_has_the_name_of_its_folder(dataset):
    """The partition of null values is selected by its folder's name."""
    assert ddbio.layout(dataset, partition="day=__HIVE_DEFAULT_PARTITION__").queries[1].files == 1


def test_the_command_prints_the_cost_of_queries(dataset):
    """The table has a row for everything, and one for the requested columns and partition."""
    done = CliRunner().invoke(cli, ["layout", str(dataset), "--columns", "pk", "--partition", "day=1"])
    assert done.exit_code == 0
    assert "a query of" in done.output
    assert "Redshift Spectrum" in done.output
    assert "pk in day=1" in done.output
    assert "$4.8e-05" in done.output
