"""The keyword types are in step with the options classes, and every function takes those of its options."""

import dataclasses
import inspect
import typing

import pytest

import ddbio
from ddbio.api import keywords
from ddbio.options import ScanToFilesOptions, descriptions_of
from tests.api.generated import (
    ARGUMENTS,
    KEYWORDS,
    PAGE,
    keyword_name,
    keywords_text,
    options_classes,
    page_text,
)

FUNCTIONS = [value for value in (getattr(ddbio, name) for name in ddbio.__all__) if hasattr(value, "__signature__")]


def fields_of(options):
    """Return the names of an options class that are keywords."""
    return {field.name for field in dataclasses.fields(options)} - ARGUMENTS


def test_keywords_are_generated():
    """The module of keywords is what the options classes make it: run tests/api/generated.py after a change."""
    assert KEYWORDS.read_text("utf-8") == keywords_text()


def test_the_page_is_generated():
    """The page of options is what the options classes make it: run tests/api/generated.py after a change."""
    assert PAGE.read_text("utf-8") == page_text()


def test_keywords_mirror_their_options():
    """Names, inherited ones included, are those of the options class; all may be left out."""
    mirrored = {options: getattr(keywords, keyword_name(options)) for options in options_classes()}
    assert {each: set(found.__annotations__) for each, found in mirrored.items()} == {
        each: fields_of(each) for each in mirrored
    }
    assert [found for found in mirrored.values() if found.__required_keys__] == []


def test_every_options_class_has_a_page():
    """Each option of each public class is on the page of options."""
    text = PAGE.read_text("utf-8")
    names = {name for options in options_classes() for name in fields_of(options)}
    assert [name for name in sorted(names) if f"| `{name}` |" not in text] == []


def test_functions_take_the_keywords_of_their_options():
    """The names in the signature that a user sees are those of the keywords that a type checker sees."""
    assert FUNCTIONS
    for function in FUNCTIONS:
        declared = inspect.signature(function, follow_wrapped=False).parameters
        hint = function.__annotations__["options"]
        mirrored = getattr(keywords, hint.removeprefix("Unpack[").removesuffix("]"))
        code = function.__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        shown = set(declared) - set(own)
        assert shown == set(mirrored.__annotations__), function
        assert all(f"\n{name} : " in function.__doc__ for name in shown), function


def test_help_describes_options():
    """The help of a function has the text of each of its options."""
    assert descriptions_of(ScanToFilesOptions)["rcu_per_second"] in ddbio.scan_to_files.__doc__


def test_options_are_checked_when_called():
    """A wrong name is an error in Python, too, which names the nearest one."""
    wrong: typing.Any = {"rcu_per_secnd": 5}
    with pytest.raises(ddbio.OptionError, match="did you mean 'rcu_per_second'"):
        ddbio.read_table("t", **wrong)
