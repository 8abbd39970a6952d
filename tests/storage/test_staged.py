from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import OptionError
from ddbio.storage.staged import FileNaming, StagedFile, job_of

JOB_IDS = st.text("abcXYZ019_", min_size=1, max_size=8)


@given(JOB_IDS, st.integers(0, 10**6), st.integers(0, 99), st.integers(0, 10**5))
def test_a_name_tells_its_job(job_id, task, attempt, number):
    """The job of a file is found in its name, whatever folder it lies in."""
    path = FileNaming(job_id, task, attempt).path(number, "zstd.parquet")
    inside = FileNaming(job_id, task, attempt).path(number, "zstd.parquet", "year=2025/place=a b%2F/")
    assert job_of(path) == job_of(inside) == job_id


def test_a_name_says_job_task_attempt_and_number():
    """No two attempts share a name, and names sort as tasks do."""
    assert FileNaming("j1", 7, 2).path(3, "zstd.parquet") == "part-j1-00007-2-0003.zstd.parquet"


@pytest.mark.parametrize(
    "path", ["data.parquet", "part-00000-ab-c000.snappy.parquet", "part-j-1-0-0/other", "_ddbio/j"]
)
def test_foreign_names_belong_to_no_job(path):
    """Files that no job named are nobody's, Spark's own included."""
    assert job_of(path) == ""


@pytest.mark.parametrize("job_id", ["", "a-b", "a/b", "é"])
def test_unfit_job_ids_are_refused(job_id):
    """A job id that would make a name ambiguous is refused."""
    with pytest.raises(OptionError):
        FileNaming(job_id, 0)


def test_staged_survives_json_and_pickle():
    """What completes a file goes through the intent and between processes unchanged."""
    staged = StagedFile("part-j-0-0-0.parquet", 7, 2, {"upload_id": "u", "parts": [{"PartNumber": 1, "ETag": "e"}]})
    in_partition = replace(staged, partition={"day": "1", "x": None}, statistics={"pk": {"nulls": 0, "min": 1}})
    for each in (staged, in_partition):
        assert StagedFile(**json.loads(json.dumps(asdict(each)))) == each
        assert pickle.loads(pickle.dumps(each)) == each
