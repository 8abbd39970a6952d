"""Give every row's key a 64-bit hash that is equal for equal keys, numbers by value; refuses to tell keys apart."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ddbio.core.items import items_of
from ddbio.core.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray


def key_hashes(batch: pa.RecordBatch, keys: Sequence[str]) -> NDArray[np.uint64]:
    """Return the hash of each row's key, of the named attributes in that order."""
    texts = (compact_json([item.get(name) for name in keys]).encode() for item in items_of(batch.select(list(keys))))
    digests = [int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") for text in texts]
    return np.asarray(digests, np.uint64)
