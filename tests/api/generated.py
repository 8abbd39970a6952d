"""Files generated from verbs and options: ``docs/options.md``, and the stubs of ``ddbio`` and ``ddbio.options``.

Run ``python -m tests.renew`` after a change of an option. Tests compare the files.
"""

import ast
import dataclasses
import inspect
import re
import sys
import typing
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import ddbio
import ddbio.options as package
from ddbio import public
from ddbio.cli.commands import COMMANDS
from ddbio.options import descriptions_of
from ddbio.verbs import VERBS, Verb

ROOT = Path(__file__).parents[2]
STUB, KEYWORDS, PAGE = ROOT / "ddbio/__init__.pyi", ROOT / "ddbio/keywords.pyi", ROOT / "docs/options.md"
OPTIONS_STUB = ROOT / "ddbio/options/__init__.pyi"

_LINE = 120
_HEADER = '''"""The keyword arguments of the public functions, for editors and type checkers.

Each class mirrors a class of :mod:`ddbio.options`, which checks the values. Generated: ``tests/api/generated.py``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

import pyarrow as pa

from ddbio.items.schema.item_schema import ItemSchema
from ddbio.options import Credentials
'''

_PAGE_HEADER = """# Options

Options have the same names everywhere: Python keyword arguments (`rcu_per_second`), Spark options (`rcuPerSecond`, in
any case) and flags (`--rcu-per-second`). Values may be text. The error for an unknown name suggests the nearest name.
Spark has the options for reads of tables and exports and for writes to tables. Editors know the keywords of each
function from classes such as `ddbio.ScanKeywords`.

Required options are bold. `name=value` shows the default; boolean options without one are false. A folder is
`s3://bucket/prefix` or a local path. Shared groups of options come first. [Commands](#commands) list only their own.
"""


def options_classes() -> list[type]:
    """Return the options classes. A class comes after its bases."""
    classes = [getattr(package, name) for name in package.__all__ if name.endswith("Options")]
    return sorted(classes, key=lambda cls: (len(cls.__mro__), cls.__name__))


def keyword_name(cls: type) -> str:
    """Return the name of the keywords class of an options class."""
    return cls.__name__.removesuffix("Options") + "Keywords"


def keyword_types(cls: type) -> dict[str, str]:
    """Return the types of the options that a class adds to its bases, as users pass them."""
    hints = typing.get_type_hints(cls)
    keywords = {field.name for field in dataclasses.fields(cls)} - set(public.ARGUMENTS)
    own = [name for name in vars(cls).get("__annotations__", {}) if name in keywords]
    return {name: public.keyword_type(name, hints[name]) for name in own}


def stub_text() -> str:
    """Return the stub of ``ddbio``: the types of its functions and the modules of its other names."""
    homes, functions = defaultdict(set), []
    for verb in VERBS.values():
        signature = public.public_signature(verb)
        functions.append(_stub_function(verb, signature))
        hints = [str(parameter.annotation) for parameter in signature.parameters.values()]
        hints = re.sub(r"Literal\[[^\]]*\]", "", " ".join([*hints, str(signature.return_annotation)]))
        for word in set(re.findall(r"[A-Za-z_]\w*", hints)) - ddbio._HOMES.keys():
            if home := _home_of(word, public.run_of(verb)):
                homes[home].add(word)
    for name, module in ddbio._HOMES.items():
        homes[module].add(f"{name} as {name}")
    homes["ddbio.keywords"] |= {f"{name} as {name}" for name in ddbio._KEYWORDS}
    homes["ddbio.version"].add("__version__ as __version__")
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(homes.items())]
    return "\n".join([_STUB_HEADER, *imports, "from ddbio import capacity as capacity", "", *functions]) + "\n"


_STUB_HEADER = '''"""Types of the public names. Generated: ``python tests/api/generated.py``."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

import pyarrow as pa
'''


def _stub_function(verb: Verb, signature: inspect.Signature) -> str:
    arguments = {argument.name for argument in public.arguments_of(verb)}
    leading, named = [], []
    for parameter in signature.parameters.values():
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        text = f"{parameter.name}: {parameter.annotation}{default}"
        if parameter.name in arguments:
            leading.append(text)
        elif parameter.name in {*verb.more.split(), *public.ARGUMENTS}:
            named.append(text)
    keywords = f"**options: Unpack[{verb.options.removesuffix('Options')}Keywords]"
    inner = ", ".join([*leading, *(["*", *named] if named else []), keywords])
    text = "\n".join(f"    {line}".rstrip() for line in public.docstring_of(verb).splitlines())
    return f'def {verb.name}({inner}) -> {signature.return_annotation}:\n    """{text.lstrip()}\n    """\n    ...\n'


