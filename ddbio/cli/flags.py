"""Flags of the command line. Each field of an options class becomes a flag."""

from __future__ import annotations

import gc
import itertools
import json
import re
import shlex
import types
import typing
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal

import click

from ddbio.errors import OptionError, SchemaError
from ddbio.options import descriptions_of, option_names, parse_options
from ddbio.options.locations import local_path
from ddbio.options.parsing import PYTHON_ONLY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ddbio.options.parsing import OptionsT

_QUIET = "ddbio.quiet"


def _set_quiet(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_QUIET] = value


# Flags whose names are reserved in Python.
_FLAG_NAMES = {"dialect": "--for", "at_version": "--at", "from_time": "--from", "to_time": "--to"}

# Metavars of flags whose names and choices do not define one.
_WORDS = {
    "bucket_owner": "ACCOUNT",
    "chart": "FILE",
    "client_token": "TOKEN",
    "catalog": "glue://DATABASE.TABLE",
    "columns": "A,B,…",
    "csv": "FILE",
    "delimiter": "CHARACTER",
    "expect_digest": "HEX",
    "drop": "A,B,…",
    "freshness": "TIME",
    "from_file": "FILE",
    "gsi": "INDEXES",
    "html": "FILE",
    "index": "NAME",
    "job_id": "NAME",
    "join": "N@SECONDS",
    "key": "PK:S,SK:N",
    "keys": "FILE",
    "kms_key": "KEY",
    "like": "TABLE",
    "lose": "N@SECONDS",
    "name": "NAME",
    "newer_by": "ATTRIBUTE",
    "operation_by": "COLUMN",
    "png": "FILE",
    "partition_by": "A,B,…",
    "partition_time_zone": "ZONE",
    "profile": "NAME",
    "region": "NAME",
    "reject_to": "FOLDER",
    "role_arn": "ARN",
    "s3_expected_bucket_owner": "ACCOUNT",
    "s3_sse_kms_key_id": "KEY",
    "schema": "FILE",
    "small_than": "SIZE",
    "spill": "FOLDER",
    "state": "FOLDER",
    "table": "TABLE",
    "timestamps": "A=FORM,…",
    "types": "A=TYPE,…",
    "write_to": "TABLE",
}


def quiet_flag() -> click.Option:
    """Return the flag ``--quiet``. ``is_quiet`` returns its value."""
    text = "Print only errors on stderr: no plan and no progress."
    return click.Option(["--quiet"], is_flag=True, expose_value=False, callback=_set_quiet, help=text)


def is_quiet() -> bool:
    """Whether the running command has ``--quiet``."""
    return bool(click.get_current_context().meta.get(_QUIET, False))


