"""Run every verb as a process, relative to the sum of its steps alone, and compared with boto3 doing the same.

The CPU time of the entire tree of processes counts. A verb runs on all rows, on a third of them, and on 20. The rows
beyond the third determine its rate, as for every row of a large job. Its steps are done on the third by a process that
is warm. The time for 20 rows is its start. Other one-time work, mainly the first use of its memory, is in the third,
and has a separate figure. Servers are other processes. boto3's items are Python objects before its clock starts, and
its process has started. Goals: every verb ≥ 0.7 × the sum of its steps.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from boto3.dynamodb.types import TypeSerializer

from bench import data, decoders, orders, pairs
from bench.e2e import processes, record, sink, slopes
from bench.serving import isolate
from bench.steps import TABLE, Resources, Steps, update_of
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import Change, ExportWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ITEMS, LITTLE = 600_000, 20
# Number of rows: a third fills the largest window of rows (64 MiB) once.
PART = 3
# Requests of one row take several times as long, as do all of boto3's.
FEWER, SHARE_OF_PEERS = 8, 100
BATCH_WRITER, UPDATE_ITEM, CLIENT_SCAN = "boto3 batch_writer", "boto3 update_item", "boto3 client.scan"
_CHANGED_SHARE = 20
_FIRST_MICROS = 1_700_000_000_000_000


@dataclass(frozen=True)
class Verb:
    """Verb with its command line, its steps, and boto3's equivalent.

    Attributes
    ----------
    command
        Returns its arguments for the resources, a folder of this run, and its number.
    few
        Whether it gets fewer rows.
    """

    command: Callable[[Resources, Path, int], list[str]]
    steps: tuple[str, ...] = ()
    peer: str = ""
    few: bool = False


def _files(*words: str) -> list[str]:
    return [*words, "--mode", "overwrite", "--engine", "local"]


def _load(source: Path, resources: Resources, folder: Path, number: int, *words: str) -> list[str]:
    noted = ["--job-id", f"run_{number}", "--state", str(folder / "state")]
    return ["load", str(source), TABLE, *noted, "--engine", "local", "--endpoint-url", resources.write_url, *words]


def _scan(resources: Resources, folder: Path, _: int) -> list[str]:
    return _files("scan", resources.table, str(folder / "scan"), "--endpoint-url", resources.read_url)


def _copy(resources: Resources, _: Path, __: int) -> list[str]:
    return [
        "copy",
        resources.table,
        TABLE,
        "--endpoint-url",
        resources.read_url,
        "--target-endpoint-url",
        resources.write_url,
    ]


def _import_files(resources: Resources, folder: Path, _: int) -> list[str]:
    words = ["import", "files", str(resources.parquet), str(folder / "import"), "--key", orders.KEY]
    return [*words, "--mode", "overwrite"]


VERBS: dict[str, Verb] = {
    "scan": Verb(_scan, ("fetch", "infer", "decode", "write Parquet"), CLIENT_SCAN),
    "export read": Verb(
        lambda resources, folder, _: _files("export", "read", str(resources.export), str(folder / "read")),
        ("gunzip", "sum MD5", "infer", "decode", "write Parquet"),
    ),
    "export fold": Verb(
        lambda resources, folder, _: _files(
            "export", "fold", str(resources.export), str(resources.increment), str(folder / "fold")
        ),
        ("gunzip", "sum MD5", "infer", "decode", "changes", "hash keys", "filter", "fold changed", "write Parquet"),
    ),
    "load parquet": Verb(
        lambda resources, folder, number: _load(resources.parquet, resources, folder, number),
        ("read Parquet", "encode", "hash keys", "spread", "deal", "lay out", "send batches"),
        BATCH_WRITER,
    ),
    "load lines": Verb(
        lambda resources, folder, number: _load(resources.lines, resources, folder, number),
        ("read lines", "check", "order keys", "spread", "deal", "lay out", "send batches"),
        BATCH_WRITER,
    ),
    "load update": Verb(
        lambda resources, folder, number: _load(resources.parquet, resources, folder, number, "--mode", "update"),
        ("read few", "encode few", "spread few", "deal few", "lay out few", "send singles"),
        UPDATE_ITEM,
        few=True,
    ),
    "copy": Verb(_copy, ("fetch in rotation", "check", "spread", "deal", "lay out", "send batches"), BATCH_WRITER),
    "import files": Verb(
        _import_files, ("read Parquet", "encode", "fingerprint keys", "find duplicates", "shuffle", "compress")
    ),
    "schema": Verb(lambda resources, _, __: ["schema", str(resources.lines)], ("infer",)),
    "digest": Verb(lambda resources, _, __: ["digest", str(resources.parquet)], ("read Parquet", "hash")),
}


def main() -> None:
    """Append a row with every verb."""
    arguments = record.parser("verbs")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="verbs whose name holds this; prints them, and keeps no row")
    asked = arguments.parse_args()
    chosen = {name: verb for name, verb in VERBS.items() if asked.only in name}
    record.append("verbs", asked, measure(chosen, data.scaled(ITEMS), asked.rounds))


def measure(verbs: dict[str, Verb], count: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of each verb with a separate start, of its steps, and boto3's rate, the verbs in turns."""
    sizes = {
        is_few: _Sizes(max(PART * LITTLE, asked), max(LITTLE, asked // PART), LITTLE)
        for is_few, asked in ((False, count), (True, count // FEWER))
    }
    counts = sorted({count_ for size in sizes.values() for count_ in size}, reverse=True)
    with tempfile.TemporaryDirectory() as home, serving(Path(home), tuple(counts)) as served:
        resources = dict(zip(counts, served, strict=True))
        runs = {
            (name, size): Run(verb, resources[number], Path(home, f"{name}-{size}".replace(" ", "-")))
            for name, verb in verbs.items()
            for size, number in sizes[verb.few]._asdict().items()
        }
        part = resources[sizes[False].part]
        ways = Steps(part, sizes[True].part).ways
        steps = {step: ways[step] for verb in verbs.values() for step in verb.steps}
        n_peers = max(LITTLE, count // SHARE_OF_PEERS)
        peers = peers_of(part, n_peers)
        peers = {verb.peer: peers[verb.peer] for verb in verbs.values() if verb.peer}
        # One-time work such as compiling, importing, creating or connecting is in no figure.
        for run in runs.values():
            run()
        pairs.interleave(steps, 1)
        pairs.interleave(peers, 1)
        seconds: dict[tuple[str, str], list[float]] = {run: [] for run in runs}
        rates: dict[str, list[float]] = {peer: [] for peer in peers}
        alone: pairs.Seconds = {step: [] for step in steps}

        def run_verbs() -> None:
            for key, run in runs.items():
                seconds[key].append(run())

        def run_steps() -> None:
            for step, taken in pairs.interleave(steps, 1, collecting=True).items():
                alone[step] += taken

        def run_peers() -> None:
            for peer, taken in pairs.interleave(peers, 1, collecting=True).items():
                rates[peer] += [n_peers / run_seconds for run_seconds in taken]

        turns = {"verbs": run_verbs, "steps": run_steps, "peers": run_peers}
        for number in range(rounds):
            for name in pairs.turned(list(turns), number):
                turns[name]()
    taken = {name: _Taken(*(seconds[name, size] for size in _Sizes._fields)) for name in verbs}
    return {name: _figures(verb, sizes[verb.few], taken[name], alone, rates) for name, verb in verbs.items()}


class _Sizes(NamedTuple):
    """Number of rows of a verb's runs."""

    large: int
    part: int
    start: int


class _Taken(NamedTuple):
    """Seconds of a verb's runs per round."""

    large: list[float]
    part: list[float]
    start: list[float]


def _figures(
    verb: Verb, rows: _Sizes, taken: _Taken, alone: pairs.Seconds, rates: dict[str, list[float]]
) -> dict[str, Any]:
    count = rows.large - rows.part
    seconds = slopes.seconds_beyond(taken.large, taken.part)
    once = statistics.median(
        part - start - beyond * rows.part / count
        for part, start, beyond in zip(taken.part, taken.start, seconds, strict=True)
    )
    steps = {step: [run_seconds * count / rows.part for run_seconds in alone[step]] for step in verb.steps}
    figures = {
        "items": rows.large,
        "cpu_seconds": [round(run_seconds, 3) for run_seconds in taken.large],
        "part_items": rows.part,
        "part_cpu_seconds": [round(run_seconds, 3) for run_seconds in taken.part],
        "start_cpu_seconds": [round(run_seconds, 3) for run_seconds in taken.start],
        "once_cpu_seconds": round(once, 3),
        "rate_items": count,
        "items_per_cpu_second": round(count / statistics.median(seconds)),
        "steps_cpu_seconds": record.rounded({step: statistics.median(times) for step, times in steps.items()}),
        "share_of_steps": round(
            pairs.median_ratio([sum(times) for times in zip(*steps.values(), strict=True)], seconds), 3
        ),
    }
    if verb.peer:
        figures["peer_items_per_cpu_second"] = round(statistics.median(rates[verb.peer]))
        for name, number, taken_seconds in (
            ("times_as_many_as", count, seconds),
            ("times_as_many_with_start", rows.large, taken.large),
        ):
            peer_seconds = [number / rate for rate in rates[verb.peer]]
            figures[name] = {verb.peer: round(pairs.median_ratio(peer_seconds, taken_seconds), 2)}
    return figures


@dataclass
class Run:
    """Repeated run of a verb. It raises if a run did not process all rows."""

    verb: Verb
    resources: Resources
    folder: Path
    _number: int = 0

    def __call__(self) -> float:
        """Return the seconds of the entire tree."""
        self._number += 1
        words = self.verb.command(self.resources, self.folder / Path(self.resources.lines).stem, self._number)
        return processes.run(command_of(words))[0]


def command_of(words: list[str]) -> list[str]:
    """Return the command of a verb."""
    return [sys.executable, "-m", "ddbio", *words, "--json"]


@contextmanager
def serving(home: Path, counts: tuple[int, ...]) -> Iterator[list[Resources]]:
    """Serve tables of ``counts`` items, accept writes, and create the items as files, while the context is open."""
    isolate()
    with FakeDynamoDB(process=True) as fake, sink.running(orders.KEY) as taker:
        resources = {}
        for count in dict.fromkeys(counts):
            fake.load(f"orders-{count}", orders.lines("mixed", count), orders.KEY)
            resources[count] = _prepared_resources(home, count, fake.endpoint_url, taker.endpoint_url)
        before = taker.rows
        least = min(counts)
        processes.run(command_of(_load(resources[least].lines, resources[least], home, 0)))
        assert taker.rows - before == least
        yield [resources[count] for count in counts]


def _prepared_resources(home: Path, count: int, read_url: str, write_url: str) -> Resources:
    items = orders.items("mixed", count)
    lines = home / f"orders-{count}.jsonl"
    lines.write_bytes(b"\n".join(orders.lines("mixed", count)) + b"\n")
    writer = ExportWriter(home / f"export-{count}", files=4, empty_files=0)
    export = writer.full(items)
    changed = [{**item, "status": {"S": "changed"}} for item in items[:: min(_CHANGED_SHARE, count)]]
    increment = writer.incremental(
        Change(_FIRST_MICROS + number, {name: item[name] for name in orders.KEYS}, item)
        for number, item in enumerate(changed)
    )
    resources = Resources(lines, home / f"parquet-{count}", export, increment, read_url, write_url, f"orders-{count}")
    words = _files("scan", resources.table, str(resources.parquet), "--endpoint-url", read_url)
    processes.run(command_of(words))
    return resources


def peers_of(resources: Resources, count: int) -> dict[str, Callable[[], None]]:
    """Return the code of boto3's users, for items in memory. Each creates its client."""
    deserialize, serialize = decoders.Deserializer().deserialize, TypeSerializer().serialize
    plain = [{name: deserialize(value) for name, value in item.items()} for item in orders.items("mixed", count)]
    updates = [update_of({name: serialize(value) for name, value in item.items()}) for item in plain]

    def batch_writer() -> None:
        resource: Any = boto3.resource("dynamodb", endpoint_url=resources.write_url)
        with resource.Table(TABLE).batch_writer() as writer:
            for item in plain:
                writer.put_item(Item=item)

    def update_item() -> None:
        client = boto3.client("dynamodb", endpoint_url=resources.write_url)
        for update in updates:
            client.update_item(**update)

    def client_scan() -> None:
        client = boto3.client("dynamodb", endpoint_url=resources.read_url)
        pages = client.get_paginator("scan").paginate(
            TableName=resources.table, PaginationConfig={"MaxItems": count, "PageSize": min(count, 1_000)}
        )
        assert sum(len(page["Items"]) for page in pages) == count

    return {BATCH_WRITER: batch_writer, UPDATE_ITEM: update_item, CLIENT_SCAN: client_scan}


if __name__ == "__main__":
    main()
