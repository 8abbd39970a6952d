"""Full export and increments: the state at the end, or the name of the window that is missing."""

import itertools
import random
from datetime import UTC, datetime, timedelta

import pytest
from fold_model import item, key, window

import ddbio
from ddbio.core.exports.fold import MAX_WINDOW, plan_windows
from ddbio.core.items import items_of
from ddbio.errors import ExportIncompleteError, SchemaError
from ddbio.testing.export import Change, ExportWriter

# Sockets that PySpark left to the garbage collector in an earlier test may be found here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def by_key(items):
    """Return items in the order of their keys."""
    return sorted(items, key=lambda each: int(each["sk"]["N"]))


@pytest.mark.parametrize("seed", range(8))
def test_fold_of_random_windows_equals_the_model(tmp_path, seed):
    """Whatever changed in whatever windows, the fold holds what the table held at the end."""
    rng = random.Random(seed)
    writer = ExportWriter(tmp_path, seed=seed)
    state = {number: item(number, rng) for number in range(0 if seed == 0 else 15)}
    full = writer.full(state.values())
    increments = [writer.incremental(window(state, rng, 1_000_000 * turn)) for turn in range(1, 5)]
    rng.shuffle(increments)
    table = ddbio.fold_exports(full, increments)
    read = [each for batch in table.to_batches() for each in items_of(batch)]
    assert by_key(read) == by_key(state.values())


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


def test_other_table_is_refused(tmp_path):
    """Changes of another table are not folded into this one."""
    full = ExportWriter(tmp_path / "a").full([])
    other = ExportWriter(tmp_path / "b", table="other").incremental([])
    with pytest.raises(ExportIncompleteError, match="another table"):
        ddbio.fold_exports(full, [other])


def test_increment_is_no_base(tmp_path):
    """Only a full export can be the base."""
    writer = ExportWriter(tmp_path)
    with pytest.raises(ExportIncompleteError, match="no full export"):
        ddbio.fold_exports(writer.incremental([]), [])


def test_key_that_fits_no_column_is_refused(tmp_path):
    """Items whose keys were rescued could not be told apart."""
    writer = ExportWriter(tmp_path)
    full = writer.full([{"pk": {"N": "1"}}])
    increment = writer.incremental([Change(1, {"pk": {"N": "1.5"}}, new={"pk": {"N": "1.5"}})])
    with pytest.raises(SchemaError, match="key 'pk'"):
        ddbio.fold_exports(full, [increment])


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
