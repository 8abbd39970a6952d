"""Output of the command line: no control or bidirectional characters, and no secrets."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import unicodedata

import pytest

from ddbio.cli import main
from ddbio.cli.terminal import escaped, escaping, table_text
from ddbio.testing import FakeDynamoDB

# A title, a cleared screen, the clipboard, a C1 colour, text from right to left, and an overwritten line.
HOSTILE = "\x1b]0;T\x07\x1b[2J\x1b]52;c;eA==\x07\x9b31m\u202e\u2066\u061c\u2028\x7f\rok"
KEY = "k" + HOSTILE
SECRET, TOKEN = "CANARYsecretCANARYsecretCANARYsecretCANA", "CANARYtoken/CANARY+token=="


def raw(text):
    """Return the characters of a text that a terminal would execute."""
    return {
        character
        for character in text
        if character not in "\n\t" and unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
    } | {
        character
        for character in text
        if unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI"}
    }


@pytest.mark.parametrize("character", [*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udc9b"])  # fmt: skip # noqa: E501
@pytest.mark.parametrize("before", ["a", "é", "中“"])
def test_characters_that_a_terminal_executes_are_escaped_as_in_json(character, before):
    """Tabs and line ends stay. All others are escapes, which mean the same in JSON."""
    text = f"{before}{character}b"
    assert escaped(text) == (text if character in "\n\t" else f"{before}\\u{ord(character):04x}b")
    if character >= " ":
        assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    "text", ["", "plain", "é ü ñ £ °", "中文 한국어 שלום سلام", "“quotes” – dashes …", "👩‍👩‍👧 🇨🇭"]
)
def test_other_text_is_unchanged(text):
    """Text in any language is unchanged."""
    assert escaped(text) == text


@pytest.fixture(scope="module")
def endpoint():
    """Serve a table whose keys, attributes and values are hostile."""
    items = [{"pk": {"S": f"{KEY}{number}"}, f"m{HOSTILE}": {"N": str(number)}} for number in range(9)]
    items.append({"pk": {"S": KEY}, f"m{HOSTILE}": {"S": HOSTILE}})
    with FakeDynamoDB() as fake:
        fake.load("orders", [json.dumps(item).encode() + b"\n" for item in items], key="pk:S")
        yield fake.endpoint_url


@pytest.fixture(scope="module")
def files(endpoint, tmp_path_factory):
    """Return a folder with files whose names, columns, lines and partitions are hostile."""
    folder = tmp_path_factory.mktemp("files")
    with escaping():
        main.cli.main(["scan", "orders", str(folder / "plain"), "--endpoint-url", endpoint], standalone_mode=False)
        words = ["scan", "orders", str(folder / "parted"), "--partition-by", "pk", "--endpoint-url", endpoint]
        main.cli.main(words, standalone_mode=False)
    (folder / "bad.csv").write_text(f"pk,v\n{HOSTILE.strip()},x,y\n")
    (folder / f"x{HOSTILE}.jsonl").write_text("{")
    (folder / f"d{HOSTILE}").mkdir()
    (folder / f"d{HOSTILE}" / "a.jsonl").write_text('{"pk":"a"}\n')
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["scan", "orders", "{tmp}/out", "{e}"],
        ["scan", "orders", "{tmp}/out", "--partition-by", "pk", "{e}"],
        ["scan", "orders", "{tmp}/out", "{e}", "--json"],
        ["plan", "scan", "orders", "{e}"],
        ["read", "orders", "{e}"],
        ["schema", "orders", "{e}"],
        ["layout", "{files}/parted"],
        ["files", "{files}/parted"],
        ["compact", "{files}/parted", "--dry-run"],
        ["validate", "orders", "{files}/plain", "{e}"],
        ["validate", "orders", "{files}/bad.csv", "{e}"],
        ["load", "{files}/bad.csv", "orders", "{e}"],
        ["load", "{files}/x{h}.jsonl", "orders", "{e}"],
        ["load", "{files}/d{h}", "orders", "{e}"],
        ["load", "{files}/d{h}", "orders", "{e}", "--json"],
        ["load", "{files}/none{h}", "orders", "{e}"],
        ["table", "describe", "none{h}", "{e}"],
        ["table", "describe", "none{h}", "{e}", "--json"],
        ["scan", "orders", "{tmp}/out", "--where", "{h} = 1", "{e}"],
        ["scan", "orders", "--{h}"],
        ["{h}"],
    ],
)
def test_no_command_prints_characters_that_a_terminal_executes(ddbio, endpoint, files, tmp_path, words):
    """Reports, tables, lists, plans, progress and errors are escaped, as text and as JSON."""
    values = {"tmp": tmp_path, "files": files, "h": HOSTILE}
    flags = [flag for word in words for flag in (("--endpoint-url", endpoint) if word == "{e}" else (word,))]
    done = ddbio(*(flag.format(**values) for flag in flags))
    assert done.stdout + done.stderr
    assert not raw(done.stdout + done.stderr)


def test_the_bar_has_no_sequences_but_its_own(ddbio, endpoint, files, monkeypatch):
    """It uses colours, the cursor, and cleared lines. The name of the job is escaped, and its brackets are no style."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = ddbio("load", files / f"d{HOSTILE}", "orders", "--endpoint-url", endpoint)
    assert "load" in done.stderr
    assert not raw(re.sub(r"\x1b\[[0-9;?]*[A-Zhlm]|\r", "", done.stderr))
    assert "\x1b[31m" not in done.stderr


