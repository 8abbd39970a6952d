"""A log and the streams of its table: following streams, recreated tables, replicas, heals, bases."""

from __future__ import annotations

import contextlib
import uuid
from types import SimpleNamespace

import boto3
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cdc.gaps import captures_in, find_gaps
from ddbio.cdc.leases import LeasedShards
from ddbio.cdc.lineages import LogLineage, TableStream, gap_between, lineages_of, require_table
from ddbio.cdc.log_reader import mixed_hours, open_log
from ddbio.errors import GapError, OptionError
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.testing import FakeDynamoDB, MotoServer
from tests.cdc.tables import create_data_stream, create_table

BOTH = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
NEW = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}


@pytest.fixture(scope="module")
def s3_url():
    """Serve an S3 with a bucket for exports."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket="exports")
        yield server.endpoint_url


@pytest.fixture(scope="module")
def fake():
    """Serve one fake for all tests of this module."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0) as served:
        yield served


@pytest.fixture(scope="module")
def late(s3_url):
    """Serve a fake that exports, and whose time passes faster than this machine's time."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0, export_to=s3_url) as served:
        yield served


@pytest.fixture(scope="module")
def other():
    """Serve another fake for another Region."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0) as served:
        yield served


class Table:
    """A table with a string key, or a number and a string, and its client."""

    def __init__(self, fake, *, name=None, is_numeric=False, stream=BOTH):
        self.name, self.fake = name or f"tab-{uuid.uuid4().hex}", fake
        self.client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        self.given = {"endpoint_url": fake.endpoint_url}
        self.is_numeric = is_numeric
        self.create(stream)

    def create(self, stream=BOTH):
        """Create the table, also after a delete."""
        keys = ["pk:N", "sk:S"] if self.is_numeric else ["pk:S"]
        create_table(self.client, self.name, keys=keys, view=stream and stream["StreamViewType"])

    def key(self, pk):
        """Return the key of an item."""
        return {"pk": {"N": str(ord(pk))}, "sk": {"S": pk}} if self.is_numeric else {"pk": {"S": pk}}

    def put(self, pk, n):
        """Put an item."""
        self.client.put_item(TableName=self.name, Item={**self.key(pk), "n": {"N": str(n)}})

    def delete(self, pk):
        """Delete an item."""
        self.client.delete_item(TableName=self.name, Key=self.key(pk))

    def stream(self, view):
        """Turn the stream on with a view, or off."""
        self.client.update_table(TableName=self.name, StreamSpecification=view or {"StreamEnabled": False})

    @property
    def arn(self):
        """ARN of the stream that was turned on last."""
        return self.client.describe_table(TableName=self.name)["Table"]["LatestStreamArn"]

    def capture(self, dest, **options):
        """Capture the existing changes."""
        return ddbio.capture(self.name, str(dest), available_now=True, **self.given, **options)

    def differs(self, lake):
        """Return the differences between a lake table and the table."""
        actual = ddbio.verify(self.name, str(lake), **self.given)
        return actual.missing, actual.extra, actual.different


@pytest.fixture
def make(fake):
    """Return a function that creates tables. Their clients are closed at the end."""
    with contextlib.ExitStack() as stack:

        def made(**options):
            table = Table(options.pop("fake", fake), **options)
            stack.callback(table.client.close)
            return table

        yield made


def folder_of(dest):
    """Return the names of all files of a log."""
    return sorted(str(path.relative_to(dest)) for path in dest.rglob("*") if path.is_file())


def numbers_of(dest):
    """Return the numbers of the changes of a log, in the order of their times."""
    files = [path for path in dest.rglob("*.parquet") if "_ddbio" not in path.parts]
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(row["n"] for row in rows if row["n"] is not None)


def forget_new_records(dest):
    """Reduce a log to the state of an older version: heads without records of streams."""
    for path in dest.rglob("stream-*.json"):
        path.unlink()


def some(cases, commit):
    """Return cases of a test. Most run nightly, as a capture mostly waits."""
    return [case if case in commit else pytest.param(case, marks=pytest.mark.nightly) for case in cases]


