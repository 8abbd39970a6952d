"""Tests of conditions: their parsed meaning, and the resulting expressions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import OptionError
from ddbio.items.attribute import encode_base64
from ddbio.items.number import canonical_number
from ddbio.scan import conditions
from ddbio.scan.conditions import (
    Compound,
    Expressions,
    Negated,
    format_condition,
    key_query,
    parse_condition,
)


def written(text):
    """Return a condition as an expression with placeholders replaced by names and values."""
    expressions = Expressions()
    expression = parse_condition(text).write(expressions)
    members = expressions.members()
    for placeholder, value in sorted(members.get("ExpressionAttributeValues", {}).items(), reverse=True):
        expression = expression.replace(placeholder, str(value))
    for placeholder, name in sorted(members.get("ExpressionAttributeNames", {}).items(), reverse=True):
        expression = expression.replace(placeholder, name)
    return expression


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("status = 'shipped'", "status = {'S': 'shipped'}"),
        ("total>-1.50", "total > {'N': '-1.5'}"),
        ("a != TRUE and b = null", "a <> {'BOOL': True} AND b = {'NULL': True}"),
        ("a = 1 OR b = 2 AND c = 3", "a = {'N': '1'} OR (b = {'N': '2'} AND c = {'N': '3'})"),
        ("(a = 1 OR b = 2) AND c = 3", "(a = {'N': '1'} OR b = {'N': '2'}) AND c = {'N': '3'}"),
        ("NOT a = 1 AND NOT (b = 2)", "NOT (a = {'N': '1'}) AND NOT (b = {'N': '2'})"),
        ("a BETWEEN 1 AND 2 AND b NOT BETWEEN 'x' AND 'y'",
         "a BETWEEN {'N': '1'} AND {'N': '2'} AND NOT (b BETWEEN {'S': 'x'} AND {'S': 'y'})"),
        ("a IN (1, 'b')", "a IN ({'N': '1'}, {'S': 'b'})"),
        ("a NOT IN [1]", "NOT (a IN ({'N': '1'}))"),
        ("a IS MISSING", "attribute_not_exists(a)"),
        ("a IS NOT MISSING", "attribute_exists(a)"),
        ("a IS NOT NULL", "NOT (attribute_type(a, {'S': 'NULL'}))"),
        ("begins_with(a, 'it''s')", "begins_with(a, {'S': \"it's\"})"),
        ("CONTAINS(b, x'00ff')", "contains(b, {'B': 'AP8='})"),
        ("size(a) >= 3 AND attribute_type(b, 'SS')", "size(a) >= {'N': '3'} AND attribute_type(b, {'S': 'SS'})"),
        ('a.b[2]."c d" = 1', "a.b[2].c d = {'N': '1'}"),
        ('"select" = 1', "select = {'N': '1'}"),
    ],
)  # fmt: skip
def test_conditions_as_expressions(text, expression):
    """Constants have DynamoDB's types, and keywords are not case-sensitive."""
    assert written(text) == expression


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "its end at character 1 is unexpected; expected the name of an attribute"),
        ("a", "its end at character 2 is unexpected; expected a comparison, BETWEEN, IN or IS"),
        ("a = b", "'b' at character 5 is unexpected; expected a constant"),
        ("a = 'b", '"\'b" at character 5 is not understood'),
        ("a = 1 b", "'b' at character 7 is unexpected; expected AND, OR or the end"),
        ("(a = 1", "its end at character 7 is unexpected; expected )"),
        ("like(a, 1)", "is not a function of conditions; the functions are attribute_exists"),
        ("a LIKE 'b%'", "\"LIKE 'b%'\" at character 3 is unexpected; expected a comparison"),
        ("attribute_type(a, 'T')", "is not a DynamoDB type"),
        ("a = 1e200", "is not a valid number"),
        ("a[x] = 1", "is not a list index"),
        ("in = 1", "is unexpected; expected the name of an attribute (in double quotes"),
    ],
)
def test_invalid_conditions(text, words):
    """The error shows the position and the expected tokens."""
    with pytest.raises(OptionError) as caught:
        parse_condition(text)
    assert words in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_one_error(text):
    """Any text that is not a condition raises only an error of the option."""
    with contextlib.suppress(OptionError):
        assert parse_condition(text).write(Expressions())


@given(name=st.text(min_size=1, max_size=20), value=st.text(max_size=20))
def test_names_and_values_are_never_part_of_an_expression(name, value):
    """A quoted name or text keeps its value, regardless of its characters."""
    condition = parse_condition(f""""{name.replace('"', '""')}" = '{value.replace("'", "''")}' """)
    expressions = Expressions()
    assert condition.write(expressions) == "#n0 = :v0"
    assert expressions.members() == {
        "ExpressionAttributeNames": {"#n0": name},
        "ExpressionAttributeValues": {":v0": {"S": value}},
    }


def test_many_values_are_asked_for_in_groups():
    """The values of IN are split into groups, because the service accepts 100 operands."""
    text = f"a IN ({', '.join(map(str, range(250)))})"
    expression = parse_condition(text).write(Expressions())
    assert [part.count(":v") for part in expression.split(" OR ")] == [100, 100, 50]


