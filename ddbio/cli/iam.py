"""The command that prints IAM policies: ``iam``."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.cli.flags import flags_of, given, parse_flags
from ddbio.cli.main import VERBS
from ddbio.cli.parts import CommandWithParts
from ddbio.options import IamOptions


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="VERB [OPTIONS OF THE VERB]...")
@flags_of(IamOptions)
def iam(*, command: tuple[str, ...], **flags: Any) -> None:
    """Print the IAM policy for what VERB does with these arguments and options, and for nothing else.

    Give the command as it is to run: ddbio iam scan orders s3://my-bucket/orders --mode append. Nothing is called.
    """
    from ddbio.advice.iam_policy import iam_policy

    verb, arguments = parsed_command(command)
    found = iam_policy(verb, arguments, parse_flags(IamOptions, given(flags)))
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


def parsed_command(words: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the verb that a command line begins with, and its arguments and flags by name."""
    names, found = [words[0]], VERBS.get(words[0])
    rest = list(words[1:])
    while isinstance(found, click.Group) or (isinstance(found, CommandWithParts) and rest and rest[0] in found.parts):
        if not rest:
            break
        names.append(rest[0])
        group = found.parts if isinstance(found, CommandWithParts) else found.commands
        found = group[rest[0]] if rest[0] in list(group) else None
        rest = rest[1:]
    verb = " ".join(names)
    if found is None or isinstance(found, click.Group):
        raise click.UsageError(
            f"{verb!r} is no command: give one as it is to run, such as scan orders s3://bucket/prefix"
        )
    context = found.make_context(f"ddbio {verb}", rest)
    return verb, {name: value for name, value in context.params.items() if value not in (None, False, ())}