FOLLOWED = {
    "turned off and on": {},
    "by two processes": {"leases": 2},
    "with a name": {"job_id": "mine"},
    "from the latest change on": {"start": "latest"},
    "with old images": {"old_image": True},
    "of numbers": {"is_numeric": True},
    "with another view": {"view": NEW},
    "with nothing unread": {"unread": False},
    "a log by an older version": {"legacy": True},
    "after a day": {"hours": 25, "unread": False},
}


@pytest.mark.parametrize(
    "case", some(FOLLOWED, {"turned off and on", "by two processes", "with another view", "a log by an older version"})
)
def test_a_following_stream_is_read_after_a_gap(case, make, request, tmp_path):
    """The old stream is written first. Then the gap is refused, or recorded once, and the new stream is read."""
    options = dict(FOLLOWED[case])
    view, unread = options.pop("view", BOTH), options.pop("unread", True)
    legacy, hours = options.pop("legacy", False), options.pop("hours", 0)
    table_options = {"fake": request.getfixturevalue("late")} if hours else {}
    table = make(is_numeric=options.pop("is_numeric", False), **table_options)
    table.put("a", 1)
    table.capture(tmp_path, **options)
    table.put("b", 2)
    first = table.capture(tmp_path, **options)
    written = numbers_of(tmp_path)
    if legacy:
        forget_new_records(tmp_path)
    if unread:
        table.put("c", 3)
    old = table.arn
    table.stream(None)
    table.put("d", 4)
    if hours:
        table.fake.pass_time(hours * 3600)
    table.stream(view)
    table.put("e", 5)
    with pytest.raises(GapError, match="on_gap=continue") as refused:
        table.capture(tmp_path, **options)
    assert old in str(refused.value)
    assert table.arn in str(refused.value)
    before = [*written, *([3] if unread else [])]
    assert numbers_of(tmp_path) == before
    report = table.capture(tmp_path, on_gap="continue", **options)
    assert (report.job_id, len(report.gaps)) == (first.job_id, 1)
    assert numbers_of(tmp_path) == [*before, 5]
    table.put("f", 6)
    report = table.capture(tmp_path, **options)
    assert (report.gaps, numbers_of(tmp_path)) == ((), [*before, 5, 6])
    store = LocalStore(tmp_path)
    (gap,) = find_gaps(captures_in(store)).gaps
    assert gap.since < gap.until
    assert old in gap.places[0]
    assert table.arn in gap.places[0]
    lineages = open_log(store).lineages()
    assert [lineage.stream for lineage in lineages] == [old, table.arn]
    ids = {lineage.table_id for lineage in lineages} - {""}
    assert ids == {table.client.describe_table(TableName=table.name)["Table"]["TableId"]}
    audit = ddbio.verify_capture(str(tmp_path), images=False)
    assert (audit.missing, audit.wrong, audit.jumps, len(audit.gaps)) == ((), (), (), 1)


ANEW = {
    "streams": {},
    "by two processes": {"leases": 2},
    "with a name": {"job_id": "mine"},
    "a log by an older version": {"legacy": True},
    "after another stream": {"toggles": True},
    "with a gap accepted": {"on_gap": "continue"},
    "another table": {"others": True},
    "another table with a name": {"others": True, "job_id": "mine"},
}


@pytest.mark.parametrize(
    "case", some(ANEW, {"streams", "by two processes", "a log by an older version", "another table"})
)
def test_the_log_of_another_table_is_refused(case, make, tmp_path):
    """A recreated table, or another one, does not get the earlier log. An empty folder works."""
    options = dict(ANEW[case])
    legacy, toggles, others = (options.pop(name, False) for name in ("legacy", "toggles", "others"))
    table, log = make(), tmp_path / "log"
    table.put("a", 1)
    table.capture(log, **options)
    if toggles:
        table.stream(None)
        table.stream(BOTH)
        table.put("a", 2)
        table.capture(log, **{**options, "on_gap": "continue"})
    if legacy:
        forget_new_records(log)
    before = folder_of(log)
    if others:
        table = make()
    else:
        table.client.delete_table(TableName=table.name)
        table.create()
    table.put("b", 1)
    with pytest.raises(OptionError, match=r"give another dest.*empty folder"):
        table.capture(log, **options)
    with pytest.raises(OptionError, match=r"give another dest.*empty folder"):
        ddbio.bootstrap(table.name, str(tmp_path / "lake"), log=str(log), **table.given)
    assert folder_of(log) == before
    assert table.capture(tmp_path / "new", **options).records == 1


