"""The structure: who imports whom, the size of modules, public names, and what may not be in the tree."""

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
"""The packages of capabilities, and which of them each imports."""
OPTIONS = {f"ddbio.{name}{part}" for name in CAPABILITIES for part in ("", ".options", ".rules")}
"""What the help of a command may load of the capabilities."""
REGISTRIES = {"__init__", "items/kernel/compiler/objects", "jobs/providers", "options/__init__", "public"}
HEAVY_LIBRARIES = {"boto3", "botocore", "click", "numba", "numpy", "pyarrow", "pydantic", "pyspark", "rich"}

# In parts, so that this file does not hold what it looks for: hosts of package registries, folders of one workplace.
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
    """Return how a parametrised case is called."""
    return str(path.relative_to(ROOT))


def error_classes(cls: type[DdbioError]) -> Iterator[type[DdbioError]]:
    """Yield a class and all that derive from it."""
    yield cls
    for child in cls.__subclasses__():
        yield from error_classes(child)


def files_of_the_tree() -> Iterator[Path]:
    """Yield what a clone would hold: no environment, no cache, no hidden folder but .ci."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and (name == ".ci" or not name.startswith("."))]
        # In a linked work tree of git it is a file, which says where the clone is.
        yield from (Path(folder, name) for name in names if name != ".git")


@pytest.mark.parametrize("name", ["ddbio", "ddbio.testing"])
def test_public_names_are_listed(name):
    """What a package offers is in its sorted ``__all__``, and everything in there can be had."""
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
    """``import ddbio`` loads none of the libraries it will use."""
    code = "import sys, ddbio; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ddbio" in loaded
    assert not loaded & HEAVY_LIBRARIES


def test_capabilities_import_only_as_drawn():
    """A capability imports only those that ``docs/architecture.md`` draws below it."""
    graph = grimp.build_graph("ddbio", exclude_type_checking_imports=True)
    found = {
        importer: {
            imported
            for imported in CAPABILITIES
            if imported != importer
            and graph.direct_import_exists(importer=f"ddbio.{importer}", imported=f"ddbio.{imported}", as_packages=True)
        }
        for importer in CAPABILITIES
    }
    assert found == CAPABILITIES


def test_only_registries_import_by_name():
    """Imports by name, which the contracts do not see, are in the registries only."""
    found = {named(path) for path in MODULES if "import_module" in path.read_text("utf-8")}
    assert found == {f"ddbio/{name}.py" for name in REGISTRIES}


def test_help_does_not_wait_for_what_a_command_does():
    """The help of every command is printed without the libraries, and without the verbs, that do its work."""
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
    found = loaded & (HEAVY_LIBRARIES - {"click", "pydantic"})
    found |= {name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in works} - OPTIONS
    assert not found, "import what a command does within the command's function"


def test_a_missing_extra_is_named():
    """Without PySpark every public name can be had, and what needs it says how to install it."""
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
    """No module is longer than one sitting; how short one may be is nobody's rule."""
    lines = {named(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_modules_say_what_they_are():
    """A module has a docstring, a name of its own, and classes named after what they are."""
    for path in MODULES:
        tree = ast.parse(path.read_text("utf-8"))
        classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        assert ast.get_docstring(tree), path
        assert not VAGUE_NAMES & {path.stem, *(folder.name for folder in path.relative_to(ROOT).parents)}, path
        assert [name for name in classes if name.endswith(VAGUE_ENDINGS)] == [], path


def test_tests_say_what_they_show():
    """Every test has a docstring."""
    for path in TESTS:
        functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
        tests = [node for node in functions if node.name.startswith("test_")]
        assert [node.name for node in tests if not ast.get_docstring(node)] == [], path


def test_errors_travel():
    """An error comes out of a worker as it went in: class, message, arguments and attributes."""
    for cls in error_classes(DdbioError):
        parameters = inspect.signature(cls.__init__).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        error = cls("what happened", *(f"value of {name}" for name in names[2:]))
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is cls
        assert str(copy) == "what happened"
        assert (copy.args, vars(copy)) == (error.args, vars(error))
        assert vars(error) == {name: f"value of {name}" for name in names[2:]}


def test_tree_names_no_place():
    """No file names the address of a package registry or a folder of one machine."""
    found = [
        (named(path), text)
        for path in files_of_the_tree()
        # Another run's own file may be gone.
        if path.exists() and (content := path.read_bytes())
        for text in FOREIGN_TEXT
        if text.encode() in content
    ]
    assert found == []
