"""Cost of an import: CPU time of a new interpreter, compared with that of an interpreter without imports."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

STATEMENTS = {
    "nothing (floor)": "pass",
    "ddbio": "import ddbio",
    "ddbio.scan_to_files": "import ddbio; ddbio.scan_to_files",
    "pyarrow": "import pyarrow",
    "boto3": "import boto3",
}
HEAVY = ("boto3", "numba", "pandas", "pyarrow", "pydantic", "pyspark")


def cpu_seconds() -> float:
    """Return user and system seconds of this process and of all its ended children.

    Its own are negligible while it waits, but a clock that only advances when a child ends cannot be calibrated.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + time.process_time()


class Import:
    params = (list(STATEMENTS),)
    param_names = ("module",)
    timer = staticmethod(cpu_seconds)
    # Each sample is one interpreter.
    number = 1

    def setup(self, name: str) -> None:
        self.check(name)

    def check(self, name: str) -> None:
        loaded = f"{STATEMENTS[name]}; import sys; print(*({{*{HEAVY}}} & sys.modules.keys()))"
        words = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout
        assert name != "ddbio" or words == "\n"

    def time_import(self, name: str) -> None:
        subprocess.run([sys.executable, "-c", STATEMENTS[name]], check=True)
