"""Keys in the formats that users write."""

from __future__ import annotations

import pytest

from ddbio.errors import OptionError
from ddbio.lake.history import key_text_of

BOTH = {"pk": "S", "sk": "N"}


@pytest.mark.parametrize(
    ("key", "types", "text"),
    [
        ("user#7", {"pk": "S"}, "S:user#7"),
        ("1.50", {"pk": "N"}, "N:1.5"),
        ("S:a|N:5", BOTH, "S:a|N:5"),
        ('{"pk": "a|b", "sk": 19.0}', BOTH, "S:a\\|b|N:19"),
        ('{"sk": {"N": "1e2"}, "pk": {"S": "a"}}', BOTH, "S:a|N:100"),
        ('{"pk": "aGk="}', {"pk": "B"}, "B:6869"),
    ],
)
def test_a_key_is_read(key, types, text):
    """A key may be the text of ``_key``, a JSON object plain or of attribute values, or the value of a one-part key."""
    assert key_text_of(key, types) == text


@pytest.mark.parametrize("key", ["a", '{"pk": "a"}', '{"pk": "a", "sk": "x"}', "{", '{"pk": "a", "sk": {"S": "1"}}x'])
def test_an_invalid_key_is_refused(key):
    """The message lists the attributes of the key."""
    with pytest.raises(OptionError, match="pk"):
        key_text_of(key, BOTH)
