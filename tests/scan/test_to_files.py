"""Scans to files: published completely or not at all, with all values and a correct report."""

import json

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import (
    AccessDeniedError,
    DdbioError,
    EndpointError,
    NotFoundError,
    OptionError,
    SchemaError,
    TargetError,
)
from ddbio.jobs.report import ScanReport
from ddbio.options import parse_options
from ddbio.scan.options import ScanOptions
from ddbio.validation.digest import digest_files

REPORT_KEYS = {
    "items", "rows", "rescued", "seconds", "wire_bytes", "cpu_seconds", "rcu_asked_per_second", "rcu_consumed",
    "rcu_peak_10s_ratio", "files", "digest",
}  # fmt: skip


@pytest.fixture
def scan(fake, tmp_path):
    """Return the verb for the fake and the folder of the test."""

    def run(table, **options):
        options = {"endpoint_url": fake.endpoint_url, "engine": "local", "dest": tmp_path / "out", **options}
        return ddbio.scan_to_files(table, options.pop("dest"), **options)

    return run


def _visible(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def test_rows_files_and_report_agree(scan, tmp_path):
    """Every item is a row of a file that is in the report, the manifest and the folder."""
    report = scan("flights", digest=True, segments=4)
    assert report.items == report.rows == sum(file.rows for file in report.files) == 20_000
    assert report.to_dict().keys() >= REPORT_KEYS
    manifest = json.loads((tmp_path / "out" / "_ddbio" / f"{report.job_id}.json").read_text())
    assert (manifest["rows"], manifest["digest"]) == (20_000, report.digest)
    assert sorted(file["path"] for file in manifest["files"]) == sorted(p.name for p in (tmp_path / "out").glob("*.p*"))
    assert ds.dataset(tmp_path / "out").count_rows() == 20_000
    measured = ddbio.layout(tmp_path / "out")
    names = ("files", "bytes", "small_file_ratio", "small_than", "histogram")
    assert [getattr(report.layout, name) for name in names] == [getattr(measured, name) for name in names]
    assert type(report).from_dict(json.loads(report.to_json())) == report


def test_digest_of_files_equals_that_of_the_wire(scan):
    """Count and digest of the files are equal to those of the service's responses, computed independently."""
    report = scan("types", digest=True, nulls="keep")
    files = digest_files([file.path for file in report.files], parse_options(ScanOptions, {"table": "t"}))
    assert (files.count, files.hexdigest()) == (500, report.digest)


def test_types_reach_the_files_exactly(scan):
    """Ten types become matching Arrow types, with DynamoDB's type in the metadata."""
    report = scan("types")
    table = pq.read_table(report.files[0].path)
    types = {field.name: (str(field.type), field.metadata[b"ddb:type"].decode()) for field in table.schema}
    assert types["n"] == ("int64", "N")
    assert types["price"] == ("decimal128(38, 2)", "N")
    assert types["big"] == ("decimal128(38, 0)", "N")
    assert types["ss"] == ("list<element: string>", "SS")
    assert types["map"] == ("struct<city: string, zip: int64>", "M")
    row = table.filter(pa.compute.equal(table["pk"], "item-00007")).to_pylist()[0]
    assert (str(row["price"]), row["b"], row["flag"], row["none"]) == ("7.25", b"\0\0\0\7", False, None)


def test_merged_nulls_are_counted(scan):
    """The report and its JSON have the number of NULLs that became missing values; with ``nulls="keep"`` it is 0."""
    report = scan("types")
    assert report.merged_nulls == {"none": 500}
    assert ScanReport.from_dict(json.loads(report.to_json())) == report
    assert scan("types", nulls="keep", mode="overwrite").merged_nulls == {}


def test_misfits_are_rescued_and_counted(scan):
    """A value of another type and an attribute that the sample lacked are rescued as DynamoDB JSON and reported."""
    report = scan("drifted", sample_items=100)
    assert report.rescued == 2
    assert {(misfit.path, misfit.kind) for misfit in report.misfits} == {
        ("late", "not in the schema"),
        ("n", "another type"),
    }
    rescued = [text for file in report.files for text in pq.read_table(file.path)["_rescue"].to_pylist() if text]
    assert sorted(rescued) == ['{"late":{"S":"attribute"}}', '{"n":{"S":"not a number"}}']


def test_misfits_can_fail_the_job(scan, tmp_path):
    """With on_misfit=fail the job fails with the path of the value, and nothing is left."""
    with pytest.raises(SchemaError, match="late: not in the schema"):
        scan("drifted", sample_items=100, on_misfit="fail")
    assert _visible(tmp_path / "out") == []


def test_columns_limit_and_index_reach_the_request(scan):
    """A projection reads only its attributes, in their order; a limit ends the scan."""
    report = scan("flights", columns="dest,carrier", limit=1234)
    table = pq.read_table(report.files[0].path)
    assert table.schema.names == ["dest", "carrier", "_rescue"]
    assert report.items == table.num_rows == 1234


@pytest.mark.parametrize("name", ["ghost", "map.city", "PK"])
def test_a_column_that_no_item_has_is_refused(scan, name):
    """A name that no sampled item has is an error, unless a schema declares it."""
    with pytest.raises(SchemaError, match=f"no sampled item has an attribute '{name}'"):
        scan("types", columns=f"pk,{name}")
    schema = pa.schema([("pk", pa.string()), ("ghost", pa.string())])
    report = scan("types", columns="pk,ghost", schema=schema)
    assert pq.read_table(report.files[0].path).schema.names == ["pk", "ghost", "_rescue"]


def test_empty_table_has_its_keys(scan):
    """A table without items produces a readable output with its key columns and no rows."""
    report = scan("empty")
    assert (report.items, report.rows) == (0, 0)
    assert [pq.read_schema(file.path).names for file in report.files] == [["pk", "sk", "_rescue"]]


def test_mode_error_refuses_and_keeps(scan, tmp_path):
    """A target with files is not changed without append or overwrite."""
    scan("types")
    before = _visible(tmp_path / "out")
    with pytest.raises(TargetError, match="not empty"):
        scan("flights")
    assert _visible(tmp_path / "out") == before


def test_append_adds_and_overwrite_replaces(scan, tmp_path):
    """Append keeps existing files, overwrite replaces them."""
    scan("types")
    scan("types", mode="append")
    assert ds.dataset(tmp_path / "out").count_rows() == 1000
    scan("types", mode="overwrite")
    assert ds.dataset(tmp_path / "out").count_rows() == 500


def test_target_file_size_is_kept(scan):
    """Files are closed near the requested size."""
    report = scan("flights", target_file_bytes="64KiB", segments=1, compression="none")
    assert len(report.files) > 5
    assert all(file.bytes < 2 * 64 * 1024 for file in report.files)


def test_read_units_are_the_service_s(scan, fake):
    """The report's units are equal to those that the fake charged."""
    before = sum(units for _, units, _ in fake.consumed("flights"))
    report = scan("flights", consistent=True)
    charged = sum(units for _, units, _ in fake.consumed("flights")) - before
    assert report.rcu_consumed == pytest.approx(charged)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"table": "nope"}, NotFoundError, "nope"),
        ({"index": "nope"}, OptionError, "has no index"),
        ({"endpoint_url": "http://127.0.0.1:9"}, EndpointError, "is the endpoint right and up?"),
        ({"dest": "gs://bucket/x"}, OptionError, "the scheme 'gs'"),
        ({"schema": pa.schema([pa.field("pk", pa.int64())])}, SchemaError, "key attribute 'pk'"),
        ({"read_ratio": 0.5}, OptionError, "give rcu_per_second instead"),
        ({"profile": "nobody"}, OptionError, "nobody"),
        ({"rcu": 3}, OptionError, "unknown option 'rcu'"),
    ],
)
def test_bad_input_is_one_clear_error_and_no_output(scan, tmp_path, options, error, message):
    """Invalid input is refused before anything is written."""
    with pytest.raises(error) as caught:
        scan(options.pop("table", "types"), **options)
    assert message.replace("s3:// nor", "s3://bucket/prefix nor") in str(caught.value)
    assert isinstance(caught.value, DdbioError)
    assert _visible(tmp_path) == []


