"""Data files of a folder."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cli.reports import text_of
from ddbio.errors import DecodeError, NotFoundError, OptionError, TargetError
from ddbio.formats.row_files import RowFiles, read_batches, read_schema
from ddbio.items.schema.item_schema import ItemSchema
from ddbio.options import ConnectionOptions, parse_options
from ddbio.sources.data_files import find_data, is_data, read_lines
from ddbio.storage.local_store import LocalStore
from ddbio.storage.paths import escape_glob, matcher
from ddbio.testing import FakeDynamoDB

METADATA = ["_ddbio/20260101T000000Z_0.json", "_SUCCESS.json", ".a.json.crc.json", "manifest-x.json"]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with metadata files of Spark, AWS and ddbio's own jobs."""
    (tmp_path / "_ddbio").mkdir()
    for name in METADATA:
        (tmp_path / name).write_text('{"rows": 1}')
    return tmp_path


def test_metadata_is_no_data(folder):
    """Manifests and hidden files are skipped."""
    with pytest.raises(NotFoundError, match="holds no file"):
        find_data(str(folder), ConnectionOptions())
    (folder / "data").mkdir()
    (folder / "data" / "b.json").write_text("{}")
    (folder / "a.json.gz").write_bytes(b"x")
    (folder / "empty.json").touch()
    data_files = find_data(str(folder), ConnectionOptions())
    assert [file.path for file in data_files.files] == ["a.json.gz", "data/b.json"]
    assert data_files.skipped == (".a.json.crc.json", "_SUCCESS.json", "manifest-x.json")


def test_the_schema_of_a_job_s_target_is_that_of_its_files(folder):
    """If a job wrote Parquet next to its manifest, the manifest is not read as items."""
    pq.write_table(pa.table({"pk": ["x"]}), folder / "part.zstd.parquet")
    assert ddbio.infer_schema(folder).to_arrow().names == ["pk", "_rescue"]


class Counting(LocalStore):
    """Store that counts the bytes read, and refuses to read files completely."""

    n_bytes = 0

    def read(self, path):
        """Raise."""
        raise AssertionError(path)

    def read_chunks(self, path):
        """Yield pieces, and count them."""
        for chunk in super().read_chunks(path):
            self.n_bytes += len(chunk)
            yield chunk

    def read_range(self, entry, start, length):
        """Return a range, and count it."""
        self.n_bytes += length
        return super().read_range(entry, start, length)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_first_lines_do_not_read_the_full_file(tmp_path, pack):
    """The first lines of a long file are read with little more than their size. A short file is read completely."""
    noise = np.random.default_rng(1).bytes(12 << 20).hex().encode()
    (tmp_path / "long.json").write_bytes(
        pack(b"1\n2\n3\n" + b"\n".join(noise[at : at + 99] for at in range(0, len(noise), 99)))
    )
    (tmp_path / "short.json").write_bytes(pack(b"1\n2"))
    store = Counting(str(tmp_path))
    assert read_lines(store, "long.json", 3) == b"1\n2\n3\n"
    assert store.n_bytes <= 4 << 20
    assert read_lines(store, "short.json", 3) == b"1\n2\n"


def test_a_parquet_schema_does_not_read_the_full_file(tmp_path):
    """The schema of a Parquet file is read from its footer. Rows are read on request."""
    table = pa.table({"n": np.random.default_rng(1).integers(0, 1 << 60, 1 << 20)})
    pq.write_table(table, tmp_path / "a.parquet")
    store = Counting(str(tmp_path))
    assert read_schema(store, "a.parquet").names == ["n"]
    assert store.n_bytes <= 1 << 17
    assert pa.Table.from_batches(read_batches(store, next(store.list("a.parquet")))).equals(table)
    with pytest.raises(NotFoundError, match=r"b\.parquet: there is no such file"):
        read_schema(store, "b.parquet")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("wrap", [lambda item: item, lambda item: {"Item": item}, lambda item: {"Items": [item] * 9}])