def set_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were set."""
    return {name: value for name, value in flags.items() if value is not None}


def flags_of(options: type[Any], without: Collection[str] = ()) -> list[click.Option]:
    """Return a ``--kebab-case`` flag for every field of an options class.

    The help of a flag is the docstring of its field, and its choices are the literals of the field. Values stay text.
    The options class checks them, so that flags and keyword arguments have the same errors.

    Parameters
    ----------
    without
        Fields that are arguments of the command, or that it does not have.
    """
    helps, hints = descriptions_of(options), typing.get_type_hints(options)
    names = [field.name for field in fields(options) if field.name not in {*without, *PYTHON_ONLY}]
    defaults = {field.name: field.default for field in fields(options)}
    return [_flag(name, hints[name], helps[name], defaults[name]) for name in names]


def _flag(name: str, hint: Any, help_text: str, default: object) -> click.Option:
    flags, text = [_flag_of(name), name], help_text.replace("``", "")
    if default not in (None, MISSING, False, ()):
        text = f"{text}  [default: {default}]"
    if hint is bool:
        return click.Option(flags, is_flag=True, default=None, help=text)
    if _is_names(hint):
        # A repeated flag adds values.
        return click.Option(flags, multiple=True, callback=_joined, help=text, metavar=_metavar_of_names(name))
    choices = _choices(hint)
    kind = click.Choice(choices) if choices else None
    return click.Option(flags, type=kind, default=None, help=text, metavar=_metavar(name, choices))


def _is_names(hint: Any) -> bool:
    return bool({tuple[str, ...], tuple[tuple[str, str], ...]} & {hint, *typing.get_args(hint)})


def _joined(_: click.Context, __: click.Parameter, values: Sequence[str]) -> str | None:
    return ",".join(values) or None


def _choices(hint: Any) -> list[str]:
    if typing.get_origin(hint) is Literal:
        return [str(choice) for choice in typing.get_args(hint)]
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return [choice for part in typing.get_args(hint) for choice in _choices(part)]
    return []


def _metavar_of_names(name: str) -> str | None:
    # Keys of a lookup are read from a file; keys of a table are attribute names.
    return _WORDS["columns"] if name == "keys" else _metavar(name, [])


def _metavar(name: str, choices: list[str]) -> str | None:
    if choices and name not in _WORDS:
        return None
    if name.endswith("_bytes"):
        return "SIZE"
    if name.endswith("_url"):
        return "URL"
    if name in {"as_of", "at", "from_time", "to_time", "until"}:
        return "TIME"
    return _WORDS.get(name.removeprefix("target_"), "N")


def parse_flags(options: type[OptionsT], flags: Mapping[str, Any]) -> OptionsT:
    """Return the checked options. Flags for a schema or for keys name a file.

    Raises
    ------
    click.UsageError
        If an option is invalid.
    """
    values = dict(flags)
    try:
        if values.get("schema") is not None:
            values["schema"] = _read_schema(values["schema"])
        if values.get("keys") is not None and not _is_names(typing.get_type_hints(options)["keys"]):
            values["keys"] = _read_keys(values["keys"])
        parsed = parse_options(options, values)
    except OptionError as error:
        raise click.UsageError(str(error)) from None
    begin()
    return parsed


def begin() -> None:
    """Start the garbage collector if it was disabled during imports. It never visits the objects of imported modules.

    A process that runs many verbs keeps its collector, because frozen objects are never freed.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def command_of(verb: str, arguments: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return a command line with the arguments and options of a verb, ready to paste."""
    words = ["ddbio", verb, *(values[name] for name in arguments)]
    for name, value in values.items():
        if name in arguments:
            continue
        flag = _flag_of(name)
        if value is True:
            words.append(flag)
        elif value not in (None, False, ()):
            words += itertools.chain.from_iterable((flag, str(item)) for item in _each(value))
    return shlex.join(words)


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, tuple) else (value,)


def in_flags(message: str) -> str:
    """Return a message with flags instead of option names: ``--wcu-per-second``, ``--mode append``.

    Only unambiguous names are replaced: names of two words, ``option 'mode'`` and ``mode=append``.
    """
    for pattern, form in _MENTIONS:
        message = re.sub(pattern, lambda match, form=form: _renamed(match, form), message)  # type: ignore[misc]
    return message


# Mentions of an option in messages, and the corresponding flag.
_BEFORE = r"(?<![\w'\"/.=-])"
_MENTIONS = (
    (r"\boption '(?P<name>\w+)'", "option {flag}"),
    (_BEFORE + r"(?P<name>\w+)=(?P<value>\w+)\b", "{flag} {value}"),
    (_BEFORE + r"(?P<name>[a-z0-9]+_\w+)\b(?!['\"/=])", "{flag}"),
)


def _renamed(match: re.Match[str], form: str) -> str:
    name = match["name"]
    is_flag = name in option_names() - {"table", "source", "target", "dest"}
    return form.format(flag=_flag_of(name), **match.groupdict()) if is_flag else match[0]


def _flag_of(name: str) -> str:
    return _FLAG_NAMES.get(name) or f"--{name.replace('_', '-')}"


def _read_schema(path: str) -> str:
    from ddbio.items.schema.item_schema import arrow_schema_of

    text = read_schema_text(path)
    try:
        arrow_schema_of(text)
    except SchemaError as error:
        raise SchemaError(f"schema file {path!r}: {error}") from None
    return text


def _read_keys(path: str) -> Any:
    """Return the keys in a file: a JSON list, JSON with one key per line, or columns of Parquet."""
    if path.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(path, coerce_int96_timestamp_unit="us")
        except (OSError, pa.ArrowException) as error:
            raise click.UsageError(f"file of keys {path!r} cannot be read: {error}") from None
    text = path if path.lstrip().startswith("[") else _read_text(path, "file of keys")
    # A single line with a list may be one key with several attributes, or all keys. It is read as all keys.
    return text if _is_list(text) else f"[{','.join(filter(None, text.splitlines()))}]"


def _is_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False


def read_schema_text(path: str) -> str:
    """Return the text of a schema file.

    Raises
    ------
    click.UsageError
        If it cannot be read, or is not text.
    """
    return _read_text(path, "schema file")


def _read_text(path: str, kind: str) -> str:
    try:
        return local_path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{kind} {path!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{kind} {path!r} is not UTF-8 text") from None


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a mapping.

    Raises
    ------
    click.UsageError
        If a text has no equals sign.
    """
    for pair in pairs:
        if "=" not in pair:
            raise click.UsageError(f"--conf {pair!r} is not KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)
