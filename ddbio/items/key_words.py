"""Give each row a word for its key, equal for equal keys: a part of what the row's digest is made of.

The word is the first of the sum of the key attributes' hashes (``core.digest``). Hashing a row's item computes it on
the way; here it is found by itself, and for rows whose keys are in the rescue column or in columns of mixed types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import key_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ddbio.items.digest_columns import RowSums
    from ddbio.items.key_hashes import Words


def key_words(batch: pa.RecordBatch, keys: Sequence[str]) -> Words:
    """Return the word of each row's key.

    Raises
    ------
    SchemaError
        The batch has no such column, a row lacks a key attribute, or a key attribute is not S, N or B.
    DecodeError
        A number is beyond 38 digits or out of range.
    """
    parts = key_columns(batch, keys)
    words, digest = np.empty(batch.num_rows, np.uint64), ColumnDigest(keys)
    for part in parts:
        found = digest.add_rows(part.batch).keys
        # Each key has a value, of type S, N or B.
        words[part.rows] = np.zeros(0) if found is None else found
    return words


def row_sums(digest: ColumnDigest, batch: pa.RecordBatch, keys: Sequence[str]) -> RowSums:
    """Add rows to a digest of these keys; return what they hash to, and the words of their keys, wherever those lie.

    Raises
    ------
    SchemaError, DecodeError, EncodeError
        As ``ColumnDigest.add_rows`` and ``key_words``.
    """
    sums = digest.add_rows(batch)
    return sums if sums.keys is not None or not keys else sums._replace(keys=key_words(batch, keys))
