"""Prints damaged lines of Ion in a separate process, with every unchecked array at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun. The output of
each line is compared with the reference.
"""

from __future__ import annotations

import random
import sys

from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator
from mutation import mutate

from ddbio.errors import DecodeError
from ddbio.items import ion as ion_blocks
from ddbio.items.change_lines import Change, checked_changes
from ddbio.items.digest import item_hash
from ddbio.items.framing import checked_items
from ddbio.items.ion import IonReader
from ddbio.items.ion_values import ion_line, ion_to_json_lines
from ddbio.items.kernel import ion
from ddbio.items.kernel.library import CHECKED

TOKENS = [
    *(b"'", b'"', b"{{", b"}}", b"{", b"}", b"[", b"]", b",", b":", b"::", b" ", b"\n", b"\t", b"\0", b"\\", b"\\x41"),
    *(b"$dynamodb_SS::[", b"$dynamodb_NS::", b"$ion_1_0 ", b"$10", b"$", b"null", b"nullx", b"true", b"false", b"1d5"),
    *(b"1d125", b"-", b"-0.", b"007.", b"1.50", b".", b"1_0.", b"1e5", b"d-3", b"1d130", b"=", b"'''", b"\xff", b"//x"),
    *(b"a" * 40, b"9" * 39, b"{{aGVsbG8=}}", b"'a b'", b"Item:", b"{Record:{", b"Keys:{", b"1d99999999999999999999"),
]


def damage(line: bytes, chance: random.Random) -> bytes:
    """Return the line with a part removed or a part of Ion inserted."""
    if chance.random() < 0.3:
        return mutate(line, chance)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(line) + 1)
        line = line[:at] + chance.choice(TOKENS) + line[at + chance.choice([0, 0, 1, 4]) :]
    return line


def _format_change(change: Change) -> str:
    images = (change.keys, change.new_image, change.old_image)
    return f"{change.write_time} {[image and item_hash(image) for image in images]}"


def outcome(lines: bytes, *, changes: bool) -> list[str] | None:
    """Return the decoded contents of lines of JSON, or None if a decoder would refuse them."""
    try:
        return [_format_change(change) for change in checked_changes(lines)] if changes else [
            str(item_hash(item)) for item in checked_items(lines, "export")
        ]  # fmt: skip
    except DecodeError:
        return None


def by_reference(body: bytes, *, changes: bool) -> list[str] | None:
    """Return the outcome of the reference."""
    try:
        return outcome(ion_to_json_lines(body), changes=changes)
    except DecodeError:
        return None


def by_loop(body: bytes, *, changes: bool) -> list[str] | None:
    """Return the outcome of the compiled loop, with arrays of exactly the needed size."""
    try:
        return outcome(b"".join(IonReader(1 << 16).pieces(body)), changes=changes)
    except DecodeError:
        return None


def main() -> None:
    """Print the requested number of bodies, and report how many the loop printed itself."""
    ion_blocks.allocate = allocate_before_guard
    ion_blocks.PIECE_BYTES = ion.RESERVED_BYTES + 300
    if IS_BROKEN:
        ion_blocks.PAD = 0
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_held = n_refused = 0
    for number in range(seed, seed + count):
        generator = Generator(number)
        schema = list(generator.schema())
        images = [generator.item(schema) for _ in range(2)]
        change = {"Metadata": {"WriteTimestampMicros": {"N": "1"}}, "Keys": images[0], "NewImage": images[1]}
        items = b"".join(ion_line({"Item": image}) for image in images)
        record = ion_line(change)
        wrapped = record.replace(b"{", b"{Record:{", 1).replace(b"}\n", b"}}\n")
        for body, changes in ((items, False), (record, True), (wrapped, True)):
            for _ in range(10):
                damaged = damage(body, generator.random)
                outcome_of_loop = by_loop(damaged, changes=changes)
                if not IS_BROKEN:
                    assert outcome_of_loop == by_reference(damaged, changes=changes), damaged
                n_held += outcome_of_loop is not None
                n_refused += outcome_of_loop is None
    sys.stdout.write(f"{n_held > 0 and n_refused > 0}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_held} bodies taken, {n_refused} refused\n")


main()
