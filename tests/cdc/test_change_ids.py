"""Identity of a change: the same in any file, and different for different changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ddbio.cdc.log_order import change_ids, distinct_changes, id_texts

SCHEMA = pa.schema(
    [
        ("_op", pa.string()),
        ("_sequence", pa.string()),
        ("_event_time", pa.timestamp("us", "UTC")),
        ("_event_id", pa.string()),
        pa.field("pk", pa.int64(), metadata={"ddb:type": "N"}),
        ("v", pa.int64()),
        ("_rescue", pa.string()),
    ]
)
AT = datetime(2026, 11, 27, tzinfo=UTC)
CHANGE = {"_op": "REMOVE", "_sequence": "100", "_event_time": AT, "_event_id": None, "pk": 1, "v": 5, "_rescue": None}
LATER = AT.replace(microsecond=1)


def table_of(*rows, schema=SCHEMA):
    """Return rows of a log."""
    return pa.Table.from_pylist([{**CHANGE, **row} for row in rows], schema)


def distinct(ids, stream_of=lambda _: None):
    """Return the row of each change, and its number."""
    indices, numbers = distinct_changes(ids, stream_of)
    return list(zip(indices.tolist(), numbers.tolist(), strict=True))


DIFFERENT = {
    "number": [{}, {"_sequence": "101"}],
    "stream, another item": [{}, {"pk": 2}],
    "stream, the same item": [{}, {"_event_time": LATER}],
    "rescued keys": [{"pk": None, "_rescue": f'{{"pk":{{"N":"{value}"}}}}'} for value in ("1.5", "2.5", "1E+30")],
    "rescued and not": [{}, {"pk": None, "_rescue": '{"pk":{"N":"1.5"}}'}],
    "event ids": [{"_event_id": value} for value in ("a", "b", None)],
    "event ids of healed rows": [{"_event_id": "arn 7", "pk": value} for value in (1, 2)],
}
SAME = {
    "row": [{}, {}],
    "event id, written as two changes": [{"_event_id": "a", "_sequence": value} for value in ("7000001", "7000002")],
    "key, once rescued": [{}, {"pk": None, "_rescue": '{"pk":{"N":"1"}}'}],
    "key in another format": [
        {"pk": None, "_rescue": f'{{"pk":{{"N":"{value}"}}}}'} for value in ("1.5", "1.50", "15E-1")
    ],
}


@pytest.mark.parametrize("keys", [["pk"], []])
@pytest.mark.parametrize("what", DIFFERENT)
def test_different_changes_have_different_identities(what, keys):
    """Numbers of several streams, and of Kinesis in milliseconds, may be equal. Their items and times differ."""
    ids = change_ids(table_of(*DIFFERENT[what]), keys)
    assert len(set(id_texts(ids))) == len(DIFFERENT[what])
    assert distinct(ids) == [(index, 0) for index in range(len(DIFFERENT[what]))]


@pytest.mark.parametrize("keys", [["pk"], []])
@pytest.mark.parametrize("what", SAME)
def test_the_same_change_has_one_identity(what, keys):
    """A change that a compaction or the stream has repeated is one change."""
    ids = change_ids(table_of(*SAME[what]), keys)
    assert len(set(id_texts(ids))) == 1
    assert distinct(ids) == [(0, 0)]


@pytest.mark.parametrize("keys", [["pk"], []])
def test_the_columns_of_a_file_do_not_matter(keys):
    """The same change has one identity in files with other columns, types and columns of ddbio."""
    wanted = id_texts(change_ids(table_of({}), keys))
    wider = SCHEMA.set(4, pa.field("pk", pa.decimal128(38, 4))).append(pa.field("new", pa.string()))
    narrow = pa.schema([field for field in SCHEMA if field.name not in {"_event_id", "v"}])
    rescued = table_of({"_rescue": '{"v":{"N":"5"}}'}, schema=narrow)
    assert id_texts(change_ids(table_of({}, schema=wider), keys)) == wanted
    assert id_texts(change_ids(rescued, keys)) == wanted
    more = {"_expired": pa.array([True]), "_expired_at": pa.array([AT]), "_inferred": pa.array([False])}
    more |= {"_old_image": pa.array([{"pk": 3}]), "_old_rescue": pa.array(["{}"]), "_healed_by": pa.array(["table"])}
    rows = table_of({})
    for name, column in more.items():
        rows = rows.append_column(name, column)
    assert id_texts(change_ids(rows, keys)) == wanted


@pytest.mark.parametrize("name", ["_event_id", "_expired_at", "_healed_by"])
@pytest.mark.parametrize("keys", [["pk"], []])
def test_an_attribute_is_not_taken_for_a_column_of_the_log(keys, name):
    """Logs of older releases have attributes in columns with names of other logs and archives."""
    schema = pa.schema([field for field in SCHEMA if field.name != "_event_id"])
    schema = schema.append(pa.field(name, pa.string(), metadata={"ddb:type": "S"}))
    changes = [{name: "a"}, {name: "a", "_sequence": "101"}, {name: "a", "pk": 2}]
    changes += [] if keys else [{name: "b"}]
    assert len(distinct(change_ids(table_of(*changes, schema=schema), keys))) == len(changes)
    renamed = schema.set(
        len(schema) - 1, pa.field(f"{name}_1", pa.string(), metadata={"ddb:type": "S", "ddb:name": name})
    )
    rows = table_of({f"{name}_1": "a"}, schema=renamed)
    assert id_texts(change_ids(rows, keys)) == id_texts(change_ids(table_of({name: "a"}, schema=schema), keys))


@pytest.mark.parametrize(
    ("streams", "wanted"),
    [
        ("aa", [(0, 0)]),
        ("ab", [(0, 0), (1, 1)]),
        ("aab", [(0, 0), (1, 1)]),
        ("abc", [(0, 0), (1, 1), (2, 2)]),
        ("a-", [(0, 0)]),
        ("-b", [(0, 0)]),
        ("--", [(0, 0)]),
        ("-ab", [(0, 0), (1, 1)]),
    ],
)
def test_rows_of_one_identity_are_as_many_changes_as_streams_have_them(streams, wanted):
    """Rows of files with an unknown stream, such as compacted ones, are the same changes as others."""
    rows = table_of({"pk": 5}, *({} for _ in streams), {"pk": 6})
    asked = list[int]()

    def stream_of(row):
        asked.append(row)
        stream = streams[row - 1]
        return None if stream == "-" else stream

    actual = distinct(change_ids(rows, ["pk"]), stream_of)
    assert actual == [(0, 0), *((index + 1, number) for index, number in wanted), (len(streams) + 1, 0)]
    assert sorted(asked) == list(range(1, len(streams) + 1))


def test_an_empty_log_has_no_identities():
    """A log may have no rows."""
    for keys in (["pk"], []):
        assert distinct(change_ids(SCHEMA.empty_table(), keys)) == []
