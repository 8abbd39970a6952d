"""Schedules that a seed draws: a lake table equals the state of any time, histories and views equal the model."""

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
    """Hold a log with late and repeated changes, of which a lake table has some or all batches."""

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
        """Write a batch, maybe with new attributes."""
        attributes = self.attributes[: self.random.randrange(len(self.attributes) + 1)]
        if self.random.random() < 0.3:
            self.log.declare(columns(*attributes))
        self.log.append(self.writer.batch(attributes))

    def apply(self):
        """Apply what there is."""
        ddbio.apply(self.folder / "log", self.lake, format=self.kind, buckets=2)

    def changes(self):
        """Return all changes, each once, in their order."""
        return [each for _, each in sorted({each.number: each for batch in self.log.batches for each in batch}.items())]

    def at(self, time_us):
        """Return the items of a time as DynamoDB JSON."""
        newest = {each.key: each for each in self.changes() if each.time_us <= time_us}
        return [
            {
                **{name: {"N": str(value)} if name == "n" else {"S": value} for name, value in each.item.items()},
                **each.rescue,
            }
            for each in newest.values()
            if each.item is not None
        ]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "commit"), [("delta", 10), ("iceberg", 3)])
def test_a_lake_table_equals_the_state_of_any_time(kind, commit, seeds, tmp_path):
    """An export of any time equals what log and table tell of it; one that has something else does not."""
    for seed in seeds(commit, 50):
        past = Past(seed, tmp_path / str(seed), kind)
        past.apply()
        at_us = BEGAN + past.random.randrange(past.writer.made + 2) * 1_000_000
        given = {"log": str(past.folder / "log"), "margin_seconds": past.random.choice([0, 2]), "format": kind}
        items, at = past.at(at_us), datetime.fromtimestamp(at_us / 1e6, UTC)
        found = ddbio.verify(export_of(tmp_path / f"export-{seed}", items, at), past.lake, **given)
        assert (found.equal, found.source_rows, found.unsettled) == (True, len(items), 0), (seed, found)
        other = {"pk": {"S": f"k|{past.random.randrange(9)}"}, "n": {"N": "10000000"}}
        wrong = [*(each for each in items if each["pk"] != other["pk"]), other]
        differs = ddbio.verify(export_of(tmp_path / f"wrong-{seed}", wrong, at), past.lake, **given)
        assert (differs.equal, differs.missing + differs.different) == (False, 1), (seed, differs)
        assert differs.examples[0].key == {"pk": other["pk"]}


@pytest.mark.timeout(3600)
def test_the_history_has_each_state(seeds, tmp_path):
    """Each change once, in its order, valid until the next one of its item: in Arrow, and in DuckDB by SQL."""
    for seed in seeds(6, 100):
        past = Past(seed, tmp_path / str(seed), attributes=("a", "b c"))
        table = ddbio.history(past.folder / "log")
        wanted = {}
        for each in past.changes():
            wanted.setdefault(each.key, []).append(each)
        rows = {}
        for row in table.to_pylist():
            rows.setdefault(row["pk"], []).append(row)
        times = lambda changes: [each.time_us for each in changes]  # noqa: E731
        micros = lambda each: None if each is None else round(each.timestamp() * 1e6)  # noqa: E731
        assert rows.keys() == wanted.keys(), seed
        for key, changes in wanted.items():
            assert [micros(row["valid_from"]) for row in rows[key]] == times(changes), seed
            assert [micros(row["valid_to"]) for row in rows[key]] == [*times(changes[1:]), None], seed
            removed = [row["operation"] == "REMOVE" for row in rows[key]]
            assert removed == [each.item is None for each in changes], seed
        key = past.random.choice(sorted(wanted))
        assert ddbio.history(past.folder / "log", key=f"S:{key}").num_rows == len(wanted[key]), seed
        sql = ddbio.history_view_sql(past.folder / "log", dialect="duckdb", name="states")
        with duckdb.connect() as connection:
            connection.execute(sql)
            names = "pk, epoch_us(valid_from), epoch_us(valid_to), operation"
            found = connection.execute(f"SELECT {names} FROM states ORDER BY pk, valid_from").fetchall()
        assert found == [
            (row["pk"], micros(row["valid_from"]), micros(row["valid_to"]), row["operation"])
            for key in sorted(rows)
            for row in rows[key]
        ], seed


@pytest.mark.timeout(3600)
def test_the_view_has_the_newest_state_whenever_it_is_applied(seeds, tmp_path):
    """Over any share of the log that is applied, the SQL gives the items of the whole log."""
    for seed in seeds(12, 100):
        past = Past(seed, tmp_path / str(seed), attributes=("a", "b c", "operation"))
        if not past.lake.exists():
            past.apply()
        past.grow()
        sql = ddbio.latest_view_sql(past.folder / "log", past.lake, dialect="duckdb", lake_relation="base")
        base = deltalake.DeltaTable(past.lake).to_pyarrow_table()
        with duckdb.connect() as connection:
            connection.register("base", base)
            names = [each[0] for each in connection.execute(sql).description]
            found = connection.fetchall()
        rows = [{**dict(zip(names, row, strict=True)), "_deleted": False} for row in found]
        shown = items_of(rows, {**{name: name for name in names}, column_name("b c", set()): "b c"})
        assert len(rows) == len(shown), seed
        assert shown == expected(past.log.model()), seed


def test_names_that_sql_takes_for_one_are_refused(tmp_path):
    """SQL would read one column for two attributes whose names differ only by case."""
    past = Past(1, tmp_path)
    past.log.declare(columns("a", "A"))
    with pytest.raises(OptionError, match="names are equal in SQL"):
        ddbio.history_view_sql(tmp_path / "log", dialect="duckdb")


def test_attributes_of_columns_that_a_log_has_lost_are_rescued(tmp_path):
    """Earlier releases forgot the columns that a narrower schema lacked; files of before have them."""
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
    """Versions of a lake table have some of the states of an item, in their order; the newest is the log's."""
    past = Past(3, tmp_path)
    past.apply()
    for key, item in past.log.model().items():
        states = ddbio.history(past.lake, key=key).to_pylist()
        versions = [row["_ver"] for row in ddbio.history(past.folder / "log", key=key).to_pylist()]
        assert [row["_ver"] for row in states] == [each for each in versions if each in {row["_ver"] for row in states}]
        assert states[-1]["_ver"] == versions[-1]
        assert states[-1]["n"] == item.item.get("n")
        assert json.loads(states[-1]["_rescue"] or "{}").items() >= item.rescue.items()
