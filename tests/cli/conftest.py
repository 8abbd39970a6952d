"""Run commands in this process."""

from __future__ import annotations

import gc
import subprocess

import pytest

from ddbio.cli.main import run


@pytest.fixture(autouse=True)
def _nothing_stays_frozen():
    yield
    # A command excludes all objects that exist at its start from garbage collection.
    gc.unfreeze()


@pytest.fixture
def ddbio(capsys):
    """Return a function that runs a command in this process, and returns its exit code and output."""

    def call(*arguments):
        code = 0
        try:
            run([*map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return call
