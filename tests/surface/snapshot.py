"""Snapshots of the public surface as lines of text: names, signatures, commands, options, entry points, formats.

Each function returns the lines of one file of this folder. Lines do not depend on versions, machines or modules that
are not public.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import re
import runpy
import sys
import tomllib
import types
import typing
from collections import Counter, defaultdict
from pathlib import Path

from ddbio import ConnectionKeywords
from ddbio.result import Result

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
MODULES = ("ddbio", "ddbio.capacity", "ddbio.errors", "ddbio.lambda_handlers", "ddbio.testing")
SPARK_MODULES = ("ddbio.spark", "ddbio.spark.functions")

# Special methods of public classes that are part of the surface, although their names begin with an underscore.
PROTOCOLS = {
    *("__arrow_c_schema__", "__arrow_c_stream__", "__call__", "__contains__", "__enter__", "__exit__", "__getitem__"),
    *("__iter__", "__len__", "__next__", "_repr_html_"),
}

# An option of every command and function that calls AWS. It identifies the options of the connection.
_OF_CONNECTIONS = "role_session_name"


def python_lines() -> list[str]:
    """Return the names of the public modules, with signatures, fields, bases and values."""
    return _modules_lines(MODULES)


def spark_lines() -> list[str]:
    """Return the names of the modules for Spark, and the options of each data source."""
    return [*_modules_lines(SPARK_MODULES), *sorted(_source_lines())]


def _modules_lines(modules: typing.Iterable[str]) -> list[str]:
    names = [f"{module}.{name}" for module in modules for name in _public_names(importlib.import_module(module))]
    values = {
        name: getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names
    }
    common = _common_parameters(values.values())
    lines = [f"OPTIONS OF CONNECTIONS: {option}" for option in common]
    home: dict[int, str] = {}
    for name, value in values.items():
        # A name that is public in two modules is shown in the first one.
        first = home.setdefault(id(value), name)
        is_shown_there = first != name and (inspect.isclass(value) or inspect.isfunction(value))
        lines += [f"{name} is {first}"] if is_shown_there else _value_lines(name, value, common)
    classes = {value for value in values.values() if inspect.isclass(value)}
    for cls in sorted(_nested(classes) - classes, key=lambda cls_: cls_.__name__):
        lines += [f"NESTED.{cls.__name__}.{line}" for line in _field_lines(cls)]
    return sorted(set(lines))


def _public_names(module: types.ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if name != "__version__"]
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]


def _value_lines(name: str, value: object, common: frozenset[str]) -> list[str]:
    if inspect.isclass(value):
        return _class_lines(name, value)
    if inspect.isfunction(value):
        return _function_lines(name, value, common)
    return [f"{name} = {_plain(value)}"]


def _function_lines(name: str, function: object, common: frozenset[str]) -> list[str]:
    """Return one line for the signature, and one for each keyword-only parameter."""
    signature = inspect.signature(function)
    named = {
        _parameter(parameter) for parameter in signature.parameters.values() if parameter.kind is parameter.KEYWORD_ONLY
    }
    others = [
        _parameter(parameter)
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]
    if common and common <= named:
        named = named - common | {"OPTIONS OF CONNECTIONS"}
    result = _type(signature.return_annotation)
    return [f"{name}({', '.join(others)}) -> {result}", *(f"{name}(… {parameter})" for parameter in named)]


def _common_parameters(values: typing.Iterable[object]) -> frozenset[str]:
    """Return the common parameters of all functions that call AWS."""
    common = []
    for function in filter(inspect.isfunction, values):
        named = {parameter.name: _parameter(parameter) for parameter in inspect.signature(function).parameters.values()}
        common += [frozenset(named.values())] if _OF_CONNECTIONS in named else []
    return frozenset.intersection(*common) if common else frozenset()


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    only = "/" if parameter.kind is parameter.POSITIONAL_ONLY else ""
    default = "" if parameter.default is parameter.empty else f" = {_plain(parameter.default)}"
    return f"{stars}{parameter.name}{only}: {_type(parameter.annotation)}{default}"


def _class_lines(name: str, cls: type) -> list[str]:
    """Return the bases of an error, the members of keywords, or the fields, methods and properties of other classes."""
    if typing.is_typeddict(cls):
        return [f"{name}[{line}" for line in _keyword_lines(cls)]
    lines = [f"{name}.{line}" for line in _field_lines(cls)]
    if issubclass(cls, Exception):
        lines.append(f"{name} derives from {', '.join(base.__name__ for base in cls.__bases__)}")
    if not lines or issubclass(cls, Exception) or not hasattr(cls, "to_dict"):
        with contextlib.suppress(ValueError):
            lines += _function_lines(name, cls, frozenset())
    own = [base for base in reversed(cls.__mro__) if base.__module__.partition(".")[0] == "ddbio"]
    members = {key: value for base in own for key, value in vars(base).items()}
    if issubclass(cls, Result):
        # All of these classes have the same methods.
        members = {key: value for key, value in members.items() if vars(Result).get(key) is not value}
        lines.append(f"{name} has to_dict, to_json and _repr_html_")
    for key, value in members.items():
        if (key.startswith("_") and key not in PROTOCOLS) or key in getattr(cls, "__dataclass_fields__", ()):
            continue
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if inspect.isfunction(function):
            lines += _function_lines(f"{name}.{key}", function, frozenset())
        elif isinstance(value, property):
            lines.append(f"{name}.{key}: {_type(inspect.signature(value.fget).return_annotation)}")
        elif not inspect.ismemberdescriptor(value):
            lines.append(f"{name}.{key} = {_plain(value)}")
    return lines


def _keyword_lines(cls: type) -> set[str]:
    """Return the members of keywords, with one line for all options of connections."""
    members = {f"{key}]: {_type(hint)}" for key, hint in cls.__annotations__.items()}
    shared = {f"{key}]: {_type(hint)}" for key, hint in ConnectionKeywords.__annotations__.items()}
    return members - shared | {"OPTIONS OF CONNECTIONS]"} if shared < members else members


def _field_lines(cls: type) -> list[str]:
    if not dataclasses.is_dataclass(cls):
        return []
    return [
        f"{field.name}: {_type(field.type)}{_default(field)}"
        for field in dataclasses.fields(cls)
        if not field.name.startswith("_")
    ]


def _default(field: dataclasses.Field) -> str:
    if field.default_factory is not dataclasses.MISSING:
        name = field.default_factory.__name__
        return f" = {name}()" if name.isidentifier() else " = made for each"
    return "" if field.default is dataclasses.MISSING else f" = {_plain(field.default)}"


def _nested(classes: set[type]) -> set[type]:
    """Return the dataclasses that the fields of some classes name, including nested ones."""
    dataclasses_, pending = set(), [cls for cls in classes if dataclasses.is_dataclass(cls)]
    while pending:
        cls = pending.pop()
        for owner in {base for base in cls.__mro__ if dataclasses.is_dataclass(base)}:
            loaders = _names_for_types(owner.__module__)
            words = {word for field in dataclasses.fields(owner) for word in re.findall(r"[A-Z]\w+", str(field.type))}
            new = {loaders[word]() for word in words & set(loaders)} - dataclasses_
            new = {value for value in new if inspect.isclass(value) and dataclasses.is_dataclass(value)}
            dataclasses_ |= new
            pending += new
    return dataclasses_


def _names_for_types(module: str) -> dict[str, typing.Callable[[], object]]:
    """Return the names of ddbio in a module, also those imported for type checkers, with functions that load them."""
    loaded = sys.modules[module]
    loaders = {name: (lambda value=value: value) for name, value in vars(loaded).items()}
    for node in ast.walk(ast.parse(inspect.getsource(loaded))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddbio"):
            for name in node.names:
                home = node.module
                loaders.setdefault(
                    name.asname or name.name,
                    lambda home=home, name=name.name: getattr(importlib.import_module(home), name),
                )
    return loaders


def _type(hint: object) -> str:
    """Return an annotation as text, without the modules of its names."""
    if hint is inspect.Parameter.empty:
        return "?"
    text = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
    if not isinstance(text, str):
        text = hint.__name__ if inspect.isclass(hint) and not typing.get_args(hint) else repr(hint)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    text = re.sub(r"(?<![\w'\"])(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", text.replace('"', "'"))
    return re.sub(r"\s+", " ", text)


def _plain(value: object) -> str:
    text = value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)
    return f"<{type(value).__name__}>" if " at 0x" in text else text.replace(repr(sys.executable), "<this Python>")


def command_lines() -> list[str]:
    """Return the help of each command without its options, followed by the names of the options."""
    common, lines = _common_flags(), []
    for words, context in _commands():
        text = _section_free(context.get_help(), "Options")
        records = _option_records(context)
        flags = sorted(flags for flags, *_ in records if (flags, *_) not in common)
        if common <= set(records):
            flags.append("(the options of connections)")
        lines += [f"==== {words}", *text, *(f"  option {flag}" for flag in flags), ""]
    return lines[:-1]


def option_lines() -> list[str]:
    """Return one line per option: flags and metavar, kind, and help.

    If options of the same name differ, the line also has their commands.
    """
    words_by_record = defaultdict(list)
    for words, context in _commands():
        for record in _option_records(context):
            words_by_record[record].append(words)
    versions = Counter(flags for flags, *_ in words_by_record)
    lines = [f"(an option of connections) {flags}" for flags, *_ in _common_flags()]
    for (flags, term, kind, help_text), words in words_by_record.items():
        of = f" | {', '.join(sorted(words))}" if versions[flags] > 1 else ""
        lines.append(f"{term} | {kind} | {help_text}{of}")
    return sorted(lines)


def _commands():
    """Yield the words of each command and command part, and its context with 100 columns."""
    import click  # noqa: PLC0415 - an extra

    from ddbio.cli.main import cli  # noqa: PLC0415 - it needs that extra

    def walk(command, words, parent):
        own = words.removeprefix(parent.command_path).strip() if parent else words
        settings = {**command.context_settings, "terminal_width": 100, "max_content_width": 100, "color": False}
        context = click.Context(command, parent, own, **settings)
        yield words, context
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            yield from walk(inner, f"{words} {name}", context)
        # A part is listed instead of its command.
        for name, inner in sorted(getattr(command, "parts", {}).items()):
            yield from walk(inner, f"{words} {name}", parent)

    return list(walk(cli, "ddbio", None))


def _section_free(text: str, title: str) -> list[str]:
    """Return the lines of a help text without one of its sections."""
    lines, is_within = [], False
    for line in text.splitlines():
        is_within = (line == f"{title}:") if line and line[0] != " " else is_within
        lines += [] if is_within else [line.rstrip()]
    return [line for line in lines if line]


def _option_records(context) -> list[tuple[str, ...]]:
    """Return the flags, the term in the help, the kind and the help of each option."""
    records = []
    for option in context.command.get_params(context):
        # Once a command has shown its help, click also lists that option.
        if option.param_type_name != "option" or "--help" in option.opts:
            continue
        term, help_text = option.get_help_record(context)
        # Versions of click store "no value" as different values.
        default = (
            option.default if isinstance(option.default, (str, int, float)) and option.default is not False else None
        )
        kind = [option.type.name, *(["flag"] if option.is_flag else []), *(["repeated"] if option.multiple else [])]
        kind += [f"of {'|'.join(option.type.choices)}" for _ in range(option.type.name == "choice" and "[" not in term)]
        kind += ["required"] if option.required else []
        kind += [] if default is None or option.is_flag else [f"default {default!r}"]
        records.append(
            (" ".join([*option.opts, *option.secondary_opts]), term, " ".join(kind), " ".join(help_text.split()))
        )
    return records


def _common_flags() -> set[tuple[str, ...]]:
    """Return the common options of all commands that call AWS."""
    flag = "--" + _OF_CONNECTIONS.replace("_", "-")
    records = [set(_option_records(context)) for _, context in _commands()]
    return set.intersection(
        *(flags_of_command for flags_of_command in records if flag in {flags for flags, *_ in flags_of_command})
    )


def entry_lines() -> list[str]:
    """Return scripts, plugins, top-level modules, options of the fake, and environment variables."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = [f"script {name} = {target}" for name, target in project["project"]["scripts"].items()]
    for group, targets in project["project"]["entry-points"].items():
        lines += [f"entry point {group} {name} = {target}" for name, target in targets.items()]
    lines += [f"extra {name}" for name in project["project"]["optional-dependencies"]]
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    lines += [
        f"top-level folder of the wheel: {wheel['sources'].get(folder, folder) or '.'}"
        for folder in wheel["only-include"]
    ]
    for path in (ROOT / "discovery").glob("*.py"):
        lines += [f"top-level module {path.stem}: {line}" for line in _top_level_names(path)]
    lines += [f"environment variable {name}" for name in environment_variables()]
    return sorted({*lines, *_testing_options()})


