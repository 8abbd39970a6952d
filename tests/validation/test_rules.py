"""Quality rules from YAML, and errors with line numbers."""

import subprocess
import sys
from decimal import Decimal

import pytest

from ddbio.errors import OptionError
from ddbio.validation.rules import read_rules

WHOLE = """
columns:
  pk: {not_null: true, unique: true}
  total:
    range: {min: 0, max: 12345678901234567890.123456789}
  status:
    in_set: [new, 5, true]
    regex: "[a-z]+"
unique: [pk, sk]
row_count: {min: 1, max: 1_000}
"""


def read(folder, text):
    """Return the rules of a text."""
    path = folder / "rules.yaml"
    path.write_text(text, "utf-8")
    return read_rules(path)


def test_rules_are_read_exactly(tmp_path):
    """Numbers keep every digit, and each rule counts."""
    rules = read(tmp_path, WHOLE)
    assert rules.columns["total"].range.max == Decimal("12345678901234567890.123456789")
    assert rules.columns["status"].in_set == ("new", Decimal(5), True)
    assert (rules.row_count.max, rules.count) == (1000, 7)
    assert rules.unique_columns == (("pk",), ("pk", "sk"))
    assert read(tmp_path, "").count == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("columns:\n  a:\n    not_nul: true\n", r"line 3: columns\.a\.not_nul: extra inputs"),
        ("columns:\n  a:\n    range: {}\n", r"line 3: columns\.a\.range: give min, max or both"),
        ("columns:\n  a:\n\n    range: {min: 1, max: x}\n", r"line 4: columns\.a\.range: min and max must both"),
        ("row_count: {min: x}\n", r"line 1: row_count\.min: "),
        ("columns:\n  a:\n    in_set: []\n", r"line 3: columns\.a\.in_set: "),
        ("columns:\n  a: [\n", r"line 3: this is no YAML"),
        ("- a\n", r"line 1: the file: "),
        ("columns:\n  a: {unique: true}\n  b: {}\n  a: {not_null: true}\n", r"line 4: a is given twice"),
        ("columns:\n  a:\n    range: {min: 1, max: .inf}\n", r"line 3: columns\.a\.range: min and max must both"),
    ],
)
def test_errors_have_the_line(tmp_path, text, message):
    """The error has the file, the line, the rule and the problem."""
    with pytest.raises(OptionError, match=rf"rules\.yaml, {message}"):
        read(tmp_path, text)


def test_a_file_that_is_not_there_and_a_missing_library_are_named(tmp_path):
    """The error names the remedy."""
    with pytest.raises(OptionError, match=r"nothing\.yaml"):
        read_rules(tmp_path / "nothing.yaml")
    script = """
import sys
sys.modules["yaml"] = None
from ddbio.validation.rules import read_rules
try:
    read_rules("rules.yaml")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "quality rules need pyyaml: pip install 'ddbio[quality]'"
