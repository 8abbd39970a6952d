from __future__ import annotations

from json import dumps

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.items.decode import from_dynamodb_json
from ddbio.items.reference import items_of
from ddbio.items.schema.column import column_names, fold, suffixed

CASES = st.sampled_from(["id", "Id", "ID", "iD", "\u0130d", "\u0131D", "_rescue", "_Rescue", "stra\u00dfe", "STRASSE"])
NAMES = st.one_of(CASES, CASES.map(suffixed), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5))


@given(st.sets(NAMES, max_size=12))
def test_columns_differ_by_more_than_case(names):
    """Columns differ by more than case, none is the rescue column, and every name can be derived from its column."""
    columns = column_names(sorted(names))
    assert len({fold(column) for column in [*columns.values(), "_rescue"]}) == len(names) + 1
    assert all(column in {name, suffixed(name)} for name, column in columns.items())


@given(st.sets(NAMES, max_size=8), st.sets(NAMES, max_size=8))
def test_columns_depend_on_no_order_and_suffixes_stay(names, others):
    """Columns do not depend on the order of names. A suffix does not depend on other names."""
    columns, later = column_names(sorted(names)), column_names(sorted(names | others, reverse=True))
    assert columns == column_names(sorted(names, reverse=True))
    assert all(later[name] == column for name, column in columns.items() if column != name)
    assert all(later[name] == name for name, column in columns.items() if name == column == fold(name))


@pytest.mark.parametrize("name", ["id", "Id", "_x", "a__b"])
def test_a_name_alone_is_its_column(name):
    """A name without conflicts is not changed."""
    assert column_names([name]) == {name: name}


def test_items_with_names_that_differ_by_case_survive():
    """Values under names that differ only by case, also in maps, and under _rescue survive a round trip."""
    names = ["id", "Id", "ID", "_rescue", suffixed("Id"), "_RESCUE"]
    item = {name: {"S": name} for name in names} | {"m": {"M": {name: {"N": "1"} for name in names}}}
    for framed in (dumps(item), dumps(item, indent=1)):
        batch = from_dynamodb_json(framed.encode())
        assert batch.column("_rescue").null_count == 1
        assert len({name.lower() for name in batch.schema.names}) == len(names) + 2
        assert list(items_of(batch)) == [item]
