"""The commands that create and describe tables, and loads that create tables or read stdin."""

import json
import re

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.testing import FakeDynamoDB


@pytest.fixture(scope="module")
def server():
    """Serve no table yet."""
    with FakeDynamoDB() as fake:
        yield fake


@pytest.fixture
def run(server, tmp_path):
    """Return a function that runs a command in this process, and returns its exit code and output."""

    def call(*arguments, stdin=None):
        words = [*map(str, arguments), "--endpoint-url", server.endpoint_url]
        done = CliRunner().invoke(cli, words, input=stdin)
        return done.exit_code, done.stdout

    return call


def test_a_table_is_created_and_described(server, run):
    """Key, indexes and capacity are the requested ones. A second table of the same name is an error."""
    index, capacity = ["--gsi", "by_day=day:S/KEYS_ONLY"], ["--billing", "provisioned", "--rcu", 5, "--wcu", 6]
    words = ["--key", "pk:S,sk:N", *index, *capacity]
    code, out = run("table", "create", "made", *words, "--json")
    assert (code, json.loads(out)["table"]) == (0, "made")
    table = ddbio.describe_table("made", endpoint_url=server.endpoint_url)
    assert (table.key_types, table.rcu, table.wcu) == ((("pk", "S"), ("sk", "N")), 5, 6)
    assert [index.key_names for index in table.indexes] == [("day",)]
    assert json.loads(run("table", "describe", "made", "--json")[1])["name"] == "made"
    assert "key      pk:S, sk:N" in run("table", "describe", "made")[1]
    with pytest.raises(ddbio.TargetError, match="'made' exists already"):
        ddbio.create_table("made", key="pk:S", endpoint_url=server.endpoint_url)


@pytest.mark.parametrize("options", [{}, {"key": "pk:S", "billing": "provisioned"}, {"key": "pk:X"}])
def test_a_table_needs_its_key_and_its_rates(server, options):
    """A missing or malformed option is an error before any request to the service."""
    with pytest.raises(ddbio.OptionError):
        ddbio.create_table("bad", endpoint_url=server.endpoint_url, **options)


def test_a_load_creates_its_table(server, run, tmp_path):
    """The dry run plans for the new table and creates none. The load creates it, and the next one uses it."""
    (tmp_path / "rows.jsonl").write_text('{"pk":"a","n":1}\n{"pk":"b","n":2}\n')
    words = ["load", tmp_path / "rows.jsonl", "new", "--state", tmp_path / "state", "--create-table", "--key", "pk"]
    plan = json.loads(run(*words, "--dry-run", "--json")[1])
    assert (plan["rows"], plan["on_demand"]) == (2, True)
    with pytest.raises(ddbio.NotFoundError, match="or give create_table, and option 'key'"):
        ddbio.load_files(tmp_path / "rows.jsonl", "new", endpoint_url=server.endpoint_url)
    with pytest.raises(ddbio.OptionError, match="the first argument of a load is its source"):
        ddbio.load_files("new", str(tmp_path / "rows.jsonl"), endpoint_url=server.endpoint_url)
    for _ in range(2):
        assert json.loads(run(*words, "--json")[1])["written"] == 2
    assert ddbio.read_table("new", endpoint_url=server.endpoint_url).num_rows == 2


def test_the_key_of_a_new_table_is_the_one_its_rows_had(server, run, tmp_path):
    """Files of a scan and files for an import contain their table's key. Other files do not, which is an error."""
    server.load("model", [b'{"pk":{"S":"a"},"sk":{"N":"1"}}'], "pk:S,sk:N")
    connection = {"endpoint_url": server.endpoint_url}
    ddbio.scan_to_files("model", tmp_path / "scan", engine="local", **connection)
    assert json.loads(run("load", tmp_path / "scan", "again", "--create-table", "--json")[1])["written"] == 1
    assert ddbio.describe_table("again", **connection).key_types == (("pk", "S"), ("sk", "N"))
    rows = ddbio.read_table("model", **connection)
    made = ddbio.write_import_files(rows, tmp_path / "import", like="model", compression="gzip", **connection)
    (tmp_path / "import" / "data" / "rows.jsonl").write_text('{"pk":"a","sk":1}\n')
    source = f"{tmp_path}/import/data/rows.jsonl"
    assert made.key == "pk:S,sk:N"
    with pytest.raises(ddbio.OptionError, match="states no key for the new table: give key"):
        ddbio.load_files(source, "third", create_table=True, **connection)
    with pytest.raises(ddbio.OptionError, match="give both, or leave key out"):
        ddbio.load_files(source, "third", key="pk:S", **connection)


def test_a_load_reads_stdin(server, run):
    """A source of - is stdin in the format of --format. Without it that is wrong usage."""
    server.load("piped", b"", "pk:S")
    words = ["load", "-", "piped", "--json"]
    code, out = run(*words, "--format", "csv", stdin="pk,n\na,1\nb,2\nc,3\n")
    assert (code, json.loads(out)["written"]) == (0, 3)
    assert run(*words, stdin="x")[0] == 2


def test_a_load_of_stdin_promises_no_continuation(server, run):
    """Its file is deleted when it ends: a failure shows no command to continue, and a job id is wrong usage."""
    words = ["load", "-", "piped", "--create-table", "--key", "pk:S", "--format", "csv"]
    failed = CliRunner().invoke(cli, [*words, "--endpoint-url", server.endpoint_url], input="pk,n\n,1\n").exception
    assert isinstance(failed, ddbio.DdbioError)
    assert "resumes the load" not in str(failed)
    assert run(*words, "--job-id", "night", stdin="pk\na\n")[0] == 2


def test_a_copy_shows_its_writes_and_its_verification(server, monkeypatch):
    """The bar of a copy shows written items, not those that the scan reads. --verify is shown."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    server.load("shown", [b'{"pk":{"S":"a"}}', b'{"pk":{"S":"b"}}'], "pk:S")
    words = ["copy", "shown", "shown-copy", "--create-target", "--verify", "--endpoint-url", server.endpoint_url]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stderr)
    assert "copy shown to shown-copy" in printed
    assert "100% 2 items" in printed
    assert "RCU/s" not in printed.partition("copy shown to shown-copy")[2]
    assert "verify: reading all of shown-copy to compare its digest" in printed