def test_a_lake_table_of_a_recreated_table_gets_a_new_base(make, tmp_path):
    """With another log the same lake table gets a new base. The items of the old table are deleted."""
    table, lake = make(), str(tmp_path / "lake")
    for pk in "abc":
        table.put(pk, 1)
    ddbio.bootstrap(table.name, lake, log=str(tmp_path / "log"), **table.given)
    table.client.delete_table(TableName=table.name)
    table.create()
    table.put("d", 1)
    report = ddbio.bootstrap(table.name, lake, log=str(tmp_path / "new"), **table.given)
    assert (report.base_rows, table.differs(lake)) == (1, (0, 0, 0))
    table.put("e", 2)
    assert ddbio.bootstrap(table.name, lake, log=str(tmp_path / "new"), **table.given).base_rows is None
    assert table.differs(lake) == (0, 0, 0)


def test_a_base_after_a_gap_restores_no_deleted_item(make, tmp_path):
    """An item that was deleted between two streams stays deleted, though its last change is less than minutes old."""
    table, lake, log = make(), str(tmp_path / "lake"), str(tmp_path / "log")
    for pk in "abc":
        table.put(pk, 1)
    ddbio.bootstrap(table.name, lake, log=log, **table.given)
    table.put("d", 1)
    table.stream(None)
    table.delete("a")
    table.put("b", 2)
    table.stream(BOTH)
    table.put("c", 2)
    report = ddbio.bootstrap(table.name, lake, log=log, **table.given)
    assert (report.gaps, report.base_rows) == (1, 3)
    assert table.differs(lake) == (0, 0, 0)
    table.delete("b")
    assert ddbio.bootstrap(table.name, lake, log=log, **table.given).base_rows is None
    assert table.differs(lake) == (0, 0, 0)


@pytest.mark.parametrize("path", some(["ABA", "ABAB", "AABBA", "ABBA"], {"ABBA"}))
def test_the_newest_changes_of_replicas_win(path, make, other, tmp_path):
    """A log that changes from one replica to another, and back, has each of them as a separate lineage."""
    one = make()
    two = make(fake=other, name=one.name)
    replicas, log, lake = {"A": one, "B": two}, tmp_path / "log", tmp_path / "lake"
    streams = list[str]()
    for number, region in enumerate(path):
        for table in (one, two):
            table.put("x", number)
            table.put(chr(ord("a") + number), number)
            if number:
                table.delete(chr(ord("a") + number - 1))
        report = replicas[region].capture(log)
        assert report.gaps == ()
        ddbio.apply(str(log), str(lake))
        assert replicas[region].differs(lake) == (0, 0, 0)
        streams += [replicas[region].arn] if not streams or streams[-1] != replicas[region].arn else []
    lineages = open_log(LocalStore(log)).lineages()
    assert [lineage.stream for lineage in lineages] == streams
    assert len({lineage.name for lineage in lineages}) == len(streams)
    states = ddbio.history(str(log), key="S:x").to_pylist()
    assert states[-1]["n"] == len(path) - 1
    assert not [state for state in states if state["valid_to"] is not None and state["valid_to"] < state["valid_from"]]


def test_replicas_with_separate_job_ids_are_refused(make, other, tmp_path):
    """Two captures of one log in turns could not be ordered. The error has the one that resumes."""
    one = make()
    two = make(fake=other, name=one.name)
    for table in (one, two):
        table.put("x", 1)
    one.capture(tmp_path, job_id="one")
    before = folder_of(tmp_path)
    with pytest.raises(OptionError, match="Leave job_id out"):
        two.capture(tmp_path, job_id="two")
    assert folder_of(tmp_path) == before
    assert two.capture(tmp_path).job_id == "one"
    assert one.capture(tmp_path, job_id="one").job_id == "one"


