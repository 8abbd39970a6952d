"""The structure: imports, the size of modules, public names, and forbidden contents of the tree."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from ddbio.errors import DdbioError

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "ddbio").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MOST_LINES = 800
VAGUE_NAMES = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
VAGUE_ENDINGS = ("Handler", "Helper", "Manager", "Processor")
CAPABILITIES: dict[str, set[str]] = {
    "catalog": set(),
    "scan": {"catalog"},
    "export": {"scan"},
    "load": {"scan", "export"},
    "cdc": {"scan", "export", "load"},
    "validation": {"scan", "export"},
    "lake": {"scan", "export", "cdc", "validation", "catalog"},
    "folders": {"catalog", "cdc", "validation"},
    "advice": {"scan", "load", "catalog"},
}
"""The packages of capabilities, and the packages that each imports."""
OPTIONS = {f"ddbio.{name}{part}" for name in CAPABILITIES for part in ("", ".options", ".rules")}
"""The capabilities that the help of a command may load."""
REGISTRIES = {"__init__", "items/kernel/compiler/objects", "jobs/providers", "options/__init__", "public"}
HEAVY_LIBRARIES = {"boto3", "botocore", "click", "numba", "numpy", "pyarrow", "pydantic", "pyspark", "rich"}

# In parts, so that this file does not contain the searched texts: hosts of package registries, folders of one
# workplace.
FOREIGN_TEXT = [
    "".join(parts)
    for parts in [
        ("://", "pypi"),
        ("files.", "pythonhosted"),
        ("registry.", "npmjs"),
        ("repo1.", "maven"),
        ("deb.", "debian.org"),
        ("/", "work/"),
    ]
]
NOT_OURS = {"__pycache__", "build", "dist", "metastore_db", "spark-warehouse"}


def named(path: Path) -> str:
    """Return the name of a parametrised case."""
    return str(path.relative_to(ROOT))


def error_classes(cls: type[DdbioError]) -> Iterator[type[DdbioError]]:
    """Yield a class and all its subclasses."""
    yield cls
    for child in cls.__subclasses__():
        yield from error_classes(child)


def files_of_the_tree() -> Iterator[Path]:
    """Yield the files of a clone: no environment, no cache, and no hidden folder except .ci."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and (name == ".ci" or not name.startswith("."))]
        # In a linked work tree of git it is a file with the path of the clone.
        yield from (Path(folder, name) for name in names if name != ".git")


@pytest.mark.parametrize("name", ["ddbio", "ddbio.testing"])
def test_public_names_are_listed(name):
    """The public names of a package are in its sorted ``__all__``, and all of these exist."""
    module = importlib.import_module(name)
    values = {public: getattr(module, public) for public in {*dir(module), *module.__all__} if public[0] != "_"}
    offered = {
        public
        for public, value in values.items()
        if not inspect.ismodule(value) and getattr(value, "__module__", "").startswith("ddbio")
    }
    assert list(module.__all__) == sorted(set(module.__all__))
    assert offered == {public for public in module.__all__ if public[0] != "_"}


def test_importing_costs_nothing():
    """``import ddbio`` loads none of the libraries that it uses later."""
    code = "import sys, ddbio; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ddbio" in loaded
    assert not loaded & HEAVY_LIBRARIES


def test_capabilities_import_only_as_drawn():
    """A capability imports only those that ``docs/architecture.md`` draws below it."""
    graph = grimp.build_graph("ddbio", exclude_type_checking_imports=True)
    imports = {
        importer: {
            imported
            for imported in CAPABILITIES
            if imported != importer
            and graph.direct_import_exists(importer=f"ddbio.{importer}", imported=f"ddbio.{imported}", as_packages=True)
        }
        for importer in CAPABILITIES
    }
    assert imports == CAPABILITIES


def test_only_registries_import_by_name():
    """Only the registries import by name, which the contracts cannot check."""
    importers = {named(path) for path in MODULES if "import_module" in path.read_text("utf-8")}
    assert importers == {f"ddbio/{name}.py" for name in REGISTRIES}


def test_help_does_not_load_the_work_of_a_command():
    """The help of every command is printed without the libraries and verbs that do its work."""
    script = """
import sys
from click.testing import CliRunner
from ddbio.cli.main import cli
def help_of(command, words):
    for name, each in getattr(command, "commands", {}).items():
        help_of(each, [*words, name])
    assert not CliRunner().invoke(cli, [*words, "--help"]).exit_code
for name, command in cli.commands.items():
    help_of(command, [name])
print(*{name if name[:6] == "ddbio." else name.partition(".")[0] for name in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ddbio.cli" in loaded
    works = {*CAPABILITIES, "aws", "items", "formats", "jobs", "sources", "spark"}
    violations = loaded & (HEAVY_LIBRARIES - {"click", "pydantic"})
    violations |= {name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in works} - OPTIONS
    assert not violations, "import what a command does within the command's function"


def test_a_missing_extra_is_named():
    """Without PySpark every public name exists, and the error of those that need it has the command to install it."""
    script = """
import sys
sys.modules["pyspark"] = None
from ddbio import *
from ddbio.jobs.engine import open_engine
for use in (lambda: register(None), lambda: __import__("ddbio.spark.functions"), lambda: open_engine("spark")):
    try:
        use()
    except (ImportError, ValueError) as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    advice = "ddbio.spark needs pyspark: pip install 'ddbio[spark]'"
    engine = f"engine 'spark' cannot be loaded: {advice}; or use engine 'local'"
    assert done.stdout.splitlines() == [advice, advice, engine]


def test_modules_are_read_in_one_sitting():
    """No module is longer than the maximum. There is no minimum."""
    lines = {named(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_modules_have_docstrings():
    """A module has a docstring, a unique name, and classes named after their contents."""
    for path in MODULES:
        tree = ast.parse(path.read_text("utf-8"))
        classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        assert ast.get_docstring(tree), path
        assert not VAGUE_NAMES & {path.stem, *(folder.name for folder in path.relative_to(ROOT).parents)}, path
        assert [name for name in classes if name.endswith(VAGUE_ENDINGS)] == [], path


def test_tests_have_docstrings():
    """Every test has a docstring."""
    for path in TESTS:
        functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
        tests = [node for node in functions if node.name.startswith("test_")]
        assert [node.name for node in tests if not ast.get_docstring(node)] == [], path


def test_errors_travel():
    """An error that leaves a worker keeps its class, message, arguments and attributes."""
    for cls in error_classes(DdbioError):
        parameters = inspect.signature(cls.__init__).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        error = cls("what happened", *(f"value of {name}" for name in names[2:]))
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is cls
        assert str(copy) == "what happened"
        assert (copy.args, vars(copy)) == (error.args, vars(error))
        assert vars(error) == {name: f"value of {name}" for name in names[2:]}


def test_the_tree_names_no_machine():
    """No file contains the address of a package registry or a folder of one machine."""
    occurrences = [
        (named(path), text)
        for path in files_of_the_tree()
        # Another run's own file may be deleted meanwhile.
        if path.exists() and (content := path.read_bytes())
        for text in FOREIGN_TEXT
        if text.encode() in content
    ]
    assert occurrences == []
