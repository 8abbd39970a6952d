"""Full export and increments: the state at the end, or the name of the window that is missing."""

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

# Sockets that PySpark left to the garbage collector in an earlier test may be found here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def by_key(items):
    """Return items in the order of their keys."""
    return sorted(items, key=lambda each: int(each["sk"]["N"]))


def test_fold_of_random_windows_equals_the_model(tmp_path, seeds):
    """Whatever changed in whatever windows, the fold holds what the table held at the end."""
    for seed in seeds(8, 200):
        rng = random.Random(seed)
        writer = ExportWriter(tmp_path / str(seed), seed=seed)
        state = {number: item(number, rng) for number in range(0 if seed % 8 == 0 else 15)}
        full = writer.full(state.values())
        increments = [writer.incremental(window(state, rng, 1_000_000 * turn)) for turn in range(1, 5)]
        rng.shuffle(increments)
        table = ddbio.fold_exports(full, increments)
        read = [each for batch in table.to_batches() for each in items_of(batch)]
        assert by_key(read) == by_key(state.values()), seed


def test_the_newest_write_wins_whatever_window_it_is_in(tmp_path):
    """Windows that meet within a second may both have a change of it: the later write is what the table holds."""
    writer = ExportWriter(tmp_path)
    old, new = ({**key(1), "v": {"S": text}} for text in ("older", "newer"))
    full = writer.full([])
    first = writer.incremental([Change(2_000_000, key(1), new, None)])
    second = writer.incremental([Change(1_000_000, key(1), old, None)])
    table = ddbio.fold_exports(full, [first, second])
    assert table["v"].to_pylist() == ["newer"]


def test_missing_window_is_named(tmp_path):
    """Without the second of three windows there is no state, but the name of that window."""
    writer = ExportWriter(tmp_path)
    full = writer.full([])
    first, _, third = [writer.incremental([]) for _ in range(3)]
    gap = r"no export covers \[2026-11-01T02:00:00\+00:00, 2026-11-01T03:00:00\+00:00\)"
    with pytest.raises(ExportIncompleteError, match=gap):
        ddbio.fold_exports(full, [third, first])


def test_windows_before_the_full_export_are_left_out(tmp_path):
    """A change that the full export has already seen does not come back."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    older = writer.incremental([Change(1, key(1), old=item(1, rng))])
    full = writer.full([item(1, rng)])
    assert ddbio.fold_exports(full, [older]).num_rows == 1


def test_windows_that_others_spare_are_left_out(tmp_path):
    """Of two ways from the full export to the end one is taken: the window that says nothing of an item long gone."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    full = writer.full([])
    made = writer.incremental([Change(1, key(1), new=item(1, rng))])
    # Made and deleted within the two hours, so that there is no line.
    both = writer.incremental([], hours=2)
    assert ddbio.fold_exports(full, [made]).num_rows == 1
    assert not ddbio.fold_exports(full, [made, both]).num_rows


@pytest.mark.parametrize("hours", [1.5, 2.5])
def test_window_that_begins_within_what_is_known_is_refused(tmp_path, hours):
    """An item that was made in time to be seen, and deleted since, has no line in the window: it would come back."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    full = writer.full([item(2, rng)])
    made = writer.incremental([Change(1, key(1), new=item(1, rng))])
    late = writer.incremental([], hours=hours)
    with pytest.raises(ExportIncompleteError, match=r"starts before 2026-11-01T02:00:00.*ddbio export windows"):
        ddbio.fold_exports(full, [made, late])


def test_increments_of_other_keys_are_refused(tmp_path):
    """A table keeps its key: changes that know another one are of something else."""
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


def test_a_table_made_anew_is_another_table():
    """Changes of a table that was deleted and made again under its name are not folded into the old one's items."""
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
def test_keys_that_fit_no_column_are_told_apart(tmp_path, keys):
    """Items whose keys were rescued are changed, put and deleted as others."""
    writer, (kept, changed, gone) = ExportWriter(tmp_path), keys
    full = writer.full([*keys[:2], gone])
    first = writer.incremental([Change(1, changed, {**changed, "v": {"N": "1"}}, changed), Change(2, gone, None, gone)])
    second = writer.incremental([Change(3, changed, {**changed, "v": {"N": "2"}}, changed)])
    schema = pa.schema([("pk", pa.int64()), ("sk", pa.int64()), ("v", pa.int64())])
    table = ddbio.fold_exports(full, [first, second], schema=schema)
    found = [each for batch in table.to_batches() for each in items_of(batch)]
    assert sorted(found, key=str) == sorted([kept, {**changed, "v": {"N": "2"}}], key=str)


@pytest.mark.parametrize("hours", [0.25, 1, 24, 24.1, 50, 240])
def test_windows_to_request_tile_the_time(hours):
    """The windows meet, cover all, and none is longer than the service allows."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    windows = plan_windows(start, start + timedelta(hours=hours))
    assert (windows[0].start, windows[-1].end) == (start, start + timedelta(hours=hours))
    assert all(one.end == two.start for one, two in itertools.pairwise(windows))
    assert all(timedelta(minutes=15) <= each.end - each.start <= MAX_WINDOW for each in windows)


def test_too_short_a_time_has_no_window():
    """The service exports no window shorter than a quarter of an hour."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    with pytest.raises(ExportIncompleteError, match="shortest window"):
        plan_windows(start, start + timedelta(minutes=14))


def summary(start, end, kind="incremental"):
    """Return the summary of an export of this window, in minutes; of a full one at its end."""
    began, ended = ((datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=each)).isoformat() for each in (start, end))
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
        # A gap too short for a window of its own, and windows that begin within what is before them.
        ([(0, 60), (65, 120), (120, 300)], [(60, 120)]),
        ([(0, 60), (30, 90), (90, 300)], [(60, 90)]),
        ([(0, 60), (30, 70), (70, 300)], [(60, 300)]),
        ([(-10, 60), (60, 300)], [(0, 60)]),
        ([(0, 60), (0, 120), (60, 90), (120, 300)], []),
        # The shortest window there is, within and at the end.
        ([(0, 60), (75, 300)], [(60, 75)]),
        ([(0, 285)], [(285, 300)]),
        ([(0, 290)], []),
    ],
)
def test_windows_to_request_make_a_fold_possible(there, requested):
    """With the windows that are missing, the fold reaches the requested time except for a quarter of an hour."""
    base = summary(0, 0, "full")
    until = datetime(2026, 11, 1, 5, tzinfo=UTC)
    increments = [summary(*each) for each in there]
    found = missing_windows(base, increments, until)
    start = datetime(2026, 11, 1, tzinfo=UTC)
    marks = [tuple((each - start) / timedelta(minutes=1) for each in (one.start, one.end)) for one in found]
    assert marks == requested
    assert until - plan_fold(base, increments + [summary(*each) for each in marks]).reached < MIN_WINDOW


def test_window_cut_to_whole_seconds_follows():
    """A window asked for from a full export's very instant, and given from the second's begin, is no overlap."""
    base, cut = summary(0, 10.001, "full"), summary(10, 60)
    assert plan_fold(base, [cut]).chosen == (0,)
    with pytest.raises(ExportIncompleteError, match="no export covers"):
        plan_fold(summary(0, 10, "full"), [summary(10.001, 60)])
