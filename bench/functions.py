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
TO, ENCODE = "to_dynamodb_json", "encode kernel"
FROM_PANDAS, TO_PANDAS = f"{FROM} before Spark 4.1", f"{TO} before Spark 4.1"
# With what Spark's worker does around them; no body could do better than the kernel in its place.
FROM_WORKER, TO_WORKER = f"{FROM_PANDAS}, Spark's conversions with it", f"{TO_PANDAS}, Spark's conversions with it"
FROM_LEAST, TO_LEAST = f"{DECODE}, Spark's conversions with it", f"{ENCODE}, Spark's conversions with it"
KERNEL_OF = {
    **dict.fromkeys((FROM, FROM_PANDAS, FROM_WORKER, FROM_LEAST), DECODE),
    **dict.fromkeys((TO, TO_PANDAS, TO_WORKER, TO_LEAST), ENCODE),
}


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
        assert pa.array(results[TO_PANDAS].array).equals(results[TO])

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
    from pyspark.sql import functions as sql  # noqa: PLC0415 - asv imports this module, and needs no Spark

    from ddbio.spark import columns, pandas_columns  # noqa: PLC0415 - as above

    texts: Any = pa.array(texts_of(shape))
    body = "\n".join(texts.to_pylist()).encode()
    schema = decoders.schema_of(shape)
    schema_json, stored = schema_to_json(schema), schema.serialize().to_pybytes()
    decoder, encoder = Decoder(schema), Encoder(schema)
    batch = decoder.decode(body, "items")
    structs = batch.to_struct_array()
    decode = functools.partial(decoder.decode, body, "items")
    encode = functools.partial(encoder.encode, batch)
    decode_series = functools.partial(pandas_columns.decode_series, schema_json, "FAILFAST", "merge")
    encode_series = functools.partial(pandas_columns.encode_tagged, stored, tuple(schema.names), "FAILFAST")
    untagged, tagged = texts.cast(pa.binary()), tagged_texts(batch)
    ways = {
        FROM: functools.partial(columns.decode_texts, schema_json, "FAILFAST", "merge", texts),
        FROM_PANDAS: functools.partial(decode_series, untagged.to_pandas()),
        DECODE: decode,
        TO: functools.partial(columns.encode_structs, stored, "FAILFAST", structs),
        TO_PANDAS: functools.partial(encode_series, tagged.to_pandas()),
        ENCODE: encode,
    }
    if not hasattr(sql, "arrow_udf"):
        ways[FROM_WORKER], ways[TO_WORKER] = _around(decode_series, untagged), _around(encode_series, tagged)
        ways[FROM_LEAST] = _around_kernel(decode, decode_series, untagged)
        ways[TO_LEAST] = _around_kernel(encode, encode_series, tagged)
    return ways


def tagged_texts(batch: pa.RecordBatch) -> Any:
    """Return what Spark's own expressions make of the rows before a pandas function is called."""
    from ddbio.spark.tagged import tagged_schema  # noqa: PLC0415 - as above

    schema = tagged_schema(batch.schema.types)
    arrays = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
    tagged = Encoder(schema).encode_texts(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return tagged.cast(pa.binary())


def _around(body: Callable[[Any], Any], column: Any) -> Callable[[], Any]:
    """Return a body with what Spark's worker does before and after it: Arrow to pandas, pandas to Arrow."""
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer  # noqa: PLC0415 - as above

    # As Spark makes it for pandas functions: time zone, safe casts, columns by name, a frame for a struct.
    spark = ArrowStreamPandasUDFSerializer("UTC", True, True, True)  # noqa: FBT003 - Spark's
    returned = pa.array(body(column.to_pandas()).array).type
    chunked = pa.chunked_array([column])

    def run() -> Any:
        return spark._create_batch([(body(spark.arrow_to_pandas(chunked)), returned)])  # noqa: SLF001 - what it runs

    return run


def _around_kernel(kernel: Callable[[], Any], body: Callable[[Any], Any], column: Any) -> Callable[[], Any]:
    made = body(column.to_pandas())

    def take(_: Any) -> Any:
        kernel()
        return made

    return _around(take, column)
