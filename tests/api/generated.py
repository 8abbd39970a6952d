"""Write what is generated from verbs and options: ``ddbio/__init__.pyi``, ``ddbio/keywords.pyi``, ``docs/options.md``.

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
from ddbio.options import descriptions_of
from ddbio.verbs import VERBS, Verb

ROOT = Path(__file__).parents[2]
STUB, KEYWORDS, PAGE = ROOT / "ddbio/__init__.pyi", ROOT / "ddbio/keywords.pyi", ROOT / "docs/options.md"

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

_PAGE_PARTS = [
    ("Connection: every verb", "ConnectionOptions", "ConnectionOptions"),
    ("Reading a table: `scan`, `schema`, `digest`, `read_table`, `scan_batches`", "ScanOptions", "ConnectionOptions"),
    ("Writing files: `scan`, besides those of reading", "ScanToFilesOptions", "ScanOptions"),
    ("`doctor`", "DoctorOptions", "ConnectionOptions"),
    ("The layout of files: `layout`", "LayoutOptions", "ConnectionOptions"),
    ("Validation: `validate`", "ValidateOptions", "ConnectionOptions"),
    (
        "Reading an export: `read_export`, `read_export_batches`, `fold_exports`",
        "ExportReadOptions",
        "ConnectionOptions",
    ),
    ("Files of an export: `export read`, besides those of reading it", "ExportToFilesOptions", "ExportReadOptions"),
    ("Folding: `export fold`, besides those of `export read`", "ExportFoldOptions", "ExportToFilesOptions"),
    ("Windows of increments: `export windows`", "ExportWindowsOptions", "ConnectionOptions"),
    ("Folders: `files`", "FilesListOptions", "ConnectionOptions"),
    ("Compaction: `compact`", "CompactOptions", "ConnectionOptions"),
    ("Vacuum: `vacuum`", "VacuumOptions", "ConnectionOptions"),
    ("Publishing: `publish`", "PublishOptions", "ConnectionOptions"),
    ("Taking a version back: `publish --rollback`", "RollbackOptions", "ConnectionOptions"),
    ("Writing a table: `write_table`", "WriteOptions", "ConnectionOptions"),
    ("Loading files: `load`, besides those of writing", "LoadOptions", "WriteOptions"),
    ("Copying: `copy`, `table create-like`", "CopyOptions", "ConnectionOptions"),
    ("`table create`", "CreateTableOptions", "ConnectionOptions"),
    ("Files for an import: `import files`", "ImportFilesFromOptions", "ConnectionOptions"),
    ("Change capture: `capture`", "CaptureOptions", "ConnectionOptions"),
    ("What Firehose delivered: `changes read`", "ChangesReadOptions", "ConnectionOptions"),
    ("`replay`", "ReplayOptions", "ConnectionOptions"),
    ("Firehose's layout: `changes write`", "ChangesWriteOptions", "ConnectionOptions"),
    ("`capture status`", "CaptureStatusOptions", "ConnectionOptions"),
    ("`capture verify`", "CaptureVerifyOptions", "ConnectionOptions"),
    ("`capture heal`", "CaptureHealOptions", "ConnectionOptions"),
    ("`ddbio.lambda_handlers.log_changes`", "StreamEventOptions", "ConnectionOptions"),
    ("Tables of a lake: `apply`", "ApplyOptions", "ConnectionOptions"),
    ("`maintain`", "MaintainOptions", "ConnectionOptions"),
    ("`bootstrap`", "BootstrapOptions", "ConnectionOptions"),
    ("`reconcile`", "ReconcileOptions", "ConnectionOptions"),
    ("`verify`", "VerifyOptions", "ConnectionOptions"),
    ("`history`", "HistoryOptions", "ConnectionOptions"),
    ("`view latest`, `view history`", "ViewOptions", "ConnectionOptions"),
    ("Archives of expired items: `archive`", "ArchiveOptions", "ConnectionOptions"),
    ("`archive restore`", "ArchiveRestoreOptions", "ConnectionOptions"),
    ("`archive expired`", "ExpiredReadOptions", "ConnectionOptions"),
    ("`import start`", "ImportStartOptions", "ConnectionOptions"),
    ("`import wait`", "ImportWaitOptions", "ConnectionOptions"),
    ("`export start`", "ExportStartOptions", "ConnectionOptions"),
    ("`export wait`, `bulk wait`", "WaitOptions", "ConnectionOptions"),
    ("`bulk start`", "BulkStartOptions", "ConnectionOptions"),
    ("`bulk report`", "BulkReportOptions", "ConnectionOptions"),
    ("`catalog sync`", "CatalogSyncOptions", "ConnectionOptions"),
    ("`catalog ddl`", "CatalogDdlOptions", "ConnectionOptions"),
    ("`backup create`", "BackupCreateOptions", "ConnectionOptions"),
    ("`backup restore`", "RestoreOptions", "ConnectionOptions"),
    ("`advise`", "AdviseOptions", "ConnectionOptions"),
    ("`capacity`", "PlanCapacityOptions", "ConnectionOptions"),
    ("`plan capture`", "PlanCaptureOptions", "ConnectionOptions"),
    ("`prices refresh`", "PricesRefreshOptions", "ConnectionOptions"),
    ("Policies: `iam`", "IamOptions", "IamOptions"),
    ("`simulate scan`", "SimulateScanOptions", "SimulateScanOptions"),
    ("`simulate load`", "SimulateLoadOptions", "SimulateLoadOptions"),
]


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
    own = [name for name in vars(cls).get("__annotations__", {}) if name not in public.ARGUMENTS]
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
    """Return the page of options."""
    parts = [_PAGE_HEADER]
    for title, name, without in _PAGE_PARTS:
        cls, described = getattr(package, name), descriptions_of(getattr(package, name))
        left_out = set() if name == without else {field.name for field in dataclasses.fields(getattr(package, without))}
        rows = [
            f"| `{field.name}` | {_default(field)} | {_in_markdown(described[field.name])} |"
            for field in dataclasses.fields(cls)
            if field.name not in left_out
        ]
        parts.append("\n".join([f"## {title}", "", "| option | default | meaning |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


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


if __name__ == "__main__":
    STUB.write_text(stub_text(), "utf-8")
    KEYWORDS.write_text(keywords_text(), "utf-8")
    PAGE.write_text(page_text(), "utf-8")
