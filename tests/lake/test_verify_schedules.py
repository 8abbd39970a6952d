"""Random schedules: a lake table equals the state at any time, and histories and views equal the model."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random

import deltalake
import duckdb
import pytest

import ddbio
from ddbio.cdc.log_jobs import COLUMNS
from ddbio.errors import OptionError
from ddbio.formats.lake_columns import column_name
from ddbio.items.schema.file import schema_to_json
from ddbio.storage.local_store import LocalStore
from tests.lake.test_schedules import ATTRIBUTES, expected, items_of
from tests.lake.test_verify import export_of
from tests.lake.virtual_log import BEGAN, KEYS, Change, VirtualLog, Writer, columns


class Past:
    """Log with late and repeated changes, some or all of which are applied to a lake table."""

    def __init__(self, seed, folder, kind="delta", attributes=ATTRIBUTES):
        self.attributes = attributes
        self.random, self.writer, self.folder, self.kind = Random(seed), Writer(seed), folder, kind
        self.log, self.lake = VirtualLog(LocalStore(folder / "log")), folder / "lake"
        self.log.append(self.writer.batch())
        for _ in range(self.random.randrange(1, 7)):
            self.grow()
            if self.random.random() < 0.5:
                self.apply()
        if self.writer.held:
            self.log.append(self.writer.held)

    def grow(self):
        """Write a batch, possibly with new attributes."""
        attributes = self.attributes[: self.random.randrange(len(self.attributes) + 1)]
        if self.random.random() < 0.3:
            self.log.declare(columns(*attributes))
        self.log.append(self.writer.batch(attributes))

    def apply(self):
        """Apply all batches of the log."""
        ddbio.apply(self.folder / "log", self.lake, format=self.kind, buckets=2)

    def changes(self):
        """Return all distinct changes in order."""
        return [
            change
            for _, change in sorted({change.number: change for batch in self.log.batches for change in batch}.items())
        ]

    def at(self, time_us):
        """Return the items at a time as DynamoDB JSON."""
        newest = {change.key: change for change in self.changes() if change.time_us <= time_us}
        return [
            {
                **{name: {"N": str(value)} if name == "n" else {"S": value} for name, value in change.item.items()},
                **change.rescue,
            }
            for change in newest.values()
            if change.item is not None
        ]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "commit"), [("delta", 10), ("iceberg", 3)])
def test_a_lake_table_equals_the_state_of_any_time(kind, commit, seeds, tmp_path):
    """An export of any time equals the state from log and table; an export with another item does not."""
    for seed in seeds(commit, 50):
        past = Past(seed, tmp_path / str(seed), kind)
        past.apply()
        at_us = BEGAN + past.random.randrange(past.writer.made + 2) * 1_000_000
        options = {"log": str(past.folder / "log"), "margin_seconds": past.random.choice([0, 2]), "format": kind}
        items, at = past.at(at_us), datetime.fromtimestamp(at_us / 1e6, UTC)
        report = ddbio.verify(export_of(tmp_path / f"export-{seed}", items, at), past.lake, **options)
        assert (report.equal, report.source_rows, report.unsettled) == (True, len(items), 0), (seed, report)
        other = {"pk": {"S": f"k|{past.random.randrange(9)}"}, "n": {"N": "10000000"}}
        wrong = [*(kept_item for kept_item in items if kept_item["pk"] != other["pk"]), other]
        differs = ddbio.verify(export_of(tmp_path / f"wrong-{seed}", wrong, at), past.lake, **options)
        assert (differs.equal, differs.missing + differs.different) == (False, 1), (seed, differs)
        assert differs.examples[0].key == {"pk": other["pk"]}


@pytest.mark.timeout(3600)
def test_the_history_has_each_state(seeds, tmp_path):
    """Each distinct change is valid until the next one of its item: in Arrow, and in DuckDB by SQL."""
    for seed in seeds(6, 100):
        past = Past(seed, tmp_path / str(seed), attributes=("a", "b c"))
        table = ddbio.history(past.folder / "log")
        wanted = {}
        for past_change in past.changes():
            wanted.setdefault(past_change.key, []).append(past_change)
        rows = {}
        for row in table.to_pylist():
            rows.setdefault(row["pk"], []).append(row)
        times = lambda changes: [change.time_us for change in changes]  # noqa: E731
        micros = lambda time: None if time is None else round(time.timestamp() * 1e6)  # noqa: E731
        assert rows.keys() == wanted.keys(), seed
        for key, changes in wanted.items():
            assert [micros(row["valid_from"]) for row in rows[key]] == times(changes), seed
            assert [micros(row["valid_to"]) for row in rows[key]] == [*times(changes[1:]), None], seed
            removed = [row["operation"] == "REMOVE" for row in rows[key]]
            assert removed == [change.item is None for change in changes], seed
        key = past.random.choice(sorted(wanted))
        assert ddbio.history(past.folder / "log", key=f"S:{key}").num_rows == len(wanted[key]), seed
        sql = ddbio.history_view_sql(past.folder / "log", dialect="duckdb", name="states")
        with duckdb.connect() as connection:
            connection.execute(sql)
            names = "pk, epoch_us(valid_from), epoch_us(valid_to), operation"
            sql_rows = connection.execute(f"SELECT {names} FROM states ORDER BY pk, valid_from").fetchall()
        assert sql_rows == [
            (row["pk"], micros(row["valid_from"]), micros(row["valid_to"]), row["operation"])
            for key in sorted(rows)
            for row in rows[key]
        ], seed


@pytest.mark.timeout(3600)
def test_the_view_has_the_newest_state_whenever_it_is_applied(seeds, tmp_path):
    """With any applied part of the log, the SQL returns the items of the whole log."""
    for seed in seeds(12, 100):
        past = Past(seed, tmp_path / str(seed), attributes=("a", "b c", "operation"))
        if not past.lake.exists():
            past.apply()
        past.grow()
        sql = ddbio.latest_view_sql(past.folder / "log", past.lake, dialect="duckdb", lake_relation="base")
        base = deltalake.DeltaTable(past.lake).to_pyarrow_table()
        with duckdb.connect() as connection:
            connection.register("base", base)
            names = [column[0] for column in connection.execute(sql).description]
            records = connection.fetchall()
        rows = [{**dict(zip(names, row, strict=True)), "_deleted": False} for row in records]
        shown = items_of(rows, {**{name: name for name in names}, column_name("b c", set()): "b c"})
        assert len(rows) == len(shown), seed
        assert shown == expected(past.log.model()), seed


def test_names_that_are_equal_in_sql_are_refused(tmp_path):
    """SQL would read one column for two attributes whose names differ only by case."""
    past = Past(1, tmp_path)
    past.log.declare(columns("a", "A"))
    with pytest.raises(OptionError, match="names are equal in SQL"):
        ddbio.history_view_sql(tmp_path / "log", dialect="duckdb")


def test_attributes_of_columns_that_a_log_has_lost_are_rescued(tmp_path):
    """Earlier releases lost the columns that a narrower schema lacked, but older files have them."""
    log, lake = VirtualLog(LocalStore(tmp_path / "log")), tmp_path / "lake"
    log.declare(columns("a"))
    log.append([Change(1, "k", {"pk": "k", "n": 1, "a": "x"}), Change(2, "j", {"pk": "j", "n": 2})])
    log.schema = columns()
    log.state.put(COLUMNS, {"schema": schema_to_json(log.schema), "keys": list(KEYS)})
    log.append([Change(3, "i", {"pk": "i", "n": 3, "a": "y"})])
    (first, second, third) = ddbio.history(tmp_path / "log").sort_by("n").to_pylist()
    assert [first["_rescue"], second["_rescue"], third["_rescue"]] == ['{"a":{"S":"x"}}', None, '{"a":{"S":"y"}}']
    ddbio.apply(tmp_path / "log", lake, format="delta", buckets=2)
    rows = deltalake.DeltaTable(lake).to_pyarrow_table().to_pylist()
    assert items_of(rows, {name: name for name in rows[0]}) == expected(log.model())


def test_the_history_of_a_lake_table(tmp_path):
    """Versions of a lake table have some of the states of an item, in order; the newest is that of the log."""
    past = Past(3, tmp_path)
    past.apply()
    for key, item in past.log.model().items():
        states = ddbio.history(past.lake, key=key).to_pylist()
        versions = [row["_ver"] for row in ddbio.history(past.folder / "log", key=key).to_pylist()]
        assert [row["_ver"] for row in states] == [
            version for version in versions if version in {row["_ver"] for row in states}
        ]
        assert states[-1]["_ver"] == versions[-1]
        assert states[-1]["n"] == item.item.get("n")
        assert json.loads(states[-1]["_rescue"] or "{}").items() >= item.rescue.items()
