"""Typed columns to DynamoDB JSON in memory: ddbio, the reference in Python, and code of boto3's users."""

from __future__ import annotations

import base64
import functools
import json
import time
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeSerializer

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.items.decode import Decoder
from ddbio.items.encode import Encoder
from ddbio.items.reference import plain_json_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from bench.data import Shape

ROUNDS = 3
DDBIO, PLAIN, BOTO3 = "ddbio", "pylist + json.dumps", "TypeSerializer + json.dumps"
_SETS = {"export": {"tags"}, "orders": {"labels"}, "flights": set(), "territories": set()}


class Encode:
    params = (["export", "orders", "flights", "territories"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 300

    def setup(self, shape: Shape) -> None:
        self.batch = batch_of(shape)
        self.ways = encoders(shape)
        self.check(shape)

    @staticmethod
    @functools.cache
    def check(shape: Shape) -> None:
        """Raise if an encoder does not write every item with every value right."""
        wanted = [json.loads(line) for line in data.lines(shape, data.scaled(20_000))]
        batch = batch_of(shape)
        for name, way in encoders(shape).items():
            items = [json.loads(line) for line in way(batch).splitlines()]
            assert list(map(_comparable, items)) == list(map(_comparable, wanted)), name

    def time_ddbio(self, *_: str) -> None:
        self.ways[DDBIO](self.batch)

    def time_plain(self, *_: str) -> None:
        self.ways[PLAIN](self.batch)

    def time_boto3(self, *_: str) -> None:
        self.ways[BOTO3](self.batch)

    def track_ratio_to_plain(self, *_: str) -> float:
        return self._ratio(PLAIN)

    def track_ratio_to_boto3(self, *_: str) -> float:
        return self._ratio(BOTO3)

    def _ratio(self, beside: str) -> float:
        ways: dict[str, Any] = {name: functools.partial(self.ways[name], self.batch) for name in (DDBIO, beside)}
        return speed_ratio(interleave(ways, ROUNDS), DDBIO, beside)

    track_ratio_to_plain.unit = "x"  # type: ignore[attr-defined]
    track_ratio_to_boto3.unit = "x"  # type: ignore[attr-defined]


def batch_of(shape: Shape) -> pa.RecordBatch:
    """Return about 9 MB of items as typed columns."""
    body = data.export_lines(shape, data.scaled(20_000))
    return Decoder(decoders.schema_of(shape)).decode(body, "export")


def encoders(shape: Shape) -> dict[str, Callable[[pa.RecordBatch], bytes]]:
    """Return all methods from columns to lines."""
    encoder = Encoder(decoders.schema_of(shape))
    return {
        DDBIO: encoder.encode_lines,
        PLAIN: plain_json_lines,
        BOTO3: functools.partial(_serialize, _SETS[shape]),
    }


def _serialize(sets: set[str], batch: pa.RecordBatch) -> bytes:
    serialize = TypeSerializer().serialize
    lines = []
    for row in batch.drop_columns(["_rescue"]).to_pylist():
        item = {
            name: serialize(set(value) if name in sets else value) for name, value in row.items() if value is not None
        }
        lines.append(json.dumps(item, default=_base64, separators=(",", ":"), ensure_ascii=False))
    return "\n".join(lines).encode()


def _base64(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()


def _comparable(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without NULL, with sorted sets, and numbers without the zeros that a decimal column adds."""
    members = {}
    for name, value in item.items():
        ((tag, content),) = value.items()
        if tag == "NULL":
            continue
        if tag == "M":
            content = _comparable(content)
        elif tag == "L":
            content = [_comparable({"": member}) for member in content]
        elif tag == "N":
            content = content.rstrip("0").rstrip(".") if "." in content else content
        members[name] = {tag: sorted(content) if tag == "SS" else content}
    return members
