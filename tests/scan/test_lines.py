"""Table scans in the layout of a native export, which export readers accept, completely or not at all."""

import base64
import gzip
import hashlib
import json

import pytest

import ddbio
from ddbio.cli.main import run
from ddbio.errors import ExportIncompleteError, OptionError
from ddbio.export.fold_rows import plan_fold
from ddbio.formats.export_manifest import parse_summary
from ddbio.items.digest import Digest

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def export(fake, tmp_path):
    """Return a function that scans a table of the fake into an export layout, on threads of this process."""

    def run_scan(table, **options):
        settings = {"engine": "local", "format": "dynamodb-export", "endpoint_url": fake.endpoint_url, **options}
        return ddbio.scan_to_files(table, tmp_path / "AWSDynamoDB" / "made", **settings)

    return run_scan


def summary_of(home):
    """Return the summary of an export."""
    return parse_summary((home / "manifest-summary.json").read_bytes(), "here")


@pytest.mark.parametrize("table", ["types", "drifted", "empty"])
def test_export_holds_the_table(export, fake, tmp_path, table):
    """All items are in the export as they were sent, including misfits: the digests are equal."""
    report = export(table, digest=True, segments=4)
    home = tmp_path / "AWSDynamoDB" / "made"
    digest = Digest()
    for path in (home / "data").glob("*.json.gz"):
        digest.add_items(json.loads(line)["Item"] for line in gzip.decompress(path.read_bytes()).splitlines())
    assert (digest.count, digest.hexdigest()) == (report.items, report.digest)
    assert ddbio.read_export(home).num_rows == report.rows == report.items


def test_reading_it_equals_scanning(export, fake, tmp_path):
    """The rows of the export are the rows of the table."""
    report = export("types", segments=3)
    table = ddbio.read_table("types", endpoint_url=fake.endpoint_url)
    read = ddbio.read_export(report.dest, schema=table.schema)
    order = [("pk", "ascending")]
    assert read.sort_by(order).equals(table.sort_by(order))


def test_layout_is_the_native_one(export, tmp_path):
    """The folder has the files of an export with correct checksums, and the summary comes last; the table is an ARN."""
    export("types", target_file_bytes=64 * 1024)
    home = tmp_path / "AWSDynamoDB" / "made"
    names = {path.name for path in home.iterdir()} - {"_ddbio"}
    assert names == {"_started", "data", *(f"manifest-{kind}.{ending}" for kind in ("files", "summary")
                                           for ending in ("json", "md5"))}  # fmt: skip
    for line in (home / "manifest-files.json").read_text("utf-8").splitlines():
        entry = json.loads(line)
        data = (home / entry["dataFileS3Key"]).read_bytes()
        assert entry["md5Checksum"] == base64.b64encode(hashlib.md5(data).digest()).decode()
        assert entry["itemCount"] == gzip.decompress(data).count(b"\n")
    summary = json.loads((home / "manifest-summary.json").read_bytes())
    assert (summary["exportType"], summary["outputFormat"]) == ("FULL_EXPORT", "DYNAMODB_JSON")
    assert summary["exportArn"].startswith(summary["tableArn"] + "/export/")
    newest = max(path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file() and "_ddbio" not in path.parts)
    assert (home / "manifest-summary.json").stat().st_mtime_ns == newest
    assert [path.suffix for path in (home / "_ddbio").iterdir() if path.is_file()] == [".json"]


def test_part_of_a_table_is_flagged(export, tmp_path):
    """A scan of some attributes is marked as filtered, and cannot be the base of a fold."""
    export("types", columns=("pk", "n"))
    summary = summary_of(tmp_path / "AWSDynamoDB" / "made")
    assert summary.filtered
    with pytest.raises(ExportIncompleteError, match="not a full export of the whole table"):
        plan_fold(summary, [])


def test_overwrite_replaces_the_export(export, tmp_path):
    """Overwriting replaces the export; append mode is refused."""
    export("types")
    report = export("drifted", mode="overwrite")
    assert ddbio.read_export(tmp_path / "AWSDynamoDB" / "made").num_rows == report.items == 3000
    with pytest.raises(OptionError, match="one job writes an export"):
        export("types", mode="append")


def test_failed_scan_leaves_no_export(export, fake, tmp_path):
    """A failed scan leaves neither manifests nor files."""
    with pytest.raises(ddbio.DdbioError):
        export("nothing")
    assert not list(tmp_path.rglob("*.*"))


def test_command_writes_an_export(fake, tmp_path, capsys):
    """The flag has the effect of the option, and the other command reads the written export."""
    home, out = str(tmp_path / "made"), str(tmp_path / "out")
    flags = ["--format", "dynamodb-export", "--endpoint-url", fake.endpoint_url, "--engine", "local", "--json"]
    assert not run(["scan", "flights", home, *flags])
    scanned = json.loads(capsys.readouterr().out)
    assert not run(["export", "read", home, out, "--json", "--engine", "local"])
    assert json.loads(capsys.readouterr().out)["items"] == scanned["items"] == 20_000
