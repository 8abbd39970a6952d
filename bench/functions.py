"""What Spark's functions do in their workers with a batch of 10,000 rows, beside the bare kernel on the same rows."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.core.decode import Decoder
from ddbio.core.encode import Encoder
from ddbio.core.schema.arrow import schema_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.data import Shape

ROUNDS = 9
ROWS = 10_000

# Each body stands before the kernel it is held against.
FROM, DECODE = "from_dynamodb_json", "decode kernel"
FROM_PANDAS = "from_dynamodb_json, pandas"
TO, ENCODE = "to_dynamodb_json", "encode kernel"
KERNEL_OF = {FROM: DECODE, FROM_PANDAS: DECODE, TO: ENCODE}


class Functions:
    params = (["export", "orders", "flights"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 300

    def setup(self, shape: Shape) -> None:
        self.bodies = bodies(shape)
        self.check(shape)

    @staticmethod
    @functools.cache
    def check(shape: Shape) -> None:
        """Refuse figures of a function that does not return what its kernel returns."""
        results = {name: way() for name, way in bodies(shape).items()}
        batch = results[DECODE]
        assert pa.RecordBatch.from_struct_array(results[FROM]).equals(batch)
        assert pa.array(results[FROM_PANDAS].array).flatten().equals(results[FROM])
        assert "".join(results[TO].to_pylist()).encode() == results[ENCODE].buffer.tobytes()

    def time_from(self, _: str) -> None:
        self.bodies[FROM]()

    def time_to(self, _: str) -> None:
        self.bodies[TO]()

    def track_from_ratio_to_kernel(self, _: str) -> float:
        return self._ratio(FROM)

    def track_to_ratio_to_kernel(self, _: str) -> float:
        return self._ratio(TO)

    def _ratio(self, name: str) -> float:
        beside = KERNEL_OF[name]
        ways = {each: self.bodies[each] for each in (name, beside)}
        return speed_ratio(interleave(ways, ROUNDS), name, beside)

    track_from_ratio_to_kernel.unit = "x"  # type: ignore[attr-defined]
    track_to_ratio_to_kernel.unit = "x"  # type: ignore[attr-defined]


def texts_of(shape: Shape) -> list[str]:
    """Return the rows of one batch of Spark's."""
    return [line.decode() for line in data.lines(shape, data.scaled(ROWS))]


def bodies(shape: Shape) -> dict[str, Callable[[], Any]]:
    """Return what the functions do with what Spark hands them, and the kernels."""
    from ddbio.spark import columns, pandas_columns  # noqa: PLC0415 - asv imports this module, and needs no Spark

    texts: Any = pa.array(texts_of(shape))
    series, body = texts.cast(pa.binary()).to_pandas(), "\n".join(texts.to_pylist()).encode()
    schema = decoders.schema_of(shape)
    schema_json = schema_to_json(schema)
    decoder, encoder = Decoder(schema), Encoder(schema)
    batch = decoder.decode(body, "items")
    structs = batch.to_struct_array()
    return {
        FROM: functools.partial(columns.decode_texts, schema_json, "FAILFAST", "merge", texts),
        FROM_PANDAS: functools.partial(pandas_columns.decode_series, schema_json, "FAILFAST", "merge", series),
        DECODE: functools.partial(decoder.decode, body, "items"),
        TO: functools.partial(columns.encode_structs, schema_json, "FAILFAST", structs),
        ENCODE: functools.partial(encoder.encode, batch),
    }
