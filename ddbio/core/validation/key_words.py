"""Give each row a word for its key, equal for equal keys: a part of what the row's digest is made of.

The word is the first of the sum of the key attributes' hashes (``core.digest``). Hashing a row's item computes it on
the way; here it is found by itself, and for rows whose keys are in the rescue column or in columns of mixed types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ddbio.core.digest import name_key, value_hash
from ddbio.core.digest_columns import ColumnDigest
from ddbio.core.items.item_key import key_identity, rescued_keys
from ddbio.core.kernel.arrays import take_rows, valid_of
from ddbio.core.reference import items_of
from ddbio.core.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ddbio.core.validation.key_hashes import Words

_WORD = 1 << 64


def key_words(batch: pa.RecordBatch, keys: Sequence[str]) -> Words:
    """Return the word of each row's key.

    Raises
    ------
    SchemaError
        The batch has no such column, a row lacks a key attribute, or a key attribute is not S, N or B.
    DecodeError
        A number is beyond 38 digits or out of range.
    """
    fields = {name_of_field(field): field for field in batch.schema if field.name != RESCUE_NAME}
    for name in keys:
        if name not in fields:
            raise SchemaError(f"{name}: the batch has no such attribute: it has {', '.join(fields)}")
    places = [batch.schema.get_field_index(fields[name].name) for name in keys]
    found = ColumnDigest(keys).add_rows(batch.select(places)).keys
    if found is not None:
        return found
    columns = [batch.column(place) for place in places]
    lacking = ~np.logical_and.reduce([valid_of(column) for column in columns])
    words = np.zeros(batch.num_rows, np.uint64)
    for rows, is_whole in ((np.flatnonzero(~lacking), True), (np.flatnonzero(lacking), False)):
        if not len(rows):
            continue
        some = take_rows(batch, rows)
        found = ColumnDigest(keys).add_rows(some.select(places)).keys if is_whole else _rescued(some, keys, places)
        words[rows] = _plain(some, rows, keys) if found is None else found
    return words


def _rescued(batch: pa.RecordBatch, keys: Sequence[str], places: Sequence[int]) -> Words | None:
    """Return the words of keys that are in their columns or in the rescue column; None if a row has one not once."""
    words = np.zeros(batch.num_rows, np.uint64)
    rescued = rescued_keys(batch, keys)
    for number, place in enumerate(places):
        counts = np.zeros(batch.num_rows, np.int64)
        for column, field in ((batch.column(place), batch.schema.field(place)), *rescued[number]):
            rows = pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))
            words += ColumnDigest().add_rows(rows).items[:, 0]
            counts += valid_of(column)
        if (counts != 1).any():
            return None
    return words


def _plain(batch: pa.RecordBatch, rows: np.ndarray[Any, Any], keys: Sequence[str]) -> Words:
    """Return the words by the plain reference, which says what is wrong with a row."""
    words = []
    for row, item in zip(rows.tolist(), items_of(batch), strict=True):
        try:
            key_identity(item, keys)
        except SchemaError as error:
            raise SchemaError(f"row {row}: {error}") from None
        words.append(sum(value_hash(name_key(name), item[name])[0] for name in keys) % _WORD)
    return np.array(words, np.uint64)
