"""Types of columns in file formats."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.items.plain_json import orc_type


@pytest.mark.parametrize(
    ("arrow_type", "kept"),
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
def test_orc_keeps_instants_as_instants(arrow_type, kept):
    """A time with a zone keeps it. A type that ORC lacks is widened or becomes text."""
    assert orc_type(arrow_type) == kept
