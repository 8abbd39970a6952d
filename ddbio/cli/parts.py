"""A command with parts: its own arguments, unless the first one names a part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class CommandWithParts(click.Command):
    """Run ``VERB ARGUMENTS``, or ``VERB PART ARGUMENTS`` if the first argument is the name of a part.

    What is called like a part has to be given by another name, a table by its ARN.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parts: dict[str, click.Command] = {}

    def part(self, name: str) -> Callable[[click.Command], click.Command]:
        """Return a decorator that makes a command a part of this one."""

        def add(command: click.Command) -> click.Command:
            self.parts[name] = command
            return command

        return add

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the part that the first argument names, or of this command."""
        if args and args[0] in self.parts:
            part = self.parts[args[0]]
            return part.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and then the parts."""
        super().format_options(ctx, formatter)
        with formatter.section("Parts, instead of the arguments above"):
            formatter.write_dl([(name, part.get_short_help_str(limit=200)) for name, part in self.parts.items()])
