"""Write the pages of the reference from the code: Python API, classes, errors, command line, Spark options.

``./task site`` runs this in ``.venv``, where the package and its libraries are; mkdocs then takes the pages from
``build/reference/``. A public name without a docstring ends it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ddbio
import ddbio.spark
import ddbio.testing
from ddbio import capacity, errors, options
from ddbio.cli.commands import COMMANDS
from ddbio.cli.making import make_command
from ddbio.jobs import report
from ddbio.options import camel_case, descriptions_of
from ddbio.public import arguments_of
from ddbio.spark import functions
from ddbio.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_DEFAULT = re.compile(r"\s*\[default: .*?\]")
_ORDER = {
    name: position for position, name in enumerate(["reading", "writing", "files", "service_jobs", "decode", "encode"])
}
TARGET = Path(__file__).parents[2] / "build/reference"


def first_sentence(thing: Any) -> str:
    """Return the first sentence of a docstring, or fail naming what has none."""
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing)} has no docstring")
    return re.split(r"(?<=[.;:])\s|\n\n", text.replace("\n", " "))[0].rstrip(";:").rstrip(".") + "."


def plain(text: str) -> str:
    """Return the text of a docstring as Markdown for a cell of a table."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?([\w]+)`", r"`\1`", text)
    return re.sub(r"`+([^`]+)`+", r"`\1`", text).replace("|", "\\|").replace("\n", " ")


def options_of(function: Any) -> Iterator[str]:
    """Yield the table of the options of a verb, folded."""
    if function.__name__ not in VERBS:
        return
    verb = VERBS[function.__name__]
    described = descriptions_of(getattr(options, verb.options))
    own = {argument.name for argument in arguments_of(verb)}
    yield '??? note "Options"\n'
    yield "    | option | type | default | meaning |\n    |---|---|---|---|"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in described and parameter.name not in own:
            kind = str(parameter.annotation).replace("'", '"')
            description = plain(described[parameter.name])
            yield f"    | `{parameter.name}` | {plain(f'`{kind}`')} | {_default(parameter.default)} | {description} |"
    yield ""


def python_page() -> str:
    """Return the page of the functions, with a table of all of them first."""
    offered = {name: getattr(ddbio, name) for name in ddbio.__all__ if not name.startswith("_")}
    by_module: dict[str, list[str]] = {}
    for name, value in offered.items():
        if inspect.isfunction(value):
            by_module.setdefault(value.__module__, []).append(name)
    # The verbs come before the modules that they use, and reading before writing.
    by_module = dict(sorted(by_module.items(), key=lambda entry: _ORDER.get(entry[0].rpartition(".")[2], len(_ORDER))))
    lines = ["# Python API", "", "Every function of `ddbio`. Their options are keyword arguments.", ""]
    lines += ["| function | does |", "|---|---|"]
    lines += [
        f"| [`{name}`](#ddbio.{name}) | {plain(first_sentence(offered[name]))} |"
        for names in by_module.values()
        for name in names
    ]
    for module, names in by_module.items():
        lines += ["", f"## {plain(first_sentence(importlib.import_module(module))).rstrip('.')}", ""]
        for name in names:
            lines += [f"::: ddbio.{name}\n", *options_of(offered[name])]
    lines += ["", "## Capacity", "", plain(first_sentence(capacity)), ""]
    lines += [f"::: ddbio.capacity.{name}\n" for name in capacity.__all__ if not name.isupper()]
    lines += ["", "## Functions of Spark columns and frames", "", plain(first_sentence(functions)), ""]
    lines += [f"::: ddbio.spark.functions.{name}\n" for name in functions.__all__]
    return "\n".join(lines) + "\n"


