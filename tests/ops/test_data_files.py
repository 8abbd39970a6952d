"""Which files of a folder hold items."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import NotFoundError
from ddbio.ops.data_files import find_data
from ddbio.options import ConnectionOptions

METADATA = ["_ddbio/20260101T000000Z_0.json", "_SUCCESS.json", ".a.json.crc.json", "manifest-summary.json"]


@pytest.fixture
def folder(tmp_path):
    """Return a folder of the metadata that Spark, AWS and ddbio's own jobs leave."""
    (tmp_path / "_ddbio").mkdir()
    for name in METADATA:
        (tmp_path / name).write_text('{"rows": 1}')
    return tmp_path


def test_metadata_is_no_data(folder):
    """Manifests and hidden files are passed over."""
    with pytest.raises(NotFoundError, match="holds no file"):
        find_data(str(folder), ConnectionOptions())
    (folder / "data").mkdir()
    (folder / "data" / "b.json").write_text("{}")
    (folder / "a.json.gz").write_bytes(b"x")
    (folder / "empty.json").touch()
    assert find_data(str(folder), ConnectionOptions())[1] == ["a.json.gz", "data/b.json"]


def test_the_schema_of_a_job_s_target_is_that_of_its_files(folder):
    """Where a job wrote Parquet beside its manifest, the manifest is not taken for items."""
    pq.write_table(pa.table({"pk": ["x"]}), folder / "part.zstd.parquet")
    assert ddbio.infer_schema(folder).to_arrow().names == ["pk", "_rescue"]
