"""Table over HTTP to typed columns: CPU time of the calling process. Another process serves the table."""

from __future__ import annotations

import functools
import time

from bench import data, scanners, serving
from bench.pairs import interleave, speed_ratio

ITEMS = 20_000
ROUNDS = 3


class Scan:
    params = (list(scanners.SCANNERS),)
    param_names = ("way",)
    timer = time.process_time
    timeout = 300

    def setup(self, way: str) -> None:
        self.table = serving.serve("orders", data.scaled(ITEMS))
        self.check(way)

    @staticmethod
    @functools.cache
    def check(way: str) -> None:
        scanners.check(way, serving.serve("orders", data.scaled(ITEMS)))

    def time_scan(self, way: str) -> None:
        scanners.drain(way, self.table)


class ScanRatio:
    params = (["orders", "flights", "territories"],)
    param_names = ("shape",)
    timeout = 300

    def setup(self, shape: data.Shape) -> None:
        self.table = serving.serve(shape, data.scaled(ITEMS))
        self.check(shape)

    @staticmethod
    @functools.cache
    def check(shape: data.Shape) -> None:
        for way in (scanners.DDBIO, scanners.RAW, scanners.CLIENT):
            scanners.check(way, serving.serve(shape, data.scaled(ITEMS)))

    def track_ratio_to_floor(self, _: str) -> float:
        return self._ratio(scanners.RAW)

    def track_ratio_to_boto3(self, _: str) -> float:
        return self._ratio(scanners.CLIENT)

    def _ratio(self, beside: str) -> float:
        ways = {way: functools.partial(scanners.drain, way, self.table) for way in (scanners.DDBIO, beside)}
        return speed_ratio(interleave(ways, ROUNDS, collecting=True), scanners.DDBIO, beside)

    track_ratio_to_floor.unit = "x"  # type: ignore[attr-defined]
    track_ratio_to_boto3.unit = "x"  # type: ignore[attr-defined]
