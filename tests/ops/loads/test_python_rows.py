"""Rows that are Python's own dictionaries."""

from decimal import Decimal

import pytest

import ddbio
from ddbio.testing import FakeDynamoDB


@pytest.fixture
def server():
    """Serve an empty table."""
    with FakeDynamoDB() as fake:
        fake.load("orders", b"", "pk:S")
        yield fake


def written(server, data):
    """Write rows; return what the table then holds, by key, without what it does not."""
    ddbio.write_table(data, "orders", endpoint_url=server.endpoint_url)
    found = ddbio.read_table("orders", endpoint_url=server.endpoint_url).to_pylist()
    return {row.pop("pk"): {name: value for name, value in row.items() if value is not None} for row in found}


def test_a_list_of_dictionaries_is_rows(server):
    """Each row has its own attributes; numbers are exact; None is missing."""
    rows = [
        {"pk": "a", "n": Decimal("12345678901234567890.25"), "m": {"x": 1}},
        {"pk": "b", "late": True, "n": None, "l": ["u", "v"]},
    ]
    assert written(server, rows) == {"a": {"n": Decimal("12345678901234567890.25"), "m": {"x": 1}}, "b": {"late": True, "l": ["u", "v"]}}  # fmt: skip # noqa: E501


@pytest.mark.parametrize(
    "rows", [{"pk": ["a", "b"], "n": [1, 2]}, ({"pk": pk, "n": n} for pk, n in (("a", 1), ("b", 2)))]
)
def test_columns_and_generators_are_rows_too(server, rows):
    """A dictionary of lists is columns; any iterable of dictionaries is rows."""
    assert written(server, rows) == {"a": {"n": 1}, "b": {"n": 2}}


def test_sets_are_sets(server):
    """Python's sets are DynamoDB's, by their values' type."""
    rows = [{"pk": "a", "s": {"u"}, "n": {1, 2}, "b": frozenset({b"x"})}]
    ddbio.write_table(rows, "orders", endpoint_url=server.endpoint_url)
    schema = ddbio.infer_schema("orders", endpoint_url=server.endpoint_url)
    types = {field.name: field.metadata[b"ddb:type"] for field in schema.to_arrow() if field.metadata}
    assert (types["s"], types["n"], types["b"]) == (b"SS", b"NS", b"BS")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"pk": "a", "n": 1}, {"pk": "b", "n": "x"}], "column 'n' have no common type"),
        ([{"pk": "a", "l": [{1}]}], "column 'l' has a set inside"),
        ([{"pk": "a", "l": {1}}, {"pk": "b", "l": [1]}], "column 'l' has sets and other values"),
        ([{"pk": "a", 1: 2}], "column 1: a name is text"),
        ({"pk": ["a"], "n": [1, 2]}, "make no table"),
    ],
)
def test_what_makes_no_columns_is_said(server, rows, message):
    """An error names the column; nothing is written."""
    with pytest.raises(ddbio.SchemaError, match=message):
        ddbio.write_table(rows, "orders", endpoint_url=server.endpoint_url)
    assert server.consumed("orders") == []
