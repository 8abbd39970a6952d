"""Folds of a full export and increments: the state at the end, or the name of the missing window."""

import dataclasses
import itertools
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import ExportIncompleteError
from ddbio.export.fold_rows import MAX_WINDOW, MIN_WINDOW, missing_windows, plan_fold, plan_windows
from ddbio.formats.export_manifest import ExportSummary
from ddbio.items.reference import items_of
from ddbio.testing.export import Change, ExportWriter
from tests.export.fold_model import item, key, window

# Sockets that PySpark left to the garbage collector in an earlier test may be collected here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def by_key(items):
    """Return items, ordered by key."""
    return sorted(items, key=lambda item_: int(item_["sk"]["N"]))


def test_fold_of_random_windows_equals_the_model(tmp_path, seeds):
    """For random changes in random windows, the fold is equal to the final state of the table."""
    for seed in seeds(8, 200):
        rng = random.Random(seed)
        writer = ExportWriter(tmp_path / str(seed), seed=seed)
        state = {number: item(number, rng) for number in range(0 if seed % 8 == 0 else 15)}
        full = writer.full(state.values())
        increments = [writer.incremental(window(state, rng, 1_000_000 * turn)) for turn in range(1, 5)]
        rng.shuffle(increments)
        table = ddbio.fold_exports(full, increments)
        read = [row_item for batch in table.to_batches() for row_item in items_of(batch)]
        assert by_key(read) == by_key(state.values()), seed


def test_the_newest_write_wins_in_any_window(tmp_path):
    """Windows that share a second may both have a change of an item: the later write is the state of the table."""
    writer = ExportWriter(tmp_path)
    old, new = ({**key(1), "v": {"S": text}} for text in ("older", "newer"))
    full = writer.full([])
    first = writer.incremental([Change(2_000_000, key(1), new, None)])
    second = writer.incremental([Change(1_000_000, key(1), old, None)])
    table = ddbio.fold_exports(full, [first, second])
    assert table["v"].to_pylist() == ["newer"]


def test_missing_window_is_named(tmp_path):
    """If the second of three windows is missing, the error names it."""
    writer = ExportWriter(tmp_path)
    full = writer.full([])
    first, _, third = [writer.incremental([]) for _ in range(3)]
    gap = r"no export covers \[2026-11-01T02:00:00\+00:00, 2026-11-01T03:00:00\+00:00\)"
    with pytest.raises(ExportIncompleteError, match=gap):
        ddbio.fold_exports(full, [third, first])


def test_windows_before_the_full_export_are_left_out(tmp_path):
    """A change that the full export already includes is not applied again."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    older = writer.incremental([Change(1, key(1), old=item(1, rng))])
    full = writer.full([item(1, rng)])
    assert ddbio.fold_exports(full, [older]).num_rows == 1


def test_windows_that_others_spare_are_left_out(tmp_path):
    """If a window covers a shorter one, only the longer one is folded, which includes the later deletes."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    full = writer.full([])
    made = writer.incremental([Change(1, key(1), new=item(1, rng))])
    # Created and deleted within the two hours, so that there is no line.
    both = writer.incremental([], hours=2)
    assert ddbio.fold_exports(full, [made]).num_rows == 1
    assert not ddbio.fold_exports(full, [made, both]).num_rows


@pytest.mark.parametrize("hours", [1.5, 2.5])
def test_a_window_that_overlaps_the_state_is_refused(tmp_path, hours):
    """An item that was created before and deleted within the window has no line in it, and would stay."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    full = writer.full([item(2, rng)])
    made = writer.incremental([Change(1, key(1), new=item(1, rng))])
    late = writer.incremental([], hours=hours)
    with pytest.raises(ExportIncompleteError, match=r"starts before 2026-11-01T02:00:00.*ddbio export windows"):
        ddbio.fold_exports(full, [made, late])


def test_increments_of_other_keys_are_refused(tmp_path):
    """Changes with another key belong to another table."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    full = writer.full([item(1, rng)])
    first = writer.incremental([Change(1, key(1), old=item(1, rng))])
    second = writer.incremental([Change(2, {"pk": key(1)["pk"]}, new=item(1, rng))])
    with pytest.raises(ExportIncompleteError, match="a table keeps its key"):
        ddbio.fold_exports(full, [first, second])


def test_other_table_is_refused(tmp_path):
    """Changes of another table are not folded into this one."""
    full = ExportWriter(tmp_path / "a").full([])
    other = ExportWriter(tmp_path / "b", table="other").incremental([])
    with pytest.raises(ExportIncompleteError, match="another table"):
        ddbio.fold_exports(full, [other])


def test_a_recreated_table_is_another_table():
    """Changes of a deleted table are not folded into the items of a new table with its name."""
    base, increment = summary(0, 0, "full"), dataclasses.replace(summary(0, 60), table_id="another")
    with pytest.raises(ExportIncompleteError, match="another table"):
        plan_fold(base, [increment])


def test_increment_is_no_base(tmp_path):
    """Only a full export can be the base."""
    writer = ExportWriter(tmp_path)
    with pytest.raises(ExportIncompleteError, match="not a full export"):
        ddbio.fold_exports(writer.incremental([]), [])


