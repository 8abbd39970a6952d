"""Hypothesis strategies for items in DynamoDB JSON, with numbers as the service writes them."""

from __future__ import annotations

import base64
from decimal import Decimal

from hypothesis import strategies as st

from ddbio.items.number import canonical_number

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.one_of(
    st.sampled_from(
        ["pk", "sk", "n", "a.b", "a-b", "#x", "A", "a", "nul\0name", "naïve", "名", "Items", "Item", "_rescue"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
)
DIGITS = st.integers(min_value=1, max_value=10**38 - 1)


@st.composite
def wide_numbers(draw: st.DrawFn) -> str:
    """Draw a number of up to 38 digits anywhere in DynamoDB's range."""
    digits = str(draw(DIGITS)).rstrip("0")
    adjusted = draw(st.integers(-130, 125))
    sign = draw(st.sampled_from(["", "-"]))
    return canonical_number(f"{sign}{digits}e{adjusted - len(digits) + 1}")


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.integers(-(10**38) + 1, 10**38 - 1).map(str),
    st.decimals(-(10**9), 10**9, places=4).map(str).map(canonical_number),
    wide_numbers(),
)
BINARIES = st.binary(max_size=9).map(lambda value: base64.b64encode(value).decode())


def _sets(elements: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(elements, min_size=1, max_size=4, unique=True)


def values_of(tag: str, children: st.SearchStrategy[dict]) -> st.SearchStrategy[dict]:
    """Return a strategy for attribute values of one type."""
    contents = {
        "S": TEXT,
        "N": NUMBERS,
        "B": BINARIES,
        "BOOL": st.booleans(),
        "NULL": st.just(value=True),
        "SS": _sets(TEXT),
        "NS": _sets(NUMBERS),
        "BS": _sets(BINARIES),
        "L": st.lists(children, max_size=4),
        "M": st.dictionaries(NAMES, children, max_size=4),
    }
    return st.fixed_dictionaries({tag: contents[tag]})


SCALAR_TAGS = ["S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS"]


def _scalars() -> st.SearchStrategy[dict]:
    return st.sampled_from(SCALAR_TAGS).flatmap(lambda tag: values_of(tag, st.nothing()))


VALUES = st.recursive(
    _scalars(), lambda children: st.sampled_from(["L", "M"]).flatmap(lambda tag: values_of(tag, children)), max_leaves=6
)
"""Any attribute value."""

ITEMS = st.dictionaries(NAMES, VALUES, max_size=6)
"""Any item."""


@st.composite
def shapes(draw: st.DrawFn, depth: int = 2) -> st.SearchStrategy[dict]:
    """Draw a strategy for values that all have one type, as the values of an attribute usually do."""
    tags = ["S", "N", "B", "BOOL", "SS", "NS", "BS"] + (["L", "M"] if depth else [])
    tag = draw(st.sampled_from(tags))
    if tag == "L":
        return values_of("L", draw(shapes(depth=depth - 1)))
    if tag == "M":
        names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
        members = {name: draw(shapes(depth=depth - 1)) for name in names}
        return st.fixed_dictionaries({"M": st.fixed_dictionaries({}, optional=members)})
    if tag == "N":
        texts = st.sampled_from([st.integers(-999, 2**63 - 1).map(str), NUMBERS])
        return st.fixed_dictionaries({"N": draw(texts)})
    return values_of(tag, st.nothing())


@st.composite
def tables(draw: st.DrawFn) -> list[dict]:
    """Draw items of one shape: each attribute of one type, sometimes missing or NULL."""
    names = draw(st.lists(NAMES.filter(lambda name: name != "_rescue"), min_size=1, max_size=5, unique=True))
    null = st.just({"NULL": True})
    members = {}
    for name in names:
        values = draw(shapes())
        members[name] = st.one_of(values, values, values, null) if draw(st.booleans()) else values
    return draw(st.lists(st.fixed_dictionaries({}, optional=members), max_size=8))


def meaning_of(value: dict) -> tuple:
    """Return a key of an attribute value that is equal exactly for all texts of the same value."""
    ((tag, content),) = value.items()
    match tag:
        case "N":
            return tag, Decimal(content)
        case "B":
            return tag, base64.b64decode(content)
        case "SS" | "NS" | "BS":
            return tag, tuple(sorted(meaning_of({tag[0]: element}) for element in content))
        case "L":
            return tag, tuple(map(meaning_of, content))
        case "M":
            return tag, meaning_of_item(content)
    return tag, content


def meaning_of_item(item: dict) -> frozenset:
    """Return a key of an item, or of the contents of a map, that is equal exactly for all texts of the same item."""
    return frozenset((name, meaning_of(value)) for name, value in item.items())
