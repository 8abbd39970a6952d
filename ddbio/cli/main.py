"""The command line: load a command when it is called, and answer every failure with one line and an exit code."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

import click

from ddbio.cli.terminal import escaping
from ddbio.errors import DdbioError
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

USAGE_EXIT, FAILURE_EXIT, INTERRUPTED_EXIT = 2, 1, 130


class Verbs(MutableMapping[str, click.Command]):
    """Hold commands by name, each loaded from its module when it is first asked for.

    Parameters
    ----------
    homes
        Of each name the module and the attribute of the command, with a colon between, and what a list says of it:
        the first sentence of the command's help.
    """

    def __init__(self, homes: dict[str, tuple[str, str]]) -> None:
        self.summaries = {name: summary for name, (_, summary) in homes.items()}
        self._homes: dict[str, click.Command | str] = {name: home for name, (home, _) in homes.items()}

    def __getitem__(self, name: str) -> click.Command:
        found = self._homes[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self._homes[name] = getattr(importlib.import_module(f"ddbio.cli.{module}"), attribute)
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._homes[name] = command

    def __delitem__(self, name: str) -> None:
        del self._homes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


class LazyGroup(click.Group):
    """List its verbs by their summaries, and load the one that is called."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of that name; an error in loading it is raised, not taken for an unknown name."""
        return self.commands[cmd_name] if cmd_name in list(self.commands) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the names of all verbs, and what each does."""
        if isinstance(self.commands, Verbs):
            with formatter.section("Commands"):
                formatter.write_dl(sorted(self.commands.summaries.items()))


VERBS = Verbs(
    {
        "advise": (
            "advice:advise",
            "Compare the ways to keep a copy of TABLE in S3: what each costs a month, takes, and cannot do.",
        ),
        "apply": (
            "lake:apply",
            "Merge what is new of LOG into TABLE of a lake: the newest state of each item wins.",
        ),
        "archive": (
            "archive:archive",
            "Archive at DEST the items that the time to live has deleted, by SOURCE, the log of a table's changes.",
        ),
        "backup": ("tables:backup", "Make backups of tables, and new tables of backups or of a table's past."),
        "bootstrap": (
            "lake_maintenance:bootstrap",
            "Make LAKE, a table of a lake, hold what TABLE holds, or bring it up to date: log, base and changes.",
        ),
        "bulk": ("imports:bulk", "Let the service put files from S3 into a table that is there (new; experimental)."),
        "capacity": (
            "capacity:capacity",
            "Recommend mode, capacity and class of TABLE by what it has consumed.",
        ),
        "capture": (
            "capture:capture",
            "Write every change of TABLE once into a log of Parquet files at DEST, s3://bucket/prefix or a folder.",
        ),
        "catalog": ("catalog:catalog", "Make folders of files tables of a catalog."),
        "changes": ("changes:changes", "Read and write changes as Firehose delivers them."),
        "compact": ("folders:compact", "Rewrite the small files of folder PATH as few large ones, in one commit."),
        "copy": (
            "writing:copy",
            "Copy every item of table SOURCE into table TARGET, also of another region or account.",
        ),
        "demo": (
            "demo:demo",
            "Scan 336,776 real flights from an embedded DynamoDB through Spark into Parquet, and validate them.",
        ),
        "digest": (
            "reading:digest",
            "Print the digest of SOURCE: a table, an export, or files of Parquet or JSON Lines.",
        ),
        "doctor": (
            "inspection:doctor",
            "Check this machine, credentials and endpoints, a --table and the bucket of LOCATION, and say what to do.",
        ),
        "export": ("exports:export", "Work with DynamoDB's native exports to S3."),
        "files": (
            "folders:files",
            "Print the live files of folder PATH, one a line: those that belong to its newest, or another, version.",
        ),
        "history": (
            "lake_proof:history",
            "Print the states of the item KEY, or of every item, that SOURCE has, a log of changes or a lake table.",
        ),
        "iam": (
            "iam:iam",
            "Print the IAM policy for what VERB does with these arguments and options, and for nothing else.",
        ),
        "import": ("imports:import_table", "Work with DynamoDB's own import of new tables from S3."),
        "layout": (
            "inspection:layout",
            "Report how a dataset at PATH lies in files: sizes, small files, partitions, columns.",
        ),
        "load": (
            "writing:load",
            "Write the rows of SOURCE, a file, folder or glob of any format, here or on S3, into TABLE.",
        ),
        "maintain": (
            "lake:maintain",
            "Rewrite small files of the lake table TABLE; let old tombstones and files go.",
        ),
        "plan": ("plan:plan", "Print what a verb would do and cost, and do none of it."),
        "prices": ("prices:prices", "Show and refresh the prices that plans use."),
        "publish": (
            "folders:publish",
            "Make the live files of folder STAGING the next version of folder CURATED; --rollback takes it back.",
        ),
        "read": ("reading:read", "Print the items of SOURCE, a table or an export, on stdout, one a line."),
        "reconcile": (
            "lake_maintenance:reconcile",
            "Compare closed windows of LOG with incremental exports of TABLE; count and repair what was lost.",
        ),
        "replay": (
            "changes:replay",
            "Put the changes under SOURCE, delivered or failed, through again: into a log at DEST, or a --table.",
        ),
        "scan": ("reading:scan", "Scan TABLE into files at DEST: s3://bucket/prefix or a local folder."),
        "schema": (
            "reading:schema",
            "Print the columns inferred from SOURCE: a table, an export, or files of DynamoDB JSON.",
        ),
        "simulate": ("simulate:simulate", "Find out how long a job of any size would take, without AWS."),
        "table": ("tables:table", "Create and describe tables."),
        "validate": (
            "inspection:validate",
            "Tell whether TARGET holds the same items as SOURCE, which keys differ, and which quality rules hold.",
        ),
        "vacuum": ("folders:vacuum", "Delete old versions of folder PATH, and the files that only they name."),
        "verify": (
            "lake_proof:verify",
            "Tell whether LAKE, a table of a lake, holds what TABLE holds; exit code 1 if it does not.",
        ),
        "view": (
            "lake_proof:view",
            "Print the SQL of views over a log of changes, for Spark, DuckDB and Athena.",
        ),
        "warm": ("warm:warm", "Compile all loops ahead of their first use, or load stored ones."),
    }
)


@click.group(
    cls=LazyGroup, commands=VERBS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="ddbio")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", help="Log to stderr from this level on.")  # fmt: skip # noqa: E501
def cli(log_level: str) -> None:
    """Move data between Amazon DynamoDB and S3, fast and exactly."""
    own = logging.StreamHandler(sys.stderr)
    own.setFormatter(_WithoutSecrets("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level.upper(), handlers=[own])
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_for_users)


class _WithoutSecrets(logging.Formatter):
    """Format records, of whichever library, without secrets: botocore logs headers and signatures, py4j all values."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return _without_secrets(super().format(record))