A = {"pk": {"S": "a"}}
KEYS = [
    [{"pk": {"N": number}} for number in ("1", "1.5", "2.5")],
    [{"pk": {"N": number}} for number in ("1", "9" * 38, "1E+100")],
    [{"pk": {"N": number}} for number in ("1.5", "2", "-3")],
    [{**A, "sk": {"N": number}} for number in ("1", "1.5", "2.5")],
    [{"pk": {"N": one}, "sk": {"N": two}} for one, two in (("1.5", "1.5"), ("1", "2.5"), ("1", "2"))],
    [{"pk": {"S": text}} for text in "abc"],
    [{"pk": {"B": text}} for text in ("AA==", "AQ==", "Ag==")],
]


@pytest.mark.parametrize("keys", KEYS)
def test_keys_that_fit_no_column_are_distinguished(tmp_path, keys):
    """Items whose keys were rescued are changed, put and deleted like others."""
    writer, (kept, changed, gone) = ExportWriter(tmp_path), keys
    full = writer.full([*keys[:2], gone])
    first = writer.incremental([Change(1, changed, {**changed, "v": {"N": "1"}}, changed), Change(2, gone, None, gone)])
    second = writer.incremental([Change(3, changed, {**changed, "v": {"N": "2"}}, changed)])
    schema = pa.schema([("pk", pa.int64()), ("sk", pa.int64()), ("v", pa.int64())])
    table = ddbio.fold_exports(full, [first, second], schema=schema)
    folded = [row_item for batch in table.to_batches() for row_item in items_of(batch)]
    assert sorted(folded, key=str) == sorted([kept, {**changed, "v": {"N": "2"}}], key=str)


@pytest.mark.parametrize("hours", [0.25, 1, 24, 24.1, 50, 240])
def test_windows_to_request_tile_the_time(hours):
    """The windows are contiguous, cover the whole time, and none is longer than the service allows."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    windows = plan_windows(start, start + timedelta(hours=hours))
    assert (windows[0].start, windows[-1].end) == (start, start + timedelta(hours=hours))
    assert all(one.end == two.start for one, two in itertools.pairwise(windows))
    assert all(timedelta(minutes=15) <= window_.end - window_.start <= MAX_WINDOW for window_ in windows)


def test_too_short_a_time_has_no_window():
    """The service exports no window shorter than 15 minutes."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    with pytest.raises(ExportIncompleteError, match="shortest window"):
        plan_windows(start, start + timedelta(minutes=14))


def summary(start, end, kind="incremental"):
    """Return the summary of an export of this window, in minutes; a full export is of its end."""
    began, ended = (
        (datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=minute)).isoformat() for minute in (start, end)
    )
    return ExportSummary(
        kind=kind,
        encoding="json",
        items=0,
        table_arn="arn",
        table_id="id",
        export_arn="export",
        export_time=ended if kind == "full" else None,
        from_time=began,
        to_time=ended,
        view=None,
        filtered=False,
    )


@pytest.mark.parametrize(
    ("there", "requested"),
    [
        ([], [(0, 300)]),
        ([(0, 60), (60, 300)], []),
        ([(0, 60), (120, 300)], [(60, 120)]),
        # A gap that is too short for a separate window, and windows that start within the preceding ones.
        ([(0, 60), (65, 120), (120, 300)], [(60, 120)]),
        ([(0, 60), (30, 90), (90, 300)], [(60, 90)]),
        ([(0, 60), (30, 70), (70, 300)], [(60, 300)]),
        ([(-10, 60), (60, 300)], [(0, 60)]),
        ([(0, 60), (0, 120), (60, 90), (120, 300)], []),
        # The shortest possible window, within the time and at its end.
        ([(0, 60), (75, 300)], [(60, 75)]),
        ([(0, 285)], [(285, 300)]),
        ([(0, 290)], []),
    ],
)
def test_windows_to_request_make_a_fold_possible(there, requested):
    """With the missing windows, the fold reaches the requested time except for the last 15 minutes."""
    base = summary(0, 0, "full")
    until = datetime(2026, 11, 1, 5, tzinfo=UTC)
    increments = [summary(*bounds) for bounds in there]
    missing = missing_windows(base, increments, until)
    start = datetime(2026, 11, 1, tzinfo=UTC)
    marks = [tuple((mark - start) / timedelta(minutes=1) for mark in (one.start, one.end)) for one in missing]
    assert marks == requested
    assert until - plan_fold(base, increments + [summary(*bounds) for bounds in marks]).reached < MIN_WINDOW


def test_window_cut_to_whole_seconds_follows():
    """A window that was requested from the time of a full export, and starts at its second, does not overlap."""
    base, cut = summary(0, 10.001, "full"), summary(10, 60)
    assert plan_fold(base, [cut]).chosen == (0,)
    with pytest.raises(ExportIncompleteError, match="no export covers"):
        plan_fold(summary(0, 10, "full"), [summary(10.001, 60)])
