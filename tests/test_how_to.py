"""The quick start and the how-to guides, run unchanged with the fake DynamoDB and a fake S3."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import boto3
import click
import pyarrow.parquet as pq
import pytest
import yaml

import ddbio
from ddbio.cli.main import cli
from ddbio.testing import FakeDynamoDB, MotoServer

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    ROOT / "docs/quick-start.md",
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]
PAGES += sorted((ROOT / "docs/migrate").glob("*.md"))
RUN = ("fold-increments", "migrate-a-table")
RUN_NIGHTLY = ("backfill", "nightly-scan", "restore-from-files", "schema-drift")
ON_AWS = "# on AWS"
CI_PAGE = ROOT / "docs/how-to/ci-pipeline.md"
ITEMS = [{"id": {"S": f"o{number}"}, "total": {"N": str(number)}} for number in range(500)]


def named(path: Path) -> str:
    """Return the name of a parametrised case."""
    return path.stem


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each fenced block of a page, in order, also those of list items."""
    fenced = re.findall(r"^( *)```(\w+)\n(.*?)^\1```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [(language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in fenced]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command of a command line, and the words after it."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_exist(page):
    """Every command line parses: its verb, its options and the number of its arguments."""
    for language, text in blocks(page):
        lines = text.replace("\\\n", " ").splitlines() if language == "sh" else []
        for line in lines:
            if line.startswith("ddbio ") and "--help" not in line:
                command, words = command_of(shlex.split(line.partition(" > ")[0], comments=True)[1:])
                command.make_context(command.name, [word for word in words if word != "--json"])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_uses_public_names(page):
    """Every Python block parses, except for a notebook's own lines, and calls only public names of ``ddbio``."""
    for language, text in blocks(page):
        if language == "python":
            tree = ast.parse(re.sub(r"^%.*", "", text, flags=re.MULTILINE))
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            names = {node.attr for node in calls if isinstance(node.value, ast.Name) and node.value.id == "ddbio"}
            imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            modules = {module.split(".")[1] for module in imported if module.startswith("ddbio.")}
            assert names <= set(ddbio.__all__) | modules


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_json_is_json(page):
    """Every JSON block parses. A policy's statements allow some action on some resource."""
    for language, text in blocks(page):
        if language == "json":
            for statement in json.loads(text).get("Statement", []):
                assert statement["Effect"] == "Allow"
                assert {"Action", "Resource"} <= statement.keys() or "Principal" in statement


@pytest.fixture
def services(tmp_path, monkeypatch):
    """Serve the tables and the bucket of the pages, and set the endpoints for every process of this test."""
    with MotoServer() as s3, FakeDynamoDB(export_to=s3.endpoint_url) as fake:
        boto3.client("s3", endpoint_url=s3.endpoint_url, region_name="us-east-1").create_bucket(Bucket="my-bucket")
        for table in ("orders", "orders-old"):
            fake.load(table, ITEMS, key="id:S")
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", fake.endpoint_url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint_url)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        monkeypatch.chdir(tmp_path)
        yield fake


def run(language: str, text: str) -> str:
    """Run a block as a person would, and return its output."""
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-euc", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


def test_quick_start_ends_with_the_answer(services):
    """The ten lines of the quick start print the result on the page."""
    (text,) = [text for language, text in blocks(ROOT / "docs/quick-start.md") if language == "python"]
    printed = run("python", text).splitlines()
    assert printed[0] == "10000 rows"
    assert "{'city': 'Lima', 'total_sum': Decimal('16670000.0')}" in printed[1]


def test_landing_page_example_runs(services):
    """The example of the landing page prints the number of rows and of read units."""
    (text,) = [text for language, text in blocks(ROOT / "docs/index.md") if language == "python"]
    assert run("python", text).startswith("2 rows, ")


@pytest.mark.parametrize("name", [*RUN, *(pytest.param(name, marks=pytest.mark.nightly) for name in RUN_NIGHTLY)])
def test_guides_run(services, name):
    """Every block of a guide runs in order, except for those that need AWS or their own Spark."""
    shown = [text for text in blocks(ROOT / f"docs/how-to/{name}.md") if text[0] in {"sh", "python"}]
    ran = [run(*block) for block in shown if not block[1].startswith(ON_AWS) and "spark" not in block[1]]
    assert ran


def test_the_workflow_is_complete():
    """The workflow of the page parses, and its endpoint is the address of its service."""
    (text,) = [text for language, text in blocks(CI_PAGE) if language == "yaml"]
    job = yaml.safe_load(text)["jobs"]["pipeline"]
    assert job["services"]["aws"]["ports"] == [f"{job['env']['LOCALSTACK_HOST'].partition(':')[2]}:4566"]
    assert job["steps"][-1]["run"] == "bash pipeline.sh"


OLD_LINES = (
    '{"id":{"s":"o\u00e9"},"ok":{"bOOL":true},"none":{"nULLValue":true},"m":{"m":{"tags":{"l":[{"nS":["1","2"]}]}}}}',
    '{"id":{"s":"o\u00e9"},"ok":{"bool":true},"none":{"null":true},"m":{"m":{"tags":{"l":[{"ns":["1","2"]}]}}}}',
    'id\x03{"s":"o\u00e9"}\x02ok\x03{"bOOL":true}\x02none\x03{"nULLValue":true}\x02m\x03{"m":{"tags":{"l":[{"nS":["1","2"]}]}}}',
)


@pytest.mark.parametrize("line", OLD_LINES)
def test_lines_of_data_pipeline_become_dynamodb_json(line):
    """The page's script makes the same item of each format of Data Pipeline."""
    (script,) = [text for language, text in blocks(ROOT / "docs/migrate/aws-data-pipeline.md") if language == "python"]
    done = subprocess.run([sys.executable, "-c", script], input=f"{line}\n", capture_output=True, text=True, check=True)
    tags = {"M": {"tags": {"L": [{"NS": ["1", "2"]}]}}}
    assert json.loads(done.stdout) == {"id": {"S": "o\u00e9"}, "ok": {"BOOL": True}, "none": {"NULL": True}, "m": tags}


@pytest.mark.nightly
def test_the_shell_runs_on_any_endpoint(tmp_path, monkeypatch):
    """The page's script moves a table to S3 with one endpoint for both, from localstack-client's variable."""
    script = "\n".join(text for language, text in blocks(CI_PAGE) if language == "sh")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with MotoServer() as served:
        monkeypatch.setenv("LOCALSTACK_HOST", served.endpoint_url.removeprefix("http://"))
        run("sh", script)
        monkeypatch.setenv("AWS_ENDPOINT_URL", served.endpoint_url)
        assert sorted(ddbio.read_table("orders", region="us-east-1").column("id").to_pylist()) == ["o1", "o2"]


@pytest.mark.nightly
def test_the_shell_without_a_container_runs(tmp_path, monkeypatch):
    """The page's script serves its own DynamoDB, and leaves files but no process."""
    (script,) = [text for language, text in blocks(CI_PAGE) if language == "bash"]
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run("bash", script)
    assert sum(pq.read_metadata(path).num_rows for path in (tmp_path / "out").glob("*.parquet")) == 2


@pytest.mark.nightly
def test_the_shell_of_the_quick_start_runs(services):
    """The commands of the quick start's second half run on an existing table."""
    shells = [text for language, text in blocks(ROOT / "docs/quick-start.md") if language == "sh"]
    (text,) = [text for text in shells if text.startswith("export ")]
    run("sh", "\n".join(line for line in text.splitlines() if not line.startswith("export ")))


@pytest.mark.parametrize(
    ("page", "passed"), [("test-without-aws", 1), pytest.param("ci-pipeline", 2, marks=pytest.mark.nightly)]
)
def test_the_fixtures_of_the_guides_work(tmp_path, page, passed):
    """The pytest example of a guide passes its own tests."""
    (text,) = [text for _, text in blocks(ROOT / f"docs/how-to/{page}.md") if "import pytest\n" in text]
    (tmp_path / "test_shown.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_shown.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{passed} passed" in done.stdout, done.stdout
