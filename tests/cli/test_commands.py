"""The table of commands: each row is a command that takes the arguments of its verb, and prints its result."""

import dataclasses
import inspect
import json

import click
import pytest

import ddbio
from ddbio import options as of
from ddbio.cli.commands import COMMANDS, GROUPS
from ddbio.cli.main import cli
from ddbio.cli.making import make_command
from ddbio.options.parsing import PYTHON_ONLY
from ddbio.public import function_at
from ddbio.testing import FakeDynamoDB
from ddbio.verbs import VERBS

ITEMS = b'{"Item":{"pk":{"S":"a"},"n":{"N":"1700000000"}}}\n{"Item":{"pk":{"S":"b"},"n":{"N":"1700000000"}}}\n'

RUNS = [
    ("scan orders OUT --digest", "2 read, 2 rows written", {"items": 2, "rows": 2}),
    ("scan orders OUT --dry-run", "OUT (mode error)", {"dest": "OUT", "item_count": 2}),
    ("plan scan orders --rcu-per-second 400", "budget   400 RCU/s", {"dest": None, "rcu_per_second": 400.0}),
    ("count orders --sample 1", "items     2", {"items": 2, "items_low": 2, "counted_segments": 30}),
    ("count orders --dry-run --segments 8", "8 segments, 8 lanes", {"segments": 8, "item_count": 2}),
    ("plan count orders --where n>0", "n>0: by Scan of everything", {"where": "n>0", "units": 0.5}),
    ("digest orders", "", {"source": "orders", "items": 2}),
    ("schema orders", "pk", {}),
    ("load ROWS loaded", "2: 2 written, 0 skipped, 0 rejected", {"rows": 2, "written": 2}),
    ("load ROWS empty --dry-run", "about 2 rows", {"rows": 2}),
    ("plan load ROWS empty --wcu-per-second 1", "2 WCU for new items", {"rows": 2, "estimated_seconds": 2}),
    ("copy orders copied", "2 read: 2 written", {"items": 2, "written": 2}),
    ("copy orders empty --dry-run", "writes", {"write_units": 2}),
    ("plan copy orders empty", "writes", {"write_units": 2}),
    ("table describe orders", "key      pk:S", {"name": "orders", "item_count": 2}),
    ("export read EXPORT OUT", "2 read, 2 rows written", {"items": 2, "rows": 2}),
    ("export read EXPORT OUT --dry-run", "export    full, json", {"items": 2}),
    ("plan export-read EXPORT OUT", "export    full, json", {"items": 2}),
    ("plan export orders s3://bucket/x --enable-pitr", "cost", {}),
    ("export list", "no export", {"exports": []}),
    ("import list", "no import", {"imports": []}),
    ("import files ROWS OUT --key pk:S", "2 of 2 rows", {"items": 2, "rows": 2}),
    ("import files ROWS OUT --key pk:S --dry-run", "2 of 2 rows", {"items": 2, "rows": 2}),
    ("plan import-files ROWS OUT --key pk:S", "estimate", {}),
    ("backup create orders", "status", {"table": "orders"}),
    ("backup list loaded", "no backup", {"backups": []}),
    ("plan backup orders", "cost", {}),
    ("plan capture --records-per-second 1", "cost", {}),
    ("layout FILES", "1 (parquet 1), 2 rows", {"files": 1, "rows": 2}),
    ("compact FILES --dry-run", "folder    FILES, version 1: 1 file", {"files_before": 1}),
    ("plan compact FILES", "folder    FILES, version 1: 1 file", {"files_before": 1}),
    ("vacuum FILES --dry-run", "FILES", {"path": "FILES"}),
    ("files FILES", "FILES/", {}),
    ("validate orders FILES", "result     passed", {"missing": 0, "different": 0}),
    ("plan validate orders FILES", "compares 100.00% of the keys", {"rules": 0}),
    ("prices show", "USD", {}),
    ("archive expired orders --ttl n --at 2023-12-01T00:00:00Z", '"pk":"a"', {"source": "orders", "items": 2}),
]
"""Command lines with a part of the text, and some values of the JSON, that each prints."""


def options_of(row):
    """Return the options class of a row; None if it has none."""
    name = row.options or (row.verb and VERBS[row.verb].options)
    return getattr(of, name) if name else None


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_the_options_of_its_verb(name):
    """Each option is an argument or a flag, or excluded by the row. Other parameters are those of the run."""
    row, command = COMMANDS[name], make_command(COMMANDS[name])
    assert command.name == name.split()[-1]
    assert command.help.splitlines()[0].endswith(".")
    assert len({parameter.name for parameter in command.params}) == len(command.params)
    taken = {parameter.name for parameter in command.params} - {"as_json", "quiet", "dry_run"}
    fields = {field.name for field in dataclasses.fields(options_of(row))} if options_of(row) else set()
    named = {part for text in (row.arguments or "").split() for part in text.strip("?.").partition(":")[0].split("=")}
    assert set(row.without.split()) <= fields
    assert fields - taken - named <= {*row.without.split(), *PYTHON_ONLY}
    if row.call:
        run = function_at(f"cli.{row.call}")
        assert (
            any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(run).parameters.values())
            or not fields
        )
    else:
        run = function_at(row.run or VERBS[row.verb].run)
        others = taken - fields - {text.partition("=")[0] for text in (row.arguments or "").split() if "=" in text}
        assert {"options", *others} <= set(inspect.signature(run).parameters)
    assert not row.plan or (row.plan in VERBS and row.dry_run)


