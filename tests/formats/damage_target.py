"""Program that damages a file or an export one byte at a time, reads it as jobs do, and prints the outcomes.

Run as ``damage_target.py KIND… SEED COUNT`` in its own process, which a loop that leaves its memory would end.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

import ddbio
from ddbio.aws.table_description import TableDescription
from ddbio.commit.committer import CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.errors import DdbioError
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.formats.row_files import RowFiles
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.schema.arrow import RESCUE_FIELD, normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.load.encode import RowEncoder
from ddbio.load.options import LoadOptions
from ddbio.load.plan import plan_write
from ddbio.load.sources import open_source
from ddbio.load.unit_reader import read_unit
from ddbio.options import parse_options
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming, StagedFile
from ddbio.testing.export import ExportWriter

if TYPE_CHECKING:
    from ddbio.options import Compression

ROWS = 40
FACTS = TableDescription("rows", "arn", "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand=True)


def table() -> pa.Table:
    """Return rows with many Arrow layouts."""
    numbers = range(ROWS)
    return pa.table({
        "pk": [f"key-{number:04}" for number in numbers],
        "n": pa.array(numbers, pa.int64()),
        "price": pa.array([None if number % 7 == 0 else number for number in numbers]).cast(pa.decimal128(38, 2)),
        "text": ["é" * (number % 5) if number % 3 else None for number in numbers],
        "list": [["a", None, "c" * number] for number in numbers],
        "map": pa.array([[(f"k{number}", [number])] for number in numbers], pa.map_(pa.string(), pa.list_(pa.int32()))),
        "struct": [{"a": [{"b": "x"}], "flag": number % 2 == 0} for number in numbers],
        "choice": pa.array([f"c{number % 4}" for number in numbers]).dictionary_encode(),
        "binary": [bytes([number]) * number for number in numbers],
    })  # fmt: skip


def as_ipc(path: Path) -> None:
    """Write rows as an Arrow file."""
    # Without compression: every buffer is in the file exactly as the loops read it.
    with pa.ipc.new_file(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=16)


def as_stream(path: Path) -> None:
    """Write rows as an Arrow stream, with views and run ends."""
    views = (
        table().select(["pk", "n"]).append_column("view", pa.array(["a" * n for n in range(ROWS)], pa.string_view()))
    )
    views = views.append_column("runs", pa.RunEndEncodedArray.from_arrays([9, ROWS], ["x", "y"]))
    views = views.append_column("lists", pa.array([["a" * n] for n in range(ROWS)], pa.list_view(pa.string())))
    with pa.ipc.new_stream(path, views.schema) as writer:
        writer.write_table(views, max_chunksize=16)


def as_parquet(path: Path) -> None:
    """Write rows as Parquet with checksums of its pages."""
    pq.write_table(table(), path, write_page_checksum=True, row_group_size=16)


def as_orc(path: Path) -> None:
    """Write rows as ORC, which does not support dictionaries."""
    pa.orc.write_table(table().drop_columns(["choice"]), path, compression="zlib")


def staged(store: LocalStore, name: str, compression: Compression) -> tuple[list[StagedFile], pa.Schema]:
    """Stage rows as a job does, in a format that does not store Arrow types."""
    rows = table().drop_columns(["choice", "map"])
    options, schema = FileOptions(format=name, compression=compression), normalize_schema(rows.schema)
    writer = RollingWriter(store, FileNaming("job", 0), schema, options)
    for batch in rows.append_column(RESCUE_FIELD, pa.nulls(ROWS, pa.string())).to_batches():
        writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return writer.finish(), schema


def written(path: Path, name: str, compression: Compression) -> None:
    """Write rows as a file that no manifest lists."""
    store = LocalStore(path.parent)
    (file,), _ = staged(store, name, compression)
    store.complete(file)
    (path.parent / file.path).rename(path)


def committed(folder: Path, name: str, compression: Compression) -> None:
    """Write rows as a job does, with its manifest."""
    store = LocalStore(folder)
    with publishing(Target(store=store, mode="error"), "job") as publish:
        files, schema = staged(store, name, compression)
        publish(files, CommitInfo(created_at="", source={}, schema=schema_to_json(schema)))


FILES = {
    "avro": partial(written, name="avro", compression="snappy"),
    "zstd.avro": partial(written, name="avro", compression="zstd"),
    "own.parquet": partial(written, name="parquet", compression="zstd"),
    "csv": partial(written, name="csv", compression="none"),
    "csv.gz": partial(written, name="csv", compression="gzip"),
    "json": partial(written, name="json", compression="none"),
    "arrow": as_ipc,
    "ipc": as_stream,
    "parquet": as_parquet,
    "orc": as_orc,
}
FOLDERS: dict[str, tuple[str, Compression]] = {
    "own.orc": ("orc", "zstd"),
    "own.csv": ("csv", "none"),
    "own.csv.zst": ("csv", "zstd"),
    "own.json": ("json", "none"),
    "own.dynamodb.json": ("dynamodb-json", "none"),
    "own.avro": ("avro", "gzip"),
    "own.manifest": ("csv", "none"),
    "own.snapshot": ("csv", "none"),
}


def items() -> list[dict[str, dict[str, object]]]:
    """Return items of all types."""
    binary = base64.b64encode(b"\0\1").decode()
    return [
        {
            "pk": {"S": f"key-{number}"},
            "n": {"N": f"{number}.5"},
            "all": {"L": [{"B": binary}, {"NULL": True}, {"NS": ["1", "2"]}, {"M": {"x": {"BOOL": True}}}]},
        }
        for number in range(ROWS)
    ]


def read_file(path: Path) -> object:
    """Return the digest of a file's rows, which are also encoded for writes."""
    store = LocalStore(path.parent)
    files, plan = RowFiles(store), plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "t"}))
    (entry,) = [entry for entry in store.list() if entry.path == path.name]
    batches = [batch for part, _ in enumerate(files.parts(entry).sizes_bytes) for batch in files.read(entry, part)]
    for batch in batches:
        RowEncoder(batch.schema, plan).encode(batch)
    files.sample(entry, 5)
    return digest_of_batches(batches).as_tuple()


