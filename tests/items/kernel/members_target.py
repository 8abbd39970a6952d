"""Finds members in generated records in a separate process, with the text and the output at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun.
"""

from __future__ import annotations

import base64
import json
import random
import sys

import numpy as np
from guard import IS_BROKEN, allocate_before_guard, copy_before_guard

from ddbio.items.kernel import memory
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.members import Marks, Openings
from ddbio.items.kernel.memory import PAD

NAMES = ("eventName", "SequenceNumber", "Data")


def allocate_without_padding(n_bytes: int) -> np.ndarray:
    """Return an array that ends at the end of its data."""
    return allocate_before_guard(n_bytes - PAD)


def record(chance: random.Random) -> dict[str, object]:
    """Return a record with its members in any order, and with texts that look like members."""
    data = chance.randbytes(chance.randrange(60))
    members = {
        "eventName": chance.choice(["INSERT", "", "x" * 70]),
        "SequenceNumber": str(chance.getrandbits(chance.randrange(1, 180))),
        "Data": base64.b64encode(data).decode(),
        "item": {"Data": {"S": '"Data":"' + "y" * chance.randrange(40)}, 'z"eventName': {"N": "1"}},
        "e": chance.choice(["", '"', "é", "\\"]),
    }
    order = chance.sample(sorted(members), len(members))
    return {name: members[name] for name in order}


def main() -> None:
    """Find the members of the requested number of texts, of which some are damaged, and compare the sound ones."""
    chance, refused = random.Random(int(sys.argv[1])), 0
    memory.allocate = allocate_without_padding if IS_BROKEN else allocate_before_guard
    openings = Openings(tuple(name.encode() for name in NAMES), base64=2)
    texts = (b'"eventName"', b'"z', b"zz", b"INSERT", b"}}]}")
    marks = Marks(*texts)
    for _ in range(int(sys.argv[2])):
        records = [record(chance) for _ in range(chance.randrange(5))]
        text = json.dumps({"Records": records}, separators=(",", ":"), ensure_ascii=False).encode()
        columns = openings.find(text)
        assert columns is not None
        expected = [[record_[name] for record_ in records] for name in NAMES]
        assert [column.to_pylist() for column in columns[:2]] == expected[:2]
        assert columns[2].to_pylist() == [base64.b64decode(value) + b"\n" for value in expected[2]]
        assert marks.find(memoryview(copy_before_guard(text)).toreadonly()) == {
            text_ for text_ in texts if text_ in text
        }
        damaged = bytearray(text)
        damaged[chance.randrange(len(damaged))] = chance.choice(b'"=\\ \xff}')
        del damaged[chance.randrange(1, 2 * len(damaged)) :]
        refused += openings.find(damaged) is None
    sys.stdout.write(f"{refused > 0}, checked: {CHECKED}\n")


main()
