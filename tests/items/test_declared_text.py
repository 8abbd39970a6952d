"""The types as which formats keep columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.items.plain_json import orc_type


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ns", "Europe/Berlin")),
        (pa.timestamp("ms"), pa.timestamp("ns")),
        (pa.list_(pa.timestamp("us", "UTC")), pa.list_(pa.timestamp("ns", "UTC"))),
        (pa.decimal256(50, 2), pa.string()),
        (pa.uint64(), pa.string()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.int8(), pa.int8()),
    ],
)
def test_orc_keeps_instants_as_instants(given, kept):
    """A time with a zone stays one, and what ORC has no type for is widened or text."""
    assert orc_type(given) == kept
