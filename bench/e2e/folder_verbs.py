"""Run the verbs on the files of a folder as processes: the cost per file, relative to the sum of their steps alone.

A folder of small Parquet files in partitions is published, rolled back, listed, reported, vacuumed, and registered as a
table of a catalog. One on S3, which moto serves, is published and registered: S3 makes the copies.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from bench.e2e import slopes
from bench.serving import isolate
from ddbio.testing import MotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES, FEWER_ON_S3 = 6_000, 10
PARTITIONS, ROWS = 30, 5
REGION = "eu-west-1"
_BUCKET, _DATABASE = "folders", "shop"
_NO_AGE = "0s"


def main() -> None:
    """Append a row with every verb."""
    slopes.main("folder_verbs", FILES, serving, verbs)


@dataclass(frozen=True)
class Resources:
    """Folders with ``count`` files.

    Attributes
    ----------
    staging
        The written files.
    curated
        A folder in which they were published twice.
    bucket_folder
        A tenth of the files on S3.
    s3_url
        Endpoint of S3 and of Glue.
    """

    files: int
    staging: Path
    curated: Path
    files_on_s3: int
    bucket_folder: str
    s3_url: str


def verbs(resources: Resources) -> dict[str, slopes.Job]:
    """Return the jobs of each verb."""
    files, curated = resources.files, str(resources.curated)
    s3 = ["--s3-endpoint-url", resources.s3_url, "--region", REGION]
    glue = ["--glue-endpoint-url", resources.s3_url]
    listed = {"list": lambda: _list(resources.curated), "read snapshot": lambda: _read_snapshot(resources.curated)}
    store = boto3.client("s3", endpoint_url=resources.s3_url, region_name=REGION)

    def copied(folder: Path) -> None:
        shutil.copytree(resources.curated, folder / "curated", copy_function=os.link)

    return {
        "publish": slopes.Job(
            files,
            lambda folder: ["publish", str(resources.staging), str(folder / "curated"), "--json"],
            steps={"list": lambda: _list(resources.staging), "link": lambda: _link(resources.staging)},
        ),
        "publish to S3": slopes.Job(
            resources.files_on_s3,
            lambda folder: ["publish", f"s3://{_BUCKET}/{resources.bucket_folder}", f"s3://{_BUCKET}/{folder.name}",
                            "--json", *s3],
            steps={"boto3 copy_object": lambda: _copy_objects(store, resources)},
        ),
        "publish --rollback": slopes.Job(
            files,
            lambda folder: ["publish", str(folder / "curated"), "--rollback", "--json"],
            prepare=copied,
            steps={**listed, "write snapshot": lambda: _write_snapshot(resources.curated)},
        ),
        "files": slopes.Job(files, lambda _: ["files", curated, "--as", "manifest"], steps=listed),
        "layout": slopes.Job(
            files,
            lambda _: ["layout", str(resources.staging), "--json"],
            steps={"pyarrow read_metadata": lambda: [pq.read_metadata(path) for path in _paths(resources.staging)]},
        ),
        "vacuum": slopes.Job(
            files,
            lambda folder: ["vacuum", str(folder / "curated"), "--older-than", _NO_AGE, "--json"],
            prepare=copied,
            steps=listed,
        ),
        "catalog ddl": slopes.Job(files, lambda _: ["catalog", "ddl", curated, "--for", "duckdb"], steps=listed),
        "catalog sync": slopes.Job(
            resources.files_on_s3,
            lambda folder: ["catalog", "sync", f"s3://{_BUCKET}/{resources.bucket_folder}",
                            f"glue://{_DATABASE}.{folder.name.replace('-', '_')}", *s3, *glue, "--json"],
            steps={"boto3 list_objects_v2": lambda: _list_objects(store, resources)},
        ),
    }  # fmt: skip


@contextmanager
def serving(home: Path, counts: tuple[int, ...]) -> Iterator[list[Resources]]:
    """Create ``counts`` files, locally and on S3, while the context is open."""
    isolate()
    with MotoServer() as moto:
        store = boto3.client("s3", endpoint_url=moto.endpoint_url, region_name=REGION)
        store.create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        glue = boto3.client("glue", endpoint_url=moto.endpoint_url, region_name=REGION)
        glue.create_database(DatabaseInput={"Name": _DATABASE})
        yield [_prepared_resources(home / str(count), count, store, moto.endpoint_url) for count in counts]


def _prepared_resources(home: Path, count: int, store: Any, s3_url: str) -> Resources:
    staging, curated, stored = home / "staging", home / "curated", max(count // FEWER_ON_S3, 2)
    for number in range(count + 1):
        path = staging / _name(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        if number == count:
            # A different file makes a different version.
            ddbio.publish(staging, curated)
        path.write_bytes(_file(number))
    assert ddbio.publish(staging, curated).files == count + 1
    for number in range(stored):
        store.put_object(Bucket=_BUCKET, Key=f"orders-{count}/{_name(number)}", Body=_file(number))
    return Resources(count, staging, curated, stored, f"orders-{count}", s3_url)


def _name(number: int) -> str:
    return f"day={number % PARTITIONS}/rows-{number:06}.parquet"


def _file(number: int) -> bytes:
    """Return a small Parquet file with unique rows."""
    keys = [f"{number}-{row}" for row in range(ROWS)]
    written = io.BytesIO()
    pq.write_table(pa.table({"pk": keys, "n": list(range(ROWS)), "note": keys}), written)
    return written.getvalue()


def _paths(folder: Path) -> list[Path]:
    return [Path(home, name) for home, _, names in os.walk(folder) for name in names if name.endswith(".parquet")]


def _list(folder: Path) -> int:
    return sum(path.stat().st_size for path in _paths(folder))


def _link(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as link_folder:
        for number, path in enumerate(_paths(folder)):
            os.link(path, Path(link_folder, str(number)))


def _read_snapshot(folder: Path) -> Any:
    return json.loads(max((folder / "_ddbio/snapshots").iterdir()).read_bytes())


def _write_snapshot(folder: Path) -> int:
    return len(json.dumps(_read_snapshot(folder)))


def _copy_objects(store: Any, resources: Resources) -> None:
    for number in range(resources.files_on_s3):
        key = f"{resources.bucket_folder}/{_name(number)}"
        store.copy_object(Bucket=_BUCKET, Key=f"copies/{key}", CopySource={"Bucket": _BUCKET, "Key": key})


def _list_objects(store: Any, resources: Resources) -> int:
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=resources.bucket_folder)
    return sum(len(page["Contents"]) for page in pages)


if __name__ == "__main__":
    main()
