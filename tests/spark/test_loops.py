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

import ddbio
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
    from ddbio.items.kernel.cache import _FOLDERS
    yield [each.name for folder in _FOLDERS.shipped() for each in folder.iterdir()]

print(json.dumps(spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect()))
spark.stop()
"""


SUBMITTED = """
import json, sys
from pyspark.sql import SparkSession
import ddbio
endpoint, dest = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()

def where(_):
    import ddbio
    yield ddbio.__file__

options = {"endpoint_url": endpoint, "region": "eu-west-1", "shared_paths": True}
report = ddbio.scan_to_files("sent", dest, engine="spark", **options)
workers = spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect()
print(json.dumps({"rows": report.rows, "driver": ddbio.__file__, "workers": workers}))
spark.stop()
"""


def look(cwd, given="", master="local[2]", conf=None):
    """Return which files two workers of a fresh session find."""
    return run(cwd, sys.executable, "-W", "ignore", "-c", LOOK, master, given, json.dumps(conf or {}))


def run(cwd, *words):
    """Run a program that starts Spark; return the JSON of its last line."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    known = set(home.glob("work/app-*"))
    environment.pop("DDBIO_KERNEL_DIR", None)
    done = subprocess.run([*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    # The executors of a local cluster work below its home.
    for each in set(home.glob("work/app-*")) - known:
        shutil.rmtree(each)
    assert done.returncode == 0, (done.stderr + done.stdout)[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def loops(tmp_path):
    """Return a folder that holds something of the name of a loop."""
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "scan-0.nbc").write_bytes(b"nothing that would be loaded")
    return tmp_path / "loops"


@pytest.mark.nightly
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_workers_find_what_the_driver_sends(tmp_path, loops, master):
    """A folder is packed and sent, and workers look for loops where it was unpacked."""
    assert look(tmp_path, loops, master) == [["scan-0.nbc"]] * 2


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_spark_submit_sends_the_package(tmp_path, fake):
    """With ``--py-files ddbio.zip`` driver and executors run the code of the archive, and a scan has all rows."""
    source = Path(ddbio.__file__).parent
    with zipfile.ZipFile(tmp_path / "ddbio.zip", "w") as archive:
        for path in source.rglob("*"):
            if path.suffix != ".pyc" and path.is_file():
                archive.write(path, path.relative_to(source.parent))
    fake.load("sent", [{"pk": {"S": f"k{number}"}} for number in range(500)], "pk:S")
    (tmp_path / "job.py").write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    conf = ["spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"]
    given = [word for each in conf for word in ("--conf", each)]
    words = ["--master", "local-cluster[2,1,1024]", *given, "--py-files", tmp_path / "ddbio.zip"]
    found = run(tmp_path, submit, *words, tmp_path / "job.py", fake.endpoint_url, tmp_path / "rows")
    assert found["rows"] == 500
    assert all("ddbio.zip" in each for each in (found["driver"], *found["workers"]))