def _top_level_names(path: Path) -> list[str]:
    """Return the fixtures and hooks of a pytest plugin, or the name of a Spark data source, from its source."""
    tree, lines = ast.parse(path.read_text("utf-8")), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and path.stem.startswith("pyspark_"):
            lines += [name.asname for name in node.names if name.asname]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            decorators = ", ".join(map(ast.unparse, node.decorator_list))
            lines.append(f"{node.name} {decorators}".strip())
            fields = [
                statement
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(node, ast.ClassDef)
            ]
            lines += [f"{node.name}.{ast.unparse(field.target)}: {ast.unparse(field.annotation)}" for field in fields]
    lines += [f"marker {marker}" for marker in re.findall(r'"markers", "(\w+)\(', path.read_text("utf-8"))]
    return lines


def environment_variables() -> set[str]:
    """Return the environment variables that the package reads or sets by their names."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "ddbio").rglob("*.py"))
    names = set(re.findall(r"\b(?:DDBIO|XDG)_[A-Z_]+\b", text))
    for pattern in (r"environ(?:\.\w+\(|\[)\s*\"([A-Z_]+)\"", r"\"([A-Z_]+)\" (?:not )?in os\.environ"):
        names |= set(re.findall(pattern, text))
    return names


def _testing_options() -> list[str]:
    """Return the options of ``python -m ddbio.testing`` as its help shows them."""
    from ddbio.testing.__main__ import main  # noqa: PLC0415 - the modules above are enough for others

    shown, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "1000"
    try:
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            main(["--help"])
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if columns is None else {"COLUMNS": columns})
    # Long flags have their help on the next line.
    lines = re.sub(r"\n {10,}", "  ", shown.getvalue()).splitlines()
    return [f"python -m ddbio.testing {' '.join(line.split())}" for line in lines if line.startswith("  -")]


def _source_lines():
    """Yield the name and the options of each data source, and their names in other connectors."""
    from ddbio.options import aliases, camel_case  # noqa: PLC0415 - they need PySpark
    from ddbio.spark import change_reading, export_reading, reading, source, writing  # noqa: PLC0415 - the same

    table = {"read": reading.DataFrameOptions, "write": writing.FrameWriteOptions}
    stream = {"readStream": change_reading.TableStreamOptions}
    of = {
        source.DynamoDBSource: table,
        source.DdbioSource: table,
        source.PushdownSource: table,
        source.ExportSource: {"read": export_reading.ExportFrameOptions},
        source.LogSource: {"readStream": change_reading.LogStreamOptions},
        source.StreamsSource: stream,
        source.KinesisSource: stream,
    }
    for data_source, uses in of.items():
        for use, options in uses.items():
            same = next(name for name, uses_ in of.items() if uses_ is uses)
            if same is not data_source:
                yield f"{use} {data_source.name()}: the options of {same.name()}"
                continue
            for field in dataclasses.fields(options):
                yield f"{use} {data_source.name()}: {camel_case(field.name)}{_default(field)}"
    for path in (ROOT / "discovery").glob("pyspark_*.py"):
        source_name = runpy.run_path(str(path))["DefaultSource"].name()
        yield f"Spark finds {source_name} by the module {path.stem}"
    for use, names in aliases.ALIASES.items():
        yield from (f"{use} {name} means {camel_case(own)}" for name, own in names.items())


# Snapshots that need only the modules.
SNAPSHOTS = {
    "python.txt": python_lines,
    "commands.txt": command_lines,
    "options.txt": option_lines,
    "entry_points.txt": entry_lines,
    "spark.txt": spark_lines,
}