def run(argv: Sequence[str]) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    with escaping():
        _run(argv)


def _run(argv: Sequence[str]) -> None:
    as_json = "--json" in argv
    try:
        cli.main(args=list(argv), prog_name="ddbio", standalone_mode=False)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except (click.Abort, KeyboardInterrupt) as ended:
        message = str(ended.__cause__ or ended) or "no file of this job is visible"
        _fail("Interrupted", f"interrupted; {message}", INTERRUPTED_EXIT, as_json=as_json)
    except click.UsageError as error:
        if error.ctx is not None and error.message == error.ctx.get_help():
            # A group without a verb: newer versions of click raise its help.
            click.echo(error.message, err=True)
            raise SystemExit(USAGE_EXIT) from None
        ways = "" if error.ctx is None else f"; '{error.ctx.command_path} --help' says how it is used"
        if error.ctx is not None and not as_json:
            click.echo(error.ctx.get_usage(), err=True)
        _fail("OptionError", error.format_message() + ways, USAGE_EXIT, as_json=as_json)
    except BrokenPipeError:
        # Whoever reads stdout, as head does, has what it wanted; closing it must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DdbioError as error:
        logging.getLogger("ddbio").debug("failed", exc_info=error)
        _fail(type(error).__name__, str(error), FAILURE_EXIT, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - as Python does, which would print it with secrets and unescaped
        sys.stderr.write(_without_secrets("".join(traceback.format_exception(error))))
        raise SystemExit(FAILURE_EXIT) from None


def _is_for_users(record: logging.LogRecord) -> bool:
    """Return False for tracebacks of Ctrl-C, and of py4j when its JVM dies: both are told once, after the clean-up."""
    is_interrupt = record.exc_info is not None and isinstance(record.exc_info[1], KeyboardInterrupt)
    return not is_interrupt and not (record.exc_info and record.name.startswith("py4j"))


def _without_secrets(text: str) -> str:
    # Imported when there is something to say: --help is answered at once.
    from ddbio.secrets import remember_secrets, without_secrets

    remember_secrets(*map(os.environ.get, ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")))
    return without_secrets(text)


def _fail(kind: str, message: str, code: int, *, as_json: bool) -> None:
    from ddbio.cli.flags import in_flags

    line = in_flags(_without_secrets(" ".join(message.split())))
    sys.stderr.write(f"ddbio: {line}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": {"type": kind, "message": line}}, ensure_ascii=False) + "\n")
    raise SystemExit(code)
