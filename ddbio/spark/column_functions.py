"""Functions that Spark's workers run for ``functions.py``: Arrow columns of DynamoDB JSON become structs, and back.

Before 4.1, Spark only has functions of pandas series, and converts the values of a series to Python objects before it
calls the function. It accepts Arrow memory as a result, however. A function of an iterator gets each batch when it
requests it, and no other function runs in that worker meanwhile. So the function can make the worker pass Arrow memory
for the duration of its run.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from ddbio.errors import OptionError
from ddbio.items.decode import RowDecoder
from ddbio.items.encode import Encoder
from ddbio.items.schema.file import schema_from_json

if TYPE_CHECKING:
    from typing import TypeAlias

    Mode: TypeAlias = Literal["FAILFAST", "PERMISSIVE"]
    Nulls: TypeAlias = Literal["merge", "keep"]
    from collections.abc import Callable, Iterable, Iterator


MODES = ("FAILFAST", "PERMISSIVE")
NULLS = ("merge", "keep")

# A worker of Spark has one thread.


@functools.lru_cache(maxsize=8)
def _decoder(schema_json: str, nulls: Nulls) -> RowDecoder:
    return RowDecoder(schema_from_json(schema_json), nulls=nulls)


@functools.lru_cache(maxsize=8)
def _encoder(stored: bytes, names: tuple[str, ...]) -> Encoder:
    schema = schema_of(stored)
    return Encoder(pa.schema([schema.field(name) for name in names]))


def schema_of(stored: bytes) -> pa.Schema:
    """Return the schema of these bytes in Arrow's serialization."""
    return pa.ipc.read_schema(pa.py_buffer(stored))


def decode_texts(schema_json: str, mode: Mode, nulls: Nulls, texts: Any) -> Any:
    """Return a struct of the schema's columns for each text, null for null.

    Raises
    ------
    DecodeError
        A text is not one item, and the mode is ``FAILFAST``.
    """
    batch = _decoder(schema_json, nulls).decode(texts, strict=mode == "FAILFAST")
    is_null: Any = pc.is_null(texts) if texts.null_count else None
    return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema), mask=is_null)


def encode_structs(stored: bytes, mode: Mode, structs: Any) -> Any:
    """Return the text of each struct as one item, null for null.

    Raises
    ------
    EncodeError
        DynamoDB would refuse an item, and the mode is ``FAILFAST``.
    """
    names = tuple(field.name for field in structs.type)
    encoder = _encoder(stored, names)
    # The encoder names the row of invalid UTF-8.
    casts = [pc.CastOptions(kind, allow_invalid_utf8=True) for kind in encoder.schema.types]
    columns = [column.cast(options=cast) for column, cast in zip(structs.flatten(), casts, strict=True)]
    texts = encoder.encode_texts(pa.RecordBatch.from_arrays(columns, schema=encoder.schema), strict=mode == "FAILFAST")
    return pc.if_else(structs.is_valid(), texts, None) if structs.null_count else texts


def map_series(function: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    """Yield a series of the function's result for each batch's array, with each value in its own list.

    Spark would treat a series of structs as a frame, and each of its columns costs as much as a series of lists.

    Raises
    ------
    OptionError
        This Spark's worker nevertheless makes objects.
    """
    with _passing_arrow():
        for batch in batches:
            yield _series_of(_listed(function(_array_of(batch))))


def _listed(array: Any) -> Any:
    ends: Any = np.arange(len(array) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(ends, array)


def _series_of(array: Any) -> Any:
    """Return a series over Arrow's memory that ignores the functions that Spark applies to its values."""
    import pandas as pd  # noqa: PLC0415 - only workers need it

    class Series(pd.Series):  # type: ignore[misc] # pandas is not imported where types are checked
        def apply(self, *_: Any, **__: Any) -> Any:
            return self

    return Series(pd.arrays.ArrowExtensionArray(array))


@contextlib.contextmanager
def _passing_arrow() -> Iterator[None]:
    from pyspark.sql.pandas.serializers import (  # noqa: PLC0415 - only workers need it
        ArrowStreamPandasUDFSerializer as Serializer,
    )

    own = Serializer.arrow_to_pandas
    Serializer.arrow_to_pandas = lambda _, column, *__, **___: _series_of(column)
    try:
        yield
    finally:
        Serializer.arrow_to_pandas = own


def _array_of(series: Any) -> Any:
    array: Any = getattr(series, "array", None)
    if not hasattr(array, "__arrow_array__"):
        raise OptionError(
            "this Spark converts arguments of column functions to Python objects: use decode_column or encode_column "
            "of ddbio.spark.functions, which do the same to a DataFrame"
        )
    (chunk,) = array.__arrow_array__().chunks
    return chunk