def test_every_command_is_listed_with_its_first_line():
    """Lists, which create no commands, have the first line of each one's help. Groups have commands."""
    for group in [cli, *(cli.commands[name] for name in GROUPS)]:
        assert {
            name: command.help.splitlines()[0] for name, command in group.commands.items()
        } == group.commands.summaries
    assert {name.split()[0] for name in COMMANDS} == set(cli.commands)
    assert [name for name in GROUPS if not isinstance(cli.commands[name], click.Group)] == []


def test_every_verb_has_a_command():
    """Verbs without a command return the output of another verb, or are for Python only."""
    taken = {verb for row in COMMANDS.values() for verb in (row.verb, row.plan)}
    for_python = {"fold_exports", "maintain_by_policy", "read_changes", "read_expired", "read_export", "read_table"}
    for_python |= {"read_export_batches", "rollback", "write_table"}
    assert VERBS.keys() - taken == for_python


@pytest.fixture(scope="module")
def resources(tmp_path_factory):
    """Serve tables, and return their endpoint, with files of one, an export, and rows."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "rows.jsonl").write_text('{"pk":"c","n":1}\n{"pk":"d","n":2}\n')
    with FakeDynamoDB() as fake:
        fake.load("orders", ITEMS, "pk:S")
        for name in ("loaded", "copied", "empty"):
            fake.load(name, b"", "pk:S")
        here = {"engine": "local", "endpoint_url": fake.endpoint_url}
        ddbio.scan_to_files("orders", folder / "files", **here)
        ddbio.scan_to_files("orders", folder / "export", format="dynamodb-export", **here)
        export = next(path.parent for path in folder.rglob("manifest-summary.json"))
        yield fake.endpoint_url, {"FILES": folder / "files", "EXPORT": export, "ROWS": folder / "rows.jsonl"}


@pytest.fixture
def run(ddbio, resources, tmp_path):
    """Return a function that runs a command line with the resources that it names."""
    endpoint_url, resource_paths = resources
    names = {name: str(path) for name, path in {**resource_paths, "OUT": tmp_path / "out"}.items()}

    def call(line, *flags):
        words = [names.get(word, word) for word in line.split()]
        takes_endpoint = {"endpoint_url"} & {parameter.name for parameter in command_of(line).params}
        where = ["--endpoint-url", endpoint_url, "--region", "us-east-1"] if takes_endpoint else []
        done = ddbio(*words, *where, *flags)
        for name, path in names.items():
            done.stdout = done.stdout.replace(path, name)
        return done

    return call


def command_of(line):
    """Return the command of a command line."""
    return make_command(
        next(COMMANDS[name] for name in (" ".join(line.split()[:2]), line.split()[0]) if name in COMMANDS)
    )


@pytest.mark.parametrize(("line", "text", "values"), RUNS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_prints_for_people_and_for_programs(run, tmp_path, line, text, values):
    """A report is text, or one JSON object. --quiet leaves stderr empty. A plan writes nothing."""
    done = run(line)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    is_written = (tmp_path / "out").exists()
    assert is_written == ("OUT" in line and "dry-run" not in line and "plan" not in line)
    if is_written:
        (tmp_path / "out").rename(tmp_path / "before")
    flags = ["--quiet"] if "quiet" in {parameter.name for parameter in command_of(line).params} else []
    done = run(line, "--json", *flags)
    assert (done.returncode, done.stderr if flags else "") == (0, "")
    assert json.loads(done.stdout).items() >= values.items()


def test_differences_determine_the_exit_code(run):
    """A validation that finds a difference ends with 1, as text and as JSON."""
    assert run("validate orders ROWS").returncode == 1
    assert json.loads(run("validate orders ROWS", "--json").stdout)["missing"] == 2


def test_scan_takes_the_schema_that_schema_prints(run, tmp_path):
    """No value is rescued if the columns are the inferred ones."""
    (tmp_path / "schema.json").write_text(run("schema orders", "--json").stdout)
    report = json.loads(run("scan orders OUT", "--schema", tmp_path / "schema.json", "--json").stdout)
    assert (report["rows"], report["rescued"]) == (2, 0)
