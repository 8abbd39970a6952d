"""Flags of options: repeated ones."""

import gc

import click
import pytest
from click.testing import CliRunner

from ddbio.cdc.options import ChangesReadOptions, ReplayOptions
from ddbio.cli.flags import flags_of, in_flags, parse_flags
from ddbio.errors import SchemaError
from ddbio.scan.options import ScanOptions


def print_columns(**flags):
    """Print the columns of the flags."""
    click.echo(repr(parse_flags(ScanOptions, {**flags, "table": "t"}).columns))


command = click.Command("columns", params=flags_of(ScanOptions, without=["table"]), callback=print_columns)


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
    """A flag with names may be repeated: no name is lost."""
    done = CliRunner().invoke(command, arguments)
    assert done.output == f"{columns}\n"


@pytest.mark.parametrize("options", [ChangesReadOptions, ReplayOptions])
def test_names_of_keys_are_no_file(options):
    """A flag for key names takes names; a flag for keys to look up takes a file."""
    values = {"dest": "log"} if options is ReplayOptions else {}
    assert parse_flags(options, {"source": "a.json", "keys": "pk,sk", **values}).keys == ("pk", "sk")


def test_a_process_that_runs_many_commands_frees_their_memory():
    """The memory of a command is not frozen: the collector is already enabled."""
    before = gc.get_freeze_count()
    CliRunner().invoke(command, [])
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("give wcu_per_second or write_ratio, not both", "give --wcu-per-second or --write-ratio, not both"),
        ("option 'mode' has value 'x'", "option --mode has value 'x'"),
        ("delimiter is for format=csv", "delimiter is for --format csv"),
        ("from_time and to_time belong together", "--from and --to belong together"),
        ("column 'wcu_per_second' of my_rows.csv", "column 'wcu_per_second' of my_rows.csv"),
        ("s3://bucket/job_id/x is not empty", "s3://bucket/job_id/x is not empty"),
        ("option 'table' is missing", "option 'table' is missing"),
    ],
)
def test_messages_name_flags(message, shown):
    """Options are shown as flags. Names in data and in paths are unchanged."""
    assert in_flags(message) == shown


def test_a_broken_schema_file_is_named(tmp_path):
    """For any error in a schema file, the message names the file."""
    for number, text in enumerate(["{", "{}", "[]", '{"fields": 1}', '{"version": 99}']):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        done = CliRunner().invoke(command, ["--schema", str(path)])
        assert isinstance(done.exception, SchemaError), (text, done.exception)
        assert str(path) in str(done.exception)
