"""Public functions and the classes of their keywords, generated from the table of verbs and the options classes."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import types
import typing
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import ddbio.options as options_package
from ddbio.options import descriptions_of, parse_options
from ddbio.verbs import VERBS, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ddbio.jobs.report import WriteReport

_PATH = "str | os.PathLike[str]"
_MORE = {
    "check": ("Callable[[list[str]], None] | None", None),
    "conf": ("Mapping[str, str] | None", None),
    "dry_run": ("bool", False),
    "from_file": (f"{_PATH} | None", None),
    "master": ("str | None", None),
    "progress": ("Callable[[Progress], None] | None", None),
    "stop": ("threading.Event | None", None),
}
"""Types and defaults of keyword parameters that are not options."""

_MEANINGS = {
    "check": "Is called with the URIs or local paths of the files before they are published; nothing is if it raises.",
    "conf": "Spark configuration, for a session that has to be started.",
    "dry_run": "Delete nothing, and report what would be deleted.",
    "from_file": (
        "JSON that describes the table, which then need not exist: the response of DescribeTable with "
        "``AverageItemSizeBytes``."
    ),
    "master": "Spark master, for a session that has to be started.",
    "progress": "Is called about once a second, and at the end, with a :class:`ddbio.Progress`.",
    "stop": "An event that ends the job once it is set.",
}
"""The descriptions of these parameters."""

_TYPES = {
    "increments": f"Sequence[{_PATH}]",
    "join": "Sequence[tuple[int, float]] | str",
    "keys": "Any",
    "lose": "Sequence[tuple[int, float]] | str",
    "credentials": "Credentials | Mapping[str, str] | None",
    "schema": "ItemSchema | pa.Schema | str | None",
    "session": "Any",
    "timestamps": "Mapping[str, str] | str | None",
    "types": "Mapping[str, str] | str | None",
}
"""Types of options that accept more than the types of their fields."""

_GIVEN = {"ByteSize": "int | str", "AwareDatetime": "datetime | str", "datetime": "datetime | str"}
ARGUMENTS = frozenset(
    {"arn", "dest", "dialect", "location", "path", "place", "reports", "scenario", "source", "table", "target"}
)
"""Options that are arguments of most verbs, and therefore not in the classes of keywords."""


class Argument(NamedTuple):
    """Leading parameter of a public function.

    Attributes
    ----------
    name, field
        Its name, and the option that it sets.
    hint
        Its type annotation.
    data
        Value of the option if the argument is data in memory; None if it never is.
    default
        Its default; empty if it is required.
    """

    name: str
    field: str
    hint: str
    data: str | None
    default: Any


@functools.cache
def arguments_of(verb: Verb) -> tuple[Argument, ...]:
    """Return the leading parameters of a verb."""
    own = inspect.signature(run_of(verb)).parameters
    hints = typing.get_type_hints(getattr(options_package, verb.options))
    return tuple(_argument(text, own, hints) for text in verb.arguments.split())


def _argument(text: str, own: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> Argument:
    text, is_optional = text.removesuffix("?"), text.endswith("?")
    text, _, data = text.partition(":")
    text, is_path = text.removesuffix("/"), text.endswith("/")
    name, _, field = text.partition("=")
    field = field or name
    if is_path:
        hint = _PATH
    elif name in own:
        hint = _TYPES.get(name) or str(own[name].annotation)
    else:
        hint = keyword_type(field, hints[field])
    default = own[name].default if name in own else None
    if is_optional and default in (None, inspect.Parameter.empty):
        default, hint = None, f"{hint.removesuffix(' | None')} | None"
    return Argument(name, field, hint, data or None, default if is_optional else inspect.Parameter.empty)


def run_of(verb: Verb) -> Callable[..., Any]:
    """Return the function that runs a verb."""
    return function_at(verb.run)


def function_at(home: str) -> Callable[..., Any]:
    """Return the function of a path such as ``copy.copy:copy``: its module in ``ddbio``, and its name."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(f"ddbio.{module}"), name)  # type: ignore[no-any-return]


def public_function(name: str) -> Callable[..., Any]:
    """Return the public function of a verb, which checks its options and runs it.

    Its signature contains every option, and its docstring describes them.
    """
    verb = VERBS[name]
    run, options = run_of(verb), getattr(options_package, verb.options)
    arguments, more = arguments_of(verb), verb.more.split()
    option_fields, own = {field.name for field in fields(options)}, inspect.signature(run).parameters
    leading = inspect.Signature(
        [*map(_leading, arguments), inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)]
    )

    def function(*args: Any, **keywords: Any) -> Any:
        try:
            bound = leading.bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        values = dict(bound.arguments.pop("options", {}))
        passed = {parameter: values.pop(parameter) for parameter in more if parameter in values}
        for argument in arguments:
            value = bound.arguments.get(argument.name, argument.default)
            is_data = argument.data is not None and not isinstance(value, str | os.PathLike)
            if argument.field in option_fields and value is not None:
                values[argument.field] = argument.data if is_data else value
            if argument.name in own:
                passed[argument.name] = value
        if "progress" in passed:
            passed["watch"] = _watch(passed.pop("progress"))
        # Data may be a path, which is not the name of a table.
        data = {argument.name for argument in arguments if argument.data is not None}
        plain = {parameter: value if parameter in data else _plain(value) for parameter, value in passed.items()}
        return run(options=parse_options(options, values), **plain)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "ddbio"
    function.__doc__ = "\n".join([docstring_of(verb), *_other_parameters(verb)])
    signature = public_signature(verb)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    function.__annotations__["return"] = signature.return_annotation
    return function


