"""Files for imports, byte by byte, as their formats are documented."""

import gzip
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import ddbio

TYPES = pa.schema(
    [
        pa.field("pk", pa.string()),
        pa.field("sk", pa.int64()),
        pa.field("price", pa.decimal128(5, 2)),
        pa.field("img", pa.binary()),
        pa.field("paid", pa.bool_()),
        pa.field("tags", pa.list_(pa.string()), metadata={"ddb:type": "SS"}),
        pa.field("sizes", pa.list_(pa.int64()), metadata={"ddb:type": "NS"}),
        pa.field("lines", pa.list_(pa.struct([("sku", pa.string()), ("qty", pa.int64())]))),
        pa.field("note", pa.string()),
    ]
)
ROW = {
    "pk": 'a "b"\\ä', "sk": -7, "price": Decimal("12.50"), "img": b"hello", "paid": True, "tags": ["new", "vip"],
    "sizes": [1, 2], "lines": [{"sku": "A1\n", "qty": None}], "note": None,
}  # fmt: skip
DYNAMODB_JSON = (
    '{"Item":{"pk":{"S":"a \\"b\\"\\\\ä"},"sk":{"N":"-7"},"price":{"N":"12.5"},"img":{"B":"aGVsbG8="},'
    '"paid":{"BOOL":true},"tags":{"SS":["new","vip"]},"sizes":{"NS":["1","2"]},'
    '"lines":{"L":[{"M":{"sku":{"S":"A1\\n"}}}]}}}\n'
)
ION = (
    '$ion_1_0 {Item:{"pk":"a \\"b\\"\\\\ä","sk":-7.,"price":12.5,"img":{{aGVsbG8=}},"paid":true,'
    '"tags":$dynamodb_SS::["new","vip"],"sizes":$dynamodb_NS::[1.,2.],"lines":[{"sku":"A1\\n"}]}}\n'
)
OLDER = {"Item": {"pk": {"S": "a"}, "v": {"N": "3"}}, "ExpressionAttributeValues": {":v0": {"N": "3"}}}
NEWER_BY = {
    "ConditionExpression": "attribute_not_exists(#n0) OR #n1 < :v0",
    "ExpressionAttributeNames": {"#n0": "pk", "#n1": "v"},
}
IF_ABSENT = {"ConditionExpression": "attribute_not_exists(#n0)", "ExpressionAttributeNames": {"#n0": "pk"}}


def inflated(path):
    """Return the text of an object, decompressed according to the ending of its name."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return pa.CompressedInputStream(pa.py_buffer(data), "zstd").read() if path.suffix == ".zst" else data


def written(folder, rows, **options):
    """Return the text of the only object that is written for rows."""
    ddbio.write_import_files(rows, folder / "out", **options)
    (path,) = (folder / "out/data").iterdir()
    return path, inflated(path).decode()


@pytest.mark.parametrize(("compression", "ending"), [("zstd", ".zst"), ("gzip", ".gz"), ("none", "")])
@pytest.mark.parametrize(
    ("file_format", "kind", "text"), [("dynamodb_json", ".json", DYNAMODB_JSON), ("ion", ".ion", ION)]
)
def test_an_item_of_every_type(tmp_path, compression, ending, file_format, kind, text):
    """The line is as documented. A null is left out. Numbers have no trailing zeros."""
    rows = pa.Table.from_pylist([ROW], schema=TYPES)
    path, actual = written(tmp_path, rows, key="pk:S,sk:N", format=file_format, compression=compression)
    assert actual == text
    assert path.name.endswith(f"{kind}{ending}")


@pytest.mark.parametrize(
    ("delimiter", "text"),
    [(None, 'pk,sk,t\n"a,b",1,"say ""x"";"\n'), (";", 'pk;sk;t\n"a,b";1;"say ""x"";"\n'), ("\t", None), (" ", None)],
)
def test_csv(tmp_path, delimiter, text):
    """The text has a header, doubled quotes, and unquoted numbers of keys, with any delimiter."""
    rows = pa.table({"pk": ["a,b"], "sk": [1], "t": ['say "x";']})
    _, actual = written(tmp_path, rows, key="pk:S,sk:N", format="csv", delimiter=delimiter, compression="none")
    assert actual == (text or 'pk,sk,t\n"a,b",1,"say ""x"";"\n'.replace(",", delimiter).replace("a" + delimiter, "a,"))


@pytest.mark.parametrize(
    ("options", "members"), [({"newer_by": "v"}, {**OLDER, **NEWER_BY}), ({"if_absent": True}, IF_ABSENT)]
)
def test_conditions(tmp_path, options, members):
    """A line has the members of PutItem next to its item."""
    _, actual = written(tmp_path, pa.table({"pk": ["a"], "v": [3]}), key="pk:S", compression="none", **options)
    assert json.loads(actual) == {"Item": OLDER["Item"], **members}
    assert actual.startswith('{"Item":')
    assert actual.count("\n") == 1


def test_the_manifest_is_outside_the_prefix(tmp_path):
    """Everything below the prefix is imported, so the manifest is outside. It has the parameters of the request."""
    report = ddbio.write_import_files(
        pa.table({"pk": ["a"], "day": ["x"]}), tmp_path, key="pk", gsi="by_day=day:S", format="csv", delimiter="|"
    )
    stated = json.loads((tmp_path / f"_ddbio/{report.job_id}.json").read_bytes())["source"]["import"]
    assert stated == {
        "key": "pk:S", "gsi": ["by_day=day:S"], "format": "csv", "compression": "zstd", "delimiter": "|",
        "condition": None, "items": 1, "json_bytes": len('pk|day\n"a"|"x"\n'), "digest": None,
    }  # fmt: skip
    assert [path.name for path in (tmp_path / "data").iterdir()] == [report.files[0].path.rpartition("/")[2]]
