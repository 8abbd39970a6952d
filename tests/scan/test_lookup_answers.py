"""Responses of BatchGetItem are split into items as bytes, for any order of their members."""

from __future__ import annotations

import itertools
import json

import pytest

from ddbio.errors import DecodeError
from ddbio.scan.pages import AnswerReader, page_of_answers

ITEMS = [{"pk": {"S": 'a]},"UnprocessedKeys":{}'}}, {"pk": {"S": "b"}, "Responses": {"M": {"abc": {"L": []}}}}]
MEMBERS = {
    "Responses": {"table": ITEMS},
    "UnprocessedKeys": {"table": {"Keys": [{"pk": {"S": "c]}"}}], "ConsistentRead": False}},
    "ConsumedCapacity": [{"TableName": "table", "CapacityUnits": 1.5}],
}
KEYS = tuple(json.dumps({"pk": {"S": text}}).encode() for text in (ITEMS[0]["pk"]["S"], "b", "c]}", "gone"))


@pytest.mark.parametrize("order", [*itertools.permutations(MEMBERS)], ids=str)
@pytest.mark.parametrize("indent", [None, 1])
def test_every_order_of_members(order, indent):
    """Items, units, unprocessed and missing keys are found at any position."""
    body = json.dumps({name: MEMBERS[name] for name in order}, indent=indent).encode()
    answer = AnswerReader().read(body, KEYS)
    assert json.loads(b"[" + answer.items + b"]") == ITEMS
    assert (answer.count, answer.scanned_count, answer.consumed_units) == (2, 3, 1.5)
    assert [json.loads(key) for key in answer.unprocessed] == [{"pk": {"S": "c]}"}}]
    assert [json.loads(key) for key in answer.missing] == [{"pk": {"S": "gone"}}]
    page = page_of_answers([answer, AnswerReader().read(b'{"Responses":{"table":[]},"UnprocessedKeys":{}}', KEYS[:1])])
    assert json.loads(page.items) == {"Items": ITEMS}
    assert (page.count, page.scanned_count, page.missing, len(page.missing_keys)) == (2, 4, 2, 2)


@pytest.mark.parametrize("body", [b"{}", b'{"Items":[]}', b"[]", b"nothing", b'{"Responses":{"table":[{'])
def test_no_answer(body):
    """Other texts are refused."""
    with pytest.raises(DecodeError):
        AnswerReader().read(body, KEYS)