def _plain(value: Any) -> Any:
    """Return a path as text, also within a list."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple) and any(isinstance(entry, os.PathLike) for entry in value):
        return [_plain(entry) for entry in value]
    return value


def _watch(progress: Callable[[Any], None] | None) -> Any:
    if progress is None:
        return None
    return importlib.import_module("ddbio.jobs.watch").ProgressReporter(progress)


def _leading(argument: Argument) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(argument.name, kind, default=argument.default, annotation=argument.hint)


def public_signature(verb: Verb) -> inspect.Signature:
    """Return the signature of the public function of a verb."""
    run, options = run_of(verb), getattr(options_package, verb.options)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_MORE[name][1], annotation=_MORE[name][0])
        for name in verb.more.split()
    ]
    keywords = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hint,
        )
        for field, hint in _keywords_of(options, {argument.field for argument in arguments_of(verb)})
    ]
    returned = inspect.signature(run).return_annotation
    return inspect.Signature([*map(_leading, arguments_of(verb)), *more, *keywords], return_annotation=returned)


def _keywords_of(options: type[Any], arguments: Collection[str]) -> Iterator[tuple[Field[Any], str]]:
    """Yield the options that are not arguments, with the types that users may pass."""
    hints = typing.get_type_hints(options)
    for field in fields(options):
        if field.name not in arguments:
            yield field, keyword_type(field.name, hints[field.name])


def keyword_type(name: str, hint: Any) -> str:
    """Return the type, as text, that users may pass for an option."""
    if name in _TYPES:
        return _TYPES[name]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        quoted = (f'"{part}"'.replace("\t", "\\t") for part in parts)
        return f"Literal[{', '.join(quoted)}]"
    if origin in {typing.Union, types.UnionType}:
        return " | ".join(keyword_type(name, part) for part in parts)
    if origin is tuple:
        return "str | Sequence[str]"
    if hint is type(None):
        return "None"
    return _GIVEN.get(hint.__name__, str(hint.__name__))


def docstring_of(verb: Verb) -> str:
    """Return the docstring of a public function: that of the function that runs, with the public parameters."""
    described = descriptions_of(getattr(options_package, verb.options))
    head, sections = _sections(inspect.cleandoc(run_of(verb).__doc__ or ""))
    own = _entries(sections.pop("Parameters", ""))
    lines = [head, "", "Parameters", "----------"]
    for argument in arguments_of(verb):
        lines += [
            f"{argument.name} : {argument.hint}",
            own.get(argument.name) or _indented(described.get(argument.field, "")),
        ]
    for name in verb.more.split():
        lines += [f"{name} : {_MORE[name][0]}", own.get(name) or _indented(_MEANINGS[name])]
    keywords = f"{verb.options.removesuffix('Options')}Keywords"
    lines += ["**options", f"    See :class:`ddbio.{keywords}`."]
    for title, text in sections.items():
        lines += ["", title, "-" * len(title), text]
    return "\n".join(lines)


def _other_parameters(verb: Verb) -> Iterator[str]:
    """Yield the lines that describe the options of a verb."""
    options = getattr(options_package, verb.options)
    described = descriptions_of(options)
    yield from ("", "Other Parameters", "----------------")
    for field, hint in _keywords_of(options, {argument.field for argument in arguments_of(verb)}):
        yield f"{field.name} : {hint}"
        yield _indented(described[field.name])


def _sections(text: str) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring before its first section, and the text of each section."""
    head, *parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    return head.strip(), {title: body.strip("\n") for title, body in zip(parts[::2], parts[1::2], strict=True)}


def _entries(text: str) -> dict[str, str]:
    """Return the descriptions of parameters, by name."""
    matches = re.findall(r"^(\S.*)\n((?:[ ].*\n?|\n)+)", text, flags=re.MULTILINE)
    return {name: body.rstrip("\n") for names, body in matches for name in names.split(", ")}


def _indented(text: str) -> str:
    return f"    {' '.join(text.split())}"


def keyword_class(name: str) -> type[Any]:
    """Return the keywords class of an options class: ``ScanKeywords`` of ``ScanOptions``."""
    options = getattr(options_package, f"{name.removesuffix('Keywords')}Options")
    hints = {field.name: hint for field, hint in _keywords_of(options, ARGUMENTS)}
    made: Any = TypedDict(name, hints, total=False)  # type: ignore[misc]
    made.__module__ = "ddbio"
    made.__doc__ = f"Keywords of :class:`ddbio.options.{options.__name__}`."
    return made


def register(spark: Any) -> None:
    """Register the formats ``dynamodb``, ``ddbio`` and ``dynamodb-export`` in a Spark session.

    It may be called again. Names that PySpark has discovered itself, or that another connector owns, stay unchanged. On
    Spark Connect, whose driver is remote, each task gets a static portion of its read's budget.

    Parameters
    ----------
    spark
        The ``pyspark.sql.SparkSession``.

    Raises
    ------
    OptionError
        If this Spark has no Python data sources.
    ModuleNotFoundError
        If PySpark is not installed.
    """
    importlib.import_module("ddbio.spark").register(spark)


def last_report(spark: Any) -> WriteReport | None:
    """Return the report of the last write of a DataFrame or a micro-batch into a table, or None without a write.

    The report is that of the last ``df.write.format("dynamodb")`` since ``register``. On Spark Connect there is none.

    Parameters
    ----------
    spark
        The ``pyspark.sql.SparkSession``.

    Raises
    ------
    ModuleNotFoundError
        If PySpark is not installed.
    """
    return importlib.import_module("ddbio.spark").last_report(spark)  # type: ignore[no-any-return]
