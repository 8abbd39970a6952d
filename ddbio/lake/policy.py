"""Read the file that says how several lake tables are maintained."""

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
    """Maintain the tables of a lake that a file of TOML or YAML names, as it says.

    Parameters
    ----------
    path
        The file: ``defaults``, and ``tables``, a list of options with their ``table``.

    Raises
    ------
    NotFoundError
        If there is no such file, or no such table.
    OptionError
        If the file is wrong, naming the table.
    TargetError
        If other writers are faster again and again.
    """
    return tuple(map(maintain, read_policy(path, options)))


def read_policy(path: str, options: ConnectionOptions) -> list[MaintainOptions]:
    """Return the options of each table of a file of TOML or YAML: ``defaults``, and over them those of ``tables``.

    Raises
    ------
    NotFoundError
        If there is no such file.
    OptionError
        Naming the table whose options are wrong.
    """
    given = _parsed(path)
    if not isinstance(given, dict) or set(given) - _MEMBERS or not isinstance(given.get("tables"), list):
        raise OptionError(f"the policy {path} has to have tables, a list, and may have defaults: nothing else")
    found = []
    for number, each in enumerate(given["tables"], 1):
        if not isinstance(each, dict) or "table" not in each:
            raise OptionError(f"table {number} of the policy {path} has no member 'table', its folder")
        try:
            values = {**connection_of(options), **given.get("defaults", {}), **each}
            found.append(parse_options(MaintainOptions, values))
        except OptionError as error:
            raise OptionError(f"{each['table']} in the policy {path}: {error}") from None
    return found


def _parsed(path: str) -> Any:
    try:
        text = local_path(path).read_text("utf-8")
    except OSError as error:
        raise NotFoundError(f"the policy {path} cannot be read: {error.strerror}") from None
    if path.endswith(".toml"):
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise OptionError(f"the policy {path} is no TOML: {error}") from None
    try:
        # Who has no policy needs no reader of one.
        import yaml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OptionError("policies in YAML need pyyaml: pip install 'ddbio[quality]'; TOML needs nothing") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise OptionError(f"the policy {path} is no YAML: {error}") from None
