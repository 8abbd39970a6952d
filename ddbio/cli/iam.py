"""The command that prints IAM policies: ``iam``."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.advice.options import IamOptions
from ddbio.cli.commands import COMMANDS, GROUPS
from ddbio.cli.flags import given, parse_flags
from ddbio.cli.making import make_command


def iam(*, command: tuple[str, ...], **flags: Any) -> None:
    """Print the policy of a command line; nothing is called."""
    from ddbio.advice.iam_policy import iam_policy

    verb, arguments = parsed_command(command)
    found = iam_policy(verb, arguments, parse_flags(IamOptions, given(flags)))
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


def parsed_command(words: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the command that a command line begins with, and its arguments and flags by name."""
    verb = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), None)
    if verb is None:
        named = " ".join(words[: 2 if words[0] in GROUPS else 1])
        raise click.UsageError(
            f"{named!r} is no command: give one as it is to run, such as scan orders s3://bucket/prefix"
        )
    context = make_command(COMMANDS[verb]).make_context(f"ddbio {verb}", list(words[len(verb.split()) :]))
    return verb, {name: value for name, value in context.params.items() if value not in (None, False, ())}
