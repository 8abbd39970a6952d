"""Do what ``columns`` does for a Spark before 4.1, which hands its functions pandas objects in the place of Arrow's.

Spark makes the objects before the function is called; on the way back, Arrow's memory is handed on as it is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.decode import Decoder
from ddbio.spark.columns import decode_objects, encode_structs, schema_of
from ddbio.spark.tagged import tagged_schema

if TYPE_CHECKING:
    from ddbio.spark.columns import Mode, Nulls


def decode_series(schema_json: str, mode: Mode, nulls: Nulls, texts: Any) -> Any:
    """Return a series of lists of one struct of the schema's columns, one for each text of a series of bytes.

    A series of structs Spark would take for a frame, and spend as much on each of its columns as on one of lists.
    """
    structs = decode_objects(schema_json, mode, nulls, texts.tolist())
    ends: Any = np.arange(len(structs) + 1, dtype=np.int32)
    return _series_of(pa.ListArray.from_arrays(ends, structs))


def _series_of(array: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - only workers need it

    class Series(pd.Series):  # type: ignore[misc] # pandas is not imported where types are checked
        """Hold Arrow's memory as it is: Spark would apply a conversion to each nested value."""

        def apply(self, *_: Any, **__: Any) -> Any:
            return self

    return Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])))


@functools.lru_cache(maxsize=8)
def _tagged_decoder(stored: bytes, names: tuple[str, ...]) -> Decoder:
    schema = schema_of(stored)
    return Decoder(tagged_schema(schema.field(name).type for name in names), on_misfit="fail")


def encode_tagged(stored: bytes, names: tuple[str, ...], mode: Mode, texts: Any) -> Any:
    """Return a series of items for a series of texts that ``tagged_json`` made of the columns of these names."""
    decoder = _tagged_decoder(stored, names)
    *columns, _ = decoder.decode(b"\n".join(texts.tolist()), "items").columns
    return _series_of(encode_structs(stored, mode, pa.StructArray.from_arrays(columns, list(names))))
