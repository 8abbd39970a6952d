"""From DynamoDB JSON to typed columns, in memory: ours, the floor (bare ``pyarrow.json``) and the peers."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from bench import decoders
from bench.pairs import interleave, speed_ratio

if TYPE_CHECKING:
    from bench.data import Shape
    from bench.decoders import Framing

ROUNDS = 5


class Decode:
    params = (["export", "orders", "flights"], ["export", "page"])
    param_names = ("shape", "framing")
    timer = time.process_time
    timeout = 300

    def setup(self, shape: Shape, framing: Framing) -> None:
        self.body = decoders.body_of(shape, framing)
        self.ways = decoders.decoders(shape, framing)
        self.check(shape, framing)

    @staticmethod
    @functools.cache
    def check(shape: Shape, framing: Framing) -> None:
        decoders.check(shape, framing)

    def time_ddbio(self, *_: str) -> None:
        self.ways[decoders.DDBIO](self.body)

    def time_floor(self, *_: str) -> None:
        self.ways[decoders.FLOOR](self.body)

    def time_json_loads(self, *_: str) -> None:
        self.ways[decoders.LOADS](self.body)

    def time_boto3(self, *_: str) -> None:
        self.ways[decoders.BOTO3](self.body)

    def track_ratio_to_floor(self, *_: str) -> float:
        return self._ratio(decoders.FLOOR)

    def track_ratio_to_boto3(self, *_: str) -> float:
        return self._ratio(decoders.BOTO3)

    def _ratio(self, beside: str) -> float:
        ways: dict[str, Any] = {
            name: functools.partial(self.ways[name], self.body) for name in (decoders.DDBIO, beside)
        }
        return speed_ratio(interleave(ways, ROUNDS), decoders.DDBIO, beside)

    track_ratio_to_floor.unit = "x"  # type: ignore[attr-defined]
    track_ratio_to_boto3.unit = "x"  # type: ignore[attr-defined]
