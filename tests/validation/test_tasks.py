"""The tasks of an engine compute the same sums of a side as one process."""

from __future__ import annotations

import pickle
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest

import ddbio
from ddbio.budget import LocalBudget
from ddbio.items.key_hashes import BUCKETS, Rows, key_words
from ddbio.jobs.engine import LocalEngine
from ddbio.validation.key_join import RemoteRowStore
from ddbio.validation.options import ValidateOptions
from ddbio.validation.rules import ColumnRules, QualityRules, ValueRange
from ddbio.validation.sides import Reading, open_side
from ddbio.validation.sums import Checks, Hashing, Sums
from ddbio.validation.tasks import words_of_portion

RULES = QualityRules(
    columns={"n": ColumnRules(unique=True, range=ValueRange(max=150)), "pk": ColumnRules(not_null=True)}
)
HASHING = Hashing(("pk",), 1.0)


class _Pickling(LocalEngine):
    """Engine that pickles tasks as for remote workers, and shuffles in memory."""

    def run(self, function, tasks, budget):
        assert function is not words_of_portion
        return super().run(function, pickle.loads(pickle.dumps(list(tasks))), budget)

    def run_joined(self, sources, function, partitions):
        parts = []
        for source in sources:
            for task in pickle.loads(pickle.dumps(list(source.tasks))):
                parts += source.split(task, source.budget)
        parts.sort(key=itemgetter(0))
        budget, unpickled = LocalBudget(None), pickle.loads(pickle.dumps(function))
        return [unpickled((data for key, data in parts if key[0] == number), budget) for number in range(partitions)]


@pytest.fixture
def side(fake, tmp_path, request):
    """Return a side of 200 rows: a table, or its files."""
    items = [f'{{"Item": {{"pk": {{"S": "k{n}"}}, "n": {{"N": "{n // 2 * 2}"}}}}}}' for n in range(200)]
    fake.load("rows", "\n".join(items).encode(), "pk:S")
    for folder in ("a", "b"):
        ddbio.scan_to_files("rows", tmp_path / "lake" / folder, endpoint_url=fake.endpoint_url, engine="local")
    name = {"table": "rows", "files": str(tmp_path / "lake" / "a")}[request.param]
    options = ValidateOptions(source=name, target="rows", endpoint_url=fake.endpoint_url)
    return open_side(name, options, options)


@pytest.mark.parametrize("side", ["table", "files"], indirect=True)
def test_tasks_add_up_to_the_side(side):
    """Digest, sums, columns, failures of rules, repeated values and requested rows equal those of one pass."""
    reading, checks = Reading(None, {"pk": "S"}, "merge"), Checks(RULES, ("pk",), 3)
    wanted = Sums(checks)
    rows = []
    for hashed in side.hashed(reading, HASHING):
        wanted.add(hashed)
        rows.append(hashed.rows)
    engine = _Pickling()
    summary = side.summarised(Reading(None, {"pk": "S"}, "merge", engine), HASHING, checks)
    sums_of_tasks = summary.sums
    assert sums_of_tasks.digest == wanted.digest
    assert sums_of_tasks.digest.count == 200
    assert (sums_of_tasks.seen.types, sums_of_tasks.buckets.to_bytes()) == (
        wanted.seen.types,
        wanted.buckets.to_bytes(),
    )
    assert [(result.rule, result.failures, len(result.examples)) for result in sums_of_tasks.checker.results()] == [
        ("range: max 150", 48, 3),
        ("not_null", 0, 0),
    ]
    every = range(BUCKETS)
    with RemoteRowStore(summary, 0) as unique, RemoteRowStore(summary) as keys:
        assert unique.repeated(every, sums_of_tasks.unique[0].counts) == 100
        assert keys.repeated(every, sums_of_tasks.buckets.counts) == 0
    local = replace(summary, engine=LocalEngine())
    assert np.array_equal(np.sort(Rows.joined(list(local.rows(every))).items), np.sort(Rows.joined(rows).items))
    hashes = key_words(pa.record_batch({"pk": ["k3", "k9", "none"]}), ("pk",))
    shown = [row["pk"] for batch in side.batches_with(reading, ("pk",), hashes) for row in batch.to_pylist()]
    assert sorted(shown) == ["k3", "k9"]
