"""Public names: their modules, and their completeness."""

import inspect
import subprocess
import sys

import ddbio
from ddbio import errors
from ddbio.result import Result


def subclasses(cls):
    """Return a class and all its subclasses."""
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


def test_every_error_is_public():
    """Each error of the tree can be caught by a name of ``ddbio``."""
    public = {value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, errors.DdbioError)}
    assert [cls.__name__ for cls in public if getattr(ddbio, cls.__name__, None) is not cls] == []


def test_results_of_functions_are_public():
    """Each plan, job and report that a public function returns has a public name."""
    functions = [getattr(ddbio, name) for name in ddbio.__all__ if inspect.isfunction(getattr(ddbio, name))]
    results = {cls.__name__ for cls in subclasses(Result)}
    returned = " ".join(str(inspect.signature(function).return_annotation) for function in functions)
    words = set(returned.replace("[", " ").replace("]", " ").split())
    assert results & words <= set(ddbio.__all__)


def test_names_are_loaded_at_first_use():
    """Importing the package, and listing its names, loads none of its modules."""
    code = "import sys, ddbio; dir(ddbio); print(*(name for name in sys.modules if name.startswith('ddbio')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"ddbio", "ddbio.verbs", "ddbio.version"}
