"""Jobs whose workers get ddbio as a zip archive (``spark-submit --py-files``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ddbio

PACKAGE = Path(ddbio.__file__).parent
JOB = """
import json, sys
from pyspark.sql import SparkSession

def work(_):
    import ddbio
    from ddbio.items.kernel.library import LIBRARY
    batch = ddbio.from_dynamodb_json(b'{"n":{"N":"7"}}')
    return ddbio.__file__, LIBRARY.__file__, int(batch.column("n")[0].as_py())

builder = SparkSession.builder.master("local-cluster[1,1,1024]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.submit.pyFiles", sys.argv[1]).config("spark.executorEnv.XDG_CACHE_HOME", sys.argv[2])
spark = builder.getOrCreate()
print(json.dumps(spark.sparkContext.parallelize([0], 1).map(work).collect()[0]))
spark.stop()
"""


@pytest.mark.nightly
def test_a_worker_loads_the_loops_of_a_zip_archive(tmp_path):
    """The worker runs the archive's code, and its compiled loops are extracted to the cache folder of its user."""
    archive = tmp_path / "ddbio.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in PACKAGE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, path.relative_to(PACKAGE.parent))
    import pyspark  # noqa: PLC0415 - only this test needs it

    environment = os.environ | {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13", "PYTHONPATH": ""}
    command = [sys.executable, "-c", JOB, str(archive), str(tmp_path / "cache")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    code, library, number = json.loads(done.stdout.splitlines()[-1])
    assert Path(code).name == "__init__.py"
    assert ".zip" in code
    assert Path(library).is_relative_to(tmp_path / "cache" / "ddbio" / "kernel")
    assert number == 7
