"""Archives of expired items: recognition of expiry, layout, interrupted runs, and restored items."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cdc.archive import EXPIRED_AT, Archiver, expired_rows, in_key_range, months_of
from ddbio.cli.main import cli
from ddbio.errors import LimitError, NotFoundError, OptionError
from ddbio.formats.log_columns import EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.formats.parquet import parquet_bytes
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from tests.cdc.test_capture import client, fake, make_table  # noqa: F401 - fixtures

YEAR = 365 * 86_400
AT = 1_793_491_203


def items_of(folder):
    """Return the archived items in the order of their keys."""
    rows = ds.dataset(folder, partitioning="hive", ignore_prefixes=["_"]).to_table().to_pylist()
    return sorted(rows, key=lambda row: row["pk"])


def expire(fake, client, table, *items):  # noqa: F811 - the fixtures
    """Write items, and let the service delete the expired ones."""
    for pk, ttl in items:
        client.put_item(TableName=table, Item={"pk": {"S": pk}, "n": {"N": "1"}, "ttl": {"N": str(ttl)}})
    return fake.expire(table)


@pytest.fixture
def table(fake, client, make_table):  # noqa: F811 - the fixtures
    """Return a table with a stream and a time to live."""
    name = make_table()
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"})
    return name


def test_expired_items_are_stored_by_month(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """Each expired item is archived once with its attributes.

    Deletes by users are not archived. A later run continues.
    """
    log, dest, run = tmp_path / "log", tmp_path / "archive", {"endpoint_url": fake.endpoint_url}
    client.put_item(TableName=table, Item={"pk": {"S": "mine"}, "ttl": {"N": "1"}})
    client.delete_item(TableName=table, Key={"pk": {"S": "mine"}})
    now = int(datetime.now(UTC).timestamp())
    assert expire(fake, client, table, ("old", now - YEAR), ("new", now - 60)) == 2
    report = ddbio.archive(table, dest, log=str(log), **run)
    assert (report.items, report.inferred, report.files) == (2, 0, 2)
    new, old = items_of(dest)
    at = datetime.fromtimestamp(old["ttl"], UTC)
    assert (old["pk"], old["n"], old["_expired_at"], old["year"], old["month"]) == ("old", 1, at, at.year, at.month)
    assert new["pk"] == "new"
    assert ddbio.archive(table, dest, log=str(log), **run).items == 0
    assert expire(fake, client, table, ("later", now - 60)) == 1
    assert ddbio.archive(table, dest, log=str(log), **run).items == 1
    assert [row["pk"] for row in items_of(dest)] == ["later", "new", "old"]


def test_an_interrupted_archive_is_finished(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """A recorded batch with a missing file is written again from the log, also from a compacted log."""
    log, dest, run = tmp_path / "log", tmp_path / "archive", {"endpoint_url": fake.endpoint_url}
    now = int(datetime.now(UTC).timestamp())
    expire(fake, client, table, ("a", now - 60), ("b", now - 60))
    ddbio.archive(table, dest, log=str(log), **run)
    before = items_of(dest)
    (file,) = dest.rglob("*.parquet")
    file.unlink()
    (done,) = dest.glob("_ddbio/*.archive/done.json")
    done.unlink()
    expire(fake, client, table, ("c", now - 60))
    ddbio.capture(table, log, available_now=True, old_image=True, **run)
    assert ddbio.compact(log).files_rewritten
    assert ddbio.archive(log, dest, ttl="ttl").items == 3
    rows = items_of(dest)
    assert [row["pk"] for row in rows] == ["a", "b", "c"]
    assert rows[:2] == before
    with pytest.raises(OptionError, match="another job_id"):
        ddbio.archive(log, dest, ttl="n")
    with pytest.raises(NotFoundError):
        ddbio.archive(tmp_path / "nothing", dest)


def test_archived_items_are_restored(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """A range of keys is restored in its last state, without the time to live. Existing items are not changed."""
    log, dest, run = tmp_path / "log", tmp_path / "archive", {"endpoint_url": fake.endpoint_url}
    now = int(datetime.now(UTC).timestamp())
    expire(fake, client, table, *((pk, now - 60) for pk in ("a", "b", "c", "d", "b")))
    ddbio.archive(table, dest, log=str(log), **run)
    client.put_item(TableName=table, Item={"pk": {"S": "c"}, "n": {"N": "7"}})
    flags = ["--from-key", "b", "--to-key", "c", "--endpoint-url", fake.endpoint_url, "--json"]
    report = json.loads(CliRunner().invoke(cli, ["archive", "restore", str(dest), table, *flags]).stdout)
    assert (report["items"], report["written"], report["skipped"]) == (2, 1, 1)
    rows = ddbio.read_table(table, **run).sort_by("pk").to_pylist()
    assert [(row["pk"], row["n"], row.get("ttl")) for row in rows] == [("b", 1, None), ("c", 7, None)]
    with pytest.raises(LimitError, match="4 capacity units, more than max_units 3"):
        ddbio.restore_archived(dest, table, mode="upsert", max_units=3, **run)
    report = ddbio.restore_archived(dest, table, from_key="d", mode="upsert", ttl="keep", max_units=3, **run)
    assert (report.written, report.wcu_consumed, report.actual.units) == (1, 1, 1)
    (item,) = ddbio.read_expired(table, **run).to_pylist()
    assert (item["pk"], item["ttl"]) == ("d", now - 60)
    printed = CliRunner().invoke(cli, ["archive", "expired", table, "--endpoint-url", fake.endpoint_url, "--json"])
    assert json.loads(printed.stdout)["items"] == 1


def test_existing_expired_items_are_found(fake, client, table):  # noqa: F811 - the fixtures
    """Numbers in the past count, up to five years. Texts, later times and other types do not."""
    values = {"yes": {"N": str(AT - 1)}, "fraction": {"N": f"{AT}.5"}, "never": {"N": str(AT - 5 * YEAR)},
              "text": {"S": str(AT - 1)}, "later": {"N": str(AT + 1)}}  # fmt: skip
    for pk, value in values.items():
        client.put_item(TableName=table, Item={"pk": {"S": pk}, "ttl": value})
    client.put_item(TableName=table, Item={"pk": {"S": "none"}})
    at = datetime.fromtimestamp(AT, UTC)
    schema = pa.schema([("pk", pa.string()), ("ttl", pa.decimal128(38, 2))])
    rows = ddbio.read_expired(table, at=at, schema=schema, endpoint_url=fake.endpoint_url)
    assert rows.column("pk").to_pylist() == ["yes"]
    with pytest.raises(OptionError, match="no item of"):
        ddbio.read_expired(table, ttl="other", endpoint_url=fake.endpoint_url)


def test_deletes_of_other_regions_are_inferred():
    """An unmarked delete counts if its item was expired, but not if its time is text, later, or five years past."""
    image = pa.struct([("pk", pa.string()), ("ttl", pa.int64())])
    expiries = [AT - 1, AT + 1, AT - 5 * YEAR, None, AT - 1]
    rows = pa.table(
        {
            OPERATION: ["REMOVE"] * 5,
            SEQUENCE: [str(number) for number in range(5)],
            EVENT_TIME: pa.array([AT * 1_000_000] * 5, pa.timestamp("us", "UTC")),
            EXPIRED: [False] * 4 + [True],
            OLD_IMAGE: pa.array([{"pk": str(number), "ttl": value} for number, value in enumerate(expiries)], image),
            OLD_RESCUE: pa.nulls(5, pa.string()),
        }
    )
    expired = expired_rows(rows, "ttl", infers=True).to_pylist()
    assert [(row["pk"], row["_inferred"]) for row in expired] == [("0", True), ("4", False)]
    assert expired_rows(rows, "ttl", infers=False).column("pk").to_pylist() == ["4"]
    assert expired_rows(rows, None, infers=False).column("pk").to_pylist() == ["4"]
    for wrong in ({"ttl": None, "infers": True}, {"ttl": "pk", "infers": False}, {"ttl": "no", "infers": False}):
        with pytest.raises(OptionError):
            expired_rows(rows, **wrong)
    with pytest.raises(OptionError, match="old images"):
        expired_rows(rows.drop_columns([OLD_IMAGE]), None, infers=False)


def test_items_are_grouped_by_the_month_of_expiry():
    """The first and the last microsecond of a month belong to it. Months of several years are separate."""
    texts = ["2025-12-31T23:59:59.999999", "2026-12-01T00:00:00", "2026-12-31T23:59:59.999999", "2027-01-01T00:00:00"]
    times = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]
    rows = pa.table({EXPIRED_AT: pa.array(times, pa.timestamp("us", "UTC")), "place": [0, 1, 2, 3]})
    months = {name: part.column("place").to_pylist() for name, part in months_of(rows).items()}
    assert months == {"year=2025/month=12/": [0], "year=2026/month=12/": [1, 2], "year=2027/month=01/": [3]}
    assert months_of(rows.slice(1, 2)) == {"year=2026/month=12/": rows.slice(1, 2)}
    assert months_of(rows.slice(0, 0)) == {}


def test_a_number_that_is_no_time_fails_nothing():
    """An item whose attribute is an integer beyond the range of a double is archived by the time of its delete."""
    image = pa.struct([("pk", pa.string()), ("ttl", pa.int64())])
    rows = pa.table(
        {
            OPERATION: ["REMOVE", "MODIFY"],
            SEQUENCE: ["1", "2"],
            EVENT_TIME: pa.array([AT * 1_000_000] * 2, pa.timestamp("us", "UTC")),
            EXPIRED: [True, False],
            OLD_IMAGE: pa.array([{"pk": pk, "ttl": 2**53 + 1} for pk in "ab"], image),
            OLD_RESCUE: pa.nulls(2, pa.string()),
        }
    )
    (row,) = expired_rows(rows, "ttl", infers=False).to_pylist()
    assert (row["pk"], row[EXPIRED_AT]) == ("a", datetime.fromtimestamp(AT, UTC))


def test_ranges_of_keys_go_by_partition_key_then_sort_key():
    """Both ends are included. A shorter key stands for all keys that start with it."""
    rows = pa.table({"pk": ["a", "b", "b", "b", "c"], "sk": [1, 1, 2, 3, 0]})
    keys = ["pk", "sk"]
    assert in_key_range(rows, keys, ["b", 2], ["b"]).column("sk").to_pylist() == [2, 3]
    assert in_key_range(rows, keys, ["a", 2], ["b", 2]).column("pk").to_pylist() == ["b", "b"]
    assert in_key_range(rows, keys, [], []).num_rows == 5


@pytest.mark.parametrize("arrow", [pa.int64(), pa.decimal128(10, 1), pa.string()])
def test_ranges_of_numbers_go_by_their_value(arrow):
    """Ranges also apply to rescued keys, and to bounds that the column cannot hold."""
    texts = ["-1E+30", "-2.5", "0", "1", "1.5", "1.25", "10", "9" * 38, "1E+100"]
    schema = pa.schema([pa.field("n", arrow, metadata={"ddb:type": "N"}), ("v", pa.int64())])
    lines = [json.dumps({"Item": {"n": {"N": text}}}) for text in texts]
    rows = pa.Table.from_batches([ddbio.from_dynamodb_json("\n".join(lines).encode(), schema)])
    rows = rows.append_column("text", pa.array(texts))
    bounds = [("1.25", "10"), ("-1E+31", "-2.5"), ("1.24", "1.26"), ("2E+50", "1E+126"), (str(2**63), "9E+125")]
    for first, last in bounds:
        in_range = in_key_range(rows, ["n"], [Decimal(first)], [Decimal(last)]).column("text").to_pylist()
        assert in_range == [text for text in texts if Decimal(first) <= Decimal(text) <= Decimal(last)]


HOUR = "year=2026/month=11/day=01/hour=00"


def put_log(folder, *changes, name="job-000000000001", with_ids=False, extra=(), values=()):
    """Write a file of a log with expired deletes: the number, the item, the microsecond, and the event id of each."""
    image = pa.struct([("pk", pa.string()), ("ttl", pa.int64()), *extra])
    tuples = [(*change, None) if len(change) == 3 else change for change in changes]
    numbers, items, micros, ids = zip(*tuples, strict=True)
    rows = pa.table(
        {
            OPERATION: ["REMOVE"] * len(tuples),
            SEQUENCE: list(map(str, numbers)),
            EVENT_TIME: pa.array([AT * 1_000_000 + value for value in micros], pa.timestamp("us", "UTC")),
            EXPIRED: [True] * len(tuples),
            OLD_IMAGE: pa.array([{"pk": item, "ttl": AT - 1, **dict(values)} for item in items], image),
            OLD_RESCUE: pa.nulls(len(tuples), pa.string()),
        }
    )
    if with_ids:
        rows = rows.append_column("_event_id", pa.array(ids, pa.string()))
    (folder / HOUR).mkdir(parents=True, exist_ok=True)
    (folder / "_ddbio").mkdir(exist_ok=True)
    (folder / "_ddbio/job.capture.json").write_text('{"stream": "a", "old_image": true}')
    pq.write_table(rows, folder / HOUR / f"{name}.parquet")


CHANGES = {
    "items of several streams": ([(7, "a", 0), (7, "b", 0), (8, "c", 0)], "abc"),
    "an item of several streams": ([(7, "a", 0), (7, "a", 1)], "aa"),
    "items of Kinesis in one millisecond": ([(7, "a", 0, "x"), (7, "b", 0, "y"), (7, "c", 0, "z")], "abc"),
    "a change of Kinesis that came twice": ([(7, "a", 0, "x"), (8, "a", 0, "x"), (8, "b", 0, "y")], "ab"),
    "ids and none": ([(7, "a", 0, "x"), (7, "b", 0, None)], "ab"),
    "a change that is there twice": ([(7, "a", 0), (7, "a", 0), (8, "a", 1)], "aa"),
}


@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize("what", CHANGES)
def test_each_change_is_archived_once(tmp_path, what, files):
    """Changes are identified by event ids, or by numbers, times and items, across files and runs of the archive."""
    changes, wanted = CHANGES[what]
    log, dest, count = tmp_path / "log", tmp_path / "archive", 0
    for number in range(files):
        if part := changes[number::files]:
            put_log(log, *part, name=f"job-{number:012}", with_ids=any(len(change) == 4 for change in changes))
            count += ddbio.archive(log, dest, ttl="ttl").items
    rows = items_of(dest)
    assert ("".join(row["pk"] for row in rows), count) == (wanted, len(wanted))
    assert "_event_id" not in rows[0]
    # A compacted log gives the same archive.
    put_log(log, *changes[::-1], name="compacted", with_ids=any(len(change) == 4 for change in changes))
    assert ddbio.archive(log, dest, ttl="ttl").items == 0
    assert items_of(dest) == rows


@pytest.mark.parametrize("cut_off", [False, True])
@pytest.mark.parametrize("has_files", [True, False])
def test_an_archive_of_an_older_version_is_completed(tmp_path, cut_off, has_files):
    """Older versions recorded only numbers, and archived the last item of each.

    Without its file the item is unknown.
    """
    log, dest = tmp_path / "log", tmp_path / "archive"
    put_log(log, (7, "b", 0), (8, "c", 0))
    ddbio.archive(log, dest, ttl="ttl")
    (record,) = dest.glob("_ddbio/*.archive/000000000001.json")
    (done,) = dest.glob("_ddbio/*.archive/done.json")
    stored = json.loads(record.read_bytes())
    assert stored["hours"] == {HOUR: ["7", "8"]}
    del stored["changes"]
    record.write_text(json.dumps(stored))
    noted = json.loads(done.read_bytes())
    noted["hours"][HOUR]["mark"] = "of an older version"
    done.write_text(json.dumps(noted))
    if cut_off:
        done.unlink()
    if cut_off or not has_files:
        (file,) = dest.rglob("*.parquet")
        file.unlink()
    put_log(log, (7, "a", 0), (7, "b", 0), (8, "c", 0))
    # An interrupted batch is written again with the same content.
    assert ddbio.archive(log, dest, ttl="ttl").items == (3 if cut_off else int(has_files))
    if cut_off or has_files:
        assert [row["pk"] for row in items_of(dest)] == ["a", "b", "c"]
    assert ddbio.archive(log, dest, ttl="ttl").items == 0


@pytest.mark.parametrize(("pks", "together"), [("ab", False), ("aab", False), ("aab", True)])
def test_items_of_a_stream_that_was_off_and_on_are_archived(fake, client, table, tmp_path, pks, together):  # noqa: F811 - the fixtures
    """The fake numbers the changes of each stream from the same start, with times in seconds. No change is lost."""
    log, dest, run = tmp_path / "log", tmp_path / "archive", {"endpoint_url": fake.endpoint_url}
    now, count = int(datetime.now(UTC).timestamp()), 0
    for number, pk in enumerate(pks):
        if number:
            for stream in ({"StreamEnabled": False}, {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}):
                client.update_table(TableName=table, StreamSpecification=stream)
        expire(fake, client, table, (pk, now - 60))
        ddbio.capture(table, log, available_now=True, old_image=True, on_gap="continue", **run)
        count += 0 if together else ddbio.archive(log, dest, ttl="ttl").items
    count += ddbio.archive(log, dest, ttl="ttl").items
    assert ("".join(row["pk"] for row in items_of(dest)), count) == ("".join(sorted(pks)), len(pks))
    assert ddbio.verify_capture(log, **run).repeated == 0


@pytest.mark.parametrize("together", [True, False])
def test_an_attribute_may_have_another_type_in_each_file(fake, client, table, tmp_path, together):  # noqa: F811 - the fixtures
    """Each item is archived and restored in its state, in the same hour and run or in others."""
    log, dest = tmp_path / "log", tmp_path / "archive"
    number, text = {"ddb:type": "N"}, {"ddb:type": "S"}
    kinds = [
        (pa.field("v", pa.int64(), metadata=number), 1),
        (pa.field("v", pa.string(), metadata=text), "1"),
        (pa.field("v", pa.decimal128(20, 2), metadata=number), Decimal("1.25")),
        (pa.field("v", pa.list_(pa.string()), metadata={"ddb:type": "SS"}), ["a"]),
    ]
    count = 0
    for index, (kind, value) in enumerate(kinds):
        put_log(log, (index, f"i{index}", index), name=f"job-{index:012}", extra=[kind], values={"v": value})
        count += 0 if together else ddbio.archive(log, dest, ttl="ttl").items
    assert count + ddbio.archive(log, dest, ttl="ttl").items == len(kinds)
    assert ddbio.archive(log, dest, ttl="ttl").items == 0
    assert ddbio.restore_archived(dest, table, endpoint_url=fake.endpoint_url).written == len(kinds)
    rows = client.scan(TableName=table)["Items"]
    assert {row["pk"]["S"]: row["v"] for row in rows} == {
        "i0": {"N": "1"},
        "i1": {"S": "1"},
        "i2": {"N": "1.25"},
        "i3": {"SS": ["a"]},
    }


def test_the_last_expired_state_is_restored(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """For an item in several streams, the time determines the last expiry, regardless of sequence numbers."""
    log, dest = tmp_path / "log", tmp_path / "archive"
    put_log(log, (900, "a", 0), (901, "b", 0))
    put_log(log, (5, "a", 1_000_000), name="job-000000000002")
    ddbio.archive(log, dest, ttl="ttl")
    for path in dest.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read()
        newest = pa.array([0 if value == "5" else 1 for value in rows.column(SEQUENCE).to_pylist()])
        pq.write_table(rows.append_column("newest", newest), path)
    ddbio.restore_archived(dest, table, endpoint_url=fake.endpoint_url)
    restored = ddbio.read_table(table, endpoint_url=fake.endpoint_url).sort_by("pk").to_pylist()
    assert [(row["pk"], row["newest"]) for row in restored] == [("a", 0), ("b", 1)]


NUMBERS, TEXTS = pa.int64(), pa.string()


@pytest.mark.parametrize(
    ("kind", "value", "rescued", "expired_at"),
    [
        (NUMBERS, AT - 60, None, AT - 60),
        (NUMBERS, None, {"ttl": {"N": str(AT - 60)}}, AT - 60),
        (NUMBERS, AT - 60, {"other": {"N": "1"}}, AT - 60),
        (NUMBERS, None, {"ttl": {"S": "never"}}, AT),
        (pa.decimal128(38, 2), AT - 60, None, AT - 60),
        (TEXTS, None, {"ttl": {"N": f"{AT - 60}.5"}}, AT - 60),
        (TEXTS, "never", {"other": {"S": "ttl"}}, AT),
        (None, None, {"ttl": {"N": str(AT - 60)}, "other": {"S": "x"}}, AT - 60),
        (None, None, {"ttl": {"N": "1E+40"}}, AT),
        (None, None, {"other": {"S": '"ttl"'}}, AT),
        (None, None, None, AT),
    ],
)
def test_an_attribute_that_came_later(kind, value, rescued, expired_at, tmp_path):
    """Expiry times are read from a column or the rescue column.

    Files from before the attribute use the times of deletes.
    """
    names = [("pk", pa.string()), *([] if kind is None else [("ttl", kind)])]
    image = {"pk": "a"} | ({} if kind is None else {"ttl": value})
    marked = {"pk": "b", "ttl": AT - 1}
    early = _log_rows([image], pa.struct(names), [None if rescued is None else json.dumps(rescued)])
    late = _log_rows([marked], pa.struct([("pk", pa.string()), ("ttl", pa.int64())]), [None])
    if kind == TEXTS:
        late = _log_rows(
            [{"pk": "b", "ttl": None}], early.schema.field(OLD_IMAGE).type, [f'{{"ttl":{{"N":"{AT - 1}"}}}}']
        )
    log = LocalStore(tmp_path / "log")
    log.put("year=2026/month=11/day=01/hour=00/capture_1-1.parquet", parquet_bytes(early, "zstd"))
    log.put("year=2026/month=11/day=01/hour=01/capture_1-2.parquet", parquet_bytes(late, "zstd"))
    job = Archiver(log, JobState(LocalStore(tmp_path / "archive"), "archive_1", "archive"), "ttl")
    job.run()
    rows = {row["pk"]: row[EXPIRED_AT].timestamp() for row in items_of(tmp_path / "archive")}
    assert rows == {"a": expired_at, "b": AT - 1}


def _log_rows(images, kind, rescued):
    """Return rows of a log: deletes of these items by the time to live."""
    count = len(images)
    return pa.table(
        {
            OPERATION: ["REMOVE"] * count,
            SEQUENCE: [f"{images[0]['pk']}{number}".encode().hex() for number in range(count)],
            EVENT_TIME: pa.array([AT * 1_000_000] * count, pa.timestamp("us", "UTC")),
            EXPIRED: [True] * count,
            OLD_IMAGE: pa.array(images, kind),
            OLD_RESCUE: pa.array(rescued, pa.string()),
        }
    )


def test_an_attribute_that_no_item_has_is_an_error(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """The next run may use another attribute.

    A restored item does not expire again, even if the attribute was rescued.
    """
    log, dest, run = tmp_path / "log", tmp_path / "archive", {"endpoint_url": fake.endpoint_url}
    client.put_item(TableName=table, Item={"pk": {"S": "old"}, "n": {"N": "1"}})
    ddbio.capture(table, log, available_now=True, old_image=True, **run)
    expire(fake, client, table, ("a", int(datetime.now(UTC).timestamp()) - 60))
    ddbio.capture(table, log, available_now=True, old_image=True, **run)
    with pytest.raises(OptionError, match="archive the folder of the log without ttl"):
        ddbio.archive(log, dest, ttl="tll")
    assert ddbio.archive(log, dest, ttl="ttl").items == 1
    (row,) = items_of(dest)
    assert "ttl" in row["_rescue"]
    assert ddbio.restore_archived(dest, table, **run).written == 1
    assert client.get_item(TableName=table, Key={"pk": {"S": "a"}})["Item"].keys() == {"pk", "n"}


def test_a_log_gets_old_images_later(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """Old images stay on for any later capture of the log. Earlier deletes are reported, and no option is refused."""
    log, dest, run = tmp_path / "log", tmp_path / "archive", {"endpoint_url": fake.endpoint_url}
    now = int(datetime.now(UTC).timestamp())
    client.put_item(TableName=table, Item={"pk": {"S": "old"}, "n": {"N": "1"}})
    expire(fake, client, table, ("a", now - 60))
    ddbio.bootstrap(table, tmp_path / "lake", log=str(log), **run)
    with pytest.raises(OptionError, match="has no old images"):
        ddbio.archive(log, dest, ttl="ttl")
    report = ddbio.archive(table, dest, log=str(log), **run)
    assert (report.items, report.lost) == (0, 1)
    expire(fake, client, table, ("b", now - 60))
    ddbio.capture(table, log, available_now=True, **run)
    report = ddbio.archive(log, dest, ttl="ttl")
    assert (report.items, report.lost) == (1, 1)
    assert ddbio.bootstrap(table, tmp_path / "lake", log=str(log), **run).base_rows is None
    assert ddbio.verify_capture(log).is_whole


def test_a_log_started_with_other_options_is_continued(fake, client, table, tmp_path):  # noqa: F811 - the fixtures
    """Neither a bootstrap nor an archive has an option for the start of a capture."""
    log, run = tmp_path / "log", {"endpoint_url": fake.endpoint_url}
    client.put_item(TableName=table, Item={"pk": {"S": "old"}, "n": {"N": "1"}})
    ddbio.capture(table, log, available_now=True, start="latest", **run)
    assert ddbio.bootstrap(table, tmp_path / "lake", log=str(log), **run).base_rows == 1
    assert ddbio.archive(table, tmp_path / "archive", log=str(log), **run).items == 0
    with pytest.raises(OptionError, match="give start as then, or another job_id"):
        ddbio.capture(table, log, available_now=True, **run)
