"""Run functions of Arrow arrays on columns of a Spark before 4.1, which knows functions of pandas series only.

Spark's worker makes the objects of a series before the function is called, and takes Arrow's memory back as it is. To
functions of iterators it hands each batch when they ask for it, and no other function is in that worker meanwhile: so
they can have the worker hand them Arrow's memory as well, for as long as they run.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def map_series(function: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    """Return a series of what the function makes of each batch's array, each value in a list of its own.

    A series of structs Spark would take for a frame, and spend as much on each of its columns as on one of lists.

    Raises
    ------
    OptionError
        This Spark's worker makes objects all the same.
    """
    with _handing_arrow():
        for batch in batches:
            yield _series_of(_listed(function(_array_of(batch))))


def _listed(array: Any) -> Any:
    ends: Any = np.arange(len(array) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(ends, array)


def _series_of(array: Any) -> Any:
    """Return a series that holds Arrow's memory as it is, whatever Spark would apply to its values."""
    import pandas as pd  # noqa: PLC0415 - only workers need it

    class Series(pd.Series):  # type: ignore[misc] # pandas is not imported where types are checked
        def apply(self, *_: Any, **__: Any) -> Any:
            return self

    return Series(pd.arrays.ArrowExtensionArray(array))


@contextlib.contextmanager
def _handing_arrow() -> Iterator[None]:
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
            "this Spark makes Python objects of what a column's function is handed: use decode_column or encode_column "
            "of ddbio.spark.functions, which do the same to a DataFrame"
        )
    (chunk,) = array.__arrow_array__().chunks
    return chunk