@pytest.mark.parametrize(("first", "then"), [({}, {"leases": 2}), ({"leases": 2}, {})])
def test_one_process_and_several_are_no_way_around_a_gap(first, then, make, tmp_path):
    """Another stream is read by the capture that has read the earlier one, with the same number of leases."""
    table = make()
    table.put("a", 1)
    table.capture(tmp_path, **first)
    table.stream(None)
    table.stream(BOTH)
    before = folder_of(tmp_path)
    with pytest.raises(OptionError, match=f"give leases={first.get('leases', 1)}"):
        table.capture(tmp_path, **then)
    assert folder_of(tmp_path) == before
    assert len(table.capture(tmp_path, on_gap="continue", **first).gaps) == 1


def test_a_log_forked_by_an_older_version_continues_as_one(make, other, tmp_path):
    """Two captures of two replicas have separate names. Back at the first replica, the newest changes win."""
    one = make()
    two = make(fake=other, name=one.name)
    log, lake = tmp_path / "log", tmp_path / "lake"
    for number, table in enumerate((one, two)):
        for value in (one, two):
            value.put("x", number)
        table.capture(tmp_path / f"part-{number}")
        for path in folder_of(tmp_path / f"part-{number}"):
            (log / path).parent.mkdir(parents=True, exist_ok=True)
            (log / path).write_bytes((tmp_path / f"part-{number}" / path).read_bytes())
    forget_new_records(log)
    for value in (one, two):
        value.put("x", 2)
    report = one.capture(log)
    assert (report.gaps, report.records) == ((), 2)
    ddbio.apply(str(log), str(lake))
    assert one.differs(lake) == (0, 0, 0)
    assert one.capture(log).records == 0


def test_the_gap_between_two_streams_is_healed(make, late, tmp_path):
    """Puts, changes and deletes of the gap are healed from an export, with rows between the old and the new stream."""
    table, log, lake = make(fake=late), tmp_path / "log", tmp_path / "lake"
    table.client.update_continuous_backups(TableName=table.name, **RECOVERY)
    table.fake.pass_time(1800)
    for pk in "abcd":
        table.put(pk, 1)
    table.capture(log)
    table.fake.pass_time(100)
    table.stream(None)
    table.put("a", 2)
    table.delete("b")
    table.put("c", 2)
    table.put("e", 2)
    table.fake.pass_time(100)
    table.stream(BOTH)
    table.put("c", 3)
    table.put("f", 3)
    table.capture(log, on_gap="continue")
    table.fake.pass_time(1800)
    healing = {"export_to": "s3://exports/heal", "s3_endpoint_url": table.fake.export_to, **table.given}
    report = ddbio.heal_capture(table.name, str(log), **healing)
    assert report.gaps == 1
    ddbio.apply(str(log), str(lake))
    assert table.differs(lake) == (0, 0, 0)
    table.put("a", 4)
    table.delete("e")
    table.put("b", 4)
    assert table.capture(log).gaps == ()
    ddbio.apply(str(log), str(lake))
    assert table.differs(lake) == (0, 0, 0)
    assert ddbio.heal_capture(table.name, str(log), **healing).gaps == 0


def test_a_compaction_leaves_hours_of_two_streams_alone(make, tmp_path):
    """Rows of two streams in one file could not be ordered any more."""
    table, log, lake = make(), tmp_path / "log", tmp_path / "lake"
    table.put("a", 1)
    table.capture(log)
    table.put("b", 1)
    table.capture(log)
    assert not mixed_hours(LocalStore(log))
    table.stream(None)
    table.stream(BOTH)
    for number in (2, 3):
        table.put("a", number)
        table.capture(log, on_gap="continue")
    assert mixed_hours(LocalStore(log))
    ddbio.compact(str(log))
    ddbio.apply(str(log), str(lake))
    assert table.differs(lake) == (0, 0, 0)


