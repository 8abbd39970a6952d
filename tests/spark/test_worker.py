from __future__ import annotations

import gc
import importlib
import os
import sys
import zipfile
from zipimport import zipimporter

import pytest

from ddbio.budget import LocalBudget
from ddbio.jobs.engine import open_engine
from ddbio.spark import worker


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """Return the importers of archives of Spark and of a user in this process."""
    importers = {}
    for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.5.jar", "mine.zip", "my-pyspark.zip"):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"inside_{len(importers)}.py", "VALUE = 1")
        monkeypatch.setitem(sys.path_importer_cache, str(path), zipimporter(str(path)))
        importers[name] = str(path)
    return importers


def test_only_spark_s_archives_are_forgotten(archives):
    """A user's archive, which may be replaced, stays cached, so that it is checked before the next task."""
    worker._forget_archives()
    assert {name for name, path in archives.items() if path in sys.path_importer_cache} == {
        "mine.zip",
        "my-pyspark.zip",
    }


def test_modules_of_a_forgotten_archive_are_still_found(archives, monkeypatch):
    """The modules of an archive can be imported after its importer was dropped."""
    worker._forget_archives()
    monkeypatch.syspath_prepend(archives["pyspark.zip"])
    assert importlib.import_module("inside_0").VALUE == 1


def test_workers_keep_their_modules_once(spark):
    """After a task, a worker has no importers of Spark's archives, and it has frozen its objects once."""

    def look(task, budget):
        archives_seen = [path for path in sys.path_importer_cache if path.endswith(("pyspark.zip", ".jar", "-src.zip"))]
        return os.getpid(), gc.get_freeze_count(), archives_seen

    engine = open_engine("spark")
    engine.run(look, [1, 2], LocalBudget(None))
    first, second = (engine.run(look, [1, 2], LocalBudget(None)) for _ in range(2))
    assert all(frozen > 0 for _, frozen, _ in first)
    at_first = {pid: frozen for pid, frozen, _ in first}
    # A job may run on a worker that did not run the previous one.
    assert all(frozen == at_first.get(pid, frozen) for pid, frozen, _ in second)
    assert all(archives_seen == [] for _, _, archives_seen in first)
