"""The public names: where each comes from, and that none that users meet is missing."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import ddbio
from ddbio import errors
from ddbio.core.result import Result

SOURCE = Path(ddbio.__file__).read_text("utf-8")


def subclasses(cls):
    """Return a class and all that derive from it."""
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


def test_type_checkers_see_the_same_homes():
    """The imports that type checkers read are those that are made at first use."""
    (block,) = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body for alias in node.names if node.module != "ddbio"}
    assert seen == ddbio._HOMES
    assert set(ddbio.__all__) == {*seen, "__version__"}


def test_every_error_is_public():
    """Each error of the tree can be caught by a name of ``ddbio``."""
    public = {value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, errors.DdbioError)}
    assert [cls.__name__ for cls in public if getattr(ddbio, cls.__name__, None) is not cls] == []


def test_what_functions_return_is_public():
    """Each plan, job and report that a public function returns has a public name."""
    functions = [getattr(ddbio, name) for name in ddbio.__all__ if inspect.isfunction(getattr(ddbio, name))]
    results = {cls.__name__ for cls in subclasses(Result)}
    returned = {name for each in functions for name in results if name in str(each.__annotations__.get("return", ""))}
    words = {word for each in functions for word in str(each.__annotations__.get("return", "")).replace("[", " ").replace("]", " ").split()}  # fmt: skip # noqa: E501
    assert returned & words <= set(ddbio.__all__)


def test_names_are_loaded_at_first_use():
    """Importing the package, and listing its names, loads none of its modules."""
    code = "import sys, ddbio; dir(ddbio); print(*(name for name in sys.modules if name.startswith('ddbio')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"ddbio", "ddbio.version"}