def classes_page() -> str:
    """Return the page of what functions take and return."""
    lines = ["# Classes", "", "What the functions take and return, and the endpoint for tests.", ""]
    for name in ddbio.__all__:
        value = getattr(ddbio, name)
        # Keywords are shown with the functions that take them.
        if inspect.isclass(value) and not issubclass(value, Exception) and not name.endswith("Keywords"):
            first_sentence(value)
            lines.append(f"::: ddbio.{name}\n")
    lines += ["## What reports have in common", "", "The classes from which reports derive, with their attributes.", ""]
    shared = (report.JobReport, report.PlannedReport, report.FilesReport, report.RowsReport)
    lines += [f"::: {cls.__module__}.{cls.__name__}\n" for cls in shared]
    lines += ["## For tests", "", plain(first_sentence(ddbio.testing)), ""]
    for name in ddbio.testing.__all__:
        first_sentence(getattr(ddbio.testing, name))
        lines.append(f"::: ddbio.testing.{name}\n")
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """Return the page of the errors: what each means, what else it is, what it carries."""
    lines = [
        "# Errors",
        "",
        "Everything that ddbio reports on purpose is a `DdbioError`. Each class is also the built-in exception that",
        "fits, so that `except ValueError` works too. A message says what happened, to what, and what to do;",
        "[troubleshooting](../troubleshooting.md) has the common ones. On the command line every error is one line,",
        "and the exit code is 1 (wrong usage: 2, interrupted: 130).",
        "",
        "| class | also a | reports | attributes | a retry may help |",
        "|---|---|---|---|---|",
    ]
    for name, cls in vars(errors).items():
        if not inspect.isclass(cls) or not issubclass(cls, errors.DdbioError) or cls is errors.DdbioError:
            continue
        bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
        parameters = [
            parameter
            for parameter in inspect.signature(cls.__init__).parameters
            if parameter not in {"self", "message"}
        ]
        attributes = ", ".join(f"`{parameter}`" for parameter in parameters if parameter not in {"args", "kwargs"})
        description = plain(first_sentence(cls))
        lines.append(f"| `{name}` | {bases} | {description} | {attributes} | {'yes' if cls.retryable else 'no'} |")
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """Return the page of the command line, a table of options for each command."""
    lines = [
        "# Command line",
        "",
        "The result is on stdout, progress on stderr. `--json` makes the result one JSON object. Exit codes: 0 done,",
        "1 failed, 2 wrong usage, 130 interrupted.",
        "",
    ]
    made = {f"ddbio {name}": make_command(row) for name, row in sorted(COMMANDS.items())}
    lines += ["| command | does |", "|---|---|"]
    lines += [
        f"| [`{words}`](#{words.replace(' ', '-')}) | {plain(command.get_short_help_str(200))} |"
        for words, command in made.items()
    ]
    for words, command in made.items():
        context = click.Context(command, info_name=words)
        pieces = " ".join(command.collect_usage_pieces(context))
        lines += ["", f"## {words}", "", plain(inspect.cleandoc(command.help or "")), ""]
        lines += ["```", f"{words} {pieces}", "```", "", "| option | default | meaning |", "|---|---|---|"]
        for option in command.params:
            if not isinstance(option, click.Option) or option.hidden:
                continue
            names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            kind = "" if option.is_flag else f" {option.make_metavar(context)}".replace("|", "\\|")
            default = option.default if isinstance(option.default, (str, int, float)) else None
            shown = "" if option.is_flag or default in {None, ""} else f"`{default}`"
            lines.append(f"| {names}{kind} | {shown} | {plain(_DEFAULT.sub('', option.help or ''))} |")
    return "\n".join(lines) + "\n"


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for module in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{module.name}")


def spark_page() -> str:
    """Return the page of the options of Spark's readers and writers."""
    lines = [
        "# Spark options",
        "",
        "Names are camelCase here and read without regard to case; `snake_case` works too. Values are text.",
        "[Spark](../spark.md) says what each source and sink does.",
    ]
    for module in _modules(ddbio.spark):
        for cls in vars(module).values():
            if not inspect.isclass(cls) or cls.__module__ != module.__name__ or not hasattr(cls, "__pydantic_fields__"):
                continue
            descriptions = descriptions_of(cls)
            lines += [
                "",
                f"## {plain(first_sentence(cls)).rstrip('.')}",
                "",
                "| option | default | meaning |",
                "|---|---|---|",
            ]
            assert is_dataclass(cls)
            for field in fields(cls):
                default = _default(field.default)
                lines.append(f"| `{camel_case(field.name)}` | {default} | {plain(descriptions.get(field.name, ''))} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    value = getattr(value, "default", value)
    if value is MISSING or value is inspect.Parameter.empty or repr(value) == "PydanticUndefined":
        return "required"
    return "" if value is None or value == () else f"`{str(value).lower() if isinstance(value, bool) else value}`"


PAGES = {
    "python": python_page,
    "classes": classes_page,
    "errors": errors_page,
    "cli": cli_page,
    "spark-options": spark_page,
}


def main() -> int:
    """Write all pages and return the exit code."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name, render in PAGES.items():
        (TARGET / f"{name}.md").write_text(render(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
