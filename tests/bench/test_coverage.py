"""A case that names it measures every verb and every public function, or a reason is recorded."""

from __future__ import annotations

import re

import pytest

import ddbio
import ddbio.spark
from bench import coverage
from bench.e2e import record
from bench.figures import CASES
from ddbio.cli.commands import COMMANDS
from ddbio.spark import functions as of_columns

MEASURED, UNMEASURED = coverage.named(coverage.MEASURED), coverage.named(coverage.UNMEASURED)


def functions():
    """Yield each public function with its package."""
    for home in (ddbio, ddbio.spark, of_columns):
        yield from (f"{home.__name__}.{name}" for name in home.__all__ if name.islower() and not name.startswith("_"))


def words_of(name):
    """Return the words of a verb or a function, unordered."""
    return frozenset(word.removesuffix("s") for word in re.split(r"[ _-]", name.removeprefix("ddbio.")))


def case_of(name):
    """Return the case that measures a verb or function."""
    return MEASURED[coverage.BY_ANOTHER.get(name, name)]


def source_of(case):
    """Return the text of a case, and of the benchmark modules that it calls."""
    text = (record.ROOT / "bench/e2e" / f"{case}.py").read_text("utf-8")
    called = re.findall(r"^from bench import (.*)$", text, re.MULTILINE)
    paths = [record.ROOT / "bench" / f"{name}.py" for names in called for name in names.split(", ")]
    return "\n".join([text, *(path.read_text("utf-8") for path in paths if path.exists())])


def test_everything_has_a_case_or_a_reason():
    """Nothing is missing, nothing is listed twice, and every listed name exists."""
    all_verbs, all_functions = set(COMMANDS), set(functions())
    plans = {name for name in all_verbs | all_functions if re.match(r"plan |ddbio\.plan_", name)}
    names = [*MEASURED, *coverage.BY_ANOTHER, *UNMEASURED]
    assert sorted(names) == sorted(set(names))
    assert set(names) <= all_verbs | all_functions
    assert set(coverage.BY_ANOTHER.values()) <= MEASURED.keys()
    assert sorted(all_verbs - plans - set(names)) == []
    same = {words_of(verb) for verb in all_verbs}
    assert sorted(name for name in all_functions - plans - set(names) if words_of(name) not in same) == []


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_a_case_names_its_verb(name):
    """The case is on the page, and its code has the words of the verb, or calls the function."""
    case = case_of(name)
    assert case in CASES
    source, words = source_of(case), name.rpartition(".")[2].split(" ")
    as_typed = re.search(", ".join(f'"{word}"' for word in words), source)
    as_key = re.search(rf'^ +"{name}": ', source, re.MULTILINE)
    as_called = words_of(name.rpartition(".")[2]) in map(words_of, re.findall(r"\b(?:ddbio|ours)\.([\w.]+)\b", source))
    as_written = name.startswith("ddbio.spark") and re.search(rf"\b{words[-1]}\b", source)
    assert as_typed or as_key or as_called or as_written, f"{case} does not run {name}"


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_page_describes_each_case(case):
    """The page's table of whole jobs has a row for it."""
    page = (record.ROOT / "docs/benchmarks.md").read_text("utf-8")
    assert re.search(rf"^\| `{case}` \|", page, re.MULTILINE)
