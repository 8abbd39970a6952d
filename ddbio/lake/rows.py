"""Read rows as record batches from whole files of any format, told by their names; decide nothing about the rows."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.orc
import pyarrow.parquet as pq

from ddbio.core.decode import from_dynamodb_json
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_GZIP_MAGIC = b"\x1f\x8b"
_BATCH_ROWS = 16_384
_TAGS = "S|N|B|BOOL|NULL|SS|NS|BS|L|M"
# An item, or an export's line: the first value has one of DynamoDB's types. Plain JSON has none.
_TYPED = re.compile(rb'\s*\{\s*(?:"Item"\s*:\s*\{\s*)?"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"(?:' + _TAGS.encode() + rb')"\s*:')
_IPC_MAGIC = b"ARROW1"
# What the files of AWS and Spark are named that hold no rows.
_NO_ROWS = re.compile(r"(?:^|/)(?:_|\.|manifest-)")


def is_rows(path: str) -> bool:
    """Return whether a file of that name holds rows that ``read_rows`` can read."""
    return not _NO_ROWS.search(path) and _reader_of(path) is not None


def read_rows(path: str, data: bytes, texts: Iterable[str] = ()) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file; all batches of a file have one schema.

    Parameters
    ----------
    texts
        Columns that are text even where a text format makes them look like numbers.

    Raises
    ------
    DecodeError
        If the bytes are not of the format that the name tells, or the name tells none.
    """
    read = _reader_of(path)
    if read is None:
        raise DecodeError(f"{path} has no known format: name it {', '.join(_READERS)}", uri=path)
    try:
        yield from read(_inflated(data), {name: pa.string() for name in texts})
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise DecodeError(f"{path} cannot be read as its name says: {error}", uri=path) from error


def _reader_of(path: str) -> Callable[[bytes, Mapping[str, pa.DataType]], Iterator[pa.RecordBatch]] | None:
    name = path.lower().removesuffix(".gz")
    return next((reader for ending, reader in _READERS.items() if name.endswith(ending)), None)


def _inflated(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data


def _parquet(data: bytes, _: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(pa.BufferReader(data)).iter_batches(_BATCH_ROWS)


def _orc(data: bytes, _: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    file = pa.orc.ORCFile(pa.BufferReader(data))
    for stripe in range(file.nstripes):
        yield from _batches(file.read_stripe(stripe))


def _json(data: bytes, texts: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    if not data.strip():
        return
    if _TYPED.match(data):
        yield from_dynamodb_json(data)
        return
    # Fields of the explicit schema that a file lacks would become columns of nulls.
    table = pa.json.read_json(io.BytesIO(data))
    wanted = {name: kind for name, kind in texts.items() if name in table.column_names}
    if wanted:
        options = pa.json.ParseOptions(explicit_schema=pa.schema(list(wanted.items())))
        table = pa.json.read_json(io.BytesIO(data), parse_options=options)
    yield from table.to_batches(_BATCH_ROWS)


def _csv(data: bytes, texts: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    options = pa.csv.ConvertOptions(column_types=dict(texts))
    yield from pa.csv.read_csv(io.BytesIO(data), convert_options=options).to_batches(_BATCH_ROWS)


def _ipc(data: bytes, _: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(data)
    if not data.startswith(_IPC_MAGIC):
        yield from pa.ipc.open_stream(source)
        return
    file = pa.ipc.open_file(source)
    yield from (file.get_batch(number) for number in range(file.num_record_batches))


def _batches(rows: Any) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches() if isinstance(rows, pa.Table) else [rows]


_READERS: dict[str, Callable[[bytes, Mapping[str, pa.DataType]], Iterator[pa.RecordBatch]]] = {
    ".parquet": _parquet,
    ".orc": _orc,
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".csv": _csv,
    ".arrow": _ipc,
    ".feather": _ipc,
    ".ipc": _ipc,
}
