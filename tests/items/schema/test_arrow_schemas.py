"""Round trips of columns through items, for any Arrow schema with DynamoDB types."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import NAMES, TEXT

import ddbio
from ddbio.items.decode import Decoder
from ddbio.items.reference import plain_json_lines as reference
from ddbio.items.schema.arrow import normalize_schema

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html: numbers from 1E-130 to 9.99E+125.
FLOATS = st.floats(-1e100, 1e100, allow_nan=False).filter(lambda number: number == 0 or abs(number) > 1e-100)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
LEAVES = [
    *INTEGERS,
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.bool_(), pa.float32(), pa.float64()),
    *(pa.decimal128(38, 0), pa.decimal128(20, 5), pa.decimal128(38, 38), pa.decimal256(50, 10)),
]


def structs(inner):
    """Return structs of one to three members of any type."""
    names = st.lists(NAMES.filter(lambda name: name != "_rescue"), min_size=1, max_size=3, unique=True)
    return names.flatmap(
        lambda names: st.tuples(*[inner.map(lambda kind, name=name: (name, kind)) for name in names])
    ).map(pa.struct)


TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        structs(inner),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=5,
)


def values_of(kind):  # noqa: PLR0911 - one line a type
    """Return values for a column of the type, including null."""
    if pa.types.is_integer(kind):
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        return st.none() | st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)
    if pa.types.is_decimal(kind):
        most = 10 ** min(kind.precision, 38) - 1
        return st.none() | st.integers(-most, most).map(lambda number: Decimal(f"{number}e-{kind.scale}"))
    if pa.types.is_float32(kind):
        return st.none() | st.floats(-1000, 1000, width=16)
    if pa.types.is_float64(kind):
        return st.none() | FLOATS
    if pa.types.is_boolean(kind):
        return st.none() | st.booleans()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return st.none() | TEXT
    if pa.types.is_map(kind):
        names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
        return st.none() | st.dictionaries(names, values_of(kind.item_type), max_size=3).map(
            lambda members: [*members.items()]
        )
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    return st.none() | st.binary(max_size=6)


@st.composite
def batches(draw):
    """Draw a schema and a batch of it."""
    names = draw(st.lists(NAMES.filter(lambda name: name != "_rescue"), min_size=1, max_size=4, unique=True))
    kinds = [draw(TYPES) for _ in names]
    count = draw(st.integers(0, 4))
    columns = [pa.array(draw(st.lists(values_of(kind), min_size=count, max_size=count)), kind) for kind in kinds]
    return pa.RecordBatch.from_arrays(columns, names=names)


@given(batches())
def test_columns_come_back(batch):
    """Items made from columns of any Arrow schema decode to equal columns. Nothing is rescued or lost."""
    text = ddbio.to_dynamodb_json(batch)
    assert text == reference(batch)
    schema = normalize_schema(batch.schema)
    decoded = Decoder(schema).decode(text, "items")
    wanted = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=False)]
    assert decoded.drop_columns(["_rescue"]).equals(
        pa.RecordBatch.from_arrays(wanted, schema=pa.schema(list(schema)[:-1]))
    )
    assert decoded["_rescue"].null_count == batch.num_rows
