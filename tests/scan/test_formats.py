"""Scans into every format, and reads of their files by other verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.formats.registry import FORMATS

FORMAT_NAMES = [name for name, file_format in FORMATS.items() if file_format.extensions]


@pytest.fixture
def scan(fake, tmp_path):
    """Return the verb for the fake and the folder of the test."""

    def run(table, **options):
        options = {"endpoint_url": fake.endpoint_url, "engine": "local", "nulls": "keep", **options}
        return ddbio.scan_to_files(table, tmp_path / "out", **options)

    return run


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_files_of_a_scan_hold_the_table(scan, tmp_path, name):
    """The digest of the folder is equal to that of the service's responses, including misfits and NULL."""
    report = scan("drifted", format=name, digest=True, segments=2, sample_items=100)
    assert report.rows == 3000
    assert report.rescued
    extension = FORMATS[name].extensions[FORMATS[name].codec(None)]
    assert {file.path.rpartition("/")[2].partition(".")[2] for file in report.files} == {extension}
    assert ddbio.digest(tmp_path / "out") == report.digest
    assert ddbio.digest(str(tmp_path / "out" / report.files[0].path.rpartition("/")[2]))


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_files_of_a_scan_are_loaded_exactly(fake, scan, tmp_path, name):
    """A table that is loaded from the files of a scan has the same items; the files contain the types."""
    report = scan("drifted", format=name, digest=True, sample_items=100, segments=1)
    target = f"loaded-{name}"
    fake.load(target, b"", "pk:S")
    loaded = ddbio.load_files(tmp_path / "out", target, endpoint_url=fake.endpoint_url, engine="local")
    assert (loaded.rows, loaded.rejected) == (3000, 0)
    assert ddbio.digest(target, endpoint_url=fake.endpoint_url, nulls="keep") == report.digest


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["csv", "json", "orc", "avro", "dynamodb-json"])
def test_partitioned_files_of_a_scan_hold_the_table(scan, tmp_path, name, keep):
    """A partition column is read from the folder names, unless the files contain it."""
    options = {"partition_by": "origin", "keep_partition_columns": keep}
    report = scan("flights", format=name, digest=True, segments=1, **options)
    assert len(report.files) == 3
    assert ddbio.digest(tmp_path / "out") == report.digest


def test_a_codec_is_refused_before_anything_is_read(scan, tmp_path):
    """A codec that the format does not support, or any codec of an export, is refused; the error lists the others."""
    with pytest.raises(OptionError, match="format json has no compression snappy: give gzip, zstd, none"):
        scan("types", format="json", compression="snappy")
    with pytest.raises(OptionError, match="the files of an export are gzip"):
        scan("types", format="dynamodb-export", compression="zstd")
    assert not (tmp_path / "out").exists()


def test_lines_are_plain_json(scan):
    """Numbers that fit doubles are numbers, others are text; binary is base64, sets are lists, NULL is rescued."""
    report = scan("types", format="json", compression="none", segments=1)
    [line] = [line for line in Path(report.files[0].path).read_text().splitlines() if '"item-00007"' in line]
    assert json.loads(line) == {
        "pk": "item-00007",
        "n": 7,
        "price": "7.25",
        "big": "12345678901234567890123456789012345678",
        "b": "AAAABw==",
        "flag": False,
        "ss": ["x", "y"],
        "ns": ["1", "2.5"],
        "bs": ["eg=="],
        "list": [1, 2],
        "map": {"city": "Ulm", "zip": 89073},
        "_rescue": '{"none":{"NULL":true}}',
    }
