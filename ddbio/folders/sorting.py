"""Sort a stream of record batches that may be larger than the memory: sorted runs on a disk, merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

# What is sorted in memory, and with its sorted copy stays below the bound of a task.
_RUN_BYTES = 32 * 1024 * 1024
# Of all runs together while they are merged.
_MERGE_BYTES = 24 * 1024 * 1024
_LEAST_ROWS = 256
_RUN = "_ddbio_run"


def sort_batches(batches: Iterable[pa.RecordBatch], names: Sequence[str], folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches of one schema in the order of some columns, nulls last.

    Parameters
    ----------
    folder
        An empty folder of this machine for what does not fit into memory.

    Raises
    ------
    OptionError
        If there is no such column, or it has no order.
    """
    runs: list[tuple[Path, int]] = []
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if size and size + batch.nbytes > _RUN_BYTES:
            runs.append(_write_run(_sorted(gathered, names), folder / str(len(runs))))
            gathered, size = [], 0
        gathered.append(batch)
        size += batch.nbytes
    if not runs:
        yield from _sorted(gathered, names).to_batches() if gathered else ()
        return
    runs.append(_write_run(_sorted(gathered, names), folder / str(len(runs))))
    gathered = []
    yield from _merged([_read_run(path, max(_LEAST_ROWS, rows)) for path, rows in _heads(runs)], names)


def _sorted(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise OptionError(f"there is no column {missing[0]!r} to sort by: there are {', '.join(table.schema.names)}")
    try:
        return table.sort_by([(name, "ascending") for name in names])
    except pa.ArrowException as error:
        raise OptionError(f"rows cannot be sorted by {', '.join(names)}: {error}") from None


def _write_run(run: pa.Table, path: Path) -> tuple[Path, int]:
    """Write a sorted run in small batches; return its place, and the bytes of a row."""
    rows = max(_LEAST_ROWS, int(1024 * 1024 * run.num_rows / max(1, run.nbytes)))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, run.schema) as stream:
        stream.write_table(run, max_chunksize=rows)
    return path, max(1, run.nbytes // max(1, run.num_rows))


def _heads(runs: Sequence[tuple[Path, int]]) -> Iterator[tuple[Path, int]]:
    """Yield each run, and how many of its rows are held at a time."""
    for path, row_bytes in runs:
        yield path, _MERGE_BYTES // len(runs) // row_bytes


def _read_run(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
    path.unlink()


def _merged(runs: Sequence[Iterator[pa.RecordBatch]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs: what sorts before the last row that is known of every run is in its place."""
    held: list[pa.RecordBatch] = []
    order: Any = [*((name, "ascending") for name in names), (_RUN, "ascending")]
    unfinished = dict(enumerate(runs))
    wanting = set(unfinished)
    while held or unfinished:
        for number in sorted(wanting):
            batch = next(unfinished[number], None)
            if batch is None:
                del unfinished[number]
            else:
                held.append(batch.append_column(_RUN, pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)))
        if not held:
            return
        table = pa.Table.from_batches(held).sort_by(order).combine_chunks()
        owners = table.column(_RUN).to_numpy()
        lasts = {number: int((owners == number).nonzero()[0][-1]) for number in unfinished}
        end = min(lasts.values(), default=table.num_rows - 1) + 1
        # The run whose last known row this is; all of its rows are given out.
        wanting = {number for number, last in lasts.items() if last < end}
        yield from table.slice(0, end).drop_columns([_RUN]).to_batches()
        held = table.slice(end).to_batches()
