"""The commands that read without writing files: ``read`` and ``digest``."""

import csv
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import ddbio
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


@pytest.fixture
def run(ddbio, server):
    """Return a function that runs a command, and returns its stdout."""

    def call(*words):
        done = ddbio(*words, "--endpoint-url", server.endpoint_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_read_prints_lines_of_json(run):
    """Each item is a line. Numbers are exact, and missing values are omitted."""
    lines = run("read", "odd").splitlines()
    rows = {row["pk"]: row for row in (json.loads(line, parse_float=str) for line in lines)}
    assert rows == {
        "a": {"pk": "a", "n": "12345678901234567890.5", "m": {"x": 1}, "s": ["u"]},
        "b": {"pk": "b", "t": 'say "é", twice', "b": "AAE=", "f": False},
    }


def test_read_prints_exact_numbers():
    """A number has no digits that only its column's scale adds."""
    scaled = pa.array(
        [Decimal("100.0"), Decimal("2.5"), Decimal("-0.0"), Decimal("12345678901234567890.5")], pa.decimal128(38, 1)
    )
    out = io.StringIO()
    print_json([pa.record_batch({"n": scaled})], out)
    assert out.getvalue().splitlines() == ['{"n":100}', '{"n":2.5}', '{"n":0}', '{"n":12345678901234567890.5}']


def test_read_prints_csv(run):
    """The header names the columns. Maps and lists are JSON in a field."""
    rows = {row["pk"]: row for row in csv.DictReader(io.StringIO(run("read", "odd", "--format", "csv")))}
    assert rows["a"]["m"] == '{"x":1}'
    assert rows["a"]["t"] == ""
    assert rows["b"]["t"] == 'say "é", twice'


def test_read_stops_at_its_limit(run, tmp_path):
    """A limit applies to a table and to an export. A rescued value is DynamoDB JSON."""
    assert len(run("read", "odd", "--limit", 1).splitlines()) == 1
    run("scan", "odd", tmp_path / "export", "--format", "dynamodb-export")
    folder = next(path.parent for path in tmp_path.rglob("manifest-summary.json"))
    assert len(run("read", folder, "--limit", 1, "--nulls", "keep").splitlines()) == 1
    kept = [json.loads(line) for line in run("read", folder, "--nulls", "keep").splitlines()]
    assert [row["_rescue"] for row in kept if "_rescue" in row] == [{"z": {"NULL": True}}]


def test_digest_is_that_of_python(run, server, tmp_path):
    """The command prints the result of the function. Files have the digest of their table."""
    printed = run("digest", "odd").strip()
    assert printed == ddbio.digest("odd", endpoint_url=server.endpoint_url)
    run("scan", "odd", tmp_path / "out", "--nulls", "keep")
    report = json.loads(run("digest", tmp_path / "out", "--json"))
    assert report == {"source": str(tmp_path / "out"), "items": 2, "digest": printed}
