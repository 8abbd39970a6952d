"""Digest and key hashes of decoded batches, compared with decoding, the digest of the bytes and the reference."""

from __future__ import annotations

import functools
import json
import time
from typing import TYPE_CHECKING

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest, digest_of_batches
from ddbio.items.digest_json import JsonDigest
from ddbio.items.item_key import key_hashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.data import Shape

ROUNDS = 5


class DigestColumns:
    params = (["export", "orders", "flights", "territories"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 300

    def setup(self, shape: Shape) -> None:
        self.check(shape)
        self.body = decoders.body_of(shape, "export")
        self.items = data.items(shape, data.scaled(20_000))
        self.decoder = Decoder(decoders.schema_of(shape))
        self.batch = self.decoder.decode(self.body, "export")
        self.keys = [key.partition(":")[0] for key in data.KEYS[shape].split(",")]
        self.columns = ColumnDigest()

    @staticmethod
    @functools.cache
    def check(shape: Shape) -> None:
        body = decoders.body_of(shape, "export")
        wire = Digest()
        wire.add_items(json.loads(line)["Item"] for line in body.splitlines())
        # The reference is compared on rows that distinguish NULL from missing.
        batch = Decoder(decoders.schema_of(shape), nulls="keep").decode(body, "export")
        walked = JsonDigest()
        walked.add(body, "export")
        assert digest_of_batches([batch]) == walked.digest == wire

    def time_digest(self, _: str) -> None:
        self.columns.add_batch(self.batch)

    def time_wire(self, _: str) -> None:
        JsonDigest().add(self.body, "export")

    def time_reference(self, _: str) -> None:
        Digest().add_items(self.items)

    def time_key_hashes(self, _: str) -> None:
        key_hashes(self.batch, self.keys)

    def track_ratio_to_decode(self, _: str) -> float:
        return self._ratio("decode")

    def track_ratio_to_reference(self, _: str) -> float:
        return self._ratio("reference")

    def ways(self) -> dict[str, Callable[[], object]]:
        """Return the compared methods, all for the same items."""
        return {
            "digest": lambda: self.columns.add_batch(self.batch),
            "decode": lambda: self.decoder.decode(self.body, "export"),
            "wire": lambda: JsonDigest().add(self.body, "export"),
            "reference": lambda: Digest().add_items(self.items),
        }

    def _ratio(self, beside: str) -> float:
        ways = self.ways()
        seconds = interleave({name: ways[name] for name in ("digest", beside)}, ROUNDS)
        return speed_ratio(seconds, "digest", beside)

    track_ratio_to_decode.unit = "x"  # type: ignore[attr-defined]
    track_ratio_to_reference.unit = "x"  # type: ignore[attr-defined]
