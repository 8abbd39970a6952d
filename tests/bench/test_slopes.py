"""Verbs over logs, folders and calls of the service as processes, on very little data."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import figures
from bench.e2e import folder_verbs, log_verbs, service_verbs, slopes
from bench.e2e.slopes import Job, Sizes, Taken

LITTLE = (60, 20)


def test_a_rate_is_that_of_the_rows_beyond_the_smaller_size():
    """Of runs that take as long for each row, the rate is that of rows, and the rest is the start."""
    jobs = Sizes(Job(300, lambda _: []), Job(100, lambda _: []))
    taken = Taken([0.5 + 3.0, 0.7 + 3.0], [0.5 + 1.0, 0.7 + 1.0])
    found = slopes.figures_of(jobs, taken, {"decode": [0.8, 0.8]})
    assert found["count_per_cpu_second"] == 100
    assert found["start_cpu_seconds"] == pytest.approx(0.6)
    assert found["steps_cpu_seconds"] == {"decode": 1.6}
    assert found["share_of_steps"] == pytest.approx(0.8)
    little = {**found, "steps_cpu_seconds": {"decode": 0.01}, "share_of_steps": 0.1}
    assert slopes.least_share({"figures": {"read": found, "files": little}}) == ("read", pytest.approx(0.8))


def test_a_verb_is_measured_beside_its_steps(tmp_path):
    """Each run has a folder of its own, which is prepared; figures have the rounds behind the first."""
    prepared = []

    def job(count):
        return Job(count, lambda _: ["--version"], prepared.append, {"nothing": lambda: None})

    found = slopes.measure({"version": Sizes(job(3), job(1))}, tmp_path, rounds=1)["version"]
    assert len(found["cpu_seconds"]) == len(found["part_cpu_seconds"]) == 1
    assert len(set(prepared)) == 4
    assert found["steps_cpu_seconds"].keys() == {"nothing"}


@pytest.mark.nightly
def test_every_verb_over_rows_runs(tmp_path):
    """Each verb does what it is measured by, and so does each of its steps; the table shows all of them."""
    with log_verbs.serving(tmp_path, LITTLE) as places:
        chosen = slopes.paired([log_verbs.verbs(each) for each in places])
        run_each(chosen, tmp_path, "log_verbs")


@pytest.mark.nightly
def test_every_verb_over_files_runs(tmp_path):
    """The same of verbs over files, here and on S3."""
    with folder_verbs.serving(tmp_path, LITTLE) as places:
        chosen = slopes.paired([folder_verbs.verbs(each) for each in places])
        run_each(chosen, tmp_path, "folder_verbs")


def run_each(chosen, home, case):
    """Run each verb once over the smaller size, and its steps."""
    measured = {}
    for verb, jobs in chosen.items():
        assert jobs.whole.count > jobs.part.count
        assert jobs.part.steps
        seconds = slopes.run(jobs.part, home / verb.replace(" ", "-"))
        for step in jobs.part.steps.values():
            step()
        taken = Taken([seconds + 1], [seconds])
        measured[verb] = slopes.figures_of(jobs, taken, {step: [1.0] for step in jobs.part.steps})
    shown = [line.what for line in figures.CASES[case]({"figures": measured})]
    assert all(any(f"`ddbio {verb}`" in line for line in shown) for verb in chosen)


@pytest.mark.nightly
def test_verbs_that_ask_the_service_make_the_calls_of_their_script():
    """A verb and its script end well, and ask the service for the same operations."""
    with service_verbs.serving() as place:
        for name, verb in service_verbs.verbs(place).items():
            found = service_verbs.measure(name, verb, place, rounds=1)
            asked = Counter("".join(word.title() for word in operation.split("_")) for operation, _ in verb.calls)
            assert found["requests"] == asked, name
            assert found["times_the_script"] > 0
            assert list(figures.CASES["service_verbs"]({"figures": {name: found}}))
