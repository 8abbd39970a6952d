"""Columns that are appended to a target: types that readers could not read together are refused."""

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.commit.appending import require_same_types
from ddbio.commit.committer import CommitInfo
from ddbio.commit.protocol import Target
from ddbio.errors import TargetError
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

INT = pa.schema([("pk", pa.string()), ("amount", pa.int64())])
DECIMAL = pa.schema([("pk", pa.string()), ("amount", pa.decimal128(38, 1))])


def committed(store, schema, job_id):
    """Commit a file without rows to a target."""
    writer = RollingWriter(store, FileNaming(job_id, 0), schema, FileOptions())
    target = Target(store=store, mode="append")
    target.prepare(job_id)
    info = CommitInfo(created_at="2026-01-02T03:04:05Z", source={}, schema=schema_to_json(normalize_schema(schema)))
    target.commit(job_id, writer.finish(keep_empty=True), info)


def nested(leaf):
    """Return a schema whose columns have a type deep within."""
    item = pa.list_(pa.struct([("value", leaf), ("same", pa.bool_())]))
    return pa.schema([("deep", pa.map_(pa.string(), item))])


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (INT, DECIMAL, r"column 'amount' as int64, and this job would append it as decimal128\(38, 1\)"),
        (nested(pa.int64()), nested(pa.string()), r"column 'deep\.\*\[\]\.value' as int64, .* as string"),
        (INT, pa.schema([("amount", pa.list_(pa.int64()))]), "column 'amount' as int64, .* as list"),
    ],
)
def test_another_type_is_refused(tmp_path, old, new, message, has_manifest):
    """A column of another type is refused by name, both by a manifest and by a file alone."""
    store = LocalStore(tmp_path)
    if has_manifest:
        committed(store, old, "one")
    else:
        pq.write_table(old.empty_table(), tmp_path / "x.parquet")
    require_same_types(store, old)
    with pytest.raises(TargetError, match=message):
        require_same_types(store, new)


def test_other_columns_are_logged(tmp_path, caplog):
    """Columns that only some files have are logged, except the column of misfits."""
    committed(LocalStore(tmp_path), INT, "one")
    with caplog.at_level(logging.WARNING, "ddbio.commit"):
        require_same_types(LocalStore(tmp_path), pa.schema([("pk", pa.string()), ("_rescue", pa.string())]))
    assert [record.getMessage().partition("columns ")[2].partition(":")[0] for record in caplog.records] == ["amount"]


def test_an_empty_target_takes_any_columns(tmp_path):
    """An empty target has nothing to compare; a damaged file of another program is ignored."""
    require_same_types(LocalStore(tmp_path), INT)
    (tmp_path / "x.parquet").write_bytes(b"nothing of the kind")
    require_same_types(LocalStore(tmp_path), INT)


def test_the_newest_manifest_counts(tmp_path):
    """The last one of several jobs at a target is compared."""
    store = LocalStore(tmp_path)
    committed(store, INT, "one")
    committed(store, DECIMAL, "two")
    require_same_types(store, DECIMAL)
