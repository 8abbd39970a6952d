"""The commands that read without writing files: ``read`` and ``digest``, and the plans of all verbs."""

import csv
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.cli.rows import print_json
from ddbio.testing import FakeDynamoDB

ITEMS = [
    {"pk": {"S": "a"}, "n": {"N": "12345678901234567890.5"}, "m": {"M": {"x": {"N": "1"}}}, "s": {"SS": ["u"]}},
    {"pk": {"S": "b"}, "t": {"S": 'say "é", twice'}, "b": {"B": "AAE="}, "f": {"BOOL": False}, "z": {"NULL": True}},
]


@pytest.fixture(scope="module")
def server():
    """Serve a small table."""
    with FakeDynamoDB() as fake:
        fake.load("odd", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in ITEMS), "pk:S")
        yield fake


def at(server):
    """Return the flags that say where it is served."""
    return ["--endpoint-url", server.endpoint_url]


def exported(server, folder):
    """Return the folder of an export of the table."""
    ddbio.scan_to_files("odd", folder, format="dynamodb-export", engine="local", endpoint_url=server.endpoint_url)
    return str(next(path.parent for path in folder.rglob("manifest-summary.json")))


def run(*arguments):
    """Run a command in this process; return what it prints on stdout."""
    done = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_read_prints_lines_of_json(server):
    """Each item is a line; numbers are exact, and what is missing is left out."""
    lines = run("read", "odd", *at(server)).splitlines()
    rows = {row["pk"]: row for row in (json.loads(line, parse_float=str) for line in lines)}
    assert rows == {
        "a": {"pk": "a", "n": "12345678901234567890.5", "m": {"x": 1}, "s": ["u"]},
        "b": {"pk": "b", "t": 'say "é", twice', "b": "AAE=", "f": False},
    }


def test_read_prints_numbers_as_they_are():
    """A number has no digits that only its column's scale adds."""
    scaled = pa.array(
        [Decimal("100.0"), Decimal("2.5"), Decimal("-0.0"), Decimal("12345678901234567890.5")], pa.decimal128(38, 1)
    )
    out = io.StringIO()
    print_json([pa.record_batch({"n": scaled})], out)
    assert out.getvalue().splitlines() == ['{"n":100}', '{"n":2.5}', '{"n":0}', '{"n":12345678901234567890.5}']


def test_read_prints_csv(server):
    """The header names the columns; maps and lists are JSON in a field."""
    rows = {row["pk"]: row for row in csv.DictReader(io.StringIO(run("read", "odd", *at(server), "--format", "csv")))}
    assert rows["a"]["m"] == '{"x":1}'
    assert rows["a"]["t"] == ""
    assert rows["b"]["t"] == 'say "é", twice'


def test_read_stops_at_its_limit(server, tmp_path):
    """A limit holds for a table and for an export; a rescued value is DynamoDB JSON."""
    assert len(run("read", "odd", *at(server), "--limit", 1).splitlines()) == 1
    folder = exported(server, tmp_path / "export")
    assert len(run("read", folder, "--limit", 1, "--nulls", "keep").splitlines()) == 1
    kept = [json.loads(line) for line in run("read", folder, "--nulls", "keep").splitlines()]
    assert [row["_rescue"] for row in kept if "_rescue" in row] == [{"z": {"NULL": True}}]


def test_digest_is_that_of_python(server, tmp_path):
    """The command prints what the function returns; files have the digest of their table."""
    found = run("digest", "odd", *at(server)).strip()
    assert found == ddbio.digest("odd", endpoint_url=server.endpoint_url)
    ddbio.scan_to_files("odd", tmp_path / "out", nulls="keep", engine="local", endpoint_url=server.endpoint_url)
    told = json.loads(run("digest", tmp_path / "out", "--json"))
    assert told == {"source": str(tmp_path / "out"), "items": 2, "digest": found}


def test_plans_are_those_of_python(server, tmp_path):
    """Each plan of the command line is that of the function; none writes anything."""
    server.load("empty", b"", "pk:S")
    (tmp_path / "rows.jsonl").write_text('{"pk":"c"}\n')
    rows = str(tmp_path / "rows.jsonl")
    folder = exported(server, tmp_path / "export")
    out, here = str(tmp_path / "out"), {"endpoint_url": server.endpoint_url}
    made = {
        ("scan", "odd"): ddbio.plan_scan("odd", **here).to_dict() | {"dest": None},
        ("load", rows, "empty"): ddbio.plan_load(rows, "empty", **here).to_dict(),
        ("copy", "odd", "empty"): ddbio.plan_copy("odd", "empty", **here).to_dict(),
        ("export-read", folder, out): ddbio.plan_read_export(folder, out).to_dict(),
    }
    for words, plan in made.items():
        assert json.loads(run("plan", *words, *at(server), "--json")) == json.loads(json.dumps(plan))
    assert server.consumed("empty") == []
    assert not (tmp_path / "out").exists()


def test_checking_files_for_an_import_writes_nothing(tmp_path):
    """The rows are read and counted; the target stays away."""
    (tmp_path / "rows.jsonl").write_text('{"pk":"c"}\n')
    report = ddbio.check_import_files(tmp_path / "rows.jsonl", tmp_path / "out", key="pk:S")
    assert (report.items, list(tmp_path.glob("out/**/*.gz"))) == (1, [])
    assert not (tmp_path / "out" / "data").exists()
