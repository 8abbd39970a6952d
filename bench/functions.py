"""What a Spark function does in its worker with a batch of 10,000 rows, beside the decoder alone."""

from __future__ import annotations

import functools
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.core.decode import Decoder
from ddbio.core.json_rows import RowDecoder

if TYPE_CHECKING:
    from bench.data import Shape

ROUNDS = 5
ROWS = 10_000


class FromDynamoDBJson:
    params = (["export", "orders", "flights"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 300

    def setup(self, shape: Shape) -> None:
        self.check(shape)
        lines = data.lines(shape, data.scaled(ROWS))
        self.body = b"\n".join(lines)
        self.texts: Any = pa.array([line.decode() for line in lines]).to_pandas()
        self.decoder = Decoder(decoders.schema_of(shape))
        self.rows = RowDecoder(decoders.schema_of(shape))

    @staticmethod
    @functools.cache
    def check(shape: Shape) -> None:
        lines = data.lines(shape, data.scaled(ROWS))
        schema = decoders.schema_of(shape)
        rows = RowDecoder(schema).decode(pa.array([line.decode() for line in lines]))
        assert rows.equals(Decoder(schema).decode(b"\n".join(lines), "items"))
        assert rows.num_rows == len(lines)
        assert json.loads(lines[0])

    def time_rows(self, _: str) -> None:
        self._decode_rows()

    def time_decoder(self, _: str) -> None:
        self._decode()

    def track_ratio_to_decoder(self, _: str) -> float:
        seconds = interleave({"rows": self._decode_rows, "decoder": self._decode}, ROUNDS)
        return speed_ratio(seconds, "rows", "decoder")

    def _decode_rows(self) -> pa.RecordBatch:
        return self.rows.decode(pa.array(self.texts, pa.string(), from_pandas=True))

    def _decode(self) -> pa.RecordBatch:
        return self.decoder.decode(self.body, "items")

    track_ratio_to_decoder.unit = "x"  # type: ignore[attr-defined]
