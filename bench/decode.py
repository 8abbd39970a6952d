"""DynamoDB JSON to typed columns in memory: ddbio, the peers and the limits."""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING, Any

from bench import decoders, profiles
from bench.pairs import interleave, speed_ratio

if TYPE_CHECKING:
    from bench.data import Shape
    from bench.decoders import Framing

ROUNDS = 5


class Decode:
    params = (["export", "orders", "flights", "territories"], ["export", "page"])
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

    def time_pyarrow_json(self, *_: str) -> None:
        self.ways[decoders.PYARROW](self.body)

    def time_json_loads(self, *_: str) -> None:
        self.ways[decoders.LOADS](self.body)

    def time_boto3(self, *_: str) -> None:
        self.ways[decoders.BOTO3](self.body)

    def track_ratio_to_pyarrow_json(self, *_: str) -> float:
        return self._ratio(decoders.PYARROW)

    def track_ratio_to_boto3(self, *_: str) -> float:
        return self._ratio(decoders.BOTO3)

    def _ratio(self, beside: str) -> float:
        ways: dict[str, Any] = {
            name: functools.partial(self.ways[name], self.body) for name in (decoders.DDBIO, beside)
        }
        return speed_ratio(interleave(ways, ROUNDS), decoders.DDBIO, beside)

    track_ratio_to_pyarrow_json.unit = "x"  # type: ignore[attr-defined]
    track_ratio_to_boto3.unit = "x"  # type: ignore[attr-defined]


class DecodeProfile:
    params = ([profile for profile in profiles.PROFILES if profile not in profiles.DRIFTS],)
    param_names = ("profile",)
    timer = time.process_time
    timeout = 300

    def setup(self, profile: str) -> None:
        self.body = profiles.body_of(profile)
        self.ways = profiles.ways_of(profile)
        self.check(profile)

    @staticmethod
    @functools.cache
    def check(profile: str) -> None:
        profiles.check(profile)

    def time_ddbio(self, _: str) -> None:
        self.ways[decoders.DDBIO](self.body)

    def time_pyarrow_json(self, _: str) -> None:
        self.ways[decoders.PYARROW](self.body)

    def time_json_loads(self, _: str) -> None:
        self.ways[decoders.LOADS](self.body)

    def time_orjson_loads(self, _: str) -> None:
        self.ways[decoders.ORJSON](self.body)

    def time_boto3(self, _: str) -> None:
        self.ways[decoders.BOTO3](self.body)

    def time_memcpy(self, _: str) -> None:
        self.ways[profiles.MEMCPY](self.body)

    def time_utf8_check(self, _: str) -> None:
        self.ways[profiles.UTF8](self.body)

    def track_megabytes_per_second(self, _: str) -> float:
        return len(self.body) / 1e6 / self._seconds()

    def track_items_per_second(self, _: str) -> float:
        return self.body.count(b"\n") / self._seconds()

    def _seconds(self) -> float:
        way = functools.partial(self.ways[decoders.DDBIO], self.body)
        return statistics.median(interleave({decoders.DDBIO: way}, ROUNDS)[decoders.DDBIO])

    track_megabytes_per_second.unit = "MB/s"  # type: ignore[attr-defined]
    track_items_per_second.unit = "items/s"  # type: ignore[attr-defined]


class DecodeDrift:
    """Rows with drift, compared with the same rows without it. No library's parser accepts them with the schema."""

    params = (list(profiles.DRIFTS),)
    param_names = ("profile",)
    timer = time.process_time
    timeout = 300

    def setup(self, profile: str) -> None:
        self.body, self.settled = profiles.body_of(profile), profiles.body_of(profiles.BASE)
        self.decode = profiles.ways_of(profile)[decoders.DDBIO]
        self.check(profile)

    @staticmethod
    @functools.cache
    def check(profile: str) -> None:
        profiles.check(profile)

    def time_drifted(self, _: str) -> None:
        self.decode(self.body)

    def time_settled(self, _: str) -> None:
        self.decode(self.settled)

    def track_ratio_to_settled(self, _: str) -> float:
        ways = {name: functools.partial(self.decode, getattr(self, name)) for name in ("body", "settled")}
        return speed_ratio(interleave(ways, 10 * ROUNDS), "body", "settled")

    track_ratio_to_settled.unit = "x"  # type: ignore[attr-defined]
