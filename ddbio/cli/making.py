"""Generation of the commands of :mod:`ddbio.cli.commands`: flags from options, the call of the verb, and its output."""

from __future__ import annotations

import functools
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import ddbio.options as options_package
from ddbio.cli.flags import flags_of, is_quiet, parse_conf, parse_flags, quiet_flag
from ddbio.public import function_at
from ddbio.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.cli.commands import Command

FAILED_EXIT = 1
"""Exit code of a command that found problems or differences."""


class CommandWithParts(click.Command):
    """Command ``VERB ARGUMENTS`` that also has ``VERB PART ARGUMENTS``, if the first argument is the name of a part.

    An argument that equals the name of a part needs another spelling; for a table, use its ARN.
    """

    def __init__(self, name: str, parts: Mapping[str, click.Command], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.parts = parts

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the part in the first argument, or of this command."""
        if args and args[0] in self.parts:
            part = self.parts[args[0]]
            return part.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the parts."""
        super().format_options(ctx, formatter)
        with formatter.section("Subcommands, instead of the arguments above"):
            formatter.write_dl([(name, part.get_short_help_str(limit=200)) for name, part in self.parts.items()])


def make_command(row: Command, parts: Mapping[str, click.Command] | None = None) -> click.Command:
    """Return the command of a row.

    Parameters
    ----------
    parts
        The commands whose name is this one's name and another word.
    """
    arguments, options = _arguments_of(row), _options_of(row)
    parameters: list[click.Parameter] = [
        click.Argument(
            [name], nargs=-1 if argument.is_repeated else 1, required=argument.is_required, metavar=argument.metavar
        )
        for name, argument in arguments.items()
    ]
    if options is not None:
        parameters += flags_of(
            options, without={*(argument.field for argument in arguments.values()), *row.without.split()}
        )
    more = row.more if row.more is not None or not row.verb else VERBS[row.verb].more
    parameters += row.parameters
    parameters += [flag for name, flag in _more_flags().items() if name in (more or "").split()]
    if row.dry_run:
        parameters.append(click.Option(["--dry-run"], is_flag=True, help=row.dry_run))
    if "quiet" in row.output:
        parameters.append(quiet_flag())
    if "json" in row.output:
        parameters.append(click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object on stdout."))
    settings: dict[str, Any] = {"params": parameters, "help": row.help, "context_settings": row.settings}
    name, settings["callback"] = row.name.rpartition(" ")[2], functools.partial(_run, row)
    return CommandWithParts(name, parts, **settings) if parts else click.Command(name, **settings)


def _more_flags() -> dict[str, click.Option]:
    """Return the flags of keyword parameters that are no options."""
    described = "a DescribeTable response as JSON, with AverageItemSizeBytes."
    flags = (
        click.Option(["--master"], metavar="URL", help="Spark master of a new session."),
        click.Option(["--conf"], multiple=True, metavar="KEY=VALUE", help="Spark configuration (repeatable)."),
        click.Option(
            ["--from-file"],
            metavar="FILE",
            help=f"Plan for the table in this file, which need not exist: {described}",
        ),
    )
    return {str(flag.name): flag for flag in flags}


class _Argument(NamedTuple):
    field: str
    metavar: str | None
    is_required: bool
    is_repeated: bool = False


def _options_of(row: Command) -> Any:
    """Return the options class of a command, or None."""
    name = row.options or (VERBS[row.verb].options if row.verb else "")
    return getattr(options_package, name) if name else None


def _arguments_of(row: Command) -> dict[str, _Argument]:
    """Return the arguments of a command by name: those of its row, or those of its verb."""
    if row.arguments is None:
        return dict(_argument_of_verb(text) for text in VERBS[row.verb].arguments.split()) if row.verb else {}
    arguments = {}
    for text in row.arguments.split():
        names, _, metavar = text.removesuffix("?").removesuffix("...").partition(":")
        name, _, field = names.partition("=")
        arguments[name] = _Argument(field or name, metavar or None, not text.endswith("?"), "..." in text)
    return arguments


def _argument_of_verb(text: str) -> tuple[str, _Argument]:
    """Return the argument for a text of a verb such as ``log=source:rows`` or ``path/?``, named like its option."""
    name, _, field = re.sub(r":\w+|[/?]", "", text).partition("=")
    return field or name, _Argument(field or name, name.upper() if field else None, not text.endswith("?"))


def _run(row: Command, **values: Any) -> None:
    """Run a command with its arguments and flags."""
    if row.call:
        function_at(f"cli.{row.call}")(**values)
        return
    from ddbio.cli.reports import print_result

    as_json, dry_run = values.pop("as_json", False), values.pop("dry_run", False)
    arguments, cls = _arguments_of(row), _options_of(row)
    option_fields = {field.name for field in fields(cls)}
    named = {arguments[name].field if name in arguments else name: value for name, value in values.items()}
    options = parse_flags(cls, {name: value for name, value in named.items() if name in option_fields})
    passed = {name: value for name, value in named.items() if name not in option_fields}
    if row.plan and dry_run:
        run = function_at(VERBS[row.plan].run)
        passed = {name: value for name, value in passed.items() if name in arguments}
    else:
        run = function_at(row.run or VERBS[row.verb].run)
        passed |= {"conf": parse_conf(passed["conf"])} if "conf" in passed else {}
        passed |= {"dry_run": dry_run} if row.dry_run and not row.plan else {}
        passed |= _watch_of(row, as_json=as_json)
    result = run(options=options, **passed)
    print_result(result, options, as_json=as_json, key=row.key)
    if row.passed and not (dry_run or getattr(result, row.passed)):
        raise SystemExit(FAILED_EXIT)


def _watch_of(row: Command, *, as_json: bool) -> dict[str, Any]:
    """Return the watch of a job, if the command has one."""
    from ddbio.cli.progress import JobProgress, JobWatch

    if row.waits_for:
        return {"watch": JobWatch(row.waits_for, quiet=is_quiet()).look}
    if row.verb and "progress" in VERBS[row.verb].more.split():
        return {"watch": JobProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet())}
    return {}
