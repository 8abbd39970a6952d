"""Parsing of locations, and the refused schemes."""

import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.options.locations import local_path, parse_location


@pytest.mark.parametrize(
    ("location", "parsed"),
    [
        ("s3://b/x y/[1].json", ("s3", "s3://b/x y/[1].json")),
        ("s3a://b/x", ("s3", "s3://b/x")),
        ("s3n://b", ("s3", "s3://b")),
        ("S3://B/x", ("s3", "s3://B/x")),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint/a/x", ("s3", "s3://arn:aws:s3:eu-west-1:1:accesspoint/a/x")),
        ("file:///a%20b/c?.json", ("file", "/a b/c?.json")),
        ("file:/a/b", ("file", "/a/b")),
        ("FILE://localhost/a#1", ("file", "/a#1")),
        ("/a/b:c", ("file", "/a/b:c")),
        ("orders:2026.json", ("file", "orders:2026.json")),
        ("2026-01-01T00:00:00/x", ("file", "2026-01-01T00:00:00/x")),
        ("./dbfs:/x", ("file", "./dbfs:/x")),
        ("x:/y", ("file", "x:/y")),
        ("", ("file", "")),
    ],
)
def test_locations_of_s3_and_of_this_machine(location, parsed):
    """Upper case, s3a and file URIs are accepted. A colon in a name is not a scheme."""
    assert parse_location(location) == parsed


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("dbfs:/mnt/lake", "'/dbfs/mnt/lake', or the path of a Volume"),
        ("dbfs:///mnt/lake", "'/dbfs/mnt/lake'"),
        ("dbfs:/Volumes/a/b/c", "'/Volumes/a/b/c'"),
        ("hdfs://name:8020/x", "'hdfs', which ddbio does not support"),
        ("hdfs:/x", "give s3://bucket/prefix, a local path, or file:///path"),
        ("gs:/b/x", "a local path of that name is './gs:/b/x'"),
        ("gs:b", "'gs'"),
        ("GS://b", "'gs'"),
        ("abfss://c@account.dfs.core.windows.net/x", "'abfss'"),
        ("wasbs:/x", "'wasbs'"),
        ("https://b.s3.amazonaws.com/x?X-Amz-Signature=SECRET", "'https'"),
        ("https://name:SECRET@host/x", "'https'"),
        ("glue://a.b", "'glue'"),
        ("arn:aws:s3:::bucket/x", "'arn'"),
        ("s3:/b/x", "one slash"),
        ("s3:b/x", "no slash"),
        ("S3:/b/x", "one slash"),
        ("file://host/x", "is not a file of this machine"),
        ("file:x", "is not a file of this machine"),
    ],
)
def test_other_schemes_are_refused(location, words):
    """The message lists the supported schemes, and nothing that may be a secret."""
    with pytest.raises(OptionError) as caught:
        parse_location(location)
    assert words in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_options_of_local_files(tmp_path):
    """A location that must be local is not an object."""
    assert local_path(f"file://{tmp_path}/a.html") == tmp_path / "a.html"
    with pytest.raises(OptionError, match="takes a file of this machine"):
        local_path("s3://b/prices.json")


@pytest.mark.parametrize("scheme", ["dbfs:/x", "gs://b/x", "hdfs:/x"])
def test_every_option_with_a_path_refuses_other_schemes(tmp_path, monkeypatch, scheme):
    """No verb uses such a location as a local folder, for any option."""
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id":{"S":"a"}}\n')
    calls = [
        lambda: ddbio.digest(scheme),
        lambda: ddbio.infer_schema(scheme),
        lambda: ddbio.layout(scheme),
        lambda: ddbio.layout(tmp_path, html=scheme),
        lambda: ddbio.validate(rows, scheme, key="id"),
        lambda: ddbio.validate(rows, rows, key="id", html=scheme),
        lambda: ddbio.validate(rows, rules=scheme),
        lambda: ddbio.compact(scheme),
        lambda: ddbio.compact(tmp_path, prices=scheme),
        lambda: ddbio.vacuum(scheme),
        lambda: ddbio.publish(scheme, tmp_path / "out"),
        lambda: ddbio.publish(tmp_path, scheme),
        lambda: ddbio.rollback(scheme),
        lambda: ddbio.list_files(scheme),
        lambda: ddbio.write_import_files(scheme, tmp_path / "out", key="id:S"),
        lambda: ddbio.write_import_files(rows, scheme, key="id:S"),
        lambda: ddbio.write_import_files(rows, tmp_path / "out", like=f"{scheme}.json"),
        lambda: ddbio.read_export(scheme),
        lambda: ddbio.apply(scheme, tmp_path / "lake"),
        lambda: ddbio.history(scheme, key="a"),
        lambda: ddbio.replay(scheme, tmp_path / "out"),
        lambda: ddbio.archive(scheme, tmp_path / "out"),
        lambda: ddbio.restore_archived(scheme, "rows"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(OptionError) as caught:
            call()
        assert "does not support" in str(caught.value), number
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
