"""Parsing of option names and values. An error about an unknown name suggests the nearest name."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import itertools
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as PydanticError
from pydantic.dataclasses import rebuild_dataclass

from ddbio.errors import OptionError

OptionsT = TypeVar("OptionsT")


def camel_case(name: str) -> str:
    """Return the Spark name of a field: ``rcu_per_second`` is ``rcuPerSecond``."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _names_of(name: str) -> AliasChoices:
    camel = camel_case(name)
    return AliasChoices(name, camel, camel.lower())


def _split_names(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def split_indexes(value: object) -> object:
    """Return the definitions of indexes in a text, which semicolons separate."""
    return tuple(part.strip() for part in value.split(";") if part.strip()) if isinstance(value, str) else value


Engine = Literal["auto", "local", "spark"]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_names), Field(min_length=1)]


def check_columns(columns: Sequence[str] | None) -> None:
    """Raise a ValueError if columns name an attribute twice."""
    if columns is not None and len(set(columns)) != len(columns):
        raise ValueError("columns names an attribute twice")


def _split_pairs(value: object) -> object:
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, str):
        # A comma within brackets belongs to a type.
        parts = [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", value)]
        if any("=" not in part for part in parts if part):
            raise ValueError("write NAME=VALUE, separated by commas")
        return tuple((name.strip(), text.strip()) for name, _, text in (part.partition("=") for part in parts if part))
    return value


Pairs = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_split_pairs), Field(min_length=1)]
"""Text by name: a mapping in Python, ``a=x,b=y`` as text."""

_AGE_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
Age = Annotated[str, Field(pattern=r"^\d+[smhdw]$")]
"""A time span as a number and a unit: ``12h``, ``7d``."""
LongAge = Annotated[str, Field(pattern=r"^\d+[hdw]$")]
"""A time span of hours, days or weeks."""


def seconds_of(age: str) -> int:
    """Return the seconds of an age."""
    return int(age[:-1]) * _AGE_SECONDS[age[-1]]


CONFIG = ConfigDict(
    alias_generator=AliasGenerator(validation_alias=_names_of),
    arbitrary_types_allowed=True,
    defer_build=True,
    extra="forbid",
)
"""Configuration of every options class, for ``pydantic.dataclasses.dataclass``."""


ALL: Final = frozenset({"*"})
"""All options that a class declares: see :func:`fixed_options`."""

PYTHON_ONLY = frozenset({"credentials", "session"})
"""Options that are available only in Python: their values have no text."""


def parse_options(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Return the checked options of a verb.

    Raises
    ------
    OptionError
        If a name is unknown (with the nearest known name), a value is malformed, or two options contradict each other.
    """
    # The validator is built at its first use. The adapter of the oldest supported pydantic does not do that.
    rebuild_dataclass(cls)  # type: ignore[arg-type]
    texts = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
    try:
        return TypeAdapter(cls).validate_python({name: value for name, value in texts.items() if value is not None})
    except PydanticError as error:
        raise OptionError(_explain(cls, error)) from None


def fixed_options(options: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the options that must stay the same when a job is resumed, as JSON values.

    These are all options except those in ``CHANGEABLE`` of their class.

    Parameters
    ----------
    without
        Options that the job compares separately.
    """
    changeable = set(without)
    for cls in type(options).__mro__:
        names = vars(cls).get("CHANGEABLE", frozenset())
        changeable.update(vars(cls).get("__annotations__", ()) if names is ALL else names)
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: _as_json(value) for name, value in values.items() if name not in changeable}


def _as_json(value: Any) -> Any:
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value


def descriptions_of(cls: type[Any]) -> dict[str, str]:
    """Return the docstring of each field by name, including inherited fields."""
    descriptions: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        descriptions |= _field_docstrings(base.__module__).get(base.__name__, {}) if is_dataclass(base) else {}
    return descriptions


@functools.cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of all classes of a module. They are parsed only if help is requested."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in itertools.pairwise(node.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _explain(cls: type[Any], error: PydanticError) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    names = [field.name for field in fields(cls)]
    if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
        near = difflib.get_close_matches(name, [*names, *map(camel_case, names)], n=1, cutoff=0.6)
        advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
        return f"unknown option {name!r}: {advice}"
    if first["type"] in {"missing", "missing_argument"}:
        return f"option {name!r} is missing"
    if name in PYTHON_ONLY:
        # Its value may be a secret.
        return f"option {name!r}: {str(first['msg']).removeprefix('Value error, ')}"
    message = str(first["msg"]).removeprefix("Value error, ")
    if not name:
        return f"options contradict each other: {message}"
    return f"option {name!r} has value {first.get('input')!r}: {message[:1].lower()}{message[1:]}"
