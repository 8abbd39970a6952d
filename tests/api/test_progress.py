"""Progress reports to a function of the caller."""

import pytest

import ddbio
from ddbio.testing import FakeDynamoDB


@pytest.fixture(scope="module")
def here():
    """Serve a small table. Return its endpoint."""
    with FakeDynamoDB() as fake:
        lines = b"".join(b'{"Item":{"pk":{"S":"%d"}}}\n' % number for number in range(50))
        fake.load("orders", lines, "pk:S")
        fake.load("empty", b"", "pk:S")
        yield {"endpoint_url": fake.endpoint_url}


def test_jobs_report_their_end(here, tmp_path):
    """The last report of a scan, a load, a copy and a read of an export has the job as done."""
    seen = []
    ddbio.scan_to_files("orders", tmp_path / "out", engine="local", progress=seen.append, **here)
    ddbio.load_files(tmp_path / "out", "empty", state=str(tmp_path / "state"), progress=seen.append, **here)
    ddbio.copy_table("orders", "empty", progress=seen.append, **here)
    ddbio.scan_to_files("orders", tmp_path / "export", format="dynamodb-export", engine="local", **here)
    folder = next(path.parent for path in (tmp_path / "export").rglob("manifest-summary.json"))
    ddbio.read_export_to_files(folder, tmp_path / "read", engine="local", progress=seen.append)
    ends = [(progress.job.split()[0], progress.items, progress.goal) for progress in seen if progress.is_done]
    assert ends == [("scan", 50, 50), ("load", 50, 50), ("copy", 50, 50), ("read", 50, 50)]


def test_a_continued_load_counts_what_is_done(here, tmp_path):
    """Rows of earlier runs are done from the start, and part of the goal."""
    ddbio.scan_to_files("orders", tmp_path / "out", engine="local", **here)
    seen = []
    for _ in range(2):
        job = {"job_id": "again", "state": str(tmp_path / "state")}
        ddbio.load_files(tmp_path / "out", "empty", progress=seen.append, **job, **here)
    assert [(progress.items, progress.goal) for progress in seen if progress.is_done] == [(50, 50), (50, 50)]


def test_an_error_of_the_job_is_its_end(here, tmp_path):
    """A failing job reports no end, and its own error is raised."""
    seen = []
    with pytest.raises(ddbio.NotFoundError):
        ddbio.scan_to_files("missing", tmp_path / "out", progress=seen.append, **here)
    assert [progress for progress in seen if progress.is_done] == []
