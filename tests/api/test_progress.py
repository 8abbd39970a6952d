"""A caller's function is told how far a job is."""

import pytest

import ddbio
from ddbio.testing import FakeDynamoDB


@pytest.fixture(scope="module")
def here():
    """Serve a small table; return where."""
    with FakeDynamoDB() as fake:
        lines = b"".join(b'{"Item":{"pk":{"S":"%d"}}}\n' % number for number in range(50))
        fake.load("orders", lines, "pk:S")
        fake.load("empty", b"", "pk:S")
        yield {"endpoint_url": fake.endpoint_url}


def test_jobs_report_their_end(here, tmp_path):
    """The last report of a scan, a load, a copy and the reading of an export says that all is done."""
    seen = []
    ddbio.scan_to_files("orders", tmp_path / "out", engine="local", progress=seen.append, **here)
    ddbio.load_files(tmp_path / "out", "empty", state=str(tmp_path / "state"), progress=seen.append, **here)
    ddbio.copy_table("orders", "empty", progress=seen.append, **here)
    ddbio.scan_to_files("orders", tmp_path / "export", format="dynamodb-export", engine="local", **here)
    folder = next(path.parent for path in (tmp_path / "export").rglob("manifest-summary.json"))
    ddbio.read_export_to_files(folder, tmp_path / "read", engine="local", progress=seen.append)
    ends = [(each.job.split()[0], each.items, each.goal) for each in seen if each.is_done]
    assert ends == [("scan", 50, 50), ("load", 50, 50), ("copy", 50, 50), ("read", 50, 50)]


def test_a_continued_load_counts_what_is_done(here, tmp_path):
    """Rows of earlier runs are done from the start, and part of the goal."""
    ddbio.scan_to_files("orders", tmp_path / "out", engine="local", **here)
    seen = []
    for _ in range(2):
        job = {"job_id": "again", "state": str(tmp_path / "state")}
        ddbio.load_files(tmp_path / "out", "empty", progress=seen.append, **job, **here)
    assert [(each.items, each.goal) for each in seen if each.is_done] == [(50, 50), (50, 50)]


def test_an_error_of_the_job_is_its_end(here, tmp_path):
    """A job that fails reports no end, and its own error is raised."""
    seen = []
    with pytest.raises(ddbio.NotFoundError):
        ddbio.scan_to_files("missing", tmp_path / "out", progress=seen.append, **here)
    assert [each for each in seen if each.is_done] == []
