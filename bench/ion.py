"""Lines of an Ion export to typed columns in memory: ddbio, and the reference with the same decoder."""

from __future__ import annotations

import functools
import time

import pyarrow as pa

from bench import data, decoders
from bench.pairs import interleave, megabytes_per_second
from ddbio.items.decode import Decoder
from ddbio.items.ion import IonReader
from ddbio.items.ion_values import ion_line, ion_to_json_lines

ITEMS = 20_000
ROUNDS = 5


class Ion:
    params = (["export", "orders", "flights"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 300

    def setup(self, shape: data.Shape) -> None:
        self.body = body_of(shape, data.scaled(ITEMS))
        self.decoder = Decoder(decoders.schema_of(shape))
        self.lines = IonReader(len(self.body))
        self.check(shape)

    @staticmethod
    @functools.cache
    def check(shape: data.Shape) -> None:
        body, decoder = body_of(shape, data.scaled(ITEMS // 20)), Decoder(decoders.schema_of(shape))
        ours = pa.Table.from_batches(by_ddbio(body, decoder, IonReader(len(body))))
        assert ours.equals(pa.Table.from_batches(by_reference(body, decoder)))

    def time_ddbio(self, *_: str) -> None:
        by_ddbio(self.body, self.decoder, self.lines)

    def time_reference(self, *_: str) -> None:
        by_reference(self.body, self.decoder)

    def track_megabytes_per_cpu_second(self, *_: str) -> float:
        seconds = interleave({"ddbio": self.time_ddbio}, ROUNDS)
        return megabytes_per_second(seconds, len(self.body))["ddbio"]

    track_megabytes_per_cpu_second.unit = "MB/s"  # type: ignore[attr-defined]


def body_of(shape: data.Shape, count: int) -> bytes:
    """Return the lines of an export in Ion."""
    return b"".join(ion_line({"Item": item}) for item in data.items(shape, count))


def by_ddbio(body: bytes, decoder: Decoder, lines: IonReader) -> list[pa.RecordBatch]:
    """Return the rows decoded with the compiled loop."""
    return [batch for piece in lines.pieces(body) for batch in decoder.decode_batches(piece, "export")]


def by_reference(body: bytes, decoder: Decoder) -> list[pa.RecordBatch]:
    """Return the rows decoded with the reference."""
    return decoder.decode_batches(ion_to_json_lines(body), "export")
