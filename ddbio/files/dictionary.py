"""Choose from a sample of the data which columns of a Parquet file are worth a dictionary; write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

# Runs of neighbours from all over the rows: values that repeat near by and values that repeat far off are both seen.
_RUNS = 16
_RUN_ROWS = 256
# Among 4,096 values drawn evenly from D different ones, 90 % are different when D is about 20,000: for a row group's
# rows such a dictionary is hardly smaller than the values, and of twice that size it outgrows Parquet's page of 1 MiB,
# after which the values are written plainly, too.
_DISTINCT_RATIO = 0.9


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns whose values repeat, nested ones included.

    A column without values in the sample keeps its dictionary: it costs nothing there, and pays if values repeat later.
    """
    paths = []
    for field, column in zip(table.schema, _sample(table).columns, strict=True):
        paths += [path for path, values in _leaves(field.name, column) if _repeats(values)]
    return paths


def _sample(table: pa.Table) -> pa.RecordBatch:
    stride = max(_RUN_ROWS, table.num_rows // _RUNS)
    runs = [table.slice(start, _RUN_ROWS) for start in range(0, table.num_rows, stride)]
    sample = pa.concat_tables(runs or [table]).combine_chunks().to_batches()
    return sample[0] if sample else pa.RecordBatch.from_pylist([], table.schema)


def _leaves(path: str, column: pa.Array[Any]) -> Iterator[tuple[str, pa.Array[Any]]]:
    """Yield Parquet's path and the values of each leaf; parts are named as pyarrow names them in files."""
    # https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#nested-types
    if isinstance(column, pa.StructArray):
        for field, child in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif isinstance(column, pa.MapArray):
        entries = column.drop_null()
        first, last = (entries.offsets[place].as_py() for place in (0, -1))
        yield from _leaves(f"{path}.key_value.key", entries.keys[first:last])
        yield from _leaves(f"{path}.key_value.value", entries.items[first:last])
    elif isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        yield from _leaves(f"{path}.list.element", column.flatten())
    else:
        yield path, column


def _repeats(values: pa.Array[Any]) -> bool:
    values = values.drop_null()
    return len(values) == 0 or len(pc.unique(values)) < _DISTINCT_RATIO * len(values)
