"""What is given back: the pages are gone, and the process goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from ddbio.cdc.batches import release_loader
from ddbio.cdc.log_rows import LogDecoder

BODY = (
    b'{"Records":[{"eventName":"INSERT","dynamodb":{"ApproximateCreationDateTime":1793491190,"Keys":{"pk":{"S":"a"}},'
    b'"NewImage":{"pk":{"S":"a"},"n":{"N":"7"}},"SequenceNumber":"100"}}]}'
)


def resident():
    """Return how many KiB of LLVM's code are resident; 0 where the system does not tell."""
    maps = Path("/proc/self/smaps")
    text = maps.read_text() if maps.exists() else ""
    found = re.findall(r"^\S+ r-xp [^\n]*libllvmlite[^\n]*\n(?:[A-Z]\w+:[^\n]*\n)*?Rss:\s+(\d+) kB", text, re.MULTILINE)
    return sum(map(int, found))


def test_the_code_of_the_loader_is_given_back():
    """Its pages are gone from memory, and changes are decoded as before."""
    decoder = LogDecoder(pa.schema({"pk": pa.string(), "n": pa.int64()}), ("pk",))
    before = decoder.decode(BODY).rows
    held = resident()
    release_loader()
    assert resident() <= held // 2
    assert decoder.decode(BODY).rows == before
    assert before.column("n").to_pylist() == [7]
