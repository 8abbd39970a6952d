"""Quality rules on columns of every type, and on values in the rescue column."""

from decimal import Decimal

import pyarrow as pa
import pytest

from ddbio.errors import OptionError
from ddbio.items.schema.arrow import RESCUE_NAME, tagged_field
from ddbio.validation.quality import RuleChecker, rows_with
from ddbio.validation.rules import QualityRules


def failures(rule, column, field_=None, rescued=None):
    """Return the numbers of the rows that break a column's rule."""
    n_rows = len(column)
    columns = [pa.array(range(n_rows)), column]
    fields = [pa.field("row", pa.int64()), field_ or pa.field("a", column.type)]
    if rescued is not None:
        columns.append(pa.array(rescued, pa.string()))
        fields.append(pa.field(RESCUE_NAME, pa.string()))
    checker = RuleChecker(QualityRules(columns={"a": rule}), ["row"], n_rows)
    checker.add_batch(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))
    (result,) = checker.results()
    rows = [int(example["key"]["row"]["N"]) for example in result.examples]
    assert (result.failures, result.passed) == (len(rows), not rows)
    return rows


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 5, None, 9], pa.int64()),
        pa.array([Decimal("1.0"), Decimal("5.0"), None, Decimal("9.0")], pa.decimal128(38, 1)),
        pa.array([1.0, 5.0, None, 9.0]),
    ],
)
def test_range_bounds_numbers_of_every_type(column):
    """Both bounds are inclusive, and a null is not a number."""
    assert failures({"range": {"min": Decimal(5)}}, column) == [0]
    assert failures({"range": {"max": Decimal("5.0")}}, column) == [3]
    assert failures({"range": {"min": Decimal("1.5"), "max": Decimal(8)}}, column) == [0, 3]
    assert failures({"in_set": [Decimal(5), Decimal(9)]}, column) == [0]


def test_bounds_are_compared_exactly():
    """A double equals the nearest one of the rule's digits, and bounds may have more digits than decimal128."""
    doubles = pa.array([0.3, 0.7, 2.3])
    same = [Decimal("0.3"), Decimal("0.7"), Decimal("2.3")]
    assert failures({"in_set": same}, doubles) == []
    assert failures({"range": {"min": same[0], "max": same[2]}}, doubles) == []
    integers = pa.array([Decimal(99_999), Decimal(100_000), Decimal(10**37)], pa.decimal128(38, 0))
    assert failures({"range": {"max": Decimal("99999.99")}}, integers) == [1, 2]
    assert failures({"in_set": [Decimal(99_999), Decimal("0.5")]}, integers) == [1, 2]


def test_numbers_that_are_text_are_compared_as_numbers():
    """Arrow text columns of type N have numbers."""
    column = pa.array(["10", "9", "1E2", None])
    assert failures({"range": {"max": Decimal(50)}}, column, tagged_field("a", pa.string(), "N")) == [2]


def test_texts_are_bounded_matched_and_listed():
    """A regular expression matches the entire value."""
    column = pa.array(["new", "old", None, "newer"])
    assert failures({"regex": "new|old"}, column) == [3]
    assert failures({"in_set": ["new", "old"]}, column) == [3]
    assert failures({"range": {"min": "newer"}}, column) == [0]
    assert failures({"not_null": True}, column) == [2]
    assert failures({"in_set": [True]}, pa.array([True, False])) == [1]


def test_a_column_that_is_not_there_has_nulls():
    """Every row lacks the attribute, and other rules have nothing to check."""
    batch = pa.RecordBatch.from_pydict({"row": [1, 2]})
    checker = RuleChecker(QualityRules(columns={"b": {"not_null": True, "regex": "x"}}), ["row"], 1)
    checker.add_batch(batch)
    assert [(result.rule, result.failures, len(result.examples)) for result in checker.results()] == [
        ("not_null", 2, 1),
        ("regex: x", 0, 0),
    ]


def test_values_in_the_rescue_column_count():
    """A rescued value is not missing. A value of another type than the rule's breaks it."""
    column = pa.array([5, None, None, None, None])
    rescued = [None, '{"a":{"N":"1E30"}}', '{"a":{"S":"x"}}', '{"b":{"S":"x"}}', '{"a":{"NULL":true}}']
    assert failures({"not_null": True}, column, rescued=rescued) == [3, 4]
    assert failures({"range": {"max": Decimal(9)}}, column, rescued=rescued[:2] + [None] * 3) == [1]
    assert failures({"regex": "[0-9a-z]*"}, column, rescued=[None, None, rescued[2], None, None]) == []


def test_a_rule_that_does_not_suit_its_column_is_an_error():
    """The error names the rule, the column and the type."""
    with pytest.raises(OptionError, match=r"'range: min x' does not suit column 'a', which is int64"):
        failures({"range": {"min": "x"}}, pa.array([1]))


def test_rows_with_values_are_those_of_columns_and_of_the_rescue_column():
    """A rescued value counts if it can be part of a key. An attribute without a column has no values."""
    rescued = [None, '{"a":{"S":"x"}}', '{"a":{"BOOL":true}}', '{"b":{"S":"x"}}', None]
    batch = pa.RecordBatch.from_pydict(
        {"row": range(5), "a": [1, None, None, None, None], RESCUE_NAME: pa.array(rescued, pa.string())}
    )
    assert rows_with(batch, ["a"]).column("row").to_pylist() == [0, 1]
    assert rows_with(batch, ["row", "a"]).column("row").to_pylist() == [0, 1]
    assert rows_with(batch, ["row", "z"]).num_rows == 0
