"""The command ``iam``, which prints IAM policies."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.advice.options import IamOptions
from ddbio.cli.commands import COMMANDS, GROUPS
from ddbio.cli.flags import parse_flags, set_flags
from ddbio.cli.making import make_command


def iam(*, command: tuple[str, ...], **flags: Any) -> None:
    """Print the policy of a command line. No service is called."""
    from ddbio.advice.iam_policy import iam_policy

    verb, arguments = parsed_command(command)
    policy = iam_policy(verb, arguments, parse_flags(IamOptions, set_flags(flags)))
    click.echo(json.dumps(policy, indent=2, ensure_ascii=False))


def parsed_command(words: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the command at the start of a command line, and its arguments and flags by name."""
    verb = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), None)
    if verb is None:
        named = " ".join(words[: 2 if words[0] in GROUPS else 1])
        raise click.UsageError(
            f"{named!r} is no command: give one as it is to run, such as scan orders s3://bucket/prefix"
        )
    context = make_command(COMMANDS[verb]).make_context(f"ddbio {verb}", list(words[len(verb.split()) :]))
    return verb, {name: value for name, value in context.params.items() if value not in (None, False, ())}
