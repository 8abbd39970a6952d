"""README and docs compared with the tree: all names on the pages exist."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
from pathlib import Path

import pytest

import ddbio
from ddbio.advice.doctor import DoctorReport, Finding
from ddbio.cli.main import cli
from ddbio.export.backups import BackupJob, RestoreJob
from ddbio.export.bulk_puts import BulkJob
from ddbio.export.bulk_reports import BulkSummary
from ddbio.export.exports import ExportJob
from ddbio.export.fold import ExportFoldReport
from ddbio.export.imports import ImportJob
from ddbio.export.read import ExportReadReport
from ddbio.folders.compact import CompactReport
from ddbio.folders.publish import PublishReport
from ddbio.folders.vacuum import VacuumReport
from ddbio.formats.layout import LayoutReport
from ddbio.jobs.report import ScanReport
from ddbio.load.import_files import ImportFilesReport
from ddbio.validation.comparison import ValidationReport
from tests.versions.features import FEATURES, table

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
README = (ROOT / "README.md").read_text("utf-8")


def named(path: Path) -> str:
    """Return the name of a parametrised case."""
    return str(path.relative_to(ROOT))


def blocks(language: str) -> list[str]:
    """Return README's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    """Every relative link of a page leads to a file of the tree."""
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_modules_exist(page):
    """Every module and folder on a page exists, in the package or at the root."""
    paths = re.findall(r"(?<![\w/.-])((?:[a-z]\w*/)+(?:\w+\.py)?)(?![\w/.*<])", page.read_text("utf-8"))
    assert [path for path in paths if not (ROOT / path).exists() and not (ROOT / "ddbio" / path).exists()] == []


def test_recipes_exist():
    """Every recipe on a page is in the task runner's list."""
    listed = subprocess.run([ROOT / "task"], capture_output=True, text=True, check=True).stdout
    recipes = set(re.findall(r"^  (\w+)", listed, re.MULTILINE))
    recipes_of_pages = {
        (named(page), name) for page in PAGES for name in re.findall(r"\./task (\w+)", page.read_text("utf-8"))
    }
    assert [page_and_recipe for page_and_recipe in sorted(recipes_of_pages) if page_and_recipe[1] not in recipes] == []


def test_readme_shows_an_endpoint_that_runs(capsys, monkeypatch):
    """The blocks that need only the fake run unchanged."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "restored afterwards")
    shown = [block for block in blocks("python") if "FakeDynamoDB" in block]
    for block in shown:
        exec(compile(block, "README.md", "exec"), {})
    rows, url = capsys.readouterr().out.splitlines()
    assert ast.literal_eval(rows.replace("Decimal('1.5')", "1.5"))[0]["total"] == 1.5
    assert url.startswith("http://127.0.0.1:")


def test_readme_is_short():
    """README is short enough to be read completely: at most 130 lines."""
    assert len(README.splitlines()) <= 130


def test_benchmarks_have_the_marks_of_figures():
    """The marks around generated figures occur once, in order."""
    page = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    assert re.findall(r"<!-- benchmarks:(\w+) -->", page) == ["begin", "end"]


def test_decisions_are_listed_and_short():
    """Each decision has a unique number, its date, at most 60 lines, and a line in the list."""
    overview = (ROOT / "docs/adr/README.md").read_text("utf-8")
    numbers = [path.name[:4] for path in DECISIONS]
    assert sorted(set(numbers)) == numbers
    for path in DECISIONS:
        text = path.read_text("utf-8")
        assert f"]({path.name})" in overview
        assert re.search(r"^\d{4}-\d\d-\d\d · (accepted|replaced)", text, re.MULTILINE)
        assert len(text.splitlines()) <= 60


@pytest.mark.parametrize(
    ("page", "report"),
    [
        ("backup", BackupJob),
        ("backup", RestoreJob),
        ("bulk", BulkJob),
        ("bulk", BulkSummary),
        ("compact", CompactReport),
        ("doctor", DoctorReport),
        ("doctor", Finding),
        ("export", ExportFoldReport),
        ("export", ExportJob),
        ("export", ExportReadReport),
        ("import", ImportFilesReport),
        ("import", ImportJob),
        ("layout", LayoutReport),
        ("publish", PublishReport),
        ("publish", VacuumReport),
        ("scan", ScanReport),
        ("validate", ValidationReport),
    ],
)
def test_pages_list_every_key(page, report):
    """The page of a verb has every key of its report."""
    text = (ROOT / f"docs/{page}.md").read_text("utf-8")
    assert [name for name in report.__dataclass_fields__ if f"`{name}`" not in text] == []


def test_guarantees_name_tests_that_exist():
    """Each file and each test on the page of guarantees exists."""
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


def test_versions_of_spark_have_the_tested_features():
    """The table of versions equals that of ``tests/versions``, and the test of each of its rows exists."""
    assert table() in (ROOT / "docs/spark.md").read_text("utf-8")
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests/versions").glob("test_*.py"))
    assert [feature.test for feature in FEATURES.values() if f"def {feature.test}(" not in tests] == []


def test_guarantees_have_a_row_for_every_fault():
    """Each fault of the catalogue, F1 to F52, has one row, which names a test or states that it is not done."""
    page, faults = (ROOT / "docs/guarantees.md").read_text("utf-8"), list[int]()
    for first, last, more, cells in re.findall(r"^\| F(\d+)(?:–F(\d+))?(?:, F(\d+))? \|(.*)\|$", page, re.MULTILINE):
        faults += [*range(int(first), int(last or first) + 1), *([int(more)] if more else [])]
        assert "`tests/" in cells or "not done" in cells, first
    assert faults == list(range(1, 53))


def test_reference_has_every_public_name():
    """The pages generated from the code have every public name, each with a docstring, and every command."""
    pages = {name: render() for name, render in runpy.run_path(ROOT / "docs/site/reference.py")["PAGES"].items()}
    shown = set(re.findall(r"^::: ddbio\.(\w+)$", pages["python"] + pages["classes"], re.MULTILINE))
    shown |= set(re.findall(r"^\| `(\w+Error)`", pages["errors"], re.MULTILINE))
    listed = {name for name in ddbio.__all__ if not name.endswith("Keywords")} - {"DdbioError", "__version__"}
    assert listed <= shown
    assert {name for name in cli.commands if f"`ddbio {name}" not in pages["cli"]} == set()


def test_environment_page_names_every_variable():
    """The page of environment variables has each variable that the package itself reads."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "ddbio").rglob("*.py"))
    page = (ROOT / "docs/environment.md").read_text("utf-8")
    named = set(re.findall(r"\b(?:DDBIO_[A-Z_]+|XDG_[A-Z_]+)\b", text))
    assert {name for name in named if f"`{name}`" not in page} == set()
