"""Files of several formats, to be read unit by unit."""

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from tests.export.conftest import s3, serve  # noqa: F401 - fixtures


@pytest.fixture
def folder(tmp_path):
    """Return a folder of three formats, one file in row groups."""
    table = pa.table({"pk": [f"{n:04}" for n in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    pa.orc.write_table(table, tmp_path / "b.orc")
    (tmp_path / "c.jsonl").write_text('{"pk":"0001"}\n')
    (tmp_path / "sub").mkdir()
    pq.write_table(table, tmp_path / "sub" / "d.parquet")
    return tmp_path