def read_folder(home: Path) -> object:
    """Return the digests of a folder's rows, as a digest and as a load read them."""
    options = parse_options(LoadOptions, {"source": str(home), "table": "t"})
    source, plan = open_source(options, {"pk": "S"}), plan_write(FACTS, options)
    files = RowFiles(source.store, ReadOptions({"pk": "S"}))
    batches = [batch for unit in source.units for batch in read_unit(files, unit)]
    for batch in batches:
        RowEncoder(batch.schema, plan).encode(batch)
    return digest_of_batches(batches).as_tuple(), ddbio.digest(home)


def read_export(home: Path) -> object:
    """Return the digest of an export's rows."""
    return digest_of_batches(ddbio.read_export_batches(home)).as_tuple()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with one byte changed."""
    index = chance.randrange(len(data))
    return data[:index] + bytes([data[index] ^ chance.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])]) + data[index + 1 :]


def outcomes(kind: str, seed: int, count: int, folder: Path) -> Counter[str]:
    """Return the numbers of damages that were refused, changed nothing, or changed a value."""
    chance, counts = random.Random(seed), Counter[str]()
    if kind in FILES:
        target = folder / f"rows.{kind}"
        FILES[kind](target)
        targets, read = [target], read_file
    elif kind in FOLDERS:
        target = folder / kind
        committed(target, *FOLDERS[kind])
        names = {"own.manifest": "_ddbio/job.json", "own.snapshot": "_ddbio/snapshots/*.json"}
        targets, read = list(target.glob(names.get(kind, "part-*"))), read_folder
    else:
        target = ExportWriter(folder / kind, encoding="ION" if kind == "ion" else "DYNAMODB_JSON").full(items())
        manifests = [path for path in sorted(target.iterdir()) if path.name != "_started" and path.is_file()]
        targets, read = manifests if kind == "manifests" else sorted((target / "data").iterdir()), read_export
    intact = {path: path.read_bytes() for path in targets}
    expected = read(target)
    for _ in range(count):
        path = chance.choice(targets)
        path.write_bytes(damaged(intact[path], chance))
        try:
            counts["same" if read(target) == expected else "changed"] += 1
        except DdbioError:
            counts["refused"] += 1
        path.write_bytes(intact[path])
    return counts


if __name__ == "__main__":
    *kinds, seed, count = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        sys.stdout.write(json.dumps({kind: outcomes(kind, int(seed), int(count), Path(home)) for kind in kinds}))
