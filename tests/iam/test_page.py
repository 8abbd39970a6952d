"""The page of policies is generated from the table of calls."""

import json
import re
import shlex

import pytest
from click.testing import CliRunner

from ddbio.advice.iam_calls import TABLE
from ddbio.cli.main import cli
from tests.iam.page import OTHERS, PAGE, page_text


@pytest.fixture(autouse=True)
def _no_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_the_page_is_generated():
    """The page is the text that the table gives: run ``python -m tests.iam.page`` after a change."""
    assert PAGE.read_text("utf-8") == page_text()


@pytest.mark.parametrize("verb", sorted(TABLE))
def test_the_page_has_the_actions_of_every_command(verb):
    """The row of a command has each of its actions, and no other; the last line names commands without actions."""
    page = PAGE.read_text("utf-8")
    actions = {action for row in TABLE[verb] for action in row.actions.split()}
    row = re.search(rf"^\| `{verb}` \| (.*) \|$", page, re.MULTILINE)
    if not actions:
        assert row is None
        assert f"`{verb}`" in page.splitlines()[-1]
        return
    services = [re.fullmatch(r"\*\*(\w+)\*\* (.*)", text) for text in row[1].split("; ")]
    assert {f"{match[1]}:{name}" for match in services for name in re.findall(r"\w+", match[2])} == actions


@pytest.mark.parametrize("line", [line for *_, lines in OTHERS for line in lines])
def test_commands_of_the_page_print_a_policy(line):
    """Each command line of the page without its policy prints one."""
    result = CliRunner().invoke(cli, ["iam", *shlex.split(line)], catch_exceptions=False)
    assert json.loads(result.stdout)["Statement"]
