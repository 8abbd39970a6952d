"""Send compiled loops from the driver to the workers of a session, which then load them rather than compile them.

Loops travel as an archive named ``ddbio_loops``, by ``ship_loops`` or by ``spark-submit --archives``. What a worker
loads is what any process loads from ``DDBIO_KERNEL_DIR``: only files of its own versions, from a private folder.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles, TaskContext

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ddbio_loops"
"""How the archive is called, before any ending."""

_FOLDER = "DDBIO_KERNEL_DIR"


def ship_loops(spark: SparkSession, path: str | os.PathLike[str] | None = None) -> None:
    """Have the workers of a session load compiled loops; call it before the first job of ddbio.

    Workers that have begun to run ddbio's code, and those whose Python, numba or processor differs, compile for
    themselves as before.

    Parameters
    ----------
    path
        A folder or an archive that ``ddbio warm --to`` made. By default that is done now, which takes a minute or two
        the first time for this user, and a second or two later.

    Raises
    ------
    OptionError
        There is no such folder or archive; or this is Spark Connect, whose driver is elsewhere.
    """
    from ddbio.advice.warm import packed, warm_all  # noqa: PLC0415 - workers that load loops need no compiler
    from ddbio.spark.session import is_connect  # noqa: PLC0415 - see above

    if is_connect(spark):
        raise OptionError("loops are shipped by the driver, which is elsewhere with Spark Connect: give it --archives")
    given = warm_all(_own_folder()) if path is None else Path(path).resolve()
    if given is None or not given.exists():
        raise OptionError(f"there are no loops at {given}: make them by 'ddbio warm --to {given}'")
    # A folder of the session, which ends with it.
    place = Path(tempfile.mkdtemp(dir=SparkFiles.getRootDirectory()))
    archive = given if given.is_file() else packed(given, place / f"{NAME}.zip")
    spark.sparkContext.addArchive(f"{archive}#{NAME}")


def use_shipped_loops() -> None:
    """Load loops from the archive that was sent to this worker, if this is a worker and one was."""
    if TaskContext.get() is None or _FOLDER in os.environ:
        return
    sent = sorted(each for each in Path(SparkFiles.getRootDirectory()).glob(f"{NAME}*") if each.is_dir())
    if sent:
        os.environ[_FOLDER] = str(sent[0])


def _own_folder() -> str:
    from ddbio.items.kernel.cache import cache_folder  # noqa: PLC0415 - see above

    folder = cache_folder()
    return tempfile.mkdtemp() if folder is None else str(folder.with_name("portable"))
