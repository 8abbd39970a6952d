"""The command line for scripts: stdout, stderr, exit code.

Commands run in this process, except those whose start, end or interruption is tested.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from ddbio.cli.main import CommandGroup, Commands
from ddbio.testing import FakeDynamoDB
from ddbio.testing.flights import KEY, flight_lines


@pytest.fixture(scope="module")
def server():
    """Serve a small table of flights."""
    with FakeDynamoDB() as fake:
        fake.load("flights", b"".join(flight_lines(20_000)), KEY)
        yield fake


@pytest.fixture
def endpoint(server):
    """Return its endpoint."""
    return server.endpoint_url


def process_of(*arguments, **environment):
    """Run a command in a separate process."""
    command = [sys.executable, "-m", "ddbio", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **environment})


def interrupted(server, operation, requests, arguments, number=signal.SIGINT):
    """Run a command in a process that is interrupted after ``count`` requests. Return its exit code and its stderr."""
    before = server.requests().get(operation, 0)
    command = [sys.executable, "-m", "ddbio", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while server.requests().get(operation, 0) < before + requests and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(number)
        _, stderr = running.communicate()
    return running.returncode, stderr


def test_a_process_prints_and_exits(endpoint):
    """``python -m ddbio`` prints the requested output, and its exit code shows a failure."""
    done = process_of("--version")
    assert (done.returncode, done.stdout.startswith("ddbio, version 0."), done.stderr) == (0, True, "")
    done = process_of("table", "describe", "absent", "--endpoint-url", endpoint, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["type"]) == (1, "NotFoundError")


def test_a_reader_of_stdout_that_leaves_ends_a_command(endpoint):
    """Lines that ``head`` has read are printed. When it closes stdout there is neither a message nor a traceback."""
    command = [sys.executable, "-m", "ddbio", "read", "flights", "--endpoint-url", endpoint, "--limit", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert "carrier_flight" in json.loads(running.stdout.readline())
        running.stdout.close()
        assert running.stderr.read() == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_command_whose_output_is_closed_succeeds(closed):
    """A script may start it without stdout and stderr, just for the exit code."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "ddbio", "table", "--help"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_help_imports_no_verb():
    """Lists of verbs load none of the verbs' libraries."""
    script = "import sys\nfrom ddbio.cli.main import run\ntry:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
    script += (
        "print(sorted({'boto3', 'moto', 'numba', 'numpy', 'pyarrow', 'pydantic', 'pyspark'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "Commands:" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def loaded_by(script):
    """Return the large libraries that a process loads for a script."""
    script += "\nimport sys\nprint(sorted({'moto', 'numba', 'pyarrow', 'pyspark'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


def test_verbs_that_only_ask_the_service_load_no_loops(endpoint):
    """A verb that reads and writes no items loads no library for items."""
    verbs = ["table describe flights", "backup create flights", "backup list", "export list", "import list"]
    flags = ["--endpoint-url", endpoint, "--region", "us-east-1", "--json"]
    commands = [[*verb.split(), *flags] for verb in verbs]
    assert loaded_by(f"from ddbio.cli.main import run\nfor words in {commands}:\n    run(words)") == "[]"


def test_what_plans_by_figures_loads_no_loops():
    """Imports by the service, and advice on capacity and methods, read no items and load no item libraries."""
    assert loaded_by("import ddbio.export.imports, ddbio.advice.capacity, ddbio.advice.advise") == "[]"


def test_an_error_in_making_a_command_is_no_unknown_command():
    """A KeyError of its module is raised. Only a name that is not listed is unknown."""

    class Broken(Commands):
        def _make(self, name):
            raise KeyError(f"within {name}")

    group = CommandGroup("export", "export ", "Export.")
    group.commands = Broken("export ")
    with pytest.raises(KeyError, match="within export read"):
        group.get_command(None, "read")
    assert group.get_command(None, "red") is None


@pytest.mark.parametrize(
    ("arguments", "failure"),
    [
        (["scan", "flights"], (2, "OptionError", "Missing argument 'DEST'")),
        (["scan", "flights", "OUT", "--rcu", "3"], (2, "OptionError", "No such option")),
        (["scan", "flights", "OUT", "--rcu-per-second", "-3"], (2, "OptionError", "greater than 0")),
        (["scan", "flights", "OUT", "--mode", "replace"], (2, "OptionError", "is not one of")),
        (["scan", "nope", "OUT"], (1, "NotFoundError", "nope")),
        (["scan", "flights", "OUT", "--index", "nope"], (1, "OptionError", "has no index")),
        (["scan", "flights", "OUT", "--schema", "absent.json"], (2, "OptionError", "cannot be read")),
        (["scan", "flights", "FULL"], (1, "TargetError", "not empty")),
    ],
)
def test_failures_are_one_line_and_one_object(ddbio, endpoint, tmp_path, arguments, failure):
    """A failure is one line on stderr, one JSON object with --json, and an exit code that shows usage errors."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    folders = {"OUT": str(tmp_path / "out"), "FULL": str(tmp_path / "full")}
    arguments = [folders.get(argument, argument) for argument in arguments]
    done = ddbio(*arguments, "--endpoint-url", endpoint, "--json")
    code, kind, message = failure
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["type"]) == (code, kind)
    assert message in error["message"]
    assert done.stderr == f"ddbio: {error['message']}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [(), ("plan",), ("export",)])
def test_a_group_alone_prints_its_help(ddbio, words):
    """Without a verb, the verbs are listed line by line, with a usage error."""
    done = ddbio(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: ddbio ")
    assert "\nCommands:\n" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_leaves_nothing_and_a_rerun_works(ddbio, server, endpoint, tmp_path, number):
    """Ctrl-C or SIGTERM during a run ends with 130, no partial output, and the next run succeeds."""
    words = ["scan", "flights", tmp_path / "out", "--endpoint-url", endpoint]
    slow = [*words, "--rcu-per-second", "50", "--segments", "4", "--lanes", "2"]
    # The sample reads at most four pages: with twelve, the scan itself is running.
    code, stderr = interrupted(server, "Scan", 12, slow, number)
    assert (code, "interrupted" in stderr) == (130, True)
    assert not (tmp_path / "out").exists()
    assert ddbio(*words, "--json").returncode == 0


def test_a_load_is_planned_and_resumed(ddbio, endpoint, server, tmp_path):
    """The plan is printed and nothing written. A load names its job, and repeating the job has nothing to do."""
    server.load("planned", b"", "pk:S")
    (tmp_path / "rows.jsonl").write_text('{"pk":"a","n":1}\n{"pk":"b","n":2}\n')
    words = [tmp_path / "rows.jsonl", "planned", "--endpoint-url", endpoint]
    assert "about 2 rows" in ddbio("load", *words, "--dry-run").stdout
    assert server.consumed("planned") == []
    words += ["--state", tmp_path / "state", "--job-id", "nightly"]
    done = ddbio("load", *words)
    assert "2: 2 written" in done.stdout
    assert "job      nightly" in done.stderr
    assert "nightly, after 2 rows of earlier runs" in ddbio("load", *words).stdout


def test_an_interrupted_load_prints_its_continuation(ddbio, endpoint, server, tmp_path):
    """Ctrl-C ends with 130, the number of written rows, and a command to continue."""
    server.load("slow", b"", "pk:S")
    (tmp_path / "rows.csv").write_text("pk,n\n" + "".join(f"{n},1\n" for n in range(5000)))
    words = [tmp_path / "rows.csv", "slow", "--endpoint-url", endpoint, "--state", tmp_path / "state"]
    words += ["--job-id", "j1", "--wcu-per-second", "100"]
    code, stderr = interrupted(server, "BatchWriteItem", 3, ["load", *words])
    assert code == 130
    line = stderr.splitlines()[-1]
    match = re.fullmatch(
        r"ddbio: interrupted; ([\d,]+) rows reached table 'slow'; continue after [^:]+: ddbio (load .*)", line
    )
    assert match is not None
    assert 0 < int(match[1].replace(",", "")) < 5000
    continued = ddbio(*shlex.split(match[2]), "--json", "--wcu-per-second", 5000)
    assert continued.returncode == 0, continued.stderr
    report = json.loads(continued.stdout)
    assert (continued.returncode, report["job_id"], report["rows"] + report["resumed_rows"]) == (0, "j1", 5000)


def test_an_interrupted_copy_reports_its_writes(endpoint, server):
    """Ctrl-C ends with 130, the number of written items, and the same command again."""
    server.load("half", b"", KEY)
    words = ["copy", "flights", "half", "--endpoint-url", endpoint, "--target-endpoint-url", endpoint]
    code, stderr = interrupted(server, "BatchWriteItem", 3, [*words, "--wcu-per-second", "200"])
    assert code == 130
    line = stderr.splitlines()[-1]
    assert re.fullmatch(r"ddbio: interrupted; [\d,]+ items reached table 'half'; copy all again by: ddbio .*", line)
    assert shlex.split(line.partition("by: ")[2])[1:4] == words[:3]


def test_too_many_rejects_fail_the_command(ddbio, endpoint, tmp_path):
    """A load that rejects more rows than --max-rejects ends with exit code 1, and its rejects name file and row."""
    (tmp_path / "rows.jsonl").write_text(
        '{"carrier_flight":"a","time_hour":"x"}\n{"carrier_flight":"","time_hour":"x"}\n' * 2
    )
    flags = ["--endpoint-url", endpoint, "--reject-to", tmp_path / "rejects", "--json"]
    allowed = ddbio("load", tmp_path / "rows.jsonl", "flights", *flags, "--max-rejects", 4)
    assert (allowed.returncode, json.loads(allowed.stdout)["rejected"]) == (0, 2)
    failed = ddbio("load", tmp_path / "rows.jsonl", "flights", *flags, "--max-rejects", 1)
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["error"]["type"] == "PartialWriteError"
    kept = [
        json.loads(line) for path in (tmp_path / "rejects").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert {(reject["file"], reject["file_row"] % 2) for reject in kept} >= {(str(tmp_path / "rows.jsonl"), 1)}


def test_a_dry_run_looks_at_its_target(ddbio, endpoint, tmp_path):
    """The dry run refuses everything that the run would refuse; otherwise the plan has the target of the rows."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part-x.parquet").write_text("x")
    flags = ["--endpoint-url", endpoint, "--dry-run"]
    refused = {"gs://b/x": "the scheme 'gs'", "s3:/bucket/y": "one slash", str(tmp_path / "full"): "is not empty"}
    for dest, words in refused.items():
        done = ddbio("scan", "flights", dest, *flags)
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    done = ddbio("scan", "flights", tmp_path / "new", *flags)
    assert done.stdout.startswith(f"target   {tmp_path}/new (mode error)\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("nulls", ["merge", "keep"])
def test_a_digest_explains_why_files_may_differ(ddbio, endpoint, server, tmp_path, nulls):
    """If NULL becomes missing, the digest of the files may differ from the table's, and the summary explains it."""
    server.load("nulls", b'{"Item":{"pk":{"S":"x"},"phone":{"NULL":true}}}\n', "pk:S")
    shown = ddbio("scan", "nulls", tmp_path / "out", "--endpoint-url", endpoint, "--digest", "--nulls", nulls).stdout
    assert ("NULLs     1 × phone" in shown, "files have another" in shown) == (nulls == "merge", nulls == "merge")


def test_many_columns_are_counted_where_a_job_runs(ddbio, endpoint, server, tmp_path):
    """Only the plan lists the columns of a wide table."""
    values = ",".join(f'"a{n}":{{"S":"x"}}' for n in range(30))
    server.load("wide", f'{{"Item":{{"pk":{{"S":"x"}},{values}}}}}\n'.encode(), "pk:S")
    done = ddbio("scan", "wide", tmp_path / "out", "--endpoint-url", endpoint)
    assert ("columns  32: " in done.stderr, "a29" in done.stderr) == (True, False)
    assert "a29" in ddbio("plan", "scan", "wide", "--endpoint-url", endpoint).stdout


def test_a_missing_source_is_reported(ddbio, endpoint, tmp_path):
    """A file that does not exist is no file of an unknown format, and wrong usage refers to the help."""
    done = ddbio("load", tmp_path / "no.csv", "flights", "--endpoint-url", endpoint)
    assert (done.returncode, "no.csv does not exist" in done.stderr) == (1, True)
    done = ddbio("load", "x", "flights", "--no-such-flag")
    assert (done.returncode, "'ddbio load --help' shows its usage" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("variables", "chosen"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")]
)
@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", {}), reason="the C library is not glibc")
def test_arrow_uses_the_system_allocator_by_default(variables, chosen):
    """The memory pool is chosen before pyarrow is imported, and a user's choice is kept."""
    script = (
        "import atexit, sys\n"
        "from ddbio.__main__ import main\n"
        "atexit.register(lambda: print(__import__('pyarrow').default_memory_pool().backend_name))\n"
        "sys.argv = ['ddbio', 'plan', '--help']\n"
        "main()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**environment, **variables})
    assert done.stdout.split()[-1] == chosen


@pytest.mark.parametrize(("encoding", "form"), [("ascii", "csv"), ("latin-1", "json")])
def test_output_is_utf_8_in_every_locale(encoding, form):
    """Other programs read it: with another terminal encoding there are neither errors nor other bytes."""
    with FakeDynamoDB() as fake:
        fake.load("names", [{"pk": {"S": "M\u00fcller \u65e5\u672c"}}], "pk:S")
        words = ["read", "names", "--format", form, "--endpoint-url", fake.endpoint_url]
        command = [sys.executable, "-m", "ddbio", *words]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        printed = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
    assert "M\u00fcller \u65e5\u672c" in printed.decode("utf-8")
