from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.errors import DecodeError
from ddbio.items.change_images import item_texts
from ddbio.items.change_lines import images_of
from ddbio.items.decode import infer_schema_of_body
from ddbio.items.json_text import parse_documents
from ddbio.items.kernel.decode import decoder
from ddbio.items.schema.item_schema import ItemSchema

IMAGES = st.fixed_dictionaries({"Keys": ITEMS}, optional={"NewImage": ITEMS, "OldImage": ITEMS})


def lines_of(changes, *, streamed, ascii_only):
    """Return the changes as lines of an incremental export, or as records of a stream."""
    lines = []
    for number, change in enumerate(changes):
        members = list(change.items())
        random.Random(number).shuffle(members)
        if streamed:
            line = {"dynamodb": {"ApproximateCreationDateTime": number, **dict(members)}, "eventName": "MODIFY"}
        else:
            line = {"Metadata": {"WriteTimestampMicros": {"N": str(number)}}, **dict(members)}
        lines.append(json.dumps(line, ensure_ascii=ascii_only, separators=(",", ":") if streamed else (" , ", ": ")))
    return "\n".join(lines).encode()


def infer_by_reference(body):
    """Return the schema that the reference infers."""
    return ItemSchema.of_items(images_of(body))


@given(st.lists(IMAGES, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_schemas_of_changes_are_those_of_the_reference(changes, streamed, ascii_only):
    """Types, digits, counts and the order of columns are those of the images, keys first, regardless of their order."""
    body = lines_of(changes, streamed=streamed, ascii_only=ascii_only)
    actual, expected = infer_schema_of_body(body), infer_by_reference(body)
    assert actual == expected
    assert actual.to_arrow().equals(expected.to_arrow(), check_metadata=True)


def test_images_are_items_in_the_references_order():
    """Every image is a separate document with its attributes in order. Many changes come in several texts."""
    change = {"OldImage": {"z": {"S": "1"}, "é": {"N": "1"}}, "NewImage": {"a": {"L": []}}, "Keys": {"k": {"S": ""}}}
    body = lines_of([change] * 3000, streamed=True, ascii_only=True)
    texts = item_texts(body)
    assert texts is not None
    items = [item for text in texts for _, item in parse_documents(bytes(text))]
    assert items == list(images_of(body))
    assert [list(item) for item in items[:3]] == [["k"], ["a"], ["z", "é"]]
    assert infer_schema_of_body(body) == infer_by_reference(body)


@pytest.mark.parametrize("damage", ["empty image", "duplicate", "cut"])
def test_what_the_loops_refuse_the_reference_decides(damage):
    """The schema is inferred from images without attributes. An invalid change is the reference's error."""
    body = lines_of([{"Keys": {"k": {"S": ""}}, "NewImage": {}}], streamed=False, ascii_only=False)
    if damage == "duplicate":
        body = body.replace(b'"Keys"', b'"Keys": {"k": {"S": "b"}}, "Keys"')
    if damage == "cut":
        body = body[:-2]
    assert item_texts(body) is None
    if damage == "empty image":
        assert infer_schema_of_body(body) == infer_by_reference(body)
        return
    with pytest.raises(DecodeError) as expected:
        infer_by_reference(body)
    with pytest.raises(DecodeError) as actual:
        infer_schema_of_body(body)
    assert actual.value.args == expected.value.args


@pytest.mark.parametrize("slice_bytes", [100, 300, 5000])
def test_every_image_counts_once_however_the_body_is_cut(slice_bytes, monkeypatch):
    """Records in an array that is longer than a slice are read again from its start, and counted once."""
    monkeypatch.setattr(decoder, "SLICE_BYTES", slice_bytes)
    changes = [{"Keys": {"k": {"S": str(number)}}, "OldImage": {"a": {"N": "1"}}} for number in range(40)]
    lines = lines_of(changes, streamed=True, ascii_only=False)
    records = b'{"Records":[\n' + lines.replace(b"\n", b",\n") + b"\n]}\n"
    for body in (lines, records, records + lines, lines + b"\n" + records):
        texts = item_texts(body)
        assert texts is not None
        assert [item for text in texts for _, item in parse_documents(bytes(text))] == list(images_of(body))
