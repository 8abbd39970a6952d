"""Conditions of bulk puts and the reports of items that were not put, against the fake."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import EncodeError, NotFoundError, OptionError

BUCKET = "bulk-reports"
REPORTS = f"s3://{BUCKET}/reports"


@pytest.fixture
def options(serve):
    """Return the options for a fake with a table of ten items and its S3."""
    fake, reach = serve()
    fake.load("orders", [{"pk": {"S": f"k{n}"}, "v": {"N": "5"}} for n in range(10)], "pk:S")
    return reach


def put(name, rows, options, **conditions):
    """Write rows as files, put them, and return the finished job."""
    source = f"s3://{BUCKET}/{name}"
    ddbio.write_import_files(rows, source, key="pk:S", **conditions, **options)
    job = ddbio.start_bulk_put(source, "orders", REPORTS, **options)
    return ddbio.wait_bulk_put(job.arn, **options)


def test_items_are_put_only_where_there_are_none(options):
    """Existing items stay, and the report has a row with the existing item for each item that was not put."""
    rows = pa.table({"pk": [f"k{n}" for n in range(15)], "v": [9] * 15})
    job = put("absent", rows, options, if_absent=True)
    assert (job.status, job.processed_items, job.failed_items) == ("COMPLETED", 15, 0)
    values = {row["pk"]: row["v"] for row in ddbio.read_table("orders", **options).to_pylist()}
    assert values == {f"k{n}": 5 if n < 10 else 9 for n in range(15)}
    report = ddbio.read_bulk_report(job.arn, **options).rows.to_pylist()
    assert {row["kind"] for row in report} == {"condition"}
    assert {row["reason"] for row in report} == {"ConditionalCheckFailedException"}
    assert sorted(json.loads(row["item"])["pk"]["S"] for row in report) == [f"k{n}" for n in range(10)]
    assert {json.loads(row["existing_item"])["v"]["N"] for row in report} == {"5"}


def test_items_are_put_only_where_they_are_newer(options):
    """Older and equal items do not replace existing ones; newer items and items with other keys are put."""
    rows = pa.table({"pk": ["k0", "k1", "k2", "new"], "v": [4, 5, 6, 1], "text": ["a", None, "c", "d"]})
    job = put("newer", rows, options, newer_by="v")
    values = {row["pk"]: row["v"] for row in ddbio.read_table("orders", **options).to_pylist()}
    assert [values[key] for key in ("k0", "k1", "k2", "new")] == [5, 5, 6, 1]
    assert ddbio.read_bulk_report(job.arn, **options).rows.num_rows == 2


def test_a_row_without_what_it_is_compared_by_is_refused(tmp_path):
    """A null, or a missing column, is an error before anything is written."""
    rows = pa.table({"pk": ["a", "b"], "v": [1, None]})
    with pytest.raises(EncodeError, match="row 1 as read: the row has no value to compare by newer_by"):
        ddbio.write_import_files(rows, tmp_path, key="pk:S", newer_by="v")
    with pytest.raises(OptionError, match="no column 'w', but pk, v"):
        ddbio.write_import_files(rows, tmp_path, key="pk:S", newer_by="w")
    assert list(tmp_path.iterdir()) == []


def test_files_with_conditions_are_for_bulk_puts_alone(options):
    """An import of them is refused before it starts, because imports do not support conditions."""
    source = f"s3://{BUCKET}/no-import"
    report = ddbio.write_import_files(pa.table({"pk": ["a"]}), source, key="pk:S", if_absent=True, **options)
    assert report.condition == "attribute_not_exists(#n0)"
    with pytest.raises(OptionError, match="are for a bulk put"):
        ddbio.start_import(source, "imported", **options)


@pytest.mark.parametrize("wrong", [{"if_absent": True, "newer_by": "v"}, {"if_absent": True, "format": "ion"}])
def test_conditions_that_cannot_be_are_refused(tmp_path, wrong):
    """Two conditions, and conditions with Ion, are conflicting options."""
    with pytest.raises(OptionError, match="if_absent"):
        ddbio.write_import_files(pa.table({"pk": ["a"]}), tmp_path, key="pk:S", **wrong)


def test_refused_items_can_be_tried_again(options, s3, tmp_path):
    """The report's errors become rejects, which a load retries; counts are by reason."""
    body = b'{"Item":{"pk":{"S":"a"}}}\n{"Item":{"other":{"S":"b"}}}\nno json\n'
    s3[1].put_object(Bucket=BUCKET, Key="partly/a", Body=body)
    job = ddbio.start_bulk_put(f"s3://{BUCKET}/partly", "orders", REPORTS, compression="none", **options)
    words = [job.arn, "--reject-to", str(tmp_path / "kept"), "--json"]
    reach = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    ran = CliRunner().invoke(cli, ["bulk", "report", *words, *reach], catch_exceptions=False)
    counts = json.loads(ran.stdout)
    assert (counts["records"], counts["errors"], counts["conditions"], counts["rejects"]) == (2, 2, 0, 1)
    assert counts["reasons"] == {"ValidationException": 2}
    (rejects,) = (tmp_path / "kept").glob("rejects-*")
    rejects.write_text(rejects.read_text().replace('"other"', '"pk"'))
    assert ddbio.load_files(tmp_path / "kept", "orders", retry_rejects=True, **options).rows == 1
    assert "b" in ddbio.read_table("orders", **options)["pk"].to_pylist()


def test_a_lake_table_cannot_receive_refused_items(tmp_path):
    """It is refused before the reports are read, and nothing is added to it."""
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    (tmp_path / "lake" / "_delta_log" / "00000000000000000000.json").write_text("{}\n")
    (tmp_path / "reports").mkdir()
    for folder in (tmp_path / "lake", tmp_path / "lake" / "in" / "it"):
        with pytest.raises(OptionError, match="is a Delta table: other files in it"):
            ddbio.read_bulk_report(str(tmp_path / "reports"), reject_to=str(folder))
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["_delta_log"]


def test_unknown_members_are_kept(tmp_path):
    """Lines that are not objects, unknown fields and files with other names become rows too."""
    (tmp_path / "x").write_bytes(gzip.compress(b'{"line":7,"AttemptedItem":{"pk":{"S":"a"}},"reason":"TooBig"}\n'))
    (tmp_path / "condition.txt").write_bytes(b"what is this\n[1]\n")
    (tmp_path / "manifest.json").write_bytes(b"{}")
    (tmp_path / "x.md5").write_bytes(b"00")
    rows = {row["rest"]: row for row in ddbio.read_bulk_report(tmp_path).rows.to_pylist()}
    assert {other_members: row["kind"] for other_members, row in rows.items()} == {
        '{"line":7}': "error",
        "[1]": "condition",
        "what is this": "condition",
    }
    assert (rows['{"line":7}']["item"], rows['{"line":7}']["reason"]) == ('{"pk":{"S":"a"}}', "TooBig")


def test_a_missing_report_is_an_error(tmp_path):
    """A location without objects is an error, not an empty report."""
    with pytest.raises(NotFoundError, match="there is no report"):
        ddbio.read_bulk_report(tmp_path / "nothing")
