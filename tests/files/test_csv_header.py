from __future__ import annotations

import csv
import io
import random

import pytest

from ddbio.files.csv_records import header_names


@pytest.mark.parametrize("size_bytes", [131_073, 200_000, 2_000_000])
def test_names_may_be_long(size_bytes):
    """Longer than the csv module of Python allows a cell to be; of a megabyte the beginning counts."""
    name = "h" * size_bytes
    for text in (f"pk,{name}\n1,2\n", f'pk,"{name}"\n1,2\n'):
        pk, found = header_names(text.encode())
        assert pk == "pk"
        assert found == name[: len(found)]
        assert len(found) >= min(size_bytes, 1_000_000)


def test_names_are_those_of_the_csv_module():
    """For any text: quotes, empty cells, ends of lines."""
    chance = random.Random(7)
    for _ in range(20_000):
        text = "".join(chance.choice('ab",\n\r"" é') for _ in range(chance.randrange(14)))
        assert header_names(text.encode()) == next(csv.reader(io.StringIO(text, newline="")), []), text
