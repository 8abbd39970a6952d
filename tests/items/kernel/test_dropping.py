from __future__ import annotations

import json

import pyarrow as pa
import pytest
from comparison import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from item_generator import NAMES, Generator
from item_strategies import ITEMS

from ddbio.items.change_lines import checked_changes
from ddbio.items.changes import ChangeDecoder, change_batch
from ddbio.items.framing import checked_items
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.reference import RowBuilder, items_of
from ddbio.items.rescue import Misfit, MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.item_schema import ItemSchema

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("m", pa.struct([("x", pa.int64())]))])


def lines_of(*items):
    """Return bare item lines."""
    return "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in items).encode()


def test_only_named_attributes_are_dropped_and_all_are_counted():
    """A value of a named attribute that does not fit is counted and dropped. Any other value is rescued."""
    decoder = KernelDecoder(SCHEMA, on_misfit="drop", drop=["a", "m", "u"])
    body = lines_of(
        {"a": {"S": "x"}, "b": {"S": "y"}},
        {"a": {"N": "1"}, "m": {"M": {"x": {"S": "z"}}}, "u": {"NULL": True}, "v": {"NULL": True}},
        {"a": {"S": "w"}},
    )
    batch = decoder.decode(body, "items")
    assert batch.column("a").to_pylist() == [None, 1, None]
    assert batch.column("_rescue").to_pylist() == ['{"b":{"S":"y"}}', '{"v":{"NULL":true}}', None]
    assert decoder.misfits == [
        Misfit("a", "another type", 2, '{"S":"x"}', 2),
        Misfit("b", "another type", 1, '{"S":"y"}', 0),
        Misfit("m.x", "another type", 1, '{"S":"z"}', 1),
        Misfit("u", "not in the schema", 1, '{"NULL":true}', 1),
        Misfit("v", "not in the schema", 1, '{"NULL":true}', 0),
    ]


def test_null_that_is_kept_is_never_dropped():
    """NULL fits every column, so a named attribute's NULL is kept if NULL is distinguished from missing."""
    decoder = KernelDecoder(SCHEMA, on_misfit="drop", drop=["a"], nulls="keep")
    assert decoder.decode(lines_of({"a": {"NULL": True}}), "items").column("_rescue").to_pylist() == [
        '{"a":{"NULL":true}}'
    ]
    assert decoder.misfits == []


@pytest.mark.parametrize("seed", range(40))
def test_the_loops_drop_what_the_reference_drops(seed):
    """Generated items of which some attributes may be dropped give the batch and the counts of the reference."""
    generator = Generator(seed)
    schema, drop = generator.schema(), generator.random.sample(NAMES, 8)
    nulls = generator.random.choice(["merge", "keep"])
    body = generator.document([generator.item(list(schema)) for _ in range(60)], "export")
    decoder = KernelDecoder(schema, on_misfit="drop", drop=drop, nulls=nulls)
    log = MisfitLog()
    rows = RowBuilder(normalize_schema(schema), keep_nulls=nulls == "keep", drop=drop)
    expected = rows.batch(list(checked_items(body, "export")), log)
    actual = decoder.decode(body, "export"), decoder.misfits, decoder.log.merged_nulls
    assert_same(actual, (expected, log.misfits(), log.merged_nulls), body)


def test_merged_nulls_are_counted_by_attribute():
    """A NULL that becomes missing is counted with its attribute. One in a list or in a rescued value is not."""
    fields = [("a", pa.int64()), ("m", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.int64()))]
    decoder, null = KernelDecoder(pa.schema(fields)), {"NULL": True}
    body = lines_of(
        {"a": null, "m": {"M": {"x": null}}, "l": {"L": [null, {"N": "1"}]}},
        {"a": null, "m": {"M": {"x": null, "y": null}}, "l": null, "other": null},
        {"m": null},
        {},
    )
    for _ in range(2):
        decoder.decode(body, "items")
        assert decoder.log.merged_nulls == {"a": 2, "m": 2, "l": 1}
        decoder.forget()
    decoder.decode(lines_of({"a": {"N": "1"}}), "items")
    assert decoder.log.merged_nulls == {}
    keeping = KernelDecoder(pa.schema(fields), nulls="keep")
    keeping.decode(body, "items")
    assert keeping.log.merged_nulls == {}


def test_merged_nulls_of_changes_are_counted_by_image():
    """The NULLs of each image are counted under its name."""
    image = {"a": {"NULL": True}}
    body = lines_of({"Metadata": {"WriteTimestampMicros": "1"}, "Keys": {}, "NewImage": image, "OldImage": image})
    decoder = ChangeDecoder(SCHEMA, ["a"])
    decoder.decode(body)
    assert decoder.log.merged_nulls == {"new_image.a": 1, "old_image.a": 1}


def test_changes_drop_in_every_image():
    """A named attribute's values are dropped from all images of a change."""
    image = {"a": {"S": "x"}, "b": {"S": "y"}}
    body = lines_of({"Metadata": {"WriteTimestampMicros": "1"}, "Keys": {}, "NewImage": image, "OldImage": image})
    decoder = ChangeDecoder(SCHEMA, ["a"], on_misfit="drop", drop=["a"])
    batch = decoder.decode(body)
    assert batch.column("_rescue").to_pylist() == ['{"new_image":{"b":{"S":"y"}},"old_image":{"b":{"S":"y"}}}']
    assert batch.equals(change_batch(list(checked_changes(body)), decoder.schema, decoder._loops._rows, MisfitLog()))
    assert [(misfit.path, misfit.dropped) for misfit in decoder.misfits] == [
        ("new_image.a", 1),
        ("new_image.b", 0),
        ("old_image.a", 1),
        ("old_image.b", 0),
    ]


@settings(max_examples=60)
@given(sample=st.lists(ITEMS, max_size=3), value=st.sampled_from([{"S": '{"a":{"S":"x"}}'}, {"M": {}}, {"N": "1"}]))
def test_an_attribute_called_rescue_survives(sample, value):
    """An attribute with the rescue column's name is kept within the rescue column, and survives a round trip."""
    item = {**(sample[0] if sample else {}), "_rescue": value}
    batch = KernelDecoder(ItemSchema.of_items(sample).to_arrow()).decode(lines_of(item), "items")
    (restored,) = items_of(batch)
    assert restored["_rescue"] == value