def test_a_sample_of_files_is_their_first_items(tmp_path, wrap, indent):
    """Items are those of the first lines, or of the full file if a document continues after them."""
    item = {"a": {"S": "x"}, "m": {"M": {"b": {"N": "1"}}}}
    later = item if "Items" in wrap(item) else {"later": {"S": "x"}}
    for name in ("a.json", "b.json"):
        documents = [wrap(item)] if "Items" in wrap(item) else [wrap(item)] * 3 + [wrap(later)]
        (tmp_path / name).write_text("\n".join(json.dumps(value, indent=indent) for value in documents))
    assert ddbio.infer_schema(tmp_path, sample_items=6).to_arrow() == ItemSchema.of_items([item]).to_arrow()
    (tmp_path / "b.json").write_text('{"a":{"S":"x"}}\n{"a":{"S":5}}\n')
    with pytest.raises(DecodeError, match=r"b\.json: line 2: a: expected a JSON string, found 5"):
        ddbio.infer_schema(tmp_path, sample_items=6)


def test_a_name_that_may_be_a_table_is_no_folder(folder, monkeypatch):
    """A bare name is a table's name. If a folder has the same name, neither is used."""
    monkeypatch.chdir(folder)
    (folder / "orders").mkdir()
    pq.write_table(pa.table({"pk": ["x"]}), folder / "orders" / "part.parquet")
    (folder / "one.jsonl").write_text("{}")
    for take in (is_data, ddbio.digest, ddbio.infer_schema):
        with pytest.raises(
            OptionError, match=r"'orders' is a folder here, but can also be the name of a table: use \./orders"
        ):
            take("orders")
    for name in ("./orders", "orders/", str(folder / "orders"), ".", "one.jsonl", "s3://bucket", "./one.jsonl"):
        assert is_data(name)
    assert not is_data("other")
    assert not is_data("arn:aws:dynamodb:eu-west-1:1:table/orders")
    assert ddbio.digest("./orders") == ddbio.digest(Path("orders")) == ddbio.digest(pa.table({"pk": ["x"]}))


@pytest.fixture
def put(request, tmp_path):
    """Return a function that stores bytes under a name, and the location and the options to read it."""
    if getattr(request, "param", "local") == "local":

        def write(name, data):
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        return write, f"{tmp_path}/in", {}
    url = request.getfixturevalue("s3_url")
    client = ClientSpec(endpoint_url=url, region="us-east-1").client("s3")
    client.create_bucket(Bucket="files")
    for value in client.list_objects_v2(Bucket="files").get("Contents", []):
        client.delete_object(Bucket="files", Key=value["Key"])
    return lambda name, data: client.put_object(Bucket="files", Key=f"in/{name}", Body=data), "s3://files/in", {"s3_endpoint_url": url, "region": "us-east-1"}  # fmt: skip # noqa: E501


def lines_of(*keys):
    """Return items as lines of DynamoDB JSON."""
    return b"".join(b'{"id":{"S":"%s"}}\n' % key.encode() for key in keys)


def keys_in(source, options, **more):
    """Return the keys of the items that digest, schema and load all find, through the reader of loads."""
    data_files = find_data(source, parse_options(ConnectionOptions, options), **more)
    assert ddbio.infer_schema(source, **options, **more).to_arrow().names == ["id", "_rescue"]
    files = RowFiles(data_files.store)
    rows = [row["id"] for file in data_files.files for batch in files.read_file(file) for row in batch.to_pylist()]
    assert ddbio.digest(source, **options, **more) == ddbio.digest(pa.table({"id": rows}))
    return sorted(rows)


NAMES = ["a[1].json", "a*.json", "a?.json", "[ab].json", "a[!1].json", "**.json", "a [1] b.json", "x[1]/a.json"]


@pytest.mark.parametrize(
    ("put", "name"),
    [*(("local", name) for name in NAMES), ("s3", NAMES[0]), ("s3", NAMES[1]), ("s3", NAMES[-1])],
    indirect=["put"],
)
def test_a_name_that_exists_is_no_glob(put, name):
    """A file and a folder are used literally, with any signs in their names. Only other names are globs."""
    write, location, options = put
    for value in ("a1.json", "a2.json", "b.json", "x1/a.json"):
        write(value, lines_of(value))
    write(name, lines_of("wanted"))
    assert keys_in(f"{location}/{name}", options) == ["wanted"]
    if "/" in name:
        assert keys_in(f"{location}/{name.partition('/')[0]}", options) == ["wanted"]
        assert keys_in(f"{location}/{name.partition('/')[0]}/", options) == ["wanted"]


