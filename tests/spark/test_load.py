"""``ddbio.load_files`` on Spark: all rows, rows of a key in order, one budget, ddbio's errors, and resuming."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import PartialWriteError

KEYS = 600


@pytest.fixture
def source(tmp_path):
    """Return a folder of three files with row groups. Each file has every key, with the file's number as value."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        table = pa.table({"pk": [f"{(n * 7) % KEYS:04}" for n in range(KEYS)], "v": [number] * KEYS})
        pq.write_table(table, folder / f"{number}.parquet", KEYS // 4)
    return folder


@pytest.fixture
def load(spark, fake, source, tmp_path):
    """Return a function that loads the folder into a table on Spark."""

    def run(table, **options):
        fake.load(table, b"", "pk:S")
        values = {"endpoint_url": fake.endpoint_url, "engine": "spark", "tasks": 4, "state": str(tmp_path / "state")}
        return ddbio.load_files(source, table, **{**values, **options})

    return run


def stored(fake, table):
    """Return the items of the table, by key."""
    rows = ddbio.read_table(table, endpoint_url=fake.endpoint_url).to_pylist()
    return {row["pk"]: row["v"] for row in rows}


def test_rows_of_a_key_keep_their_order_over_all_tasks(load, fake):
    """The last row of a key in the source wins, regardless of the tasks that read its rows. The report is the sum."""
    report = load("ordered")
    assert (report.rows, report.written) == (3 * KEYS, 3 * KEYS)
    assert stored(fake, "ordered") == {f"{n:04}": 2 for n in range(KEYS)}


def test_create_takes_the_first(load, fake):
    """In mode create the first row of a key in the source is put, and the others are skipped."""
    report = load("created", mode="create")
    assert (report.written, report.skipped) == (KEYS, 2 * KEYS)
    assert set(stored(fake, "created").values()) == {0}


def test_one_budget_for_all_tasks(load, fake):
    """With unique keys, tasks write the rows that they read, and the rate is enforced over all of them together."""
    report = load("paced_load", unique_keys=True, wcu_per_second=600)
    assert sum(row[2] for row in fake.consumed("paced_load")) == report.wcu_consumed == 3 * KEYS
    # Less time would mean a higher rate. More time is not an error.
    assert report.seconds > 0.9 * 3 * KEYS / 600


@pytest.mark.parametrize("unique", [False, True])
def test_a_finished_job_has_nothing_to_do(load, source, fake, tmp_path, unique):
    """Shares, or units, that are recorded as finished are not written again."""
    table = f"again_{unique}".lower()
    load(table, job_id=table, unique_keys=unique)
    values = {"endpoint_url": fake.endpoint_url, "engine": "spark", "tasks": 4, "state": str(tmp_path / "state")}
    report = ddbio.load_files(source, table, job_id=table, unique_keys=unique, **values)
    assert (report.rows, report.resumed_rows) == (0, 3 * KEYS)


@pytest.mark.parametrize("unique", [False, True])
def test_a_bad_row_has_its_own_error_and_the_job_continues(load, source, fake, tmp_path, unique):
    """A worker's error has its own class in the driver and names the command. With ``reject_to`` the job continues."""
    pq.write_table(pa.table({"pk": ["x", "", None], "v": [1, 2, 3]}), source / "9.parquet")
    table = f"bad_{unique}".lower()
    with pytest.raises(PartialWriteError, match=f"--job-id {table}'"):
        load(table, job_id=table, unique_keys=unique)
    values = {"endpoint_url": fake.endpoint_url, "engine": "spark", "tasks": 4, "state": str(tmp_path / "state")}
    bad = str(tmp_path / "bad")
    report = ddbio.load_files(source, table, job_id=table, unique_keys=unique, reject_to=bad, **values)
    assert (report.rejected, report.rows + report.resumed_rows) == (2, 3 * KEYS + 3)
    assert len(stored(fake, table)) == KEYS + 1


def test_rejects_of_all_tasks_count_together(load, source, tmp_path):
    """Tasks that each stay below the limit of rejects fail the job together, after everything else is written."""
    for number in (8, 9):
        pq.write_table(pa.table({"pk": [""], "v": [number]}), source / f"{number}.parquet")
    bad = tmp_path / "bad"
    with pytest.raises(PartialWriteError, match="2 rows cannot be written to table 'many_bad', and max_rejects is 1"):
        load("many_bad", unique_keys=True, reject_to=str(bad), max_rejects=1)
    assert len(list(bad.glob("rejects-*"))) == 2


def test_rejects_of_shuffled_rows_have_their_file_and_row(load, source, tmp_path):
    """A rejected row has its file, its row and its line after a shuffle too. So does the error without rejects."""
    pq.write_table(pa.table({"pk": ["x", "", "y", ""], "v": [0, 1, 2, 3]}), source / "7.parquet", 3)
    (source / "8.csv").write_text('pk,v\nx,"0"\n"a\nb",1\n"",2\n')
    (source / "9.jsonl").write_text("".join(json.dumps({"pk": "" if n % 2 else "z", "v": n}) + "\n" for n in range(4)))
    load("places", reject_to=str(tmp_path / "bad"))
    kept = [json.loads(line) for path in (tmp_path / "bad").glob("rejects-*") for line in path.read_text().splitlines()]
    rejects = {(reject["file"].removeprefix(f"{source}/"), reject["file_row"], reject["line"]) for reject in kept}
    assert rejects == {
        ("7.parquet", 1, None),
        ("7.parquet", 3, None),
        ("8.csv", 2, 5),
        ("9.jsonl", 1, 2),
        ("9.jsonl", 3, 4),
    }
    with pytest.raises(PartialWriteError, match=r"\(.*/(7\.parquet, row [13]|8\.csv, line 5|9\.jsonl, line [24])\)"):
        load("places_named")


@pytest.mark.usefixtures("spark")
def test_updates_from_json_leave_what_a_row_lacks(source, fake):
    """A shuffle preserves which members were null: those are removed, and missing ones stay."""
    before = pa.table({"pk": ["a", "b"], "v": [1, 1], "w": [1, 1]})
    fake.load("json_updates", b"", "pk:S")
    ddbio.write_table(before, "json_updates", endpoint_url=fake.endpoint_url)
    rows = [{"pk": "a", "v": 2}, {"pk": "b", "v": None}, {"pk": "c", "w": 3}]
    for path in source.glob("*"):
        path.unlink()
    (source / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = {"endpoint_url": fake.endpoint_url, "engine": "spark", "tasks": 2, "mode": "update"}
    assert ddbio.load_files(source, "json_updates", **options).written == 3
    items = ddbio.read_table("json_updates", endpoint_url=fake.endpoint_url).to_pylist()
    assert {row["pk"]: (row["v"], row["w"]) for row in items} == {"a": (2, 1), "b": (None, 1), "c": (None, 3)}
