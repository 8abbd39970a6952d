"""The EMR connector as a peer, on very little data. If it was never downloaded, only the message is tested."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pyarrow as pa
import pytest

import ddbio
from bench import data, serving
from bench.decoders import schema_of
from bench.e2e import emr_scan, emr_write
from bench.e2e.emr.connector import Connector, is_downloaded
from bench.e2e.write import TEXT_BYTES, rows_of
from ddbio.testing import FakeDynamoDB

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

needs_connector = pytest.mark.skipif(
    not (is_downloaded() and shutil.which("javac") and find_spec("pyspark")),
    reason="needs a Java compiler, PySpark and the connector: `python -m bench.e2e.emr_scan --dry-run` downloads it",
)


@needs_connector
def test_connector_reads_and_writes_what_we_do(tmp_path):
    """Its files of a table contain our rows, and its table of items ours."""
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415 - where PySpark is not, the others still run

    lines, rows, schema = data.lines("orders", 200), rows_of(60), schema_of("orders")
    with FakeDynamoDB(process=True) as fake, Connector(fake.endpoint_url, cores=1) as connector:
        fake.load("orders", lines, data.KEYS["orders"])
        spark_schema = to_spark_schema(pa.schema(list(schema)[:-1])).json()
        assert connector.scan("orders", tmp_path / "connector", 2, spark_schema) > 0
        ddbio.scan_to_files(
            "orders", tmp_path / "direct", engine="local", endpoint_url=fake.endpoint_url, schema=schema
        )
        emr_scan.check(serving.Table("orders", fake.endpoint_url, len(lines), 0), tmp_path)

        emr_write.into(fake, "ours", lambda name: emr_write.write_table(rows, name, fake, lanes=2))
        emr_write.into(fake, "theirs", lambda name: connector.write(name, rows.num_rows, TEXT_BYTES))
        emr_write.check(fake, ("ours", "theirs"), rows)


@pytest.mark.parametrize("case", [emr_scan, emr_write])
def test_a_missing_connector_is_reported(case, monkeypatch, tmp_path, capsys):
    """Without Maven and the connector, a case succeeds, leaves no files, and reports the reason."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("BENCH_SCALE", "0.0001")
    monkeypatch.setattr("sys.argv", ["case", "--dry-run"])
    assert case.main() == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "skipped: mvn is not on PATH: the connector is built by Maven and a Java 17 compiler\n"
