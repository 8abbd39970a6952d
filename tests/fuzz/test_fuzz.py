"""Untrusted bytes give a correct result or one error of ours, in a process of 2 GiB, and never end it.

Inputs are made from numbers, and damaged in structured ways: see ``inputs.py``. A finding of a fuzzer is saved. After
the fix it is added to ``corpus/KIND/``, whose files every commit reads.
"""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.driver import CORPUS, FoundError, run, run_corpus

KINDS = ("dynamodb-json", "json", "csv", "ion", "arrow", "c-data", "parquet", "avro", "orc", "state", "http")
MOST_INPUTS = 1_000_000


def test_past_findings_stay_fixed():
    """Every input that once ended a process, hung, took all memory or raised another error is read."""
    assert run_corpus() == len(list(CORPUS.glob("*/*")))
    assert {path.name for path in CORPUS.iterdir()} == set(KINDS)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_damaged_input_ends_the_process(kind, seeds, tmp_path):
    """For a minute, sound and damaged inputs of each kind are read. One that is misread is saved and named."""
    assert run(kind, seeds(1, 1).start, MOST_INPUTS, 60, tmp_path) > 0


def test_an_input_that_ends_the_process_is_named_and_saved(tmp_path, monkeypatch):
    """The input that caused a crash, an error or too much memory is made again by its number."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import os, signal, sys\n"
        "if sys.argv[1:2] == ['ion'] and 'save' not in sys.argv:\n"
        "    import ddbio.items.ion as blocks\n"
        "    blocks.IonReader.pieces = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(path for path in sys.path if path)}")
    with pytest.raises(FoundError, match=r"ion 7, saved as .*ion-7: exit code -11"):
        run("ion", 7, 3, 60, tmp_path)
    assert b"$ion_1_0" in (tmp_path / "ion-7").read_bytes()
