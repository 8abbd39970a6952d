"""Write what is generated from verbs and options: ``docs/options.md``, and stubs of ``ddbio`` and ``ddbio.options``.

Run as ``.venv/bin/python tests/api/generated.py`` after a change of an option; the tests compare.
"""

import ast
import dataclasses
import inspect
import re
import sys
import typing
from collections import defaultdict
from pathlib import Path

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

The same names everywhere: keyword arguments in Python (`rcu_per_second`), Spark options (`rcuPerSecond`, any case) and
flags (`--rcu-per-second`). Values may be text. An unknown name is an error that names the nearest known one. Spark has
the options of reading tables and exports and of writing tables. Editors and type checkers know each function's keywords
and their types: `ScanKeywords` of `ddbio`, and its like.
"""


def options_classes() -> list[type]:
    """Return the options classes, each after those it derives from."""
    found = [getattr(package, name) for name in package.__all__ if name.endswith("Options")]
    return sorted(found, key=lambda cls: (len(cls.__mro__), cls.__name__))


def keyword_name(cls: type) -> str:
    """Return the name of the keywords that mirror an options class."""
    return cls.__name__.removesuffix("Options") + "Keywords"


def keyword_types(cls: type) -> dict[str, str]:
    """Return the options that a class has of its own, and the types of what users give for them."""
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)} - set(public.ARGUMENTS)
    own = [name for name in vars(cls).get("__annotations__", {}) if name in known]
    return {name: public.keyword_type(name, hints[name]) for name in own}


def stub_text() -> str:
    """Return the stub of ``ddbio``: the types of its functions and the homes of its other names."""
    homes, functions = defaultdict(set), []
    for verb in VERBS.values():
        signature = public.public_signature(verb)
        functions.append(_stub_function(verb, signature))
        hints = [str(each.annotation) for each in signature.parameters.values()]
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
    arguments = {each.name for each in public.arguments_of(verb)}
    leading, named = [], []
    for each in signature.parameters.values():
        default = "" if each.default is each.empty else f" = {each.default!r}"
        text = f"{each.name}: {each.annotation}{default}"
        if each.name in arguments:
            leading.append(text)
        elif each.name in {*verb.more.split(), *public.ARGUMENTS}:
            named.append(text)
    keywords = f"**options: Unpack[{verb.options.removesuffix('Options')}Keywords]"
    inner = ", ".join([*leading, *(["*", *named] if named else []), keywords])
    text = "\n".join(f"    {line}".rstrip() for line in public.docstring_of(verb).splitlines())
    return f'def {verb.name}({inner}) -> {signature.return_annotation}:\n    """{text.lstrip()}\n    """\n    ...\n'


def options_stub_text() -> str:
    """Return the stub of ``ddbio.options``: the homes of its names."""
    names = [f"from ddbio.{module} import {name} as {name}" for name, module in sorted(package._HOMES.items())]
    return "\n".join([_OPTIONS_STUB_HEADER, *names, "", "def option_names() -> frozenset[str]: ..."]) + "\n"


_OPTIONS_STUB_HEADER = '''"""Homes of the options classes. Generated: ``python tests/api/generated.py``."""
'''


def _home_of(word: str, run: object) -> str | None:
    """Return the module of a name in the annotations of a function; None if every stub has it."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[run.__module__]))):
        if isinstance(node, ast.ImportFrom) and any(each.name == word for each in node.names):
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
    """Return the page of options: a part for each class of which commands or functions take own options."""
    users = _users()
    # A class comes after those from which it derives, and has a part only if it adds to them.
    classes = dict.fromkeys(base for cls in users for base in reversed(cls.__mro__) if base in users)
    parts = dict[type, list[str]]()
    for cls in classes:
        base = _base_of(cls, parts)
        if base is None or _fields_of(cls) - _fields_of(base):
            parts[cls] = users[cls]
        else:
            parts[base] += users[cls]
    return "\n".join([_PAGE_HEADER, *(_part_text(cls, parts) for cls in parts)])


def _users() -> dict[type, list[str]]:
    """Return the commands that take the options of each class, else its first function; plans only if nothing else."""
    found = defaultdict[str, list[str]](list, ConnectionOptions=["Connection: every verb"])
    for row in sorted(COMMANDS.values(), key=lambda each: each.name.startswith("plan ")):
        options = row.options or (row.verb and VERBS[row.verb].options)
        if options and not (found[options] and (row.name.startswith("plan ") or options == "ConnectionOptions")):
            found[options].append(f"`{row.name}`")
    for verb in VERBS.values():
        found[verb.options] = found[verb.options] or [f"`ddbio.{verb.name}`"]
    found["StreamEventOptions"] = ["`ddbio.lambda_handlers.log_changes`"]
    # Most classes derive from that of prices, and have its options.
    del found["PriceOptions"]
    return {getattr(package, name): names for name, names in found.items() if names}


def _fields_of(cls: type) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def _base_of(cls: type, parts: dict[type, list[str]]) -> type | None:
    return next((base for base in cls.__mro__[1:] if base in parts), None)


def _part_text(cls: type, parts: dict[type, list[str]]) -> str:
    base, described = _base_of(cls, parts), descriptions_of(cls)
    left_out = set() if base is None else _fields_of(base)
    besides = "" if base in {None, package.ConnectionOptions} else f", besides those of {parts[base][0]}"
    rows = [
        f"| `{field.name}` | {_default(field)} | {_in_markdown(described[field.name])} |"
        for field in dataclasses.fields(cls)
        if field.name not in left_out
    ]
    title = f"## {', '.join(parts[cls])}{besides}"
    return "\n".join([title, "", "| option | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _in_markdown(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _annotated(name, text):
    """Return the lines of a member, as the formatter lays them out."""
    line = f"    {name}: {text}"
    if len(line) <= _LINE:
        return [line]
    opening, _, inner = line.partition("[")
    return [f"{opening}[", f"        {inner.removesuffix(']')}", "    ]"]


def _docstring(text: str) -> list[str]:
    first, *rest = text.splitlines()
    if not rest:
        return [f'    """{first}"""']
    return [f'    """{first}', *(f"    {line}".rstrip() for line in rest), '    """']


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return "required"
    if value is None or value == ():
        return ""
    if field.name.endswith("_bytes"):
        return f"{int(value) // 1024**2} MiB"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


GENERATED = {STUB: stub_text, OPTIONS_STUB: options_stub_text, KEYWORDS: keywords_text, PAGE: page_text}
"""What is generated, and the functions that make it."""

if __name__ == "__main__":
    for path, make in GENERATED.items():
        path.write_text(make(), "utf-8")
