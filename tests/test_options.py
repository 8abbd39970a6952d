"""Options: all notations and all errors."""

import pickle
from pathlib import Path

import pytest

from ddbio.errors import OptionError
from ddbio.load.options import WriteOptions
from ddbio.options import camel_case, parse_options
from ddbio.scan.options import ScanOptions, ScanToFilesOptions


@pytest.mark.parametrize("spelling", ["rcu_per_second", "rcuPerSecond", "rcupersecond"])
def test_every_spelling_is_one_option(spelling):
    """Python, Spark and the lower-cased keys that Spark passes to a data source mean the same field."""
    assert parse_options(ScanOptions, {"table": "t", spelling: "400"}).rcu_per_second == 400.0


def test_text_becomes_values():
    """Spark options and CLI flags are text. Sizes, names and booleans are parsed."""
    text = {"table": "t", "dest": "d", "targetFileBytes": "64MiB", "columns": "a, b", "consistent": "true"}
    options = parse_options(ScanToFilesOptions, text)
    assert (options.target_file_bytes, options.columns, options.consistent) == (64 * 1024**2, ("a", "b"), True)


def test_pairs_are_split_at_the_first_equals_sign():
    """A comma within brackets belongs to a type, and a further equals sign to the value."""
    options = parse_options(ScanOptions, {"table": "t", "types": "a=decimal(38, 2), b = S,c=x=y"})
    assert options.types == (("a", "decimal(38, 2)"), ("b", "S"), ("c", "x=y"))


def test_a_path_is_its_text():
    """Options for a location also accept paths."""
    options = parse_options(WriteOptions, {"table": "t", "reject_to": Path("some/folder")})
    assert options.reject_to == "some/folder"


def test_none_means_not_given():
    """Without a flag the default applies."""
    assert parse_options(ScanOptions, {"table": "t", "consistent": None}).consistent is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"table": "t", "rcu_per_secnd": 3}, "unknown option 'rcu_per_secnd': did you mean 'rcu_per_second'?"),
        ({"table": "t", "xyzzy": 3}, "unknown option 'xyzzy': known are endpoint_url,"),
        ({"rcu_per_second": 1}, "option 'table' is missing"),
        ({"table": "t", "rcu_per_second": -3}, "option 'rcu_per_second' has value -3: input should be greater than 0"),
        ({"table": "t", "segments": "many"}, "option 'segments' has value 'many'"),
        ({"table": "t", "on_misfit": "x"}, "input should be 'rescue', 'fail' or 'drop'"),
        ({"table": "t", "rcu_per_second": 1, "read_ratio": 0.5}, "give rcu_per_second or read_ratio, not both"),
        ({"table": "t", "columns": "a,a"}, "columns names an attribute twice"),
        ({"table": "t", "on_misfit": "drop"}, "give both or neither"),
        ({"table": "t", "drop": "a"}, "give both or neither"),
        ({"table": ""}, "option 'table'"),
    ],
)
def test_errors_have_the_remedy(values, message):
    """An invalid value is one OptionError that names the option."""
    with pytest.raises(OptionError) as caught:
        parse_options(ScanOptions, values)
    assert message in str(caught.value)


def test_options_travel_to_workers():
    """Options survive pickling and cannot be changed on the way."""
    options = parse_options(ScanOptions, {"table": "t", "columns": ["a"]})
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(AttributeError):
        options.table = "u"


def test_camel_case_is_mechanical():
    """Spark's spelling follows from the field's name."""
    assert camel_case("s3_endpoint_url") == "s3EndpointUrl"
