from __future__ import annotations

import pytest

from ddbio.errors import TargetError
from ddbio.storage.staged import contained

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
    """Parts that climb, absolute and empty parts, NUL, what no file system has, and what is no text."""
    with pytest.raises(TargetError, match="is no path within s3://bucket/x") as refused:
        contained(path, "s3://bucket/x")
    assert refused.value.uri == "s3://bucket/x"


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_within_is_taken_as_it_is(path):
    """Nothing is normalized or decoded."""
    assert contained(path, "x") == contained(path, "x", is_key=True) == path


@pytest.mark.parametrize("path", ODD)
def test_keys_of_other_programs_may_have_empty_parts(path):
    """S3 takes keys literally: they cannot lead out of a prefix, unless a server takes parts for folders."""
    assert contained(path, "x", is_key=True) == path


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_key_climbs(path):
    """Some servers of S3's protocol keep objects in folders."""
    with pytest.raises(TargetError):
        contained(path, "x", is_key=True)


def test_a_long_path_is_shortened_in_the_message():
    """A megabyte of a name is not printed."""
    with pytest.raises(TargetError) as refused:
        contained("../" * 300_000, "x")
    assert len(str(refused.value)) < 500
