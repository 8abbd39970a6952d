"""Requests of every mode against a plain builder: the content of each row, its request, and the order."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ddbio.items.schema.arrow import nulls_field
from ddbio.load.batches import Packer
from ddbio.load.encode import RowEncoder
from ddbio.load.plan import WritePlan
from ddbio.load.requests import (
    VALUES,
    ItemEncoder,
    RowTexts,
    UpdateEncoder,
    UpdateExpressions,
    ValuesEncoder,
    joined_texts,
)

COLUMNS = {"version": "N", "b": "N", "c": "S", "SET": "S"}
MODES = [
    {"mode": "update"},
    {"mode": "create"},
    {"mode": "upsert"},
    {"mode": "upsert", "newer_by": "version"},
    {"mode": "delete"},
    {"mode": "delete", "newer_by": "version"},
    {"mode": "upsert", "operation_by": "op"},
    {"mode": "upsert", "operation_by": "op", "newer_by": "version"},
]


def plan_of(lanes=1, **options):
    """Return a plan for a table with the key pk."""
    named = {"newer_by": None, "operation_by": None, **options}
    return WritePlan("rows", (("pk", "S"),), lanes=lanes, wcu_per_second=None, **named)


def table_of(rows, *, names_nulls=False):
    """Return rows as columns. Values of attributes without a column are rescued."""
    rescued = [{name: value for name, value in row.items() if name.startswith("more")} for row in rows]
    arrays = {
        "pk": pa.array([row["pk"] for row in rows], pa.string()),
        "op": pa.array([row["op"] for row in rows], pa.string()),
        **{
            name: pa.array([row.get(name) for row in rows], pa.int64() if tag == "N" else pa.string())
            for name, tag in COLUMNS.items()
        },
        "_rescue": pa.array([json.dumps(value) if value else None for value in rescued], pa.string()),
    }
    batch = pa.record_batch(arrays)
    if not names_nulls:
        return batch
    field = nulls_field(batch.schema)
    return batch.append_column(field, pa.array([row.get("nulls") for row in rows], field.type))


def plain_request(row, options, *, names_nulls=False):
    """Return the operation and the request of a row from a plain builder, or None for a refused row."""
    newer_by, operation = options.get("newer_by"), options["mode"]
    item = {name: {tag: str(row[name])} for name, tag in COLUMNS.items() if row.get(name) is not None}
    item |= {name: value for name, value in row.items() if name.startswith("more")}
    if "operation_by" in options:
        operation = {"put": "upsert"}.get(row["op"], row["op"])
    else:
        item["op"] = {"S": row["op"]}
    key = {"pk": {"S": row["pk"]}}
    if newer_by is not None and newer_by not in item:
        return None
    names, values = {}, {}
    request = {"TableName": "rows", "ReturnConsumedCapacity": "INDEXES"}
    if operation == "update":
        columns = [*(["op"] if "op" in item else []), *COLUMNS]
        attributes = [*columns, *(name for name in item if name not in columns)]
        numbers = {name: index for index, name in enumerate(attributes)}
        sets = ", ".join(f"#n{numbers[name]} = :v{numbers[name]}" for name in attributes if name in item)
        removed = [name for name in attributes if name not in item]
        removed = [name for name in removed if name in row.get("nulls", ())] if names_nulls else removed
        removes = ", ".join(f"#n{numbers[name]}" for name in removed)
        names = {f"#n{numbers[name]}": name for name in (*item, *removed)}
        values = {f":v{numbers[name]}": value for name, value in item.items()}
        clauses = " ".join(filter(None, [sets and f"SET {sets}", removes and f"REMOVE {removes}"]))
        request |= {"UpdateExpression": clauses} if clauses else {}
        request["Key"] = key
        if newer_by is not None:
            number = numbers[newer_by]
            names["#k"] = "pk"
            request["ConditionExpression"] = f"attribute_not_exists(#k) OR #n{number} < :v{number}"
        operation = "UpdateItem"
    elif operation in {"upsert", "delete"} and newer_by is None:
        return "BatchWriteItem", (
            {"PutRequest": {"Item": key | item}} if operation == "upsert" else {"DeleteRequest": {"Key": key}}
        )
    else:
        is_put = operation != "delete"
        request |= {"Item": key | item} if is_put else {"Key": key}
        names = {"#n0": "pk"}
        request["ConditionExpression"] = "attribute_not_exists(#n0)"
        if newer_by is not None:
            names["#n1"], values[":v0"] = newer_by, item[newer_by]
            request["ConditionExpression"] += " OR #n1 < :v0"
        operation = "PutItem" if is_put else "DeleteItem"
    # DynamoDB refuses unused names and values, and empty ones.
    if names:
        request["ExpressionAttributeNames"] = names
    if values:
        request["ExpressionAttributeValues"] = values
    return operation, request


def made_requests(writer, batch):
    """Return the requests for the rows of a batch, and the refused rows."""
    encoded = writer.encode(batch)
    result = []
    for writes in encoded.lanes:
        packer = Packer(writes)
        while positions := packer.take():
            operation, text, _ = writes.request(positions)
            body = json.loads(text)
            rows = writes.rows[list(positions)].tolist()
            if operation != "BatchWriteItem":
                result.append((rows, operation, [body]))
                continue
            assert body["ReturnConsumedCapacity"] == "INDEXES"
            result.append((rows, operation, body["RequestItems"]["rows"]))
    return result, sorted(refusal.row for refusal in encoded.refusals)


ROWS = st.lists(
    st.fixed_dictionaries(
        {"pk": st.sampled_from([f"k{n}" for n in range(9)]), "op": st.sampled_from(["put", "delete", "update"])},
        optional={
            **{name: st.integers(-9, 9) for name, tag in COLUMNS.items() if tag == "N"},
            **{name: st.text('aé"\\', max_size=3) for name, tag in COLUMNS.items() if tag == "S"},
            "more": st.just({"SS": ["x"]}),
            "more of it": st.just({"NULL": True}),
            "nulls": st.lists(st.sampled_from(["pk", *COLUMNS, "more", "none"]), max_size=3),
        },
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(st.sampled_from(MODES), st.lists(ROWS, min_size=1, max_size=3), st.integers(1, 3), st.booleans())
def test_requests_are_those_of_a_plain_builder(options, batches, lanes, names_nulls):
    """Each row has exactly the effect of its mode, once, and rows of one key are in order."""
    writer = None
    for rows in batches:
        batch = table_of(rows, names_nulls=names_nulls)
        writer = writer or RowEncoder(batch.schema, plan_of(lanes, **options))
        expected = [plain_request(row, options, names_nulls=names_nulls) for row in rows]
        actual, refused = made_requests(writer, batch)
        assert refused == [row for row, value in enumerate(expected) if value is None]
        sent = [
            (row, (operation, asked))
            for numbers, operation, value in actual
            for row, asked in zip(numbers, value, strict=True)
        ]
        assert sorted(row for row, _ in sent) == [row for row, value in enumerate(expected) if value is not None]
        assert all(expected[row] == asked for row, asked in sent)
        for key in {row["pk"] for row in rows}:
            numbers = [row for row, _ in sent if rows[row]["pk"] == key]
            assert numbers == sorted(numbers)


def test_updates_break_no_batch():
    """Puts and deletes of one operation column fill their batches, regardless of updates between them."""
    rows = [{"pk": f"k{n}", "op": ("put", "update", "delete")[n % 3], "b": n} for n in range(150)]
    batch = table_of(rows)
    actual, _ = made_requests(RowEncoder(batch.schema, plan_of(mode="upsert", operation_by="op")), batch)
    assert sorted(len(numbers) for numbers, *_ in actual) == [1] * 50 + [25] * 4


@pytest.mark.parametrize("rescued", [False, True])
def test_updates_of_any_pattern_share_a_template(rescued):
    """Nothing is stored for a pattern of nulls: all patterns share one template, or that of their names."""
    names = [f"c{n}" for n in range(12)]
    patterns = range(1 << len(names))
    columns = {name: [1 if pattern >> n & 1 else None for pattern in patterns] for n, name in enumerate(names)}
    columns |= {"_rescue": ['{"late":{"S":"x"}}'] * len(patterns)} if rescued else {}
    batch = pa.record_batch({"pk": [f"k{pattern}" for pattern in patterns], **columns})
    updates = UpdateEncoder(batch.schema, batch.schema.names, {"pk": "S"}, "rows")
    made = updates.encode(batch)
    assert len({id(frame) for frame in made.templates.values()}) == int(rescued)
    assert len(made.templates) == len(patterns) * rescued
    body = updates.template.body([made.rows()[1]]) if not rescued else made.templates[1].body([made.rows()[1]])
    assert json.loads(body)["UpdateExpression"].startswith("SET #n0 = :v0")


@given(st.lists(ROWS, min_size=1, max_size=2))
def test_updates_of_columns_have_the_bytes_of_a_plain_builder(batches):
    """Key, values and expression are in this order, with the values as the encoder of values prints them."""
    updates = None
    for rows in batches:
        batch = table_of([{name: row[name] for name in row if not name.startswith("more")} for row in rows])
        names = batch.schema.names
        updates = updates or UpdateEncoder(batch.schema, names, {"pk": "S"}, "rows")
        columns = [name for name in names if name not in {"pk", "_rescue"}]
        values = ValuesEncoder(batch.schema, columns).encode(batch).rows()
        keys = ItemEncoder(batch.schema, ["pk"], {"pk": "S"}).encode(batch).rows()
        expected = []
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            has = [batch.column(name)[row].is_valid for name in columns]
            sets = ", ".join(f"#n{index} = :v{index}" for index, there in enumerate(has) if there)
            removes = ", ".join(f"#n{index}" for index, there in enumerate(has) if not there)
            clauses = f"SET {sets}{removes and ' REMOVE '}{removes}"
            expected.append(key + VALUES + value + f',"UpdateExpression":"{clauses}"'.encode())
        assert updates.encode(batch).rows() == expected


def test_rows_without_any_value_have_no_values():
    """A row whose columns are all null removes them, and has no empty object of values, which DynamoDB refuses."""
    batch = pa.record_batch({"pk": ["a", "b"], "c": pa.array([None, 1], pa.int64())})
    updates = UpdateEncoder(batch.schema, batch.schema.names, {"pk": "S"}, "rows")
    removing, setting = updates.encode(batch).rows()
    assert removing == b'{"pk":{"S":"a"}},"UpdateExpression":"REMOVE #n0"'
    assert (
        setting == b'{"pk":{"S":"b"}},"ExpressionAttributeValues":{":v0":{"N":"1"}},"UpdateExpression":"SET #n0 = :v0"'
    )


def test_refused_rows_add_nothing_and_are_reported_once():
    """A row with a bad key and a bad value is refused for its key. The other rows are not affected."""
    kind = pa.list_(pa.string())
    field = pa.field("tags", kind, metadata={"ddb:type": "SS"})
    schema = pa.schema([pa.field("pk", pa.string()), field])
    batch = pa.record_batch(
        [pa.array(["", "b", "c", "d"]), pa.array([["x", "x"], ["x"], ["x", "x"], None], kind)], schema
    )
    updates = UpdateEncoder(schema, schema.names, {"pk": "S"}, "rows")
    made = updates.encode(batch)
    assert [(refusal.row, refusal.rule) for refusal in made.refusals] == [(0, "key_empty"), (2, "duplicate")]
    alone = updates.encode(batch.slice(1, 1)).rows() + updates.encode(batch.slice(3, 1)).rows()
    assert made.rows() == [b"", alone[0], b"", alone[1]]


TEXT = st.binary(max_size=90)


@st.composite
def columns_of_rows(draw, count):
    """Return a column of texts, and the same texts as a list."""
    kind = draw(st.sampled_from(["own", "chosen", "where", "replaced", "within", "spread"]))
    if kind == "where":
        flags, text = draw(arrays(np.bool_, count)), draw(TEXT)
        return RowTexts.where(flags, text), [text if flag else b"" for flag in flags]
    if kind == "chosen":
        texts = draw(st.lists(TEXT, min_size=1, max_size=3))
        choices = draw(arrays(np.int64, count, elements=st.integers(0, len(texts) - 1)))
        return RowTexts.chosen(texts, choices), [texts[choice] for choice in choices]
    texts = draw(st.lists(TEXT, min_size=count, max_size=count))
    made = own_texts(texts)
    if kind == "replaced":
        others = draw(st.dictionaries(st.integers(0, count - 1), TEXT)) if count else {}
        return made.replaced(others), [others.get(row, text) for row, text in enumerate(texts)]
    if kind == "within":
        flags = draw(arrays(np.bool_, count))
        return made.within(flags), [text if flag else b"" for text, flag in zip(texts, flags, strict=True)]
    if kind == "spread":
        rows = np.flatnonzero(draw(arrays(np.bool_, count)))
        actual = [b""] * count
        for row, text in zip(rows, texts, strict=False):
            actual[row] = text
        return own_texts(texts[: len(rows)]).spread(rows, count), actual
    return made, texts


def own_texts(texts):
    """Return adjacent texts."""
    return RowTexts.of_offsets(np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]))


@given(st.data())
def test_rows_hold_the_texts_of_all_columns(data):
    """Each row has its texts in the order of the columns, at any position in the buffers, and has its offsets."""
    count = data.draw(st.integers(0, 12))
    drawn = data.draw(st.lists(columns_of_rows(count), min_size=1, max_size=4))
    # A source that several columns share is copied once.
    drawn.append(drawn[0])
    expected = [b"".join(texts) for texts in zip(*(texts for _, texts in drawn), strict=True)]
    made, offsets = joined_texts([column for column, _ in drawn])
    assert made.tobytes() == b"".join(expected)
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    for column, texts in drawn:
        assert [column.text(row) for row in range(count)] == texts


def plain_expression(has):
    """Return the expression that sets some columns and removes the others."""
    sets = ", ".join(f"#n{index} = :v{index}" for index, value in enumerate(has) if value)
    removes = ", ".join(f"#n{index}" for index, value in enumerate(has) if not value)
    clauses = [f"{verb} {named}" for verb, named in (("SET", sets), ("REMOVE", removes)) if named]
    return f',"UpdateExpression":"{" ".join(clauses)}"'.encode()


@given(st.data(), st.integers(1, 140))
def test_expressions_set_present_and_remove_absent_attributes(data, columns):
    """The expression of each row is that of a plain builder, for any number of columns and any missing ones."""
    count = data.draw(st.integers(0, 6))
    present = data.draw(arrays(np.bool_, (count, columns)))
    made = UpdateExpressions(columns).of(present)
    assert [made.text(row) for row in range(count)] == [plain_expression(has) for has in present]


@pytest.mark.parametrize(("rows", "columns"), [(3000, 70), (2, 200_000)])
def test_expressions_of_many_patterns_are_made_block_by_block(rows, columns):
    """More patterns than in one block, and one pattern that is larger than a block, have the same result."""
    present = np.random.default_rng(0).random((rows, columns)) < 0.5
    made = UpdateExpressions(columns).of(np.concatenate([present, present]))
    assert len(made.begins) == 2 * rows
    assert (made.begins[:rows] == made.begins[rows:]).all()
    for row in range(0, rows, max(1, rows // 50)):
        assert made.text(row) == plain_expression(present[row])