def options_stub_text() -> str:
    """Return the stub of ``ddbio.options``: the modules of its names."""
    names = [f"from ddbio.{module} import {name} as {name}" for name, module in sorted(package._HOMES.items())]
    return "\n".join([_OPTIONS_STUB_HEADER, *names, "", "def option_names() -> frozenset[str]: ..."]) + "\n"


_OPTIONS_STUB_HEADER = '''"""Homes of the options classes. Generated: ``python tests/api/generated.py``."""
'''


def _home_of(word: str, run: object) -> str | None:
    """Return the module of a name in the annotations of a function, or None if every stub imports it."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[run.__module__]))):
        if isinstance(node, ast.ImportFrom) and any(alias.name == word for alias in node.names):
            return None if node.module in {"typing", "collections.abc"} else node.module
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == word:
            return run.__module__ if word[0].isupper() else None
    return None


def keywords_text() -> str:
    """Return the module of the keywords."""
    parts = [_HEADER]
    for cls in options_classes():
        bases = [keyword_name(base) for base in cls.__bases__ if dataclasses.is_dataclass(base)] or ["TypedDict"]
        described = descriptions_of(cls)
        head = f"class {keyword_name(cls)}({', '.join(bases)}, total=False):"
        lines = [f'    """Keywords of :class:`ddbio.options.{cls.__name__}`."""']
        types_of = keyword_types(cls)
        if types_of:
            lines.append("")
        for name, text in types_of.items():
            lines += [*_annotated(name, text), *_docstring(described[name])]
        parts.append("\n".join([head, *lines]) + "\n")
    return "\n\n".join(parts)


def page_text() -> str:
    """Return the page of options: shared groups, options of several commands, and the rest of each command."""
    users = _users()
    # A class comes after its bases. It has a section only if it adds options to them.
    classes = dict.fromkeys(base for cls in users for base in reversed(cls.__mro__) if base in users)
    sections = dict[type, list[str]]()
    for cls in classes:
        base = _base_of(cls, sections)
        if base is None or set(_rows_of(cls)) - set(_rows_of(base)):
            sections[cls] = users[cls]
        else:
            sections[base] += users[cls]
    groups = _groups()
    grouped = {row for rows in groups.values() for row in rows}
    added = {cls: [row for row in _rows_of(cls) if row not in _base_rows(cls, sections)] for cls in sections}
    groups[_COMMON] = _common_rows([row for rows in added.values() for row in rows if row not in grouped])
    parts = [_PAGE_HEADER]
    for title, rows in groups.items():
        parts += [f"## {title}\n", *([f"{_GROUP_NOTES[title]}\n"] if title in _GROUP_NOTES else []), _table(rows)]
    parts.append("## Commands\n")
    parts += [_section_text(cls, rows, sections, groups) for cls, rows in added.items()]
    return "\n".join(parts)


class Row(NamedTuple):
    """A row of a table of options."""

    name: str
    default: str
    text: str


_COMMON = "Options of several commands"
_GROUP_CLASSES = {
    "Connection": "ConnectionOptions",
    "Limits": "PriceOptions TimeLimitOptions LimitOptions",
    "Waiting": "WaitPolicyOptions",
    "Columns": "ColumnOptions",
    "Output files": "FilesOptions",
    "Source files": "SourceOptions",
    "Delivered objects": "DeliveredOptions",
    "Target connection": "CreateLikeOptions",
    "Simulation": "SimulateOptions",
}
_GROUP_NOTES = {
    "Connection": "For every command that calls AWS.",
    _COMMON: "Each command lists the names of its options in this table.",
}


def _groups() -> dict[str, list[Row]]:
    """Return the groups of options by title: the options that a few classes add to their bases."""
    groups = {}
    for title, names in _GROUP_CLASSES.items():
        rows = [row for name in names.split() for row in _own_rows(getattr(package, name))]
        groups[title] = (
            [row for row in rows if row.name.startswith("target_")] if title == "Target connection" else rows
        )
    return groups


def _common_rows(rows: list[Row]) -> list[Row]:
    """Return the rows that occur several times: of each name the most frequent one, so that names are unambiguous."""
    frequent = dict[str, Row]()
    for row, number in Counter(rows).most_common():
        if number > 1:
            frequent.setdefault(row.name, row)
    return [frequent[name] for name in sorted(frequent)]


def _rows_of(cls: type) -> list[Row]:
    described = descriptions_of(cls)
    return [Row(field.name, _default(field), _in_markdown(described[field.name])) for field in dataclasses.fields(cls)]


def _own_rows(cls: type) -> list[Row]:
    inherited = {
        field.name for base in cls.__bases__ if dataclasses.is_dataclass(base) for field in dataclasses.fields(base)
    }
    return [row for row in _rows_of(cls) if row.name not in inherited]


def _users() -> dict[type, list[str]]:
    """Return the commands of each options class, else its first function. A plan is named only if nothing else is."""
    users = defaultdict[str, list[str]](list)
    for command in sorted(COMMANDS.values(), key=lambda command: command.name.startswith("plan ")):
        options = command.options or (command.verb and VERBS[command.verb].options)
        if options and not (users[options] and command.name.startswith("plan ")):
            users[options].append(f"`{command.name}`")
    for verb in VERBS.values():
        users[verb.options] = users[verb.options] or [f"`ddbio.{verb.name}`"]
    users["StreamEventOptions"] = ["`ddbio.lambda_handlers.log_changes`"]
    # Their options are groups.
    for name in ("ConnectionOptions", "PriceOptions"):
        del users[name]
    return {getattr(package, name): names for name, names in users.items() if names}


def _base_of(cls: type, sections: dict[type, list[str]]) -> type | None:
    return next((base for base in cls.__mro__[1:] if base in sections), None)


def _base_rows(cls: type, sections: dict[type, list[str]]) -> list[Row]:
    base = _base_of(cls, sections)
    return [] if base is None else _rows_of(base)


def _section_text(cls: type, rows: list[Row], sections: dict[type, list[str]], groups: dict[str, list[Row]]) -> str:
    """Return the section of a class: links to its groups, and a table of its other options."""
    links, base = [], _base_of(cls, sections)
    if base is not None:
        links.append(f"all of {sections[base][0]}")
    for title, members in groups.items():
        shared = [row for row in members if row in rows]
        link = f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
        if title == "Connection" or not shared:
            continue
        missing = [row for row in members if row not in shared]
        if title != _COMMON and len(missing) < len(shared):
            names = ", ".join(f"`{row.name}`" for row in missing)
            links.append(f"{link} except {names}" if names else link)
        else:
            names = ", ".join(f"`{row.name}`" for row in shared)
            links.append(names if title == _COMMON else f"{names} of {link}")
    grouped = {row for members in groups.values() for row in members}
    own = [row for row in rows if row not in grouped]
    lines = [f"### {', '.join(sections[cls])}\n"]
    if links:
        lines.append(f"Shared: {'; '.join(links)}.\n")
    return "\n".join([*lines, *([_table(own)] if own else [])])


def _table(rows: list[Row]) -> str:
    lines = [f"{_name_cell(row)} | {row.text}" for row in rows]
    return "\n".join(["option | meaning", "---|---", *lines]) + "\n"


def _name_cell(row: Row) -> str:
    if row.default == "required":
        return f"**`{row.name}`**"
    return f"`{row.name}={row.default}`" if row.default else f"`{row.name}`"


def _in_markdown(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _annotated(name, text):
    """Return the lines of a member in the layout of the formatter."""
    line = f"    {name}: {text}"
    if len(line) <= _LINE:
        return [line]
    opening, _, inner = line.partition("[")
    return [f"{opening}[", f"        {inner.removesuffix(']')}", "    ]"]


def _docstring(text: str) -> list[str]:
    first, *further = text.splitlines()
    if not further:
        return [f'    """{first}"""']
    return [f'    """{first}', *(f"    {line}".rstrip() for line in further), '    """']


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return "required"
    if value is None or value is False or value == ():
        return ""
    if field.name.endswith("_bytes") and value >= 1024**2:
        return f"{int(value) // 1024**2}MiB"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


GENERATED = {STUB: stub_text, OPTIONS_STUB: options_stub_text, KEYWORDS: keywords_text, PAGE: page_text}
"""Generated files, and the functions that return their text."""

if __name__ == "__main__":
    for path, make in GENERATED.items():
        path.write_text(make(), "utf-8")
