"""Verbs over logs, folders and calls of the service as processes, on very little data."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import figures
from bench.e2e import folder_verbs, log_verbs, service_verbs, slopes
from bench.e2e.slopes import Job, Sizes, Taken

LITTLE = (60, 20)


def test_a_rate_is_that_of_the_rows_beyond_the_smaller_size():
    """For runs with a constant time per row, the rate is that of the rows, and the rest is the start."""
    jobs = Sizes(Job(300, lambda _: []), Job(100, lambda _: []))
    taken = Taken([0.5 + 3.0, 0.7 + 3.0], [0.5 + 1.0, 0.7 + 1.0])
    figures_of_verb = slopes.figures_of(jobs, taken, {"decode": [0.8, 0.8]})
    assert figures_of_verb["count_per_cpu_second"] == 100
    assert figures_of_verb["start_cpu_seconds"] == pytest.approx(0.6)
    assert figures_of_verb["steps_cpu_seconds"] == {"decode": 1.6}
    assert figures_of_verb["share_of_steps"] == pytest.approx(0.8)
    little = {**figures_of_verb, "steps_cpu_seconds": {"decode": 0.01}, "share_of_steps": 0.1}
    assert slopes.least_share({"figures": {"read": figures_of_verb, "files": little}}) == ("read", pytest.approx(0.8))


def test_a_verb_is_compared_with_its_steps(tmp_path):
    """Each run has its own prepared folder. Figures exclude the first round."""
    prepared = []

    def job(count):
        return Job(count, lambda _: ["--version"], prepared.append, {"nothing": lambda: None})

    figures_of_verb = slopes.measure({"version": Sizes(job(3), job(1))}, tmp_path, rounds=1)["version"]
    assert len(figures_of_verb["cpu_seconds"]) == len(figures_of_verb["part_cpu_seconds"]) == 1
    assert len(set(prepared)) == 4
    assert figures_of_verb["steps_cpu_seconds"].keys() == {"nothing"}


@pytest.mark.nightly
def test_every_verb_over_rows_runs(tmp_path):
    """Each verb and each of its steps does its work. The table shows all of them."""
    with log_verbs.serving(tmp_path, LITTLE) as services:
        chosen = slopes.paired([log_verbs.verbs(service) for service in services])
        run_each(chosen, tmp_path, "log_verbs")


@pytest.mark.nightly
def test_every_verb_over_files_runs(tmp_path):
    """The same applies to verbs over files, locally and on S3."""
    with folder_verbs.serving(tmp_path, LITTLE) as services:
        chosen = slopes.paired([folder_verbs.verbs(service) for service in services])
        run_each(chosen, tmp_path, "folder_verbs")


def run_each(chosen, home, case):
    """Run each verb once over the smaller size, and its steps."""
    measured = {}
    for verb, jobs in chosen.items():
        assert jobs.large.count > jobs.part.count
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
    """A verb and its script succeed, and send the same operations to the service."""
    with service_verbs.serving() as service:
        for name, verb in service_verbs.verbs(service).items():
            figures_of_verb = service_verbs.measure(name, verb, service, rounds=1)
            asked = Counter("".join(word.title() for word in operation.split("_")) for operation, _ in verb.calls)
            assert figures_of_verb["requests"] == asked, name
            assert figures_of_verb["times_the_script"] > 0
            assert list(figures.CASES["service_verbs"]({"figures": {name: figures_of_verb}}))
