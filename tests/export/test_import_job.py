"""What a manifest says of files for an import: all of it, or nothing is believed."""

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
    """Each value is where it belongs; what a later release adds is passed over."""
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
def test_anything_else_says_nothing(data):
    """What is no such manifest, or has a value of another type, is none."""
    assert ImportedFiles.parse(data) is None
