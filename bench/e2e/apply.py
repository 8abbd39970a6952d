"""Apply changes to a Delta table; goals: ≤ 1.15 × the CPU of deltalake's merge of the rows, appends ≥ 50 × cheaper.

The table has many rows. Changes to one in 100 and to one in 1,000 of them are spread over all buckets. They are
compared with ``DeltaTable.merge`` on a copy of the table, with rows created from the changes in memory. An append is
the write of a capture: one Parquet file of the log.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

import ddbio
from bench.e2e import record
from ddbio.cdc.log_rows import log_schema
from ddbio.formats.parquet import parquet_bytes
from ddbio.items.schema.file import schema_to_json
from ddbio.lake_formats.rows import rows_of_log, shape_of
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore

_KEYS = ("pk", "sk")
_ITEMS = pa.schema(
    [
        pa.field("pk", pa.string(), metadata={"ddb:type": "S"}),
        pa.field("sk", pa.string(), metadata={"ddb:type": "S"}),
        pa.field("total", pa.decimal128(38, 2), metadata={"ddb:type": "N"}),
        pa.field("quantity", pa.int64(), metadata={"ddb:type": "N"}),
        pa.field("status", pa.string(), metadata={"ddb:type": "S"}),
        pa.field("note", pa.string(), metadata={"ddb:type": "S"}),
    ]
)
BUCKETS = 16


def main() -> None:
    """Append a row with the medians of the rounds."""
    arguments = record.parser("apply")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = Log(folder / "log")
        log.append(np.arange(asked.rows))
        first = ddbio.apply(log.folder, folder / "base", buckets=BUCKETS)
        assert first.inserted == asked.rows
        figures["first_rows_per_cpu_second"] = round(asked.rows / first.cpu_seconds)
        for share, per_mille in (("1_percent", 10), ("0_1_percent", 1)):
            count = asked.rows * per_mille // 1000
            ours, theirs, appends = list[float](), list[float](), list[float]()
            # The first round compiles, imports and fills caches.
            for number in range(asked.rounds + 1):
                changed = np.sort(np.random.default_rng(number).choice(asked.rows, count, replace=False))
                rows, append_seconds = log.append(changed)
                copies = [folder / f"{way}-{share}-{number}" for way in ("ours", "theirs")]
                for copy in copies:
                    shutil.copytree(folder / "base", copy)
                report, seconds = _timed(lambda: ddbio.apply(log.folder, copies[0]))  # noqa: B023 - called immediately
                assert (report.changes, report.updated) == (count, count)
                merged = _timed(lambda: _merge(copies[1], rows))[1]  # noqa: B023 - called immediately
                _check(copies)
                if number:
                    ours.append(seconds)
                    theirs.append(merged)
                    appends.append(append_seconds)
                for copy in copies:
                    shutil.rmtree(copy)
                log.forget()
            figures |= {
                f"cpu_seconds_{share}": round(statistics.median(ours), 3),
                f"times_deltalake_merge_{share}": round(statistics.median(ours) / statistics.median(theirs), 3),
                f"append_times_cheaper_{share}": round(statistics.median(ours) / statistics.median(appends), 1),
            }
    figures["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    record.append("apply", asked, figures)


class Log:
    """Log that writes batches like a capture, and can remove all but the first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._store = folder, LocalStore(folder)
        self._state, self._changes, self._batches = JobState(self._store, "job", "capture"), 0, 0
        self._state.begin({"stream": "arn:stream", "started_at": 1.0})
        self._state.put("columns", {"schema": schema_to_json(_ITEMS), "keys": list(_KEYS)})

    def append(self, numbers: np.ndarray[Any, Any]) -> tuple[pa.RecordBatch, float]:
        """Write a change of each of these items. Return the changes, and the CPU seconds of their file."""
        rows = self._rows(numbers)
        self._batches += 1
        path = f"year=2026/month=11/day=01/hour=00/job-{self._batches:012}.parquet"
        data, seconds = _timed(lambda: parquet_bytes(pa.Table.from_batches([rows]), "zstd"))
        self._store.put_if_absent(path, data)
        record_ = {"batch": self._batches, "files": [{"path": path, "rows": rows.num_rows}]}
        self._state.put(f"{self._batches:012}", record_)
        self._state.put("committed", {"batch": self._batches})
        return rows, seconds

    def forget(self) -> None:
        """Remove the last batch."""
        path = f"year=2026/month=11/day=01/hour=00/job-{self._batches:012}.parquet"
        self._store.delete([path])
        self._state.delete([f"{self._batches:012}"])
        self._batches -= 1
        self._state.put("committed", {"batch": self._batches})

    def _rows(self, numbers: np.ndarray[Any, Any]) -> pa.RecordBatch:
        count, random = len(numbers), np.random.default_rng(self._changes)
        first, self._changes = self._changes, self._changes + count
        columns: list[Any] = [
            pa.array(["MODIFY"] * count),
            pa.array([f"{21_000_000_000_000_000_000 + first + number}" for number in range(count)]),
            pa.array(np.full(count, 1_793_491_200_000_000 + first), pa.timestamp("us", "UTC")),
            pa.array(np.zeros(count, np.bool_)),
            pa.array([f"customer#{number % 50_000:06}" for number in numbers.tolist()]),
            pa.array([f"order#{number:09}" for number in numbers.tolist()]),
            pa.array(random.integers(100, 10**6, count)).cast(pa.decimal128(38, 2)),
            pa.array(random.integers(1, 50, count)),
            pa.array(np.array(["open", "paid", "sent", "done"])[random.integers(0, 4, count)]),
            pa.array([f"note {number:x} for the parcel" for number in random.integers(0, 2**60, count).tolist()]),
            pa.nulls(count, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=log_schema(_ITEMS, _KEYS))


def _merge(folder: Path, changes: pa.RecordBatch) -> None:
    """Merge changes with deltalake: only newer ones, within the buckets that have changes."""
    table = DeltaTable(folder)
    arrow_schema: Any = table.schema().to_arrow()
    rows = rows_of_log(changes, shape_of(pa.schema(arrow_schema), _KEYS, BUCKETS), 1)
    buckets = ",".join(map(str, sorted(set(rows.column("_b").to_pylist()))))
    (
        table.merge(
            rows,
            f"t._key = s._key AND t._b = s._b AND t._b IN ({buckets})",
            source_alias="s",
            target_alias="t",
        )
        .when_matched_update_all(predicate="s._ver > t._ver")
        .when_not_matched_insert_all()
        .execute()
    )


def _timed(work: Any) -> tuple[Any, float]:
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def _check(folders: list[Path]) -> None:
    """Raise unless the rows are equal."""
    tables = [DeltaTable(folder).to_pyarrow_table().sort_by("_key") for folder in folders]
    assert tables[0].equals(tables[1].select(tables[0].column_names))


if __name__ == "__main__":
    main()
