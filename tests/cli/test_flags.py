"""Flags made from options: what is given several times."""

import click
import pytest
from click.testing import CliRunner

from ddbio.cli.flags import flags_of, parse_flags
from ddbio.options import ScanOptions


@click.command()
@flags_of(ScanOptions, without=["table"])
def command(**flags: object) -> None:
    """Print the columns."""
    click.echo(repr(parse_flags(ScanOptions, {**flags, "table": "t"}).columns))


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        ([], None),
        (["--columns", "a,b"], ("a", "b")),
        (["--columns", "a", "--columns", "b, c"], ("a", "b", "c")),
    ],
    ids=repr,
)
def test_names_add_up(arguments, columns):
    """A flag that takes names may be given again: no name is lost."""
    done = CliRunner().invoke(command, arguments)
    assert done.output == f"{columns}\n"
