"""Prints damaged changes in a separate process, with every array that loops read or write unchecked at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun. Each text is
compared with the reference: the same members and times, or only the reference can read it.
"""

from __future__ import annotations

import sys

from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator
from mutation import mutate

from ddbio.cdc.transform import _plain
from ddbio.errors import DecodeError
from ddbio.items import plain_changes
from ddbio.items.change_lines import checked_changes
from ddbio.items.kernel import memory
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.tape import walker
from ddbio.items.plain_changes import ChangePrinter


def by_loops(body: bytes) -> list | None:
    """Return the time and the members of each change, or None if the reference has to read them."""
    try:
        parts = ChangePrinter().print_changes(memoryview(body))
    except DecodeError:
        return None
    if parts is None:
        return None
    changes = []
    for part in parts:
        begins = [0, *part.ends.tolist()]
        texts = [part.data[begin:end].tobytes() for begin, end in zip(begins, part.ends.tolist(), strict=False)]
        changes += [(time, b"{%b}" % text) for time, text in zip(part.times.tolist(), texts, strict=True)]
    return changes


def by_reference(body: bytes) -> list | None:
    """Return the same in plain Python, or None if a line is not a change, or an image has no attributes."""
    try:
        changes = list(checked_changes(body))
    except DecodeError:
        return None
    if any({} in (change.keys, change.new_image, change.old_image) for change in changes):
        return None
    items = [(change.write_time, {**change.keys, **(change.new_image or {})}) for change in changes]
    return [(time, _plain({"M": item}).encode()) for time, item in items]


def lines_of(generator: Generator) -> bytes:
    """Return some changes, in which the new image has the key or not, in any order."""
    lines = []
    for number in range(3):
        key, image = ({**generator.item(list(generator.schema())), name: {"S": "a"}} for name in ("pk", "x"))
        images = [{"NewImage": {**image, **key}}, {"NewImage": image}, {"OldImage": image}, {}]
        members = [*{"Keys": key, **generator.random.choice(images)}.items()]
        members.append(("Metadata", {"WriteTimestampMicros": {"N": str(number)}}))
        generator.random.shuffle(members)
        lines.append(generator.spell(dict(members)))
    return b"\n".join(lines)


def main() -> None:
    """Print the requested number of texts, and report whether most were printed."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every text needs more memory than available.
    walker._FIRST_NODES, walker._FIRST_TEXT_BYTES, walker._FIRST_NAMES = 8, 65, 2
    walker._FIRST_TAPE_WORDS, walker._TAPE_RATIO = 33, 1 << 20
    if IS_BROKEN:
        plain_changes.PAD = walker.PAD = 0
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_printed = n_refused = 0
    for number in range(seed, seed + count):
        generator = Generator(number)
        sound = lines_of(generator)
        for body in [sound, *(mutate(sound, generator.random) for _ in range(10))]:
            printed = by_loops(body)
            if not IS_BROKEN:
                assert printed is None or printed == by_reference(body), (body, printed)
                n_printed += printed is not None
                n_refused += printed is None
    sys.stdout.write(f"{n_printed > count // 2 and n_refused > 0}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_printed} texts printed, {n_refused} refused\n")


main()
