"""Entry point of the command line: it loads commands on demand and turns failures into one line and an exit code."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import click

from ddbio.cli.commands import COMMANDS, GROUPS
from ddbio.cli.terminal import escaping
from ddbio.errors import DdbioError
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

USAGE_EXIT, FAILURE_EXIT, INTERRUPTED_EXIT = 2, 1, 130


class Commands(Mapping[str, click.Command]):
    """Commands whose names start with certain words. Each command is created at its first use.

    Parameters
    ----------
    words
        The words, each followed by a space.

    Attributes
    ----------
    summaries
        The first line of each command's help, by its next word.
    """

    def __init__(self, words: str = "") -> None:
        names = [name.removeprefix(words).partition(" ")[0] for name in COMMANDS if name.startswith(words)]
        self.summaries = {name: _help_of(words + name).splitlines()[0] for name in names}
        self._words, self._made = words, dict[str, click.Command]()

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._made:
            self._made[name] = self._make(self._words + name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self.summaries

    def __iter__(self) -> Iterator[str]:
        return iter(self.summaries)

    def __len__(self) -> int:
        return len(self.summaries)

    def _make(self, name: str) -> click.Command:
        if name in GROUPS:
            return CommandGroup(name, f"{name} ", GROUPS[name])
        # Imported here, because it imports everything that checks options: lists must be printed immediately.
        from ddbio.cli.making import make_command

        return make_command(COMMANDS[name], Commands(f"{name} "))


def _help_of(name: str) -> str:
    return COMMANDS[name].help if name in COMMANDS else GROUPS[name]


class CommandGroup(click.Group):
    """Group of commands whose names start with certain words. It lists them, or runs one."""

    def __init__(self, name: str, words: str, help: str, **settings: Any) -> None:  # noqa: A002 - click's name
        super().__init__(name, commands=cast("Any", Commands(words)), help=help, **settings)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command with that name. Errors in loading it are raised, not hidden as an unknown name."""
        return self.commands[cmd_name] if cmd_name in self.commands else None  # noqa: SIM401 - get hides a KeyError

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the name and the summary of each command."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(cast("Commands", self.commands).summaries.items()))


@click.group(
    cls=CommandGroup, words="", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="ddbio")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", help="Minimum level of the log on stderr.")  # fmt: skip # noqa: E501
def cli(log_level: str) -> None:
    """Move data between Amazon DynamoDB and S3, fast and exactly."""
    own = logging.StreamHandler(sys.stderr)
    own.setFormatter(_WithoutSecrets("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level.upper(), handlers=[own])
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_for_users)


class _WithoutSecrets(logging.Formatter):
    """Formatter that removes secrets from all records: botocore logs headers and signatures, py4j all values."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return _without_secrets(super().format(record))


def run(argv: Sequence[str]) -> None:
    """Run the command line and exit: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
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
        ways = "" if error.ctx is None else f"; '{error.ctx.command_path} --help' shows its usage"
        if error.ctx is not None and not as_json:
            click.echo(error.ctx.get_usage(), err=True)
        _fail("OptionError", error.format_message() + ways, USAGE_EXIT, as_json=as_json)
    except BrokenPipeError:
        # The reader of stdout, such as head, has closed it, and closing it here must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DdbioError as error:
        logging.getLogger("ddbio").debug("failed", exc_info=error)
        _fail(type(error).__name__, str(error), FAILURE_EXIT, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - Python would print it with secrets and without escapes
        sys.stderr.write(_without_secrets("".join(traceback.format_exception(error))))
        raise SystemExit(FAILURE_EXIT) from None


def _is_for_users(record: logging.LogRecord) -> bool:
    """Return False for tracebacks of Ctrl-C, and of py4j when its JVM dies. Both are reported after the clean-up."""
    is_interrupt = record.exc_info is not None and isinstance(record.exc_info[1], KeyboardInterrupt)
    return not is_interrupt and not (record.exc_info and record.name.startswith("py4j"))


def _without_secrets(text: str) -> str:
    # Imported only for messages: --help is printed immediately.
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