def test_another_data_stream_is_a_gap(make, fake, tmp_path):
    """The same holds for Kinesis.

    Back at the first data stream, its changes are read from the last position, each once.
    """
    table = make(stream=None)
    kinesis = boto3.client("kinesis", endpoint_url=fake.endpoint_url)
    arns = list[str]()
    for name in (f"{table.name}-1", f"{table.name}-2"):
        arns.append(create_data_stream(kinesis, name, 1))
    kinesis.close()

    def send(arn):
        table.client.enable_kinesis_streaming_destination(TableName=table.name, StreamArn=arn)

    def end(arn):
        table.client.disable_kinesis_streaming_destination(TableName=table.name, StreamArn=arn)

    send(arns[0])
    table.put("a", 1)
    first = table.capture(tmp_path, source="kinesis")
    table.put("a", 2)
    end(arns[0])
    send(arns[1])
    table.put("a", 3)
    with pytest.raises(GapError, match="on_gap=continue"):
        table.capture(tmp_path, source="kinesis")
    report = table.capture(tmp_path, source="kinesis", on_gap="continue")
    assert (report.job_id, len(report.gaps), numbers_of(tmp_path)) == (first.job_id, 1, [1, 2, 3])
    end(arns[1])
    send(arns[0])
    table.put("a", 4)
    report = table.capture(tmp_path, source="kinesis", on_gap="continue")
    assert (len(report.gaps), numbers_of(tmp_path)) == (1, [1, 2, 3, 4])
    table.client.delete_table(TableName=table.name)
    table.create(stream=None)
    send(arns[0])
    with pytest.raises(OptionError, match="created again"):
        table.capture(tmp_path, source="kinesis")


ARN = "arn:aws:dynamodb:{region}:{account}:table/{table}"
STREAM = "/stream/2026-11-27T10:00:00.000"
BEGAN_AT = 1795773600.0


def arn_of(*, region="us-east-1", account="1", table="orders"):
    """Return the ARN of a table."""
    return ARN.format(region=region, account=account, table=table)


def lineage(**values):
    """Return a lineage of a log that started long after its table was created."""
    table_arn = values.pop("table_arn", arn_of())
    own = {"stream": f"{table_arn}/stream/old", "table_arn": table_arn, "table_id": "id", "started_at": 1000.0}
    return LogLineage("job", 1, **{**own, "name": "name", **values})


def stream(**values):
    """Return the stream of the table of that log."""
    table_arn = values.pop("table_arn", arn_of())
    own = {"table": "orders", "table_id": "id", "arn": table_arn + STREAM, "table_arn": table_arn, "created_at": 900.0}
    return TableStream(**{**own, **values})


IDENTITIES = [
    ("the same table", {}, {}, None),
    ("a table by the same stream", {"table_id": "", "stream": arn_of() + STREAM}, {"created_at": 2000.0}, None),
    ("a table that was there before the log", {"table_id": ""}, {}, None),
    ("a table without an id and a time", {}, {"table_id": "", "created_at": None}, None),
    ("a replica that another endpoint serves", {}, {"table_id": "new"}, None),
    ("a replica", {}, {"table_id": "new", "table_arn": arn_of(region="eu-west-1"), "regions": {"us-east-1"}}, None),
    ("a data stream", {"stream": "arn:aws:kinesis:::stream/a", "table_arn": ""}, {}, None),
    ("recreated", {}, {"table_id": "new", "created_at": 2000.0}, "created again"),
    ("recreated, a log without ids", {"table_id": ""}, {"table_id": "new", "created_at": 2000.0}, "created again"),
    ("recreated at an unknown time", {}, {"table_id": "new", "created_at": None}, "created again"),
    ("of another Region", {}, {"table_id": "new", "table_arn": arn_of(region="eu-west-1")}, "no replica"),
    ("of another account", {}, {"table_id": "new", "table_arn": arn_of(account="2")}, "no replica"),
    ("of another name", {}, {"table": "users", "table_arn": arn_of(table="users")}, "log of table 'orders'"),
]