@pytest.mark.parametrize(
    ("text", "partition", "sort", "remainder"),
    [
        ("pk = 'a'", ["a"], None, None),
        ("pk IN ('a', 'b', 'a')", ["a", "b"], None, None),
        ("pk = 'a' AND sk > 3", ["a"], ">", None),
        ("x = 1 AND begins_with(sk, 'p') AND pk = 'a'", ["a"], "begins_with", ["x"]),
        ("sk >= 3 AND sk <= 5 AND pk = 'a' AND (x = 1 OR y = 2)", ["a"], "BETWEEN", ["x", "y"]),
    ],
)
def test_conditions_that_a_query_asks_for(text, partition, sort, remainder):
    """A condition on partition keys becomes Queries, with one test of the sort key; the remaining condition filters."""
    query = key_query(parse_condition(text), ("pk", "sk"))
    assert [part.partition_key["S"] for part in query.queries()] == partition
    assert [test.operator for test in query.sorts] == ([sort] if sort else [])
    assert (query.remainder and list(query.remainder.names())) == remainder


@pytest.mark.parametrize(
    "text",
    ["x = 1", "pk > 'a'", "NOT pk = 'a'", "pk = 'a' OR x = 1", "pk = 'a' AND pk = 'b'",
     "pk = 'a' AND sk > 1 AND sk < 3", "pk = 'a' AND (sk = 1 OR x = 2)", "pk.x = 'a'", "pk = 'a' AND sk <> 3"],
)  # fmt: skip
def test_conditions_that_no_query_can_ask_for(text):
    """Conditions that a key condition cannot express are left to a scan."""
    assert key_query(parse_condition(text), ("pk", "sk")) is None


def test_a_query_as_an_expression():
    """Both keys are placeholders."""
    condition = parse_condition("pk = 'a' AND sk BETWEEN 1 AND 2")
    expressions = Expressions()
    (query,) = key_query(condition, ("pk", "sk")).queries()
    assert query.write(expressions) == "#n0 = :v0 AND #n1 BETWEEN :v1 AND :v2"


COMPOSITE = ("country", "year", "month", "city")


@pytest.mark.parametrize(
    ("text", "queries", "remainder"),
    [
        ("country = 'a' AND year = 1", 1, None),
        ("country IN ('a', 'b') AND year IN (1, 2, 1) AND x = 1", 4, "x = 1"),
        ("country = 'a' AND year = 1 AND month > 3", 1, None),
        ("country = 'a' AND year = 1 AND city >= 'x' AND city <= 'y' AND month = 2", 1, None),
    ],
)
def test_composite_keys_make_queries(text, queries, remainder):
    """All partition attributes are constants; sort attributes are equal from the left, and the last has a range."""
    query = key_query(parse_condition(text), COMPOSITE, 2)
    assert len(query.queries()) == queries
    assert query.remainder == (remainder and parse_condition(remainder))


@pytest.mark.parametrize(
    "text",
    [
        "country = 'a'",
        "country = 'a' AND year > 1",
        "country = 'a' AND year = 1 AND city = 'x'",
        "country = 'a' AND year = 1 AND month > 2 AND city = 'x'",
        "country = 'a' AND year = 1 AND (month = 2 OR city = 'x')",
    ],
)
def test_composite_keys_that_a_query_cannot_express(text):
    """A partition attribute without a constant, or a gap before a sort attribute, is left to a scan."""
    assert key_query(parse_condition(text), COMPOSITE, 2) is None


PATHS = st.lists(st.one_of(st.text(min_size=1), st.integers(0, 9)), max_size=2).flatmap(
    lambda steps: st.text(min_size=1).map(lambda name: (name, *steps))
)
CONSTANTS = st.one_of(
    st.text().map(lambda text: {"S": text}),
    st.decimals(-(10**9), 10**9, places=3).map(lambda number: {"N": canonical_number(str(number))}),
    st.binary().map(lambda data: {"B": encode_base64(data)}),
    st.booleans().map(lambda truth: {"BOOL": truth}),
    st.just({"NULL": True}),
)
TESTS = st.one_of(
    st.builds(
        lambda sign, path, value: conditions.Test(sign, path, (value,)),
        st.sampled_from(["=", "<>", "<", "size >=", "begins_with", "contains"]),
        PATHS,
        CONSTANTS,
    ),
    st.builds(lambda path, one, two: conditions.Test("BETWEEN", path, (one, two)), PATHS, CONSTANTS, CONSTANTS),
    st.builds(lambda path, values: conditions.Test("IN", path, tuple(values)), PATHS, st.lists(CONSTANTS, min_size=1)),
    st.builds(lambda path: conditions.Test("attribute_type", path, ({"S": "SS"},)), PATHS),
    st.builds(lambda path: conditions.Test("attribute_exists", path), PATHS),
)


def _compound(sign, parts):
    inside = [
        condition
        for part in parts
        for condition in (part.parts if isinstance(part, Compound) and part.operator == sign else [part])
    ]
    return Compound(sign, tuple(inside))


CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds(_compound, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
        inner.map(Negated),
    ),
    max_leaves=5,
)


@given(CONDITIONS)
def test_a_condition_as_text(condition):
    """The text of a condition is parsed to the same condition, for all names and values."""
    assert parse_condition(format_condition(condition)) == condition
