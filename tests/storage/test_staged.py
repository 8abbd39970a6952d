from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import OptionError, TargetError
from ddbio.storage.staged import FileNaming, StagedFile, contained, job_of

JOB_IDS = st.text("abcXYZ019_", min_size=1, max_size=8)


@given(JOB_IDS, st.integers(0, 10**6), st.integers(0, 99), st.integers(0, 10**5))
def test_a_name_has_the_id_of_its_job(job_id, task, attempt, number):
    """The job id is parsed from a file's name, in any folder."""
    path = FileNaming(job_id, task, attempt).path(number, "zstd.parquet")
    inside = FileNaming(job_id, task, attempt).path(number, "zstd.parquet", "year=2025/place=a b%2F/")
    assert job_of(path) == job_of(inside) == job_id


def test_a_name_has_job_task_attempt_and_number():
    """No two attempts share a name, and names sort in the order of tasks."""
    assert FileNaming("j1", 7, 2).path(3, "zstd.parquet") == "part-j1-00007-2-0003.zstd.parquet"


@pytest.mark.parametrize(
    "path", ["data.parquet", "part-00000-ab-c000.snappy.parquet", "part-j-1-0-0/other", "_ddbio/j"]
)
def test_foreign_names_belong_to_no_job(path):
    """Files that were not named by a job have no job, including Spark's own."""
    assert job_of(path) == ""


@pytest.mark.parametrize("job_id", ["", "a-b", "a/b", "é"])
def test_unfit_job_ids_are_refused(job_id):
    """A job id that would make a name ambiguous is refused."""
    with pytest.raises(OptionError):
        FileNaming(job_id, 0)


def test_staged_survives_json_and_pickle():
    """The data that completes a file is unchanged in the intent and between processes."""
    staged = StagedFile("part-j-0-0-0.parquet", 7, 2, {"upload_id": "u", "parts": [{"PartNumber": 1, "ETag": "e"}]})
    in_partition = replace(staged, partition={"day": "1", "x": None}, statistics={"pk": {"nulls": 0, "min": 1}})
    for file in (staged, in_partition):
        assert StagedFile(**json.loads(json.dumps(asdict(file)))) == file
        assert pickle.loads(pickle.dumps(file)) == file


OUTSIDE = (
    *("", "..", "../a", "a/..", "a/../b", "a/../../b", "_ddbio/../../b", "../../victim/photos", "a\\..\\b", "..\\a"),
    *("a/..\\b", "a\0b", "\0", "\ud800", "a/\udfff\ud800"),
    *(None, 5, True, ["a"], {"path": "a"}, b"a"),
)
ODD = ("/a", "//a", "/", "a//b", "a/", "./a", ".", "a/./b", "\\\\host\\share", "\\a")
INSIDE = (
    *("a", "a/b", "...", "..a/b..", "a..b", "_ddbio/x.json", "day=1/a%2Fb c/ü.parquet", "a\\b", " ", "a:b", "~/a"),
    *("C:a", "s3:a", "%2e%2e%2fa", "name\udcff"),
)


@pytest.mark.parametrize("path", [*OUTSIDE, *ODD])
def test_a_path_that_may_lead_out_is_refused(path):
    """Parent folders, absolute and empty parts, NUL, paths that no file system has, and other types are refused."""
    with pytest.raises(TargetError, match="is no path within s3://bucket/x") as refused:
        contained(path, "s3://bucket/x")
    assert refused.value.uri == "s3://bucket/x"


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_within_is_unchanged(path):
    """Nothing is normalized or decoded."""
    assert contained(path, "x") == contained(path, "x", is_key=True) == path


@pytest.mark.parametrize("path", ODD)
def test_keys_of_other_programs_may_have_empty_parts(path):
    """S3 uses keys literally: they cannot lead out of a prefix, unless a server treats parts as folders."""
    assert contained(path, "x", is_key=True) == path


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_key_climbs(path):
    """Some servers of S3's protocol store objects in folders."""
    with pytest.raises(TargetError):
        contained(path, "x", is_key=True)


def test_a_long_path_is_shortened_in_the_message():
    """A name of a megabyte is not printed."""
    with pytest.raises(TargetError) as refused:
        contained("../" * 300_000, "x")
    assert len(str(refused.value)) < 500
