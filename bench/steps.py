"""Minimal implementations of each step of a verb: fetch, decode, check, encode, read and write files, send.

A verb's share of its steps is the sum of their seconds divided by its own: below 1 by the overhead of the verb.
"""

from __future__ import annotations

import io
import json
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import igzip

from bench import orders
from ddbio.aws.client import ClientSpec
from ddbio.aws.transport import LightTransport, open_body_sender
from ddbio.export.fold_rows import fold
from ddbio.formats.parquet import dictionary_columns
from ddbio.formats.text_writers import LineBuffer, compress
from ddbio.items.changes import ChangeDecoder
from ddbio.items.decode import Decoder, infer_schema_of_body
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.encode import Encoder
from ddbio.items.item_key import Fingerprints, KeySet, key_fingerprints, key_hashes
from ddbio.items.raw_items import RawItemParts, RawItemReader, RawItems
from ddbio.load.batches import LaneSplitter, RowBytes, in_key_order, spread_ranges, write_units
from ddbio.load.requests import PUT, batch_template
from ddbio.scan.plan import ROTATED_PAGE_BYTES, rotated_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

TABLE = "rows"
"""Name of the table of the endpoint that accepts all writes."""

_PUTS_PER_REQUEST = 25
_IN_FLIGHT, _SINGLES_IN_FLIGHT = 8, 64
_GROUP_ROWS, _FEW_ROWS = 65_536, 5_000
_READ_BYTES = 1 << 20
_WINDOW_PARTS = 32
_FILE_BYTES = 64 << 20
_CHANGED_SHARE = 20
_KEY_TYPES = dict(part.split(":") for part in orders.KEY.split(","))


