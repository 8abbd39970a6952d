"""README and docs against the tree: what they name must be there under that name."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

import ddbio
from ddbio.cli.main import cli
from ddbio.core.backups import BackupJob, RestoreJob
from ddbio.core.exports.jobs import ExportJob
from ddbio.core.imports.jobs import BulkJob, ImportJob
from ddbio.ops.exports.fold import ExportFoldReport
from ddbio.ops.exports.read import ExportReadReport
from ddbio.ops.imports.bulk import BulkSummary
from ddbio.ops.imports.files import ImportFilesReport
from ddbio.ops.job.report import ScanReport

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
README = (ROOT / "README.md").read_text("utf-8")


def named(path: Path) -> str:
    """Return how a parametrised case is called."""
    return str(path.relative_to(ROOT))


def blocks(language: str) -> list[str]:
    """Return README's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that words of a command line reach, and the words after it."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    """Every relative link of a page leads to a file of the tree."""
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_modules_exist(page):
    """Every module and folder that a page names exists, in the package or at the root."""
    paths = re.findall(r"(?<![\w/.-])((?:[a-z]\w*/)+(?:\w+\.py)?)(?![\w/.*<])", page.read_text("utf-8"))
    assert [path for path in paths if not (ROOT / path).exists() and not (ROOT / "ddbio" / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_recipes_exist(page):
    """Every recipe that a page names is in the task runner's list."""
    listed = subprocess.run([ROOT / "task"], capture_output=True, text=True, check=True).stdout
    recipes = re.findall(r"^  (\w+)", listed, re.MULTILINE)
    assert set(re.findall(r"\./task (\w+)", page.read_text("utf-8"))) <= set(recipes)


def test_readme_shows_commands_that_exist():
    """Every command line of README parses: its verb, its options and the number of its arguments."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("ddbio ")]
    assert lines
    for line in lines:
        command, words = command_of(shlex.split(line, comments=True)[1:])
        command.make_context(command.name, [word for word in words if word != ">" and not word.endswith(".json")])


def test_readme_shows_python_that_compiles():
    """Every Python block of README parses and calls only public names of ``ddbio``."""
    for block in blocks("python"):
        calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Attribute)]
        names = {node.attr for node in calls if isinstance(node.value, ast.Name) and node.value.id == "ddbio"}
        assert names <= set(ddbio.__all__)


def test_readme_shows_a_test_endpoint_that_runs(capsys):
    """The block about the endpoint for tests runs as it stands."""
    (block,) = [block for block in blocks("python") if block.startswith("from ddbio.testing")]
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_readme_keeps_a_place_for_figures():
    """The marks between which figures are generated are there once, in order."""
    assert re.findall(r"<!-- benchmarks:(\w+) -->", README) == ["begin", "end"]


def test_decisions_are_listed_and_short():
    """Each decision has a number of its own, its date, at most 25 lines, and a line in the list."""
    overview = (ROOT / "docs/adr/README.md").read_text("utf-8")
    numbers = [path.name[:4] for path in DECISIONS]
    assert sorted(set(numbers)) == numbers
    for path in DECISIONS:
        text = path.read_text("utf-8")
        assert f"]({path.name})" in overview
        assert re.search(r"^\d{4}-\d\d-\d\d · (accepted|replaced)", text, re.MULTILINE)
        assert len(text.splitlines()) <= 25


@pytest.mark.parametrize(
    ("page", "report"),
    [
        ("backup", BackupJob),
        ("backup", RestoreJob),
        ("bulk", BulkJob),
        ("bulk", BulkSummary),
        ("export", ExportFoldReport),
        ("export", ExportJob),
        ("export", ExportReadReport),
        ("import", ImportFilesReport),
        ("import", ImportJob),
        ("scan", ScanReport),
    ],
)
def test_pages_list_every_key(page, report):
    """The page of a verb names every key of what it reports."""
    text = (ROOT / f"docs/{page}.md").read_text("utf-8")
    assert [name for name in report.__dataclass_fields__ if f"`{name}`" not in text] == []


def test_guarantees_name_tests_that_exist():
    """Each file and each test that the page of guarantees names is there."""
    page, files = (ROOT / "docs/guarantees.md").read_text("utf-8"), 0
    for row in page.splitlines():
        path = None
        for name in re.findall(r"`((?:tests/[\w/]+\.py)?(?:::\w+)?)`", row):
            path = name.partition("::")[0] or path
            if not name or path is None:
                continue
            files += 1
            text = (ROOT / path).read_text("utf-8")
            assert f"def {name.partition('::')[2]}" in text, name
    assert files > 30
