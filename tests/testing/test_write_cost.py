"""The costs of writes by ddbio's rules equal the bill of the fake, which implements its own rules."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddbio.items.capacity import SecondaryIndex, write_cost
from ddbio.testing.calls.writes import delete_item, put_item

KEY_TEXT = st.one_of(st.text("ab", min_size=1, max_size=2), st.integers(900, 1024).map(lambda size: "x" * size))
LONG_TEXT = st.integers(1, 3000).map(lambda size: "x" * size)
ATTRIBUTES = st.fixed_dictionaries({}, optional={"a": KEY_TEXT, "b": KEY_TEXT, "c": KEY_TEXT, "d": LONG_TEXT}).map(
    lambda texts: {name: {"S": text} for name, text in texts.items()}
)
WRITES = st.lists(st.one_of(st.none(), ATTRIBUTES), min_size=1, max_size=6)
INDEXES = [
    SecondaryIndex("all", ("a",)),
    SecondaryIndex("keys", ("b", "a"), projected=()),
    SecondaryIndex("some", ("b",), projected=("c", "d")),
    SecondaryIndex("local", ("pk", "c"), projected=("a",), is_global=False),
]


def described(index: SecondaryIndex) -> dict:
    """Return an index as a parameter of CreateTable."""
    kinds = ["KEYS_ONLY", "INCLUDE", "ALL"]
    kind = kinds[2 if index.projected is None else bool(index.projected)]
    projection = {"ProjectionType": kind, **({"NonKeyAttributes": list(index.projected)} if index.projected else {})}
    keys = [
        {"AttributeName": name, "KeyType": key} for name, key in zip(index.key_names, ("HASH", "RANGE"), strict=False)
    ]
    return {"IndexName": index.name, "KeySchema": keys, "Projection": projection}


# The fixture makes a new database at each call.
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WRITES)
def test_writes_cost_what_the_fake_bills(hold, writes):
    """Puts and deletes of one key, with global and local indexes of every projection."""
    held = hold()
    table = held.create(
        key=("pk:S", "sk:S"),
        more=("a:S", "b:S", "c:S"),
        GlobalSecondaryIndexes=[described(number) for number in INDEXES if number.is_global],
        LocalSecondaryIndexes=[described(number) for number in INDEXES if not number.is_global],
    )
    key, old = {"pk": {"S": "p"}, "sk": {"S": "s"}}, None
    for attributes in writes:
        new = None if attributes is None else {**key, **attributes}
        call, members = (delete_item, {"Key": key}) if new is None else (put_item, {"Item": new})
        held.now += 3600
        answer = held.call(call, TableName=table, ReturnConsumedCapacity="INDEXES", **members)
        consumed = answer["ConsumedCapacity"]
        cost = write_cost(old, new, key, INDEXES)
        billed = {**consumed.get("GlobalSecondaryIndexes", {}), **consumed.get("LocalSecondaryIndexes", {})}
        assert cost.total == consumed["CapacityUnits"]
        assert cost.table == consumed["Table"]["CapacityUnits"]
        assert cost.indexes == {name: part["CapacityUnits"] for name, part in billed.items() if part["CapacityUnits"]}
        old = new