@pytest.mark.parametrize(
    ("glob", "keys"),
    [
        ("a[1].json", ["a1.json"]),
        ("a[12].json", ["a1.json", "a2.json"]),
        ("a[!1].json", ["a2.json"]),
        ("a?.json", ["a1.json", "a2.json"]),
        ("*.json", ["a1.json", "a2.json", "b.json"]),
        ("**/*.json", ["a1.json", "a2.json", "b.json", "x1/a.json"]),
        ("x*", ["x1/a.json"]),
        ("x[0-9]/*", ["x1/a.json"]),
        ("[[]ab].json", ["[ab].json"]),
    ],
)
def test_other_names_are_globs_for_every_verb(put, glob, keys):
    """Digest, schema and load accept the same globs, and an escaped glob is a name."""
    write, location, options = put
    for value in ("a1.json", "a2.json", "b.json", "x1/a.json", *(["[ab].json"] if "[[]" in glob else [])):
        write(value, lines_of(value))
    assert keys_in(f"{location}/{glob}", options) == keys


@pytest.mark.parametrize("key", NAMES)
def test_an_escaped_name_is_only_itself(key):
    """The events of S3 have the key of an object, which matches no other glob."""
    assert matcher(escape_glob(key)).fullmatch(key)
    assert not any(matcher(escape_glob(key)).fullmatch(value) for value in ("a1.json", "a2.json", "ab.json", "a.json"))


def parquet_of(*keys):
    """Return items as a file of Parquet."""
    return written(pq.write_table, keys)


def written(write, keys):
    """Return items as a file that a function writes."""
    sink = io.BytesIO()
    write(pa.table({"id": list(keys)}), sink)
    return sink.getvalue()


def avro_of(*keys):
    """Return items as a file of Avro."""
    sink = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    fastavro.writer(sink, schema, [{"id": key} for key in keys])
    return sink.getvalue()


def arrow_of(*keys):
    """Return items as a file of Arrow."""
    return written(feather.write_feather, keys)


UNNAMED = ["000000_0", "run-1690000000000-part-r-00001", "x-1-2024-11-22-18-05-00-uuid", "part-00000.c000", "data.txt"]


@pytest.mark.parametrize(
    ("put", "make"),
    [
        ("local", parquet_of),
        ("local", lambda *keys: written(pa.orc.write_table, keys)),
        ("local", avro_of),
        ("local", arrow_of),
        ("s3", parquet_of),
    ],
    indirect=["put"],
)
def test_a_format_is_detected_by_bytes(put, make):
    """Files of Glue, Hive and Athena without an ending are read if their bytes have a known format."""
    write, location, options = put
    write("a.json", lines_of("a"))
    for name in UNNAMED:
        write(name, make(name))
    assert keys_in(location, options) == sorted(["a", *UNNAMED])
    assert keys_in(f"{location}/{UNNAMED[0]}", options) == UNNAMED[:1]
    assert keys_in(f"{location}/*_0", options) == UNNAMED[:1]