def test_missing_credentials_are_named(scan, monkeypatch, tmp_path):
    """Without credentials the error names the call that needed them and describes how to set them."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessDeniedError, match="AWS_ACCESS_KEY_ID") as caught:
        scan("types", region="eu-central-1")
    assert caught.value.action == "dynamodb:DescribeTable"
    assert _visible(tmp_path) == []


def test_target_that_is_a_file_is_refused(scan, tmp_path):
    """A path that is a file cannot be the folder of the output."""
    (tmp_path / "out").write_text("mine")
    with pytest.raises(TargetError):
        scan("types")
    assert (tmp_path / "out").read_text() == "mine"


def test_report_is_json(scan):
    """The report's fields are the keys of its JSON."""
    report = scan("types")
    assert json.loads(report.to_json()).keys() == set(ScanReport.__dataclass_fields__)


def test_a_job_id_runs_once(fake, tmp_path):
    """The same id again returns the first report and reads nothing, also in append mode; another type is refused."""
    dest = tmp_path / "out"
    options = {"endpoint_url": fake.endpoint_url, "engine": "local", "mode": "append", "job_id": "nightly_7"}
    report = ddbio.scan_to_files("types", dest, **options)
    files = sorted(path for path in dest.rglob("*") if path.is_file())
    scans = fake.requests()["Scan"]
    again = ddbio.scan_to_files("types", dest, **options)
    timed = {"seconds": 0, "cpu_seconds": 0, "actual": None}
    assert again.to_dict() | timed == report.to_dict() | timed
    assert sorted(path for path in dest.rglob("*") if path.is_file()) == files
    assert fake.requests()["Scan"] == scans
    rows = pa.table({"pk": ["a"]})
    with pytest.raises(OptionError, match="job of another kind"):
        ddbio.write_import_files(rows, dest, key="pk:S", mode="overwrite", overwrite_foreign=True, job_id="nightly_7")


def test_appended_columns_have_the_types_that_are_there(scan, tmp_path):
    """A scan that would append a column of another type is refused before it reads, and leaves no files."""
    scan("flights", schema=pa.schema([("dep_delay", pa.int64())]), columns="dep_delay")
    before = _visible(tmp_path / "out")
    with pytest.raises(TargetError, match=r"column 'dep_delay' as int64, .* as string"):
        scan("flights", schema=pa.schema([("dep_delay", pa.string())]), columns="dep_delay", mode="append")
    assert _visible(tmp_path / "out") == before