@pytest.mark.parametrize(
    ("stored", "current", "refusal"), [case[1:] for case in IDENTITIES], ids=[e[0] for e in IDENTITIES]
)
def test_a_log_belongs_to_one_table(stored, current, refusal):
    """A table is stored by its id, or by its ARN and the time at which it was made; a replica is the same table."""
    check = lambda: require_table("log", stream(**current), [lineage(**stored)], "orders")  # noqa: E731
    if refusal is None:
        check()
        return
    with pytest.raises(OptionError, match=refusal):
        check()


GAPS = [
    ("the same table", {"table_id": "id"}, BEGAN_AT + 60, False, True),
    ("the same table, whose id is unknown", {"table_id": ""}, BEGAN_AT + 60, False, True),
    ("a replica whose stream was on", {"table_id": "b"}, BEGAN_AT + 60, False, False),
    ("a replica within a second", {"table_id": "b"}, BEGAN_AT - 0.5, False, False),
    ("a replica whose stream came later", {"table_id": "b"}, BEGAN_AT - 60, False, True),
    ("a replica after a day", {"table_id": "b"}, BEGAN_AT - 60, False, True),
    ("a replica that was read before", {"table_id": "b"}, BEGAN_AT - 60, True, False),
    ("a log without changes", {"table_id": "b", "started_at": BEGAN_AT + 60}, None, False, False),
]


@pytest.mark.parametrize(("last", "change", "is_known", "is_gap"), [e[1:] for e in GAPS], ids=[e[0] for e in GAPS])
def test_gaps_between_two_streams(last, change, is_known, is_gap):
    """A stream has the changes of one day. A stream of the same table starts after the other one."""
    actual = gap_between(lineage(**last), stream(), change, BEGAN_AT + 3600, is_known=is_known)
    assert (actual is not None) is is_gap
    assert gap_between(lineage(**last), stream(), change, BEGAN_AT + 90_000, is_known=False) is not None


@pytest.mark.parametrize(("record", "may_read"), [
    (None, False),
    ({"positions": {"parent": "1"}, "lineage": 2}, False),
    ({"positions": {"parent": "END"}, "lineage": 2}, True),
    ({"positions": {"parent": "END"}}, False),
    ({"positions": {}, "lineage": 3}, True),
])  # fmt: skip
def test_a_lease_waits_for_the_same_stream_of_others(record, may_read):
    """A parent of another lease has ended according to batches of this stream, or of a later one."""
    shards = [SimpleNamespace(shard_id=name, parents=parents, last=None) for name, parents in (("parent", ()),)]
    source = SimpleNamespace(shards=lambda: shards)
    records = SimpleNamespace(committed=0 if record is None else 1, read=lambda _: record)
    leased = LeasedShards(source, 0, 2, lambda _: records, lambda: 0.0, lineage=2)
    leased._foreign = {"child": ["parent"]}
    assert leased.may_read("child") is may_read


def test_a_head_of_an_older_version_is_one_lineage(tmp_path):
    """A head alone has the stream that was read. The head of a heal has its lineage."""
    store = LocalStore(tmp_path)
    JobState(store, "old", "capture").begin({"stream": f"{arn_of()}/stream/1", "started_at": 5.0})
    (lineage,) = lineages_of(JobState(store, "old", "capture"))
    assert (lineage.number, lineage.table_arn, lineage.table_id, lineage.name) == (
        1,
        arn_of(),
        "",
        f"{arn_of()}/stream/1",
    )
    JobState(store, "old_heal_1", "capture").begin({"heals": "old", "stream": "s", "lineage": "s#3"})
    assert [lineage.name for lineage in lineages_of(JobState(store, "old_heal_1", "capture"))] == ["s#3"]
    assert [lineage.name for lineage in open_log(store).lineages()] == [lineage.name, "s#3"]
    assert lineages_of(JobState(store, "none", "capture")) == []
