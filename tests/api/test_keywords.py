"""The keyword types match the options classes, and every function accepts those of its options."""

import dataclasses
import inspect
import re
import typing

import pytest

import ddbio
from ddbio.options import descriptions_of
from ddbio.public import ARGUMENTS, arguments_of, keyword_class
from ddbio.scan.options import ScanToFilesOptions
from ddbio.verbs import VERBS
from tests.api.generated import GENERATED, PAGE, keyword_name, options_classes


def fields_of(options):
    """Return the names of an options class that are keywords."""
    return {field.name for field in dataclasses.fields(options)} - ARGUMENTS


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_are_generated(path):
    """Stubs and the page of options match verbs and options: run tests/api/generated.py after a change."""
    assert path.read_text("utf-8") == GENERATED[path]()


def test_keywords_mirror_their_options():
    """Names, including inherited ones, are those of the options class. All are optional."""
    mirrored = {options: keyword_class(keyword_name(options)) for options in options_classes()}
    assert {name: set(keywords.__annotations__) for name, keywords in mirrored.items()} == {
        name: fields_of(name) for name in mirrored
    }
    assert [keywords for keywords in mirrored.values() if keywords.__required_keys__] == []


def test_every_options_class_has_a_page():
    """Each option of each public class has a row with its description on the page of options."""
    lines = PAGE.read_text("utf-8").splitlines()
    rows = {(match[1], match[2]) for line in lines if (match := re.fullmatch(r"\**`(\w+)(?:=.*?)?`\** \| (.*)", line))}
    missing = [
        (options.__name__, name)
        for options in options_classes()
        for name, text in descriptions_of(options).items()
        if (name, " ".join(text.split()).replace("``", "`")) not in rows
    ]
    assert missing == []


def test_shared_options_have_one_row():
    """An option that a command only names has one row among those of several commands, so that it is unambiguous."""
    page = PAGE.read_text("utf-8")
    common = re.findall(
        r"^\**`(\w+)", page.partition("## Options of several commands")[2].partition("## Commands")[0], re.MULTILINE
    )
    assert len(common) == len(set(common))
    named = re.findall(r"; ((?:`\w+`(?:, )?)+)\.$|^Shared: ((?:`\w+`(?:, )?)+)\.$", page, re.MULTILINE)
    assert {name for groups in named for text in groups for name in re.findall(r"`(\w+)`", text)} <= set(common)


@pytest.mark.parametrize("name", VERBS)
def test_functions_take_the_options_of_their_verb(name):
    """The public signature and docstring have each argument, each option, and nothing else."""
    verb, function = VERBS[name], getattr(ddbio, name)
    arguments = arguments_of(verb)
    options = {field.name for field in dataclasses.fields(getattr(ddbio.options, verb.options))}
    expected = (
        {argument.name for argument in arguments}
        | set(verb.more.split())
        | options - {argument.field for argument in arguments}
    )
    shown = inspect.signature(function).parameters
    assert set(shown) == expected
    assert list(shown)[: len(arguments)] == [argument.name for argument in arguments]
    assert [name for name in expected if f"\n{name} : " not in function.__doc__] == []
    assert set(function.__annotations__) == {*shown, "return"}
    assert (function.__name__, function.__module__) == (name, "ddbio")


def test_wrong_arguments_are_a_type_error():
    """A missing argument is reported with the name of the function, as Python does."""
    with pytest.raises(TypeError, match=r"compact\(\): missing a required argument: 'path'"):
        ddbio.compact()


def test_help_describes_options():
    """The help of a function has the text of each of its options."""
    assert descriptions_of(ScanToFilesOptions)["rcu_per_second"] in ddbio.scan_to_files.__doc__


def test_options_are_checked_when_called():
    """A wrong name is also an error in Python, with the nearest name."""
    wrong: typing.Any = {"rcu_per_secnd": 5}
    with pytest.raises(ddbio.OptionError, match="did you mean 'rcu_per_second'"):
        ddbio.read_table("t", **wrong)