@dataclass(frozen=True)
class Resources:
    """Input files of the verbs, and the endpoints of reads and writes.

    Attributes
    ----------
    lines
        Bare lines of DynamoDB JSON.
    parquet
        Output of ``ddbio scan`` of the table.
    export, increment
        A full export of the table, and an incremental one after it.
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
    """Steps and their inputs, which are created at the first use.

        Parameters
        ----------
        resources
    XX
        few
            Number of rows that are sent in single requests.
    """

    def __init__(self, resources: Resources, few: int) -> None:
        self._places, self._few = resources, few
        self.ways: dict[str, Callable[[], object]] = {
            "fetch": self._fetch,
            "fetch in rotation": self._fetch_in_rotation,
            "decode": self._decode,
            "check": self._check,
            "infer": self._infer,
            "encode": self._encode,
            "encode few": lambda: self._encoder.encode(self._few_rows),
            "compress": lambda: len(compress(pa.py_buffer(self._text), "zstd")),
            "hash": self._hash,
            "hash keys": lambda: [key_hashes(batch, orders.KEYS) for batch in self._columns],
            "fingerprint keys": self._fingerprint,
            "find duplicates": lambda: KeySet().add(Fingerprints.joined(self._fingerprints)),
            "shuffle": self._shuffle,
            "spread": lambda: self._spread(self._items),
            "spread few": lambda: self._spread(self._few_items),
            "order keys": self._order_keys,
            "deal": lambda: self._deal(self._items, _IN_FLIGHT),
            "deal few": lambda: self._deal(self._few_items, _SINGLES_IN_FLIGHT),
            "sum MD5": lambda: [md5(path.read_bytes()) for path in data_files(self._places.export)],
            "filter": self._filter,
            "read lines": self._read_lines,
            "gunzip": self._gunzip,
            "fold changed": self._fold_changed,
            "changes": lambda: ChangeDecoder(self._schema, orders.KEYS).decode(self._changes),
            "read Parquet": lambda: deque(self._read(), maxlen=0),
            "read few": self._read_few,
            "write Parquet": self._write,
            "lay out": lambda: deque(self._batch_bodies(self._lines), maxlen=0),
            "lay out few": self._write_single_bodies,
            "send batches": lambda: self._send("BatchWriteItem", self._batches, _IN_FLIGHT),
            "send singles": lambda: self._send("UpdateItem", self._singles, _SINGLES_IN_FLIGHT),
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
        return b"".join(map(unzipped, data_files(self._places.increment)))

    @cached_property
    def _changed(self) -> pa.Table:
        decoded = ChangeDecoder(self._schema, orders.KEYS).decode(self._changes)
        return pa.Table.from_batches([decoded]).drop_columns(["old_image"])

    @cached_property
    def _changed_rows(self) -> pa.Table:
        """The rows whose item has a change."""
        changed: Any = self._changed["keys"].combine_chunks()
        return self._table.filter(pc.is_in(self._table[orders.KEYS[0]], changed.field(orders.KEYS[0])))

    @cached_property
    def _fingerprints(self) -> list[Fingerprints]:
        return self._fingerprint()

    @cached_property
    def _items(self) -> list[RawItems]:
        """The items as text, in pieces as large as the chunks of a write."""
        lines = b"\n".join(self._lines)
        return list(RawItemReader(_KEY_TYPES).read(lines, "items"))

    @cached_property
    def _few_items(self) -> list[RawItems]:
        """The items that are sent in single requests."""
        befores = np.cumsum([0, *map(len, self._items)])
        wanted = [max(0, self._few - int(before)) for before in befores[:-1]]
        return [
            items.take(np.arange(min(len(items), most)))
            for items, most in zip(self._items, wanted, strict=True)
            if most
        ]

    @cached_property
    def _lines(self) -> list[bytes]:
        return self._text.splitlines()

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(len(line) + 1 for line in self._lines)])

    @cached_property
    def _batches(self) -> list[bytes]:
        return list(self._batch_bodies(self._lines))

    @staticmethod
    def _batch_bodies(items: list[bytes]) -> Iterator[bytes]:
        """Yield the bodies of batches of puts."""
        opening = b'{"RequestItems":{"%b":[{"PutRequest":{"Item":' % TABLE.encode()
        for start in range(0, len(items), _PUTS_PER_REQUEST):
            puts = b'}},{"PutRequest":{"Item":'.join(items[start : start + _PUTS_PER_REQUEST])
            yield b"".join((opening, puts, b'}}]},"ReturnConsumedCapacity":"INDEXES"}'))

    def _write_single_bodies(self) -> None:
        """Write a separate update body for each item text, with the common parts of all updates."""
        opening = b'{"TableName":"%b","ReturnConsumedCapacity":"INDEXES","Key":' % TABLE.encode()
        deque((b"".join((opening, text, b"}")) for text in self._lines[: self._few]), maxlen=0)

    @cached_property
    def _singles(self) -> list[bytes]:
        return [json.dumps(update_of(json.loads(line))).encode() for line in self._text.splitlines()[: self._few]]

    def _wire(self) -> LightTransport:
        spec = ClientSpec(endpoint_url=self._places.read_url)
        return LightTransport(spec.client("dynamodb"), spec)

    def _fetched(self) -> Iterator[bytes]:
        wire, parameters = self._wire(), {"TableName": self._places.table, "ReturnConsumedCapacity": "TOTAL"}
        while True:
            page = wire.read("Scan", parameters)
            yield page.items
            if page.last_evaluated_key is None:
                return
            parameters["ExclusiveStartKey"] = page.last_evaluated_key  # type: ignore[assignment] # of one request

    def _fetch(self) -> None:
        deque(self._fetched(), maxlen=0)

    def _fetch_in_rotation(self) -> None:
        """Read a small page of each of many segments in turn, so that the items come from all partitions."""
        wire, item_bytes = self._wire(), len(self._text) // len(self._lines)
        segments = rotated_segments(len(self._text))
        asked = {"TableName": self._places.table, "ReturnConsumedCapacity": "TOTAL", "TotalSegments": segments}
        asked["Limit"] = max(1, ROTATED_PAGE_BYTES // item_bytes)
        waiting = deque[dict[str, Any]]({**asked, "Segment": number} for number in range(segments))
        while waiting:
            parameters = waiting.popleft()
            page = wire.read("Scan", parameters)
            if page.last_evaluated_key is not None:
                waiting.append({**parameters, "ExclusiveStartKey": page.last_evaluated_key})

    def _decode(self) -> None:
        decoder = Decoder(self._schema)
        for page in self._pages:
            decoder.decode_batches(page, "page")

    def _check(self) -> None:
        reader = RawItemReader(_KEY_TYPES)
        for page in self._pages:
            deque(reader.read(page, "page"), maxlen=0)

    @staticmethod
    def _spread(parts_of_all: list[RawItems]) -> None:
        """Reorder the items of each window, so that every chunk has some from the entire window."""
        for first in range(0, len(parts_of_all), _WINDOW_PARTS):
            window = parts_of_all[first : first + _WINDOW_PARTS]
            parts = RawItemParts(window)
            for chunk in spread_ranges([len(part) for part in window], len(window)):
                parts.joined_ranges(chunk.firsts, np.diff(chunk.starts))

    def _order_keys(self) -> None:
        """Find rows with the same key in each window, which keep their order."""
        for first in range(0, len(self._items), _WINDOW_PARTS):
            hashes = np.concatenate([part.hashes for part in self._items[first : first + _WINDOW_PARTS]])
            in_key_order(np.arange(len(hashes)), hashes)

    @staticmethod
    def _deal(chunks: list[RawItems], lanes: int) -> None:
        """Sort the items of each chunk by the hash of their key, and write those of each lane in the format of
        requests.
        """
        splitter = LaneSplitter(lanes, batch_template(TABLE, *PUT), deque())
        for items in chunks:
            begins, ends = np.ascontiguousarray(items.spans[:, 0]), np.ascontiguousarray(items.spans[:, 1])
            texts = RowBytes(items.data, begins, ends, write_units(items.sizes), 0)
            splitter.split(texts, np.arange(len(items)), items.hashes, {})

    def _filter(self) -> None:
        """Select the rows without a change."""
        for batch in self._rows:
            batch.filter(pa.array(np.arange(batch.num_rows) % _CHANGED_SHARE != 0))

    def _fold_changed(self) -> None:
        """Find the newest state of each changed item."""
        fold(self._changed_rows, [self._changed], orders.KEYS)

    def _fingerprint(self) -> list[Fingerprints]:
        return [key_fingerprints(batch, orders.KEYS) for batch in self._columns]

    def _shuffle(self) -> None:
        """Shuffle the lines of each file."""
        text, ends = np.frombuffer(self._text, np.uint8), self._ends
        lines, random = LineBuffer(_FILE_BYTES), np.random.default_rng(0)
        for positions in np.array_split(np.arange(len(ends)), max(1, len(text) // _FILE_BYTES)):
            first, stop = ends[positions[0]], ends[min(positions[-1] + 1, len(ends) - 1)]
            within = ends[(first <= ends) & (ends <= stop)] - first
            lines.add(text[first:stop], within)
            lines.take(random.permutation(len(within) - 1))

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
        for path in data_files(self._places.export):
            unzipped(path)

    def _read(self, batch_rows: int = _GROUP_ROWS) -> Iterator[pa.RecordBatch]:
        for path in self._files:
            file = pq.ParquetFile(path, page_checksum_verification=True)
            yield from file.iter_batches(batch_size=batch_rows, use_threads=False)

    def _read_few(self) -> None:
        """Read about as many rows as are sent in single requests."""
        left = self._few
        for batch in self._read(_FEW_ROWS):
            left -= batch.num_rows
            if left <= 0:
                return

    def _write(self) -> None:
        table = self._table
        chosen: Any = dictionary_columns(table.slice(0, _GROUP_ROWS))
        with pq.ParquetWriter(
            io.BytesIO(),
            table.schema,
            compression="zstd",
            use_dictionary=chosen,
            write_page_index=True,
            write_page_checksum=True,
        ) as writer:
            writer.write_table(table, row_group_size=_GROUP_ROWS)

    def _send(self, operation: str, bodies: list[bytes], in_flight: int) -> None:
        source = open_body_sender(ClientSpec(endpoint_url=self._places.write_url), in_flight)
        pending: deque[Any] = deque()
        for body in bodies:
            pending.append(source.begin(operation, TABLE, body))
            if len(pending) == in_flight:
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
        "UpdateExpression": "SET " + ", ".join(f"#n{number} = :v{number}" for number in range(len(names))),
        "ExpressionAttributeNames": {f"#n{number}": name for number, name in enumerate(names)},
        "ExpressionAttributeValues": {f":v{number}": item[name] for number, name in enumerate(names)},
    }


def data_files(home: Path) -> list[Path]:
    """Return the data files of an export, whose folder has the manifests."""
    listed = (home / "manifest-files.json").read_text("utf-8").splitlines()
    names = [json.loads(line)["dataFileS3Key"].rpartition("/")[2] for line in listed]
    return [path for name in names for path in (home / "data" / name, home.parent / "data" / name) if path.exists()]


def unzipped(path: Path) -> bytes:
    """Return the text of a file."""
    with igzip.open(path) as opened:
        read: bytes = opened.read()
    return read
