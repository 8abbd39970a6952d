"""Do each step of a verb alone, by the least there is: fetch, decode, check, encode, read and write files, send.

A verb's share of its steps is the sum of their seconds divided by its own: below 1 by what the verb adds.
"""

from __future__ import annotations

import io
import json
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip

from bench import orders
from ddbio.aws.client import ClientSpec
from ddbio.aws.transport import LightTransport, open_body_sender
from ddbio.core.changes import ChangeDecoder
from ddbio.core.decode import Decoder, infer_schema_of_body
from ddbio.core.digest_columns import ColumnDigest
from ddbio.core.encode import Encoder
from ddbio.core.item_key import key_hashes
from ddbio.core.raw_items import RawItemReader
from ddbio.files.line_writers import compress
from ddbio.files.parquet import dictionary_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TABLE = "rows"
"""What the endpoint that takes every write calls its table."""

_PUTS_PER_REQUEST = 25
_IN_FLIGHT = 8
_GROUP_ROWS = 65_536
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Places:
    """Say where what a verb reads lies, and who serves it and takes what is written.

    Attributes
    ----------
    lines
        Bare lines of DynamoDB JSON.
    parquet
        What ``ddbio scan`` wrote of the table.
    export, increment
        A native full export of the table, and an incremental one after it.
    read_url, write_url
        Endpoints.
    """

    lines: Path
    parquet: Path
    export: Path
    increment: Path
    read_url: str
    write_url: str
    table: str


