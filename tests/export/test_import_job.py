"""Manifests of files for an import, which are read completely or ignored."""

import json

import pytest

from ddbio.export.imports import ImportedFiles

STATED = {
    "key": "pk:S",
    "format": "dynamodb_json",
    "compression": "zstd",
    "items": 3,
    "json_bytes": 90,
    "digest": None,
}


def manifest(**changes):
    """Return a job's manifest."""
    return json.dumps({"source": {"import": STATED | changes}}).encode()


def test_a_manifest_is_read():
    """All values are read; additions of later releases are ignored."""
    assert ImportedFiles.parse(manifest(more=1)) == ImportedFiles(**STATED)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"source": 1}',
        b'{"source": {"table": "x"}}',
        manifest(key=1),
        manifest(items="3"),
        manifest(items=True),
        manifest(json_bytes=None),
        manifest(compression=["zstd"]),
    ],
    ids=str,
)
def test_other_data_has_no_position(data):
    """Data that is no such manifest, or has a value of another type, is ignored."""
    assert ImportedFiles.parse(data) is None
