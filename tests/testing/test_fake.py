from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from botocore.exceptions import ClientError

from ddbio.errors import DdbioError, DecodeError, OptionError
from ddbio.testing import FakeDynamoDB
from ddbio.testing.__main__ import main

ITEMS = [{"pk": {"S": f"k{at}"}, "sk": {"N": str(at)}, "x": {"S": "x" * 1000}} for at in range(2000)]
KEY = "pk:S,sk:N"


def get(url):
    """Return the JSON at an address."""
    with urllib.request.urlopen(url) as reply:
        return json.loads(reply.read())


@pytest.fixture
def serve(tmp_path):
    """Return a starter of ``python -m ddbio.testing``. Processes that still run at the end are killed."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "ddbio.testing", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.mark.parametrize("process", [False, True])
def test_thread_and_process_do_the_same(connect, process):
    """Loading, reading, the log of consumption and the counts are the same in this process and in another one."""
    with FakeDynamoDB(process=process) as fake:
        assert fake.load("tab", ITEMS, KEY) == 2000
        pages = list(
            connect(fake.endpoint_url).get_paginator("scan").paginate(TableName="tab", ReturnConsumedCapacity="TOTAL")
        )
        assert sum(page["Count"] for page in pages) == 2000
        consumed = fake.consumed()
        assert sum(read for _, read, _ in consumed) == sum(page["ConsumedCapacity"]["CapacityUnits"] for page in pages)
        assert consumed == fake.consumed("tab")
        assert all(type(row) is tuple and len(row) == 3 for row in consumed)
        assert [list(row) for row in consumed] == get(fake.endpoint_url + "/_ddbio/consumed?table=tab")
        assert fake.requests() == get(fake.endpoint_url + "/_ddbio/requests") == {"Scan": len(pages)}
        with pytest.raises(DecodeError, match="not JSON"):
            fake.load("tab", b"{", KEY)
        with pytest.raises(OptionError, match="no key"):
            fake.load("tab", b"", "pk:X")


def test_fake_must_run_to_be_used():
    """Before its start and after its stop the error of the fake names the remedy."""
    fake = FakeDynamoDB()
    with fake:
        url = fake.endpoint_url
        assert fake.start().endpoint_url == url
    for _ in range(2):
        fake.stop()
    with pytest.raises(DdbioError, match="not running"):
        fake.consumed()


def test_default_throughput_throttles_with_a_reason(connect):
    """With --rcu a loaded table throttles with the table's reason, which botocore shows."""
    with FakeDynamoDB(rcu=10) as fake:
        fake.load("tab", ITEMS, KEY)
        client = connect(fake.endpoint_url)
        assert client.describe_table(TableName="tab")["Table"]["ProvisionedThroughput"]["ReadCapacityUnits"] == 10
        client.scan(TableName="tab")
        with pytest.raises(ClientError) as caught:
            client.scan(TableName="tab")
    assert caught.value.response["Error"]["Code"] == "ProvisionedThroughputExceededException"
    (reason,) = caught.value.response["ThrottlingReasons"]
    assert reason["reason"] == "TableReadProvisionedThroughputExceeded"
    assert reason["resource"].endswith(":table/tab")


def test_latency_holds_every_reply_back(connect):
    """A reply takes at least the latency."""
    with FakeDynamoDB(latency_seconds=0.05) as fake:
        client = connect(fake.endpoint_url)
        begun = time.monotonic()
        client.list_tables()
        assert time.monotonic() - begun >= 0.05


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_serves_until_a_signal(serve, connect, number):
    """The first line is the address. A signal ends the command with exit code 0."""
    process = serve("--port", "0")
    url = json.loads(process.stdout.readline())["endpoint_url"]
    assert connect(url).list_tables()["TableNames"] == []
    process.send_signal(number)
    assert process.communicate() == (b"", b"")
    assert process.returncode == 0


def test_command_loads_a_file(serve, connect, tmp_path):
    """A file of export lines is loaded before the address is printed."""
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps({"Item": item}) + "\n" for item in ITEMS[:50]))
    process = serve("--load", str(path), "--table", "tab", "--key", KEY, "--until-eof")
    url = json.loads(process.stdout.readline())["endpoint_url"]
    table = connect(url).describe_table(TableName="tab")["Table"]
    assert table["ItemCount"] == 50
    assert [part["AttributeName"] for part in table["KeySchema"]] == ["pk", "sk"]
    process.stdin.close()
    assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--load", os.devnull], "OptionError: --load needs --table and --key"),
        (["--load", "/absent.jsonl", "--table", "tab", "--key", "pk"], "FileNotFoundError"),
        (["--load", os.devnull, "--table", "tab", "--key", "pk:X"], "OptionError: 'pk:X' is no key"),
        (["--port", "65536"], "OptionError: port is 65536: give at most 65535"),
        (["--partitions", "0"], "OptionError: partitions is 0: give 1 or more"),
        (["--rcu", "nan"], "OptionError: rcu is nan: give 0 or more"),
        (["--latency-ms", "-5"], "OptionError: latency_seconds is -0.005: give 0 or more"),
        (["--unprocessed-ratio", "2"], "OptionError: unprocessed_ratio is 2.0: give a share from 0 to 1"),
    ],
)
def test_command_fails_in_one_line(capfd, arguments, problem):
    """A file that cannot be loaded, or a port that cannot be served, is one line on standard error and exit code 1."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert main(arguments) == 1
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    output, error = capfd.readouterr()
    assert output == ""
    assert error.startswith(problem)
    assert error.count("\n") == 1