class Steps:
    """Hold what each step starts from, made at its first use, and do the steps.

    Parameters
    ----------
    places
        Of the rows that the verbs are given.
    few
        How many rows go out by requests of their own.
    """

    def __init__(self, places: Places, few: int) -> None:
        self._places, self._few = places, few
        self.ways: dict[str, Callable[[], object]] = {
            "fetch": self._fetch,
            "decode": self._decode,
            "check": self._check,
            "infer": self._infer,
            "encode": self._encode,
            "encode few": lambda: self._encoder.encode(self._few_rows),
            "compress": lambda: len(compress(pa.py_buffer(self._text), "zstd")),
            "hash": self._hash,
            "hash keys": lambda: [key_hashes(batch, orders.KEYS) for batch in self._columns],
            "read lines": self._read_lines,
            "gunzip": self._gunzip,
            "changes": lambda: ChangeDecoder(self._schema, orders.KEYS).decode(self._changes),
            "read Parquet": lambda: sum(batch.num_rows for batch in self._read()),
            "write Parquet": self._write,
            "lay out": lambda: deque(self._laid_out(self._lines), maxlen=0),
            "send batches": lambda: self._send("BatchWriteItem", self._batches),
            "send singles": lambda: self._send("UpdateItem", self._singles),
        }

    @cached_property
    def _schema(self) -> pa.Schema:
        return orders.schema_of("mixed")

    @cached_property
    def _pages(self) -> list[bytes]:
        return list(self._fetched())

    @cached_property
    def _rows(self) -> list[pa.RecordBatch]:
        return [batch for page in self._pages for batch in Decoder(self._schema).decode_batches(page, "page")]

    @cached_property
    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._rows).combine_chunks()

    @cached_property
    def _columns(self) -> list[pa.RecordBatch]:
        return [batch.drop_columns(["_rescue"]) for batch in self._table.to_batches(_GROUP_ROWS)]

    @cached_property
    def _few_rows(self) -> pa.RecordBatch:
        return self._columns[0].slice(0, self._few)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._columns[0].schema)

    @cached_property
    def _text(self) -> bytes:
        return b"".join(self._encoder.encode_lines(batch) for batch in self._columns)

    @cached_property
    def _files(self) -> list[Path]:
        return sorted(self._places.parquet.glob("*.parquet"))

    @cached_property
    def _changes(self) -> bytes:
        return b"".join(map(_unzipped, _data_files(self._places.increment)))

    @cached_property
    def _lines(self) -> list[bytes]:
        return self._text.splitlines()

    @cached_property
    def _batches(self) -> list[bytes]:
        return list(self._laid_out(self._lines))

    @staticmethod
    def _laid_out(items: list[bytes]) -> Iterator[bytes]:
        """Yield the bodies of batches of puts."""
        opening = b'{"RequestItems":{"%b":[{"PutRequest":{"Item":' % TABLE.encode()
        for start in range(0, len(items), _PUTS_PER_REQUEST):
            puts = b'}},{"PutRequest":{"Item":'.join(items[start : start + _PUTS_PER_REQUEST])
            yield b"".join((opening, puts, b'}}]},"ReturnConsumedCapacity":"INDEXES"}'))

    @cached_property
    def _singles(self) -> list[bytes]:
        return [json.dumps(update_of(json.loads(line))).encode() for line in self._text.splitlines()[: self._few]]

    def _fetched(self) -> Iterator[bytes]:
        spec = ClientSpec(endpoint_url=self._places.read_url)
        wire = LightTransport(spec.client("dynamodb"), spec)
        parameters: dict[str, Any] = {"TableName": self._places.table, "ReturnConsumedCapacity": "TOTAL"}
        while True:
            page = wire.read("Scan", parameters)
            yield page.items
            if page.last_evaluated_key is None:
                return
            parameters["ExclusiveStartKey"] = page.last_evaluated_key

    def _fetch(self) -> None:
        deque(self._fetched(), maxlen=0)

    def _decode(self) -> None:
        decoder = Decoder(self._schema)
        for page in self._pages:
            decoder.decode_batches(page, "page")

    def _check(self) -> None:
        reader = RawItemReader(dict(part.split(":") for part in orders.KEY.split(",")))
        for page in self._pages:
            deque(reader.read(page, "page"), maxlen=0)

    def _infer(self) -> None:
        infer_schema_of_body(b"\n".join(orders.lines("mixed", 2_000)))

    def _encode(self) -> None:
        for batch in self._columns:
            self._encoder.encode(batch)

    def _hash(self) -> None:
        for batch in self._columns:
            ColumnDigest().add_batch(batch)

    def _read_lines(self) -> None:
        into = bytearray(_READ_BYTES)
        with self._places.lines.open("rb", buffering=0) as file:
            while file.readinto(into):
                pass

    def _gunzip(self) -> None:
        for path in _data_files(self._places.export):
            _unzipped(path)

    def _read(self) -> Iterator[pa.RecordBatch]:
        for path in self._files:
            yield from pq.ParquetFile(path).iter_batches(batch_size=_GROUP_ROWS, use_threads=False)

    def _write(self) -> None:
        table = self._table
        chosen: Any = dictionary_columns(table.slice(0, _GROUP_ROWS))
        with pq.ParquetWriter(
            io.BytesIO(), table.schema, compression="zstd", use_dictionary=chosen, write_page_index=True
        ) as writer:
            writer.write_table(table, row_group_size=_GROUP_ROWS)

    def _send(self, operation: str, bodies: list[bytes]) -> None:
        source = open_body_sender(ClientSpec(endpoint_url=self._places.write_url), _IN_FLIGHT)
        pending: deque[Any] = deque()
        for body in bodies:
            pending.append(source.begin(operation, TABLE, body))
            if len(pending) == _IN_FLIGHT:
                pending.popleft().result()
        while pending:
            pending.popleft().result()


def update_of(item: dict[str, Any]) -> dict[str, Any]:
    """Return the request that sets every attribute of an item."""
    names = [name for name in item if name not in orders.KEYS]
    return {
        "TableName": TABLE,
        "ReturnConsumedCapacity": "INDEXES",
        "Key": {name: item[name] for name in orders.KEYS},
        "UpdateExpression": "SET " + ", ".join(f"#n{place} = :v{place}" for place in range(len(names))),
        "ExpressionAttributeNames": {f"#n{place}": name for place, name in enumerate(names)},
        "ExpressionAttributeValues": {f":v{place}": item[name] for place, name in enumerate(names)},
    }


def _data_files(home: Path) -> list[Path]:
    listed = (home / "manifest-files.json").read_text("utf-8").splitlines()
    names = [json.loads(line)["dataFileS3Key"].rpartition("/")[2] for line in listed]
    return [path for name in names for path in (home / "data" / name, home.parent / "data" / name) if path.exists()]


def _unzipped(path: Path) -> bytes:
    with igzip.open(path) as opened:
        read: bytes = opened.read()
    return read
