"""Item sizes by DynamoDB's rule: of Arrow rows compared with encoding, of DynamoDB JSON compared with reading spans."""

from __future__ import annotations

import functools
import json
import time
from typing import TYPE_CHECKING

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.capacity import item_bytes, item_bytes_of_json, item_size_bytes
from ddbio.items.batch_size import batch_bytes
from ddbio.items.decode import Decoder

if TYPE_CHECKING:
    from bench.data import Shape

ROUNDS = 5


class ItemSizes:
    params = (["export", "orders", "flights", "territories"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 300

    def setup(self, shape: Shape) -> None:
        self.check(shape)
        self.body = decoders.body_of(shape, "export")
        self.batch = Decoder(decoders.schema_of(shape)).decode(self.body, "export")
        self.items = data.items(shape, data.scaled(20_000))

    @staticmethod
    @functools.cache
    def check(shape: Shape) -> None:
        body = decoders.body_of(shape, "export")
        sizes = [item_size_bytes(json.loads(line)["Item"]) for line in body.splitlines()]
        batch = Decoder(decoders.schema_of(shape), nulls="keep").decode(body, "export")
        assert item_bytes(batch).to_pylist() == sizes
        assert item_bytes_of_json(body).to_pylist() == sizes

    def time_rows(self, _: str) -> None:
        item_bytes(self.batch)

    def time_json(self, _: str) -> None:
        item_bytes_of_json(self.body)

    def time_reference(self, _: str) -> None:
        for item in self.items:
            item_size_bytes(item)

    def track_rows_mb_per_second(self, _: str) -> float:
        return self._mb_per_second("rows", batch_bytes(self.batch))

    def track_json_mb_per_second(self, _: str) -> float:
        return self._mb_per_second("json", len(self.body))

    def track_ratio_to_reference(self, _: str) -> float:
        ways = {"rows": lambda: self.time_rows(_), "reference": lambda: self.time_reference(_)}
        return speed_ratio(interleave(ways, ROUNDS), "rows", "reference")

    track_rows_mb_per_second.unit = track_json_mb_per_second.unit = "MB/s"  # type: ignore[attr-defined]
    track_ratio_to_reference.unit = "x"  # type: ignore[attr-defined]

    def _mb_per_second(self, way: str, n_bytes: int) -> float:
        ways = {"rows": lambda: self.time_rows(""), "json": lambda: self.time_json("")}
        return n_bytes / 1e6 / min(interleave({way: ways[way]}, ROUNDS)[way])
