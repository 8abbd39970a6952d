"""Describe what jobs printed and wrote: keys of JSON, types of values, names of files, columns of tables."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.surface.jobs import Jobs

# The members of these are named by data: by attributes, shards, partitions, reasons.
BY_DATA = (
    *("assumptions", "changes", "covered", "expired_before", "hours", "hottest_keys", "item", "merged_nulls"),
    *("partition", "positions", "prices", "shards", "statistics", "throttles", "value"),
    *("examples[].key", "examples[].source", "examples[].target", "source.key"),
)
# What differs from run to run, and what stands for it. Whole words come first.
NAMES = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d", "TIME"),
    (r"\d{8}T\d{6}Z_[0-9a-f]{8}", "JOB"),
    (r"(?<=capture_)[0-9a-f]{12}|(?<=stream_)[0-9a-f]{12}|(?<=replay_)[0-9a-f]{12}", "ID"),
    # Which of the leases has the one shard is not the same in each run.
    (r"(?<=capture_ID)_[01](?=[-.])", "_LEASE"),
    (r"(?<=scan/)[0-9a-f]{8}-\d{5}-[0-9a-f]{8}", "HEX-N-HEX"),
    (r"(?<=load/)[0-9a-f]{8}|(?<=replay_ID-)[0-9a-f]{24}|(?<=replay/)[0-9a-f]{24}|\b[0-9a-f]{32}\b", "HEX"),
    (r"(?<=part-)(\w+)-\d+-\d+-\d+", r"\1-N-N-N"),
    (r"(?<=data/)\w{26}(?=\.json)", "NAME"),
    (r"(?<=heal_w)\d+|(?<=scan_)\d", "N"),
    (r"\d{3,}", "N"),
    (r"(?<=hour=|onth=)\d\d|(?<=day=)\d\d(?=/)|(?<=day=)\d{4}-\d\d-\d\d", "N"),
    (r"(?<=AR/)\d\d/\d\d/\d\d", "N/N/N"),
)


def named(path: str) -> str:
    """Return a path with signs for what differs from run to run."""
    for pattern, sign in NAMES:
        path = re.sub(pattern, sign, path)
    return re.sub(r"(?<=delivered/)N(/\d\d){3}", "YEAR/MONTH/DAY/HOUR", path)


def printed_lines(jobs: Jobs) -> list[str]:
    """Return the exit code of each command, and the keys of the JSON that it printed."""
    found = set()
    for command, code, printed in jobs.printed:
        found.add(f"{command}: exit code {code}")
        keys = {} if isinstance(printed, str) else shape_of(printed)
        found |= {f"{command}: {key}" for key in keys}
    return sorted(found)


def shape_of(value: object) -> dict[str, set[str]]:
    """Return the keys of the innermost values of JSON, and the types of what each has; null has no type."""
    found = _shape_of(value, "")
    outer = {key.rpartition(".")[0] for key in found} | {key.removesuffix("[]") for key in found if key.endswith("[]")}
    outer |= {key.removesuffix("[]") for key in outer}
    return {key: kinds for key, kinds in found.items() if key and key not in outer}


def _shape_of(value: object, path: str) -> dict[str, set[str]]:
    """Return the keys within a value of JSON below a path, a dot between them."""
    found: dict[str, set[str]] = defaultdict(set)
    if isinstance(value, dict):
        by_data = path.endswith(BY_DATA)
        for key, each in value.items():
            for inner, kinds in _shape_of(each, f"{path}.{'*' if by_data else key}".lstrip(".")).items():
                found[inner] |= kinds
    elif isinstance(value, list):
        for each in value:
            for inner, kinds in _shape_of(each, f"{path}[]").items():
                found[inner] |= kinds
    found[path] |= set() if value is None else {_kind(value)}
    return found


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    names = {int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names[type(value)]


def format_lines(folder: Path) -> list[str]:
    """Return the names of all files that the jobs wrote, and what each is made of."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        inside = path.relative_to(folder).as_posix()
        if inside.startswith(("exports/", "rows/", "records")):
            continue
        name = named(inside)
        found[name] |= set()
        for line, kinds in _contents(path):
            found[f"{name}: {line}"] |= kinds
    return sorted(f"{line}: {' '.join(sorted(kinds))}" if kinds else line for line, kinds in found.items())


def _contents(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the keys, or the columns and properties, of a file, and their types."""
    data = path.read_bytes()
    if path.parent.name == "_delta_log":
        for action in map(json.loads, data.splitlines()):
            ((name, values),) = action.items()
            yield from ((f"{name}.{key}", set()) for key in values if name != "commitInfo")
            yield from ((f"property {key}", set()) for key in values.get("configuration") or ())
            yield from ((f"transaction {named(values['appId'])}", set()) for _ in range(name == "txn"))
            yield from (
                (f"of a commit {key}", set()) for key in values if name == "commitInfo" and key.startswith("ddbio")
            )
    elif path.name.endswith(".metadata.json"):
        metadata = json.loads(data)
        yield from ((f"property {named(key)}", set()) for key in metadata["properties"])
        for summary in (each["summary"] for each in metadata["snapshots"]):
            yield from ((f"of a snapshot {named(key)}", set()) for key in summary if key.startswith("ddbio"))
    elif path.suffix == ".json":
        yield from shape_of(json.loads(data)).items()
    elif path.suffix in {".parquet", ".staged"}:
        schema = pq.read_schema(pa.BufferReader(data))
        yield from _schema_lines(schema)
    elif path.suffix == ".arrows":
        yield from _schema_lines(pa.ipc.open_stream(data).schema)


def _schema_lines(schema: pa.Schema) -> Iterator[tuple[str, set[str]]]:
    for name in schema.metadata or {}:
        yield f"metadata {name.decode()}", set()
    for field in schema:
        told = " ".join(
            sorted(
                f"{key.decode()}={value.decode()}"
                for key, value in (field.metadata or {}).items()
                if key != b"PARQUET:field_id"
            )
        )
        kind = str(field.type) + ("" if field.nullable else " not null")
        yield f"column {field.name} {kind} {told}".rstrip(), set()
