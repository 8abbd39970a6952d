"""Load a verb when it is called: a command line that only lists its verbs imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """List its verbs by their summaries."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the names of all verbs, and what each does."""
        if isinstance(self.commands, Verbs):
            with formatter.section("Commands"):
                formatter.write_dl(sorted(self.commands.summaries.items()))
