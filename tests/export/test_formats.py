"""Exports with all types are read and folded into files of every format."""

import base64
import json

import pytest

import ddbio
from ddbio.formats.registry import FORMATS
from ddbio.testing.export import Change, ExportWriter

FORMAT_NAMES = [name for name, file_format in FORMATS.items() if file_format.extensions]


def every_type(number):
    """Return an item of all ten types, some of whose attributes have another type than most."""
    return {
        "pk": {"S": f"item-{number}"},
        "n": {"N": str(number)} if number % 50 else {"S": "no number"},
        "price": {"N": f"{number}.25"},
        "wide": {"N": "12345678901234567890123456789012345678"},
        "tiny": {"N": "1E-130"},
        "b": {"B": base64.b64encode(number.to_bytes(4, "big")).decode()},
        "flag": {"BOOL": number % 2 == 0},
        "none": {"NULL": True},
        "ss": {"SS": ["x", 'y"\n,']},
        "ns": {"NS": ["1", "2.5"]},
        "bs": {"BS": ["eg=="]},
        "l": {"L": [{"N": "1"}, {"S": "two"}, {"NULL": True}]},
        "m": {"M": {"city": {"S": "Ulm"}, "zip": {"N": "89073"}, "a b-c": {"M": {}}}},
        **({} if number % 3 else {"late": {"S": ""}}),
    }


def digest_of(items):
    """Return the digest of items."""
    return ddbio.digest("".join(json.dumps(item) + "\n" for item in items).encode(), nulls="keep")


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Return a full export, an increment, and the items before and after it."""
    writer = ExportWriter(tmp_path_factory.mktemp("exports"))
    before = {number: every_type(number) for number in range(120)}
    full = writer.full(before.values())
    after = {number: item for number, item in before.items() if number != 7} | {3: every_type(3) | {"n": {"N": "-1"}}}
    after[500] = every_type(500)
    changes = [Change(1, {"pk": before[number]["pk"]}, after.get(number), before.get(number)) for number in (3, 7)]
    changes.append(Change(1, {"pk": after[500]["pk"]}, after[500]))
    return full, writer.incremental(changes), before.values(), after.values()


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_files_hold_the_items_of_an_export(exports, tmp_path, name):
    """The files of an export have the digest of its items, and those of a fold the digest of the changed ones."""
    full, increment, before, after = exports
    options = {"format": name, "engine": "local", "nulls": "keep", "sample_items": 50}
    report = ddbio.read_export_to_files(full, tmp_path / "read", tasks=2, **options)
    assert report.rows == len(before)
    assert ddbio.digest(tmp_path / "read") == digest_of(before)
    folded = ddbio.fold_exports_to_files(full, [increment], tmp_path / "fold", **options)
    assert folded.rows == len(after)
    assert ddbio.digest(tmp_path / "fold") == digest_of(after)


def test_plans_estimate_the_files_and_warn_of_small_ones(exports, tmp_path):
    """A plan has the expected number and size of files, and warns with figures if they are small."""
    full, increment, _, _ = exports
    options = {"engine": "local", "sample_items": 120, "tasks": 1, "format": "parquet"}
    for by, partitions in ((None, 1), (["flag"], 2), (["tiny", "pk"], 120)):
        plan_options = options | ({} if by is None else {"partition_by": by})
        plans = [
            ddbio.plan_read_export(full, tmp_path / "read", **plan_options),
            ddbio.plan_fold_exports(full, [increment], tmp_path / "fold", **plan_options),
        ]
        for plan in plans:
            assert (plan.partitions, plan.estimated_files) == (partitions, partitions)
            assert 0 < plan.estimated_file_bytes < 1 << 20
            warning = f"about 120 files of {plan.estimated_file_bytes / 2**20:,.2f} MiB in 120 partitions"
            assert [text.split(":")[0] for text in plan.warnings] == [warning] * (partitions > 16)
    report = ddbio.read_export_to_files(full, tmp_path / "made", **options, partition_by=["flag"])
    assert len(report.files) == 2
