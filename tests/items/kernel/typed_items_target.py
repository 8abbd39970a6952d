"""Types damaged plain JSON in a separate process, with every array that loops read or write unchecked at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun.
"""

from __future__ import annotations

import json
import random
import sys
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
from guard import IS_BROKEN, allocate_before_guard
from mutation import mutate

from ddbio.errors import DecodeError
from ddbio.items.json_text import parse_documents
from ddbio.items.kernel import memory
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.typed_items import typed_lines

NAMES = ["pk", "n", "é", "", "x" * 40, 'q"']


def allocate_without_padding(n_bytes: int) -> np.ndarray:
    """Return an array that ends at the end of its data."""
    return allocate_before_guard(max(1, n_bytes - PAD))


def value_of(chance: random.Random, depth: int = 0) -> Any:
    """Return any value of JSON."""
    match chance.randrange(7 if depth < 3 else 5):
        case 5:
            return [value_of(chance, depth + 1) for _ in range(chance.randrange(4))]
        case 6:
            return {chance.choice(NAMES): value_of(chance, depth + 1) for _ in range(chance.randrange(4))}
    return chance.choice([None, True, False, 0, -12, 1.5, 1e300, "", 'a"\\\n', "é" * 20])


def typed(value: Any) -> Any:
    """Return a value as DynamoDB JSON."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case Decimal():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [typed(element) for element in value]}
    return {"M": typed_members(value)}


def typed_members(row: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an object that are not null."""
    return {name: typed(value) for name, value in row.items() if value is not None}


def exact(value: dict[str, Any]) -> Any:
    """Return an attribute value with its number parsed."""
    return {"N": str(Decimal(value["N"]))} if value.keys() == {"N"} and isinstance(value["N"], str) else value


def compare(text: bytes) -> bool:
    """Compare the lines of a text with those of the reference. Return whether they were typed."""
    typed_text = typed_lines(text)
    rows: list[Any] | None = None
    with suppress(DecodeError, RecursionError):
        rows = [row for _, row in parse_documents(text, decimals=True)]
    if typed_text is None:
        return False
    try:
        lines = [json.loads(line, object_hook=exact) for line in bytes(typed_text.lines).splitlines()]
        nulls = set(json.loads(b"[%s]" % typed_text.nulls))
    except (UnicodeDecodeError, json.JSONDecodeError):
        # The decoder refuses invalid names and texts.
        assert rows is None, text
        return True
    if rows is not None:
        assert lines == [json.loads(json.dumps(typed_members(row)), object_hook=exact) for row in rows], text
        assert nulls == {name for row in rows for name, value in row.items() if value is None}, text
    return True


def main() -> None:
    """Type the requested number of texts, sound and damaged."""
    memory.allocate = allocate_without_padding if IS_BROKEN else allocate_before_guard
    chance, refused = random.Random(int(sys.argv[1])), 0
    for _ in range(int(sys.argv[2])):
        rows = [{name: value_of(chance) for name in NAMES if chance.random() < 0.6} for _ in range(chance.randrange(4))]
        text = chance.choice(["\n", "", " \r\n"]).join(map(json.dumps, rows)).encode()
        is_typed = compare(text)
        # Names with escapes are left to the reference if a member is null.
        assert is_typed or b"null" in text, text
        refused += not compare(mutate(text, chance))
    sys.stdout.write(f"{refused > 0}, checked: {CHECKED}\n")


main()
