from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.expressions.updates import requested_update
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request

KEY = {"pk": {"S": "k"}}
ITEM = {
    **KEY,
    "n": {"N": "10"},
    "s": {"S": "text"},
    "tags": {"SS": ["a", "b"]},
    "l": {"L": [{"N": "0"}, {"N": "1"}, {"N": "2"}, {"N": "3"}]},
    "m": {"M": {"x": {"N": "1"}, "y": {"L": [{"M": {"z": {"S": "old"}}}]}}},
}
VALUES = {
    ":n": {"N": "2.5"},
    ":s": {"S": "new"},
    ":l": {"L": [{"N": "9"}]},
    ":t": {"SS": ["b", "c"]},
    ":all": {"SS": ["a", "b"]},
}


def update(expression):
    """Return the parsed update with the values that it uses."""
    used = {name: VALUES[name] for name in re.findall(r":\w+", expression)}
    members = {"UpdateExpression": expression, **({"ExpressionAttributeValues": used} if used else {})}
    request = Request(members)
    return requested_update(request, Placeholders.of(request, "UpdateExpression"))


def changed(expression, item=ITEM):
    """Return the attributes that differ after an update, with None for deleted ones."""
    after = update(expression).applied(KEY, item)
    return {name: after.get(name) for name in {**item, **after} if after.get(name) != item.get(name)}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("SET n = n + :n", {"n": {"N": "12.5"}}),
        ("SET n = :n - n, s = :s", {"n": {"N": "-7.5"}, "s": {"S": "new"}}),
        ("SET a = n, n = :n", {"a": {"N": "10"}, "n": {"N": "2.5"}}),
        ("SET n = if_not_exists(n, :n), o = if_not_exists(o, :n)", {"o": {"N": "2.5"}}),
        ("SET o = if_not_exists(o, :n) + :n", {"o": {"N": "5"}}),
        ("SET l2 = list_append(:l, l)", {"l2": {"L": [{"N": "9"}, *ITEM["l"]["L"]]}}),
        ("SET l2 = list_append(if_not_exists(l2, :l), :l)", {"l2": {"L": [{"N": "9"}, {"N": "9"}]}}),
        ("SET m.y[0].z = :s", {"m": {"M": {"x": {"N": "1"}, "y": {"L": [{"M": {"z": {"S": "new"}}}]}}}}),
        ("SET m.x = m.x + :n REMOVE m.y", {"m": {"M": {"x": {"N": "3.5"}}}}),
        ("SET a = m, m.x = :n", {"a": ITEM["m"], "m": {"M": {**ITEM["m"]["M"], "x": {"N": "2.5"}}}}),
        ("SET l[1] = :s", {"l": {"L": [{"N": "0"}, {"S": "new"}, {"N": "2"}, {"N": "3"}]}}),
        ("SET l[9] = :s REMOVE l[4]", {"l": {"L": [*ITEM["l"]["L"], {"S": "new"}]}}),
        ("SET l[9] = :s REMOVE l[3]", {"l": {"L": [*ITEM["l"]["L"][:3], {"S": "new"}]}}),
        ("SET l[9] = :s, l[7] = :n", {"l": {"L": [*ITEM["l"]["L"], {"N": "2.5"}, {"S": "new"}]}}),
        ("REMOVE l[0], l[2]", {"l": {"L": [{"N": "1"}, {"N": "3"}]}}),
        ("REMOVE l[0] SET l[1] = :s", {"l": {"L": [{"S": "new"}, {"N": "2"}, {"N": "3"}]}}),
        ("REMOVE l[9], s, absent, m.absent", {"s": None}),
        ("ADD n :n, o :n", {"n": {"N": "12.5"}, "o": {"N": "2.5"}}),
        ("ADD tags :t, extra :t", {"tags": {"SS": ["a", "b", "c"]}, "extra": {"SS": ["b", "c"]}}),
        ("DELETE tags :t", {"tags": {"SS": ["a"]}}),
        ("DELETE tags :all, extra :t", {"tags": None}),
    ],
)
def test_updates_change_the_named_attributes(expression, expected):
    """Sections, functions, arithmetic and paths change the attributes that they name, and no others."""
    assert changed(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("SET a = absent", "refers to an attribute that does not exist"),
        ("SET a = absent + :n", "refers to an attribute that does not exist"),
        ("SET n = n + :s", "operator or function: +, operand type: S"),
        ("SET n = s + :n", "incorrect data type"),
        ("SET l = list_append(l, :n)", "operator or function: list_append, operand type: N"),
        ("SET l = list_append(n, :l)", "incorrect data type"),
        ("SET absent.x = :n", "document path provided in the update expression is invalid"),
        ("SET m.x.y = :n", "document path provided in the update expression is invalid"),
        ("SET m[0] = :n", "document path provided in the update expression is invalid"),
        ("REMOVE absent.x", "document path provided in the update expression is invalid"),
        ("ADD n :s", "operator: ADD, operand type: STRING, typeSet: ALLOWED_FOR_ADD_OPERAND"),
        ("DELETE tags :n", "operator: DELETE, operand type: NUMBER, typeSet: ALLOWED_FOR_DELETE_OPERAND"),
        ("ADD s :n", "incorrect data type"),
        ("DELETE n :t", "incorrect data type"),
        ("SET n = sum(n, :n)", "Invalid function name; function: sum"),
        ("SET m = :n, m.x = :n", "overlap with each other"),
        ("SET m.x = :n REMOVE m[0]", "conflict with each other"),
        ("SET n = :n SET o = :n", 'The "SET" section can only be used once'),
        ("PUT n :n", 'Syntax error; token: "PUT", near: "PUT n"'),
        ("SET n :n", 'Syntax error; token: ":n", near: "n :n"'),
        ("SET n = :n +", 'Syntax error; token: "<EOF>", near: "+"'),
        ("SET status = :n", "Attribute name is a reserved keyword; reserved keyword: status"),
    ],
)
def test_updates_are_refused_in_the_words_of_the_service(expression, message):
    """Types, paths and syntax are checked, and the error has the reason."""
    with pytest.raises(Refusal) as caught:
        update(expression).applied(KEY, ITEM)
    assert message in caught.value.body["message"]


def test_an_update_that_only_removes_makes_no_item():
    """A missing item stays missing if the update sets no value."""
    assert update("REMOVE a DELETE b :t").applied(KEY, None) is None
    assert update("ADD n :n").applied(KEY, None) == {**KEY, "n": {"N": "2.5"}}


def test_touched_attributes_are_picked_by_path():
    """The attributes of UPDATED_NEW are those at the paths, without their siblings."""
    changes = update("SET m.x = :n, l[1] = :s REMOVE s")
    after = changes.applied(KEY, ITEM)
    assert changes.touched(after) == {"m": {"M": {"x": {"N": "2.5"}}}, "l": {"L": [{"S": "new"}]}}


@given(st.decimals(-999, 999, places=3), st.decimals(-999, 999, places=3))
def test_arithmetic_is_decimal(left, right):
    """Sums and differences are exact, in the service's notation."""
    for operator, expected in (("+", left + right), ("-", left - right)):
        request = Request(
            {"UpdateExpression": f"SET n = n {operator} :r", "ExpressionAttributeValues": {":r": {"N": str(right)}}}
        )
        changes = requested_update(request, Placeholders.of(request, "UpdateExpression"))
        (number,) = changes.applied(KEY, {**KEY, "n": {"N": str(left)}})["n"].values()
        assert type(expected)(number) == expected
        assert number == "0" or not number.startswith("0.000")