def test_json_has_every_character(ddbio, endpoint):
    """JSON output has the original values, escaped or not."""
    lines = ddbio("read", "orders", "--endpoint-url", endpoint).stdout.splitlines()
    assert {json.loads(line)["pk"] for line in lines} >= {KEY, *(f"{KEY}{number}" for number in range(9))}


def test_data_for_other_programs_are_unchanged(ddbio, endpoint):
    """CSV has no such escapes, so it is unchanged unless it is printed on a terminal."""
    assert KEY in ddbio("read", "orders", "--format", "csv", "--columns", "pk", "--endpoint-url", endpoint).stdout


def test_data_are_escaped_on_a_terminal(endpoint, monkeypatch):
    """Data are escaped like all other output."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    with escaping():
        words = ["read", "orders", "--format", "csv", "--columns", "pk", "--endpoint-url", endpoint]
        main.cli.main(words, standalone_mode=False)
    assert "pk" in out.getvalue()
    assert not raw(out.getvalue())


def test_a_cell_of_a_table_is_one_line():
    """A line end within a value starts no row, brackets are no style, and column widths match the shown text."""
    shown = table_text(["a", "b"], [("x\ny[red]\x1b[31m", "1")])
    assert shown.splitlines() == ["", "a                    b", r"x\ny[red]\u001b[31m  1"]


def test_an_unexpected_error_is_escaped_and_has_no_secret(ddbio, monkeypatch):
    """A traceback is treated like other output."""

    def fail(**_):
        raise RuntimeError(f"{HOSTILE} aws_secret_access_key={SECRET} {TOKEN}")

    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setattr(main.cli.commands["demo"], "callback", fail)
    done = ddbio("demo")
    assert (done.returncode, "RuntimeError" in done.stderr) == (1, True)
    assert not raw(done.stderr)
    assert SECRET not in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.parametrize("name", ["botocore.auth", "urllib3.connectionpool", "pyarrow", "deltalake", "pyiceberg.io", "py4j.clientserver", "pyspark", "ddbio.scan"])  # fmt: skip # noqa: E501
def test_no_library_logs_a_secret(level, name, monkeypatch):
    """Secrets are removed from the message, its arguments and a traceback, in any logger at any level."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    error = ValueError(SECRET)
    caught = (ValueError, error, None)
    number = logging.getLevelName(level.upper())
    record = logging.LogRecord(name, number, __file__, 1, "a %s b %r", (SECRET, {"x": TOKEN.encode()}), caught)
    line = main._WithoutSecrets("%(levelname)s %(name)s: %(message)s").format(record)
    assert f"{level.upper()} {name}: a … b" in line
    assert "CANARY" not in line


@pytest.mark.parametrize("source", ["environment", "file", "process"])
def test_a_debug_log_has_no_secret(endpoint, tmp_path, source):
    """For any source of credentials: botocore logs each request with its headers, and the signature."""
    answer = {"Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": SECRET, "SessionToken": TOKEN}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    keys = f"aws_access_key_id=AKIDEXAMPLE\naws_secret_access_key={SECRET}\naws_session_token={TOKEN}\n"
    profile = f"credential_process=cat {tmp_path}/answer.json\n" if source == "process" else keys
    (tmp_path / "credentials").write_text(f"[default]\n{profile}")
    names = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = {"AWS_SHARED_CREDENTIALS_FILE": f"{tmp_path}/credentials", "AWS_REGION": "eu-west-1"}
    if source == "environment":
        environment |= {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
    words = ["--log-level", "debug", "table", "describe", "orders", "--endpoint-url", endpoint]
    command = [sys.executable, "-m", "ddbio", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**names, **environment})
    assert "x-amz-security-token" in done.stderr.lower()
    assert "CANARY" not in done.stderr
    assert "Signature=" not in done.stderr
