"""Make what PySpark does around every task cheap in a worker that runs our tasks; change nothing it can observe."""

from __future__ import annotations

import gc
import os
import re
import sys
from zipimport import zipimporter

# Spark's own, on a worker's path, do not change while it runs; a user's may be replaced, and must be looked at again.
_OWN_ARCHIVE = re.compile(r"(pyspark|py4j-[\w.]+-src)\.zip|spark-core_[\w.-]+\.jar")

_frozen_in: set[int] = set()


def leave_worker() -> None:
    """Prepare this process for the end of a task, and for the begin of the next."""
    _forget_archives()
    _keep_modules()


def _forget_archives() -> None:
    """Forget the importers of Spark's own archives; they are made again, from what is known of them, when needed.

    PySpark invalidates all importers before each task, and until Python 3.13 each that is known then reads its whole
    archive: a tenth of a second.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and _OWN_ARCHIVE.fullmatch(re.split(r"[\\/]", importer.archive)[-1]):
            del sys.path_importer_cache[path]


def _keep_modules() -> None:
    """Free the garbage, once a process, and let later collections leave alone what is loaded by then.

    PySpark collects all garbage after each task: without this it looks at every object of every module each time.
    """
    if os.getpid() not in _frozen_in:
        _frozen_in.add(os.getpid())
        gc.collect()
        gc.freeze()