@pytest.mark.parametrize(
    ("put", "name"),
    [
        *(("local", name) for name in [*UNNAMED, "a.tsv", "a.ion.gz", "part-00000.gz", "data.bz2", "ORC_ids"]),
        ("s3", UNNAMED[0]),
    ],
    indirect=["put"],
)
def test_an_unknown_format_is_refused(put, name):
    """Text without an ending is neither left out nor guessed. The error has the option for its format."""
    write, location, options = put
    write("a.json", lines_of("a"))
    write(name, b"ORC,b\n" if name == "ORC_ids" else lines_of("b"))
    for read in (ddbio.digest, ddbio.infer_schema, ddbio.layout):
        for source in (location, f"{location}/*"):
            with pytest.raises(OptionError, match=rf"{re.escape(name)} has an unknown format, .*: give input_format"):
                read(source, **options)
    if name != "ORC_ids":
        assert keys_in(location, options, input_format="json") == ["a", "b"]
    # The suggestion of the message works, too.
    assert keys_in(f"{location}/*.json", options) == ["a"]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.json.bz2", bz2.compress),
        ("a.json.gz", gzip.compress),
        ("a.JSON.GZ", gzip.compress),
        ("part-0.bz2", bz2.compress),
        ("part-0.gz", gzip.compress),
        ("part-0.deflate", bytes),
        ("part-0", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_a_format_that_is_stated(put, name, pack):
    """The stated format applies to all files, compressed or not, in load, digest and schema."""
    write, location, options = put
    write(name, pack(lines_of("a", "b")))
    write("_SUCCESS", b"")
    assert keys_in(location, options, input_format="json") == ["a", "b"]
    assert keys_in(f"{location}/{name}", options, input_format="json") == ["a", "b"]
    with pytest.raises(DecodeError):
        ddbio.digest(location, input_format="parquet", **options)


@pytest.mark.parametrize("put", ["local", "s3"], indirect=True)
def test_files_left_out_by_name_are_reported(put, caplog):
    """Files with names of metadata are reported, and those without rows are not."""
    write, location, options = put
    write("a.json", lines_of("a"))
    hidden = ["_b.json", ".c.parquet", "manifest-1.json", "_temporary/0/d.json", "README.md"]
    for value in hidden:
        write(value, parquet_of("x") if value.endswith("parquet") else lines_of("x"))
    for value in ("_SUCCESS", "_committed_1", "_metadata", ".a.json.crc", "empty.json", "_ddbio/x.claim.json"):
        write(value, b"" if value in {"_SUCCESS", "empty.json"} else b'{"format": 1}')
    data_files = find_data(location, parse_options(ConnectionOptions, options))
    assert (sorted(data_files.skipped), len(data_files.files)) == (sorted(hidden), 1)
    assert "5 files are left out, since their names are not those of data files: " in caplog.text
    assert keys_in(f"{location}/_b.json", options) == ["x"]


def test_reports_and_plans_list_left_out_files(tmp_path):
    """A load and an import report the files that they did not read, in JSON and in text."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(lines_of("a"))
    (tmp_path / "in" / "_b.json").write_bytes(lines_of("b"))
    with FakeDynamoDB() as fake:
        fake.load("rows", b"", "id:S")
        options = {"endpoint_url": fake.endpoint_url, "region": "us-east-1"}
        plan = ddbio.plan_load(tmp_path / "in", "rows", **options)
        report = ddbio.load_files(tmp_path / "in", "rows", **options)
    assert plan.files_skipped == report.files_skipped == ("_b.json",)
    assert "1 file whose names mark them as no data: _b.json" in text_of(plan)
    assert "1 file whose names mark them as no data: _b.json" in text_of(report)
    assert ddbio.write_import_files(tmp_path / "in", tmp_path / "out", key="id:S").files_skipped == ("_b.json",)
    assert ddbio.plan_import_files(tmp_path / "in", tmp_path / "new", key="id:S").files_skipped == ("_b.json",)


def test_digest_and_schema_read_all_formats_of_a_folder(put):
    """A folder of JSON and of other formats is read completely, as in a load."""
    write, location, options = put
    write("a.jsonl", lines_of("a"))
    write("b.parquet", parquet_of("b"))
    write("c.avro", avro_of("c"))
    write("d.csv", b"id\nd\n")
    write("day=1/e.parquet", parquet_of("e"))
    rows = pa.table({"id": [*"abcde"], "day": pa.array([None] * 4 + [1])})
    assert ddbio.digest(location, **options) == ddbio.digest(rows)
    assert {*ddbio.infer_schema(location, **options).to_arrow().names} == {"id", "day", "_rescue"}
    assert ddbio.layout(location, **options).files == 5


def test_a_published_folder_leaves_no_row_out(tmp_path):
    """Files with an unknown format are an error of a publication."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(parquet_of("a"))
    (tmp_path / "in" / "000000_0").write_bytes(parquet_of("b"))
    for publish in (ddbio.publish, ddbio.plan_publish):
        with pytest.raises(TargetError, match="1 files without a known suffix, such as 000000_0"):
            publish(tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "000000_0").rename(tmp_path / "in" / "b.parquet")
    assert ddbio.publish(tmp_path / "in", tmp_path / "out").files == 2
