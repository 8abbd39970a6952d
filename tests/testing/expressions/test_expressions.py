from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.testing.expressions.conditions import KeyRange, key_range
from ddbio.testing.expressions.parsing import Placeholders, attribute_paths, pick, projection_paths, tree_of
from ddbio.testing.loading import parse_key
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request
from ddbio.testing.tables.table import hash_of

CONDITIONS = st.sampled_from(
    ["s = :a", "s < :a", "s <= :a", "s > :a", "s >= :a", ":a > s", "s BETWEEN :a AND :b", "begins_with(s, :a)"]
)


def placeholders(names=None, values=None):
    """Return the placeholders of a request."""
    members = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
    given_members = {name: value for name, value in members.items() if value is not None}
    return Placeholders(Request(given_members), has_expression=True)


def holds(condition, value, low, high):
    """Return whether a sort value satisfies a condition, evaluated directly."""
    operator = condition.replace(":a > s", "s < :a").split(" ")[1]
    return {
        "=": value == low,
        "<": value < low,
        "<=": value <= low,
        ">": value > low,
        ">=": value >= low,
        "BETWEEN": low <= value <= high,
        ":a)": value.startswith(low),
    }[operator]


@given(
    keys=st.sets(st.tuples(st.sampled_from(["p", "q"]), st.text("ab\u00ff", min_size=1, max_size=3)), max_size=20),
    condition=CONDITIONS,
    bounds=st.tuples(*[st.text("ab\u00ff", min_size=1, max_size=2)] * 2),
)
def test_range_selects_the_keys_of_its_condition(keys, condition, bounds):
    """Positions and membership of a range both follow the condition."""
    low, high = sorted(bounds, key=str.encode)
    values = {":p": {"S": "p"}, ":a": {"S": low}, ":b": {"S": high}}
    wanted = key_range(f"h = :p AND {condition}", placeholders(values=values), parse_key("h,s"))
    ordered = sorted((hash_of(pk.encode()), pk.encode(), sk.encode()) for pk, sk in keys)
    first, last = wanted.positions(ordered)
    expected = [key for key in ordered if key[1] == b"p" and holds(condition, key[2], low.encode(), high.encode())]
    assert ordered[first:last] == expected
    assert [key for key in ordered if wanted.contains(key)] == expected


def test_numbers_are_compared_by_value():
    """9 is less than 10 in any notation."""
    values = {":p": {"S": "p"}, ":n": {"N": "1e1"}}
    wanted = key_range("(h = :p) and (s < :n)", placeholders(values=values), parse_key("h:S,s:N"))
    assert wanted == KeyRange(b"p", high=Decimal(10), includes_high=False)


def test_condition_may_be_empty_range():
    """Bounds that exclude each other select nothing."""
    wanted = KeyRange(b"p", b"b", b"a")
    assert wanted.positions([(hash_of(b"p"), b"p", sort) for sort in (b"a", b"b")]) == (1, 1)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("a", {"a": {"S": "x"}}),
        ("m.l[1]", {"m": {"M": {"l": {"L": [{"N": "1"}]}}}}),
        ("m.l[1], m.l[0], m.s", {"m": {"M": {"l": {"L": [{"N": "0"}, {"N": "1"}]}, "s": {"S": "y"}}}}),
        ("#dot", {"d.o": {"S": "z"}}),
        ("m.absent, a.b, absent", {}),
        ("m[0], a[0]", {}),
    ],
)
def test_paths_pick_nested_values(paths, expected):
    """Members and elements keep their nesting. Missing ones are left out."""
    item = {
        "a": {"S": "x"},
        "m": {"M": {"l": {"L": [{"N": "0"}, {"N": "1"}]}, "s": {"S": "y"}}},
        "d.o": {"S": "z"},
    }
    names = {"#dot": "d.o"} if "#" in paths else None
    assert pick(item, tree_of(projection_paths(paths, placeholders(names)))) == expected


@pytest.mark.parametrize("names", [[], ["a", "a"], [1]])
def test_attributes_to_get_are_distinct_names(names):
    """AttributesToGet has at least one name, and no duplicates."""
    with pytest.raises(Refusal):
        attribute_paths(names)


@pytest.mark.parametrize(
    "text", ["a." * 32 + "a", "a" * 4097, "a b", "a[-1]", "a[\u0663]", "?", "#x", "9a", "a[1"], ids=lambda t: t[:6]
)
def test_projection_limits(text):
    """Depth, length and syntax are bounded."""
    with pytest.raises(Refusal, match="ProjectionExpression"):
        projection_paths(text, placeholders())


def test_every_placeholder_must_be_used():
    """Unused names or values, and any without an expression, are refused."""
    used = placeholders({"#a": "a", "#b": "b"})
    projection_paths("#a", used)
    with pytest.raises(Refusal, match="unused"):
        used.check_all_used()
    with pytest.raises(Refusal, match="only be specified"):
        Placeholders(Request({"ExpressionAttributeNames": {"#a": "a"}}), has_expression=False)
