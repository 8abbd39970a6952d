"""Workers load the loops that the driver sends, or that spark-submit does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from ddbio.errors import OptionError
from ddbio.spark import ship_loops

LOOK = """
import json, sys
from pyspark.sql import SparkSession
import ddbio.spark
master, given, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
if given:
    ddbio.spark.ship_loops(spark, given)

def look(_):
    import ddbio.spark
    from ddbio.core.kernel.cache import _FOLDERS
    yield [each.name for folder in _FOLDERS.shipped() for each in folder.iterdir()]

print(json.dumps(spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect()))
spark.stop()
"""


def look(cwd, given="", master="local[2]", conf=None):
    """Return which files two workers of a fresh session find."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    environment["PYSPARK_PYTHON"] = sys.executable
    known = set(home.glob("work/app-*"))
    environment.pop("DDBIO_KERNEL_DIR", None)
    command = [sys.executable, "-W", "ignore", "-c", LOOK, master, str(given), json.dumps(conf or {})]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    # The executors of a local cluster work below its home.
    for each in set(home.glob("work/app-*")) - known:
        shutil.rmtree(each)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def loops(tmp_path):
    """Return a folder that holds something of the name of a loop."""
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "scan-0.nbc").write_bytes(b"nothing that would be loaded")
    return tmp_path / "loops"


@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.slow)])
def test_workers_find_what_the_driver_sends(tmp_path, loops, master):
    """A folder is packed and sent, and workers look for loops where it was unpacked."""
    assert look(tmp_path, loops, master) == [["scan-0.nbc"]] * 2


def test_workers_find_what_spark_submit_sends(tmp_path, loops):
    """An archive of that name is enough, without a call; without one there is nothing."""
    with zipfile.ZipFile(tmp_path / "ddbio_loops.zip", "w") as archive:
        archive.write(loops / "scan-0.nbc", "scan-0.nbc")
    assert look(tmp_path, conf={"spark.archives": str(tmp_path / "ddbio_loops.zip")}) == [["scan-0.nbc"]] * 2
    assert look(tmp_path) == [[], []]


def test_no_loops_at_a_path(spark, tmp_path):
    """What is not there is named, with the command that makes it."""
    with pytest.raises(OptionError, match=r"no loops at .*: make them by 'ddbio warm --to"):
        ship_loops(spark, tmp_path / "missing.zip")
