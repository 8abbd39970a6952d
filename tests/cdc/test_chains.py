"""Chains of images: detection of changes whose old image differs from the previous new image."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from ddbio.cdc.audit import ImageChains

IMAGE = pa.struct([("pk", pa.string()), ("n", pa.int64())])
SCHEMA = pa.schema(
    [
        ("_op", pa.string()),
        ("_sequence", pa.string()),
        ("_event_time", pa.timestamp("us", "UTC")),
        ("pk", pa.string()),
        ("n", pa.int64()),
        ("_old_image", IMAGE),
        ("_old_rescue", pa.string()),
        ("_rescue", pa.string()),
    ]
)


def change(number, pk, old, new):
    """Return a row of a log with the numbers of an item before and after, None for no item."""
    return {
        "_op": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
        "_sequence": str(number),
        "_event_time": datetime(2026, 1, 1, second=number % 60, tzinfo=UTC),
        "pk": pk,
        "n": new,
        "_old_image": None if old is None else {"pk": pk, "n": old},
    }


ROWS = [
    change(8, "a", None, 1),
    change(9, "b", None, 1),
    change(10, "a", 1, 2),
    change(11, "b", 5, 6),
    change(100, "a", 2, None),
    change(101, "b", 6, 7),
    change(102, "a", 9, 10),
]


def test_breaks_are_found_in_any_order_of_the_rows(seeds):
    """Sequence numbers determine the order, longer ones come later.

    Breaks have this order, and the times of both changes.
    """
    for seed in seeds(8, 1_000):
        shuffled = [ROWS[index] for index in np.random.default_rng(seed).permutation(len(ROWS)).tolist()]
        chains = ImageChains(["pk"])
        for part in (shuffled[:3], shuffled[3:]):
            chains.add(pa.Table.from_pylist(part, SCHEMA))
        assert [
            (chain_break.key, chain_break.sequence, chain_break.since.second, chain_break.until.second)
            for chain_break in chains.broken()
        ] == [
            ({"pk": "b"}, "11", 9, 11),
            ({"pk": "a"}, "102", 40, 42),
        ], seed


def test_nothing_is_broken_where_nothing_is():
    """The same holds if all rows were left out."""
    assert ImageChains(["pk"]).broken() == []


def test_breaks_of_items_with_rescued_keys_are_found_and_named():
    """Items with rescued keys have separate chains, regardless of their other rescued attributes."""
    field = pa.field("pk", pa.int64(), metadata={"ddb:type": "N"})
    image = pa.struct([field, ("n", pa.int64())])
    schema = SCHEMA.set(3, field).set(5, pa.field("_old_image", image))

    def rescued(number, key, old, new):
        text = f'{{"pk":{{"N":"{key}"}},"m":{{"M":{{}}}}}}'
        return {**change(number, None, old, new), "_rescue": text, "_old_rescue": None if old is None else text}

    rows = [
        rescued(8, "1.5", None, 1),
        rescued(9, "2.5", None, 1),
        change(10, 1, None, 1),
        rescued(11, "1.5", 1, 2),
        rescued(12, "2.5", 5, 6),
        change(13, 1, 7, 8),
        rescued(14, "1.5", 2, None),
        rescued(15, "9" * 38, None, 1),
    ]
    for parts in ([rows], [rows[:3], rows[3:]], [rows[2:3], rows[5:6], rows[:2] + rows[3:5] + rows[6:]]):
        chains = ImageChains(["pk"])
        for part in parts:
            chains.add(pa.Table.from_pylist(part, schema))
        assert [(chain_break.key, chain_break.sequence) for chain_break in chains.broken()] == [
            ({"pk": Decimal("2.5")}, "12"),
            ({"pk": 1}, "13"),
        ]


@pytest.mark.parametrize("name", ["_since", "_sequence", "_event_id", "_healed_by"])
def test_keys_are_called_as_other_columns(name):
    """A key attribute may have the name of a column of the log, or of an internal column."""
    column = name if name == "_since" else f"{name}_1"
    field = pa.field(column, pa.string(), metadata={"ddb:type": "S", "ddb:name": name})
    image = pa.struct([field, ("n", pa.int64())])
    schema = SCHEMA.set(3, field).set(5, pa.field("_old_image", image))
    if name != "_sequence":
        schema = schema.append(pa.field("_healed_by", pa.string()))

    def named(row):
        old = row["_old_image"]
        return {**row, column: row["pk"], "_old_image": old and {column: old["pk"], "n": old["n"]}}

    chains = ImageChains([name])
    chains.add(pa.Table.from_pylist([named(row) for row in ROWS], schema))
    assert [(chain_break.key, chain_break.sequence) for chain_break in chains.broken()] == [
        ({name: "b"}, "11"),
        ({name: "a"}, "102"),
    ]


UNKNOWN = [
    change(8, "a", None, 1),
    change(9, "a", 1, 2),
    change(10, "a", 2, 3),
    change(11, "a", 3, None),
    change(12, "a", None, 4),
    change(13, "a", 4, 5),
]


def without_images(rows):
    """Return rows as a file without old images has them."""
    return pa.Table.from_pylist(rows, SCHEMA).drop_columns(["_old_image", "_old_rescue"])


def with_null_images(rows):
    """Return rows of a file without old images as a compaction writes them with other files."""
    names = [field.name for field in SCHEMA]
    return pa.concat_tables([without_images(rows), SCHEMA.empty_table()], promote_options="default").select(names)


def breaks_of(*parts):
    """Return the sequence numbers of the changes before which one is missing."""
    chains = ImageChains(["pk"])
    for part in filter(len, parts):
        chains.add(part)
    return [chain_break.sequence for chain_break in chains.broken()]


def test_the_changes_of_several_streams_are_separate_chains():
    """Their numbers cannot be compared, and a loss between two streams is a gap of the log."""
    chains = ImageChains(["pk"])
    chains.add(pa.Table.from_pylist([change(7, "a", None, 1), change(9, "a", 1, 2)], SCHEMA), 1)
    chains.add(pa.Table.from_pylist([change(10, "a", 4, 5), change(8, "a", 3, 4), change(8, "b", 1, 2)], SCHEMA), 2)
    assert chains.broken() == []
    chains.add(pa.Table.from_pylist([change(11, "a", 4, 5)], SCHEMA), 1)
    chains.add(pa.Table.from_pylist([change(11, "b", 3, 4)], SCHEMA), 2)
    assert sorted((chain_break.key["pk"], chain_break.sequence) for chain_break in chains.broken()) == [
        ("a", "11"),
        ("b", "11"),
    ]


@pytest.mark.parametrize("bare", [without_images, with_null_images])
@pytest.mark.parametrize("indices", [{1}, {2}, {3}, {1, 2}, {0, 4}, {1, 3}, set(range(6))])
def test_rows_without_old_images_are_links_of_the_chain(bare, indices):
    """Such rows break nothing themselves, except inserts. The next change is compared with their new image."""
    complete = pa.Table.from_pylist([row for index, row in enumerate(UNKNOWN) if index not in indices], SCHEMA)
    assert breaks_of(complete, bare([UNKNOWN[index] for index in sorted(indices)])) == []


@pytest.mark.parametrize("bare", [without_images, with_null_images])
def test_losses_next_to_rows_without_old_images_are_found_if_possible(bare):
    """A loss after such a row is found. A loss before it is only found for an insert, as its old image is unknown."""
    expected = pa.Table.from_pylist([UNKNOWN[0], UNKNOWN[3]], SCHEMA)
    assert breaks_of(expected, bare([UNKNOWN[1]])) == ["11"]
    assert breaks_of(expected, bare([UNKNOWN[2]])) == []
    expected = pa.Table.from_pylist([UNKNOWN[2], UNKNOWN[5]], SCHEMA)
    assert breaks_of(expected, bare([UNKNOWN[4]])) == ["12"]


def test_a_row_with_an_old_image_does_not_hide_columns_that_the_image_lacks():
    """A compacted file may have a column that is rescued in one of its sources."""
    wide = pa.Table.from_pylist([change(8, "a", None, 1)], SCHEMA).drop_columns(["_old_image", "_old_rescue"])
    wide = wide.append_column("extra", pa.array(["x"]))
    narrow = [change(9, "a", 1, 2) | {"_old_rescue": '{"extra":{"S":"x"}}'}]
    assert breaks_of(pa.concat_tables([wide, pa.Table.from_pylist(narrow, SCHEMA)], promote_options="default")) == []


def test_a_healed_row_is_a_link_whose_own_columns_are_no_attributes():
    """The same holds if the export had no old images. The column of the healing is not an attribute."""
    healed = with_null_images([UNKNOWN[1]]).append_column("_healed_by", pa.array(["table"]))
    expected = [UNKNOWN[0], UNKNOWN[2]]
    assert breaks_of(pa.Table.from_pylist(expected, SCHEMA), healed) == []
    bare = without_images([UNKNOWN[1]]).append_column("_event_id", pa.array(["one"]))
    assert (
        breaks_of(pa.Table.from_pylist(expected, SCHEMA), bare.append_column("_healed_by", pa.array(["table"]))) == []
    )
