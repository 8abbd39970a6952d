"""Spark functions in their workers with batches of 10,000 rows, compared with the kernel on the same rows."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.items.decode import Decoder
from ddbio.items.encode import Encoder
from ddbio.items.schema.file import schema_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.data import Shape

ROUNDS = 9
ROWS = 10_000

# Each body precedes the kernel that it is compared with.
FROM, DECODE = "from_dynamodb_json", "decode kernel"
TO, ENCODE = "to_dynamodb_json", "encode kernel"
# With all the work of Spark's worker around them.
BEFORE = " with its worker, before Spark 4.1"
FROM_PANDAS, TO_PANDAS = FROM + BEFORE, TO + BEFORE
KERNEL_OF = {FROM: DECODE, FROM_PANDAS: DECODE, TO: ENCODE, TO_PANDAS: ENCODE}


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
        """Raise if a function does not return the same as its kernel."""
        results = {name: way() for name, way in bodies(shape).items()}
        batch = results[DECODE]
        assert pa.RecordBatch.from_struct_array(results[FROM]).equals(batch)
        assert "".join(results[TO].to_pylist()).encode() == results[ENCODE].buffer.tobytes()
        for name in {FROM_PANDAS, TO_PANDAS} & results.keys():
            assert results[name].column(0).flatten().equals(results[name.removesuffix(BEFORE)])

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
        ways = {way: self.bodies[way] for way in (name, beside)}
        return speed_ratio(interleave(ways, ROUNDS), name, beside)

    track_from_ratio_to_kernel.unit = "x"  # type: ignore[attr-defined]
    track_to_ratio_to_kernel.unit = "x"  # type: ignore[attr-defined]


def texts_of(shape: Shape) -> list[str]:
    """Return the rows of one of Spark's batches."""
    return [line.decode() for line in data.lines(shape, data.scaled(ROWS))]


def bodies(shape: Shape) -> dict[str, Callable[[], Any]]:
    """Return the bodies of the functions for Spark's input, and the kernels."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - asv imports this module, and needs no Spark

    from ddbio.spark import column_functions  # noqa: PLC0415 - see above

    texts: Any = pa.array(texts_of(shape))
    body = "\n".join(texts.to_pylist()).encode()
    schema = decoders.schema_of(shape)
    schema_json, stored = schema_to_json(schema), schema.serialize().to_pybytes()
    decoder, encoder = Decoder(schema), Encoder(schema)
    batch = decoder.decode(body, "items")
    structs = batch.to_struct_array()
    decode_texts = functools.partial(column_functions.decode_texts, schema_json, "FAILFAST", "merge")
    encode_structs = functools.partial(column_functions.encode_structs, stored, "FAILFAST")
    ways = {
        FROM: functools.partial(decode_texts, texts),
        DECODE: functools.partial(decoder.decode, body, "items"),
        TO: functools.partial(encode_structs, structs),
        ENCODE: functools.partial(encoder.encode, batch),
    }
    if not hasattr(sql, "arrow_udf"):
        ways[FROM_PANDAS], ways[TO_PANDAS] = _in_worker(decode_texts, texts), _in_worker(encode_structs, structs)
    return ways


def _in_worker(function: Callable[[Any], Any], column: Any) -> Callable[[], Any]:
    """Return the work of a Spark worker on a column, from reading it to writing the batch."""
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer  # noqa: PLC0415 - see above

    from ddbio.spark.column_functions import map_series  # noqa: PLC0415 - see above

    # As Spark creates it for pandas functions: time zone, safe casts, columns by name, a frame for a struct.
    spark = ArrowStreamPandasUDFSerializer("UTC", True, True, True)  # noqa: FBT003 - Spark's
    handed = [pa.chunked_array([column])]
    returned = pa.list_(function(column).type)

    def run() -> Any:
        (series,) = map_series(function, (spark.arrow_to_pandas(column) for column in handed))
        return spark._create_batch([(series, returned)])  # noqa: SLF001 - the function that it runs

    return run
