"""Descriptions of printed and written data of jobs: JSON keys, types of values, file names, columns of tables."""

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

# The member names of these objects are data: attributes, shards, partitions, reasons.
BY_DATA = (
    *("assumptions", "changes", "covered", "expired_before", "hours", "hottest_keys", "item", "merged_nulls"),
    *("partition", "positions", "prices", "shards", "statistics", "throttles", "value"),
    *("examples[].key", "examples[].source", "examples[].target", "source.key"),
)
# Parts that differ from run to run, and their replacements. Whole words come first.
NAMES = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d", "TIME"),
    (r"\d{8}T\d{6}Z_[0-9a-f]{8}", "JOB"),
    (r"(?<=capture_)[0-9a-f]{12}|(?<=stream_)[0-9a-f]{12}|(?<=replay_)[0-9a-f]{12}", "ID"),
    # The lease that owns the only shard differs from run to run.
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
    """Return a path with placeholders for the parts that differ from run to run."""
    for pattern, sign in NAMES:
        path = re.sub(pattern, sign, path)
    return re.sub(r"(?<=delivered/)N(/\d\d){3}", "YEAR/MONTH/DAY/HOUR", path)


def printed_lines(jobs: Jobs) -> list[str]:
    """Return the exit code of each command, and the keys of the JSON that it printed."""
    lines = set()
    for command, code, printed in jobs.printed:
        lines.add(f"{command}: exit code {code}")
        keys = {} if isinstance(printed, str) else shape_of(printed)
        lines |= {f"{command}: {key}" for key in keys}
    return sorted(lines)


def shape_of(value: object) -> dict[str, set[str]]:
    """Return the keys of the innermost JSON values, and the types of each. Null has no type."""
    types_by_key = _shape_of(value, "")
    outer = {key.rpartition(".")[0] for key in types_by_key} | {
        key.removesuffix("[]") for key in types_by_key if key.endswith("[]")
    }
    outer |= {key.removesuffix("[]") for key in outer}
    return {key: kinds for key, kinds in types_by_key.items() if key and key not in outer}


def _shape_of(value: object, path: str) -> dict[str, set[str]]:
    """Return the keys within a JSON value, below a path, separated by dots."""
    types_by_key: dict[str, set[str]] = defaultdict(set)
    if isinstance(value, dict):
        by_data = path.endswith(BY_DATA)
        for key, member in value.items():
            for inner, kinds in _shape_of(member, f"{path}.{'*' if by_data else key}".lstrip(".")).items():
                types_by_key[inner] |= kinds
    elif isinstance(value, list):
        for member in value:
            for inner, kinds in _shape_of(member, f"{path}[]").items():
                types_by_key[inner] |= kinds
    types_by_key[path] |= set() if value is None else {_kind(value)}
    return types_by_key


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    names = {int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names[type(value)]


def format_lines(folder: Path) -> list[str]:
    """Return the names of all files that the jobs wrote, and the types of their contents."""
    types_by_key: dict[str, set[str]] = defaultdict(set)
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        inside = path.relative_to(folder).as_posix()
        if inside.startswith(("exports/", "rows/", "records")):
            continue
        name = named(inside)
        types_by_key[name] |= set()
        for line, kinds in _contents(path):
            types_by_key[f"{name}: {line}"] |= kinds
    return sorted(f"{line}: {' '.join(sorted(kinds))}" if kinds else line for line, kinds in types_by_key.items())


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
        for summary in (snapshot["summary"] for snapshot in metadata["snapshots"]):
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
        metadata_text = " ".join(
            sorted(
                f"{key.decode()}={value.decode()}"
                for key, value in (field.metadata or {}).items()
                if key != b"PARQUET:field_id"
            )
        )
        kind = str(field.type) + ("" if field.nullable else " not null")
        yield f"column {field.name} {kind} {metadata_text}".rstrip(), set()
