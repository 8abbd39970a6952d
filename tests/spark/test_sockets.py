"""Without a rate, reading jobs on Spark open no socket: an unavailable port stops none of them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ddbio.testing.export import Change, ExportWriter

READ = """
import json, sys
import ddbio
from ddbio.jobs.engine import open_engine
from ddbio.errors import OptionError

master, port, endpoint, full, increment, out = sys.argv[1:]
conf = {
    "spark.ddbio.budget.port": port, "spark.ui.enabled": "false", "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}
# The session of all jobs below.
engine = open_engine("spark", master=master, conf=conf)
spark = {"engine": "spark", "tasks": 2, "shared_paths": True}
aws = {"endpoint_url": endpoint, "region": "eu-west-1"}
scan = ddbio.scan_to_files("sockets", f"{out}/scan", **spark, **aws)
read = ddbio.read_export_to_files(full, f"{out}/read", **spark)
fold = ddbio.fold_exports_to_files(full, [increment], f"{out}/fold", **spark)
try:
    ddbio.scan_to_files("sockets", f"{out}/rate", rcu_per_second=1e6, **spark, **aws)
    said = None
except OptionError as error:
    said = str(error)
engine.close()
asked = [scan.rcu_asked_per_second, scan.rcu_consumed > 0, scan.items]
print(json.dumps({"scan": asked, "read": read.rows, "fold": fold.rows, "said": said}))
"""


def item(number, version=0):
    """Return one item."""
    return {"pk": {"S": f"key-{number:03d}"}, "v": {"N": str(version)}}


@pytest.mark.nightly
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_reads_without_a_rate_need_no_port(fake, tmp_path, master):
    """A scan, an export read and a fold succeed if the only port is in use. With a rate a scan reports it."""
    writer, items = ExportWriter(tmp_path / "in", files=3), [item(number) for number in range(100)]
    full = writer.full(items)
    increment = writer.incremental([Change(1, {"pk": items[0]["pk"]}, item(0, 1), items[0])])
    fake.load("sockets", items, "pk:S")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    home = Path(pyspark.__file__).parent
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if master != "local[2]":
        environment |= {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
    earlier = set(home.glob("work/app-*"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [master, taken.getsockname()[1], fake.endpoint_url, full, increment, tmp_path / "out"]
        words = [sys.executable, "-c", READ, *map(str, arguments)]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    for folder in set(home.glob("work/app-*")) - earlier:
        shutil.rmtree(folder)
    assert done.returncode == 0, (done.stderr + done.stdout)[-2000:]
    output = json.loads(done.stdout.splitlines()[-1])
    assert (output["scan"], output["read"], output["fold"]) == ([None, True, 100], 100, 100)
    assert "the budget cannot be served at 127.0.0.1" in output["said"]
