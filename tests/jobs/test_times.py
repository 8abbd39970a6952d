"""Dates and times from a table to files and back: the items stay the same with any column types."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyarrow import orc

import ddbio
from ddbio.cli.main import run
from ddbio.errors import SchemaError
from ddbio.testing.export import Change, ExportWriter

FORMS = {"created_at": "iso", "ts": "epoch_s", "day": "date"}
TYPES = {"created_at": pa.timestamp("us", "UTC"), "ts": pa.timestamp("us", "UTC"), "day": pa.date32()}


def event(number, **others):
    """Return an item with a time in each encoding. One in a hundred was written by another program."""
    at = dt.datetime(2024, 2, 28, tzinfo=dt.UTC) + dt.timedelta(minutes=7 * number, milliseconds=number)
    text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "pk": {"S": f"event-{number % 10}"},
        "ts": {"N": str(1_700_000_000 + number)},
        "created_at": {"S": text if number % 100 else at.isoformat()},
        "day": {"S": str(at.date())},
    } | others


@pytest.fixture(scope="module")
def events(fake):
    """Return the endpoint of a table whose sort key is a time."""
    fake.load("events", [json.dumps(event(number)).encode() for number in range(1000)], "pk:S,ts:N")
    return fake.endpoint_url


def digest_of(items):
    """Return the digest of items."""
    return ddbio.digest(b"".join(json.dumps(item).encode() + b"\n" for item in items))


def columns_of(folder):
    """Return the columns in a folder of Parquet files."""
    return ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table()


def test_a_table_goes_through_files(events, tmp_path, fake):
    """A scan writes times as times, and a load of its files writes the same items, including the key."""
    report = ddbio.scan_to_files("events", tmp_path / "out", timestamps=FORMS, digest=True, endpoint_url=events)
    table = columns_of(tmp_path / "out")
    assert {name: table.schema.field(name).type for name in FORMS} == TYPES
    assert table["created_at"].null_count == report.rescued == 10
    assert pc.min(table["day"]).as_py() == dt.date(2024, 2, 28)
    assert ddbio.digest(f"{tmp_path}/out") == report.digest
    fake.load("events-copy", b"", "pk:S,ts:N")
    loaded = ddbio.load_files(f"{tmp_path}/out", "events-copy", endpoint_url=events)
    assert (loaded.written, ddbio.digest("events-copy", endpoint_url=events)) == (1000, report.digest)


def test_files_of_others_are_declared_when_they_are_loaded(events, tmp_path, fake):
    """A file with timestamp columns is written in the declared encodings, by both methods."""
    rows = ddbio.read_table("events", timestamps=FORMS, endpoint_url=events)
    plain = pa.table({name: rows[name].combine_chunks() for name in ("pk", *FORMS)})
    plain = plain.filter(pc.is_valid(plain["created_at"]))
    assert not any(field.metadata for field in plain.schema)
    expected = digest_of(event(number) for number in range(1000) if number % 100)
    forms = {**FORMS, "created_at": "iso_ms"}
    fake.load("events-a", b"", "pk:S,ts:N")
    ddbio.write_table(plain, "events-a", timestamps=forms, endpoint_url=events)
    assert ddbio.digest("events-a", endpoint_url=events) == expected
    orc.write_table(plain, tmp_path / "rows.orc")
    fake.load("events-b", b"", "pk:S,ts:N")
    flags = ["--timestamps", "created_at=iso_ms,ts=epoch_s", "--timestamps", "day=date", "--endpoint-url", events]
    assert not run(["load", f"{tmp_path}/rows.orc", "events-b", *flags, "--quiet"])
    assert ddbio.digest("events-b", endpoint_url=events) == expected


def test_exports_and_folds(tmp_path):
    """An export is read, and folded with its changes, into times. Changes alone have no such columns."""
    writer = ExportWriter(tmp_path / "in", seed=1)
    full = writer.full([event(number) for number in range(1, 6)])
    keys = [{name: event(number)[name] for name in ("pk", "ts")} for number in range(7)]
    late = event(6, created_at={"S": "2024-02-30T00:00:00.000Z"})
    increment = writer.incremental([Change(1, keys[1], None, event(1)), Change(2, keys[6], late)])
    read = ddbio.read_export(full, timestamps=FORMS)
    assert {name: read.schema.field(name).type for name in FORMS} == TYPES
    assert ddbio.digest(read) == ddbio.digest(full)
    folded = ddbio.fold_exports(full, [increment], timestamps=FORMS)
    expected = digest_of([*map(event, range(2, 6)), late])
    assert folded.schema.field("ts").type == TYPES["ts"]
    assert ddbio.digest(folded) == expected
    report = ddbio.fold_exports_to_files(full, [increment], tmp_path / "out", timestamps=FORMS, engine="local")
    assert ddbio.digest(f"{tmp_path}/out") == expected
    assert [(misfit.path, misfit.count) for misfit in report.misfits] == [("created_at", 1)]
    with pytest.raises(SchemaError, match="give them to a fold"):
        ddbio.read_export(increment, timestamps=FORMS)


def test_a_schema_file_pins_the_encodings(events, tmp_path, capsys):
    """A schema inferred with times, saved and passed to a scan, needs no further rules."""
    flags = ["--timestamps", "created_at=iso,ts=epoch_s,day=date", "--numbers", "text", "--endpoint-url", events]
    assert not run(["schema", "events", *flags, "--out", f"{tmp_path}/events.json", "--quiet"])
    assert "timestamp[us, tz=UTC]" in capsys.readouterr().out
    text = (tmp_path / "events.json").read_text()
    assert ddbio.read_table("events", schema=text, endpoint_url=events).schema.field("ts").type == TYPES["ts"]


def test_rows_that_cannot_be_written_are_rejected_as_they_are(events, tmp_path, fake):
    """A row whose key is a time that the table refuses is kept with the number of that time."""
    fake.load("events-c", b"", "pk:S,ts:N")
    rows = pa.table({"pk": ["a", ""], "ts": pa.array([1, 2], pa.timestamp("s"))})
    options = {"timestamps": {"ts": "epoch_s"}, "reject_to": f"{tmp_path}/rejected", "endpoint_url": events}
    report = ddbio.write_table(rows, "events-c", **options)
    assert (report.written, report.rejected) == (1, 1)
    (line,) = [line for path in (tmp_path / "rejected").rglob("*.json*") for line in path.read_text().splitlines()]
    assert json.loads(line)["item"]["ts"] == {"N": "2"}


def test_a_misspelt_attribute_is_an_error(events, tmp_path):
    """A rule for an attribute that neither the sample nor the schema has is refused, with the nearest name."""
    with pytest.raises(
        SchemaError, match=r"created: neither the sample nor a schema has .*: did you mean 'created_at'"
    ):
        ddbio.read_table("events", timestamps={"created": "iso"}, endpoint_url=events)
    schema = ddbio.infer_schema("events", endpoint_url=events)
    with pytest.raises(SchemaError, match="dayy: neither"):
        ddbio.read_table("events", types={"dayy": "string"}, schema=schema, endpoint_url=events)
    full = ExportWriter(tmp_path, seed=1).full([event(1)])
    with pytest.raises(SchemaError, match="x: neither"):
        ddbio.read_export(full, timestamps={"x": "date"})
