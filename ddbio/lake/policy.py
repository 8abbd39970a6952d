"""Maintenance of several lake tables by a policy file."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from ddbio.errors import NotFoundError, OptionError
from ddbio.lake.maintain import maintain
from ddbio.lake.options import MaintainOptions
from ddbio.options import connection_of, parse_options
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from ddbio.lake.maintain import MaintainReport
    from ddbio.options import ConnectionOptions

_MEMBERS = {"defaults", "tables"}


def maintain_by_policy(path: str, options: ConnectionOptions) -> tuple[MaintainReport, ...]:
    """Maintain the lake tables of a policy file in TOML or YAML.

    Parameters
    ----------
    path
        The file, with ``defaults`` and ``tables``, a list of options that include ``table``.

    Raises
    ------
    NotFoundError
        If there is no such file, or no such table.
    OptionError
        If the file is invalid; the message names the table.
    TargetError
        If other writers repeatedly win the race for a commit.
    """
    return tuple(map(maintain, read_policy(path, options)))


def read_policy(path: str, options: ConnectionOptions) -> list[MaintainOptions]:
    """Return the options of each table of a policy file in TOML or YAML; those of ``tables`` override ``defaults``.

    Raises
    ------
    NotFoundError
        If there is no such file.
    OptionError
        If options are invalid; the message names the table.
    """
    policy = _read_file(path)
    if not isinstance(policy, dict) or set(policy) - _MEMBERS or not isinstance(policy.get("tables"), list):
        raise OptionError(f"the policy {path} must have a list of tables, and may have defaults, but nothing else")
    table_options = []
    for number, table in enumerate(policy["tables"], 1):
        if not isinstance(table, dict) or "table" not in table:
            raise OptionError(f"table {number} of the policy {path} has no member 'table', its folder")
        try:
            values = {**connection_of(options), **policy.get("defaults", {}), **table}
            table_options.append(parse_options(MaintainOptions, values))
        except OptionError as error:
            raise OptionError(f"{table['table']} in the policy {path}: {error}") from None
    return table_options


def _read_file(path: str) -> Any:
    try:
        text = local_path(path).read_text("utf-8")
    except OSError as error:
        raise NotFoundError(f"the policy {path} cannot be read: {error.strerror}") from None
    if path.endswith(".toml"):
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise OptionError(f"the policy {path} is not TOML: {error}") from None
    try:
        # The YAML reader is needed only for policies.
        import yaml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OptionError("policies in YAML need pyyaml: pip install 'ddbio[quality]', or use TOML") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise OptionError(f"the policy {path} is not YAML: {error}") from None
