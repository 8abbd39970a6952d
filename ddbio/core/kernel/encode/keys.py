"""Say what the attributes of a table's and its indexes' keys have to be; looks at no value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ddbio.core.kernel.encode import state as st

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.core.table_description import IndexKey

INDEX_BIT: Final = 4
"""What an index key adds to the keys seen in a row; no row needs it."""


class KeyRule(NamedTuple):
    """Hold what one attribute has to be."""

    tag: str
    bit: int
    longest: int
    index_name: str

    @property
    def owner(self) -> str:
        """Return whose key it is, for a message."""
        return f"the key of index {self.index_name!r}" if self.index_name else "the key"

    @property
    def length_message(self) -> str:
        """Return what to tell of a key that is too long."""
        return f"{self.owner} has more than {self.longest:,} bytes"

    def type_message(self, tag: str) -> str:
        """Return what to tell of a key of another type."""
        return f"{self.owner} is {tag}, the table's is {self.tag}"


def key_rules(keys: Mapping[str, str], index_keys: Iterable[IndexKey]) -> dict[str, KeyRule]:
    """Return the rule of each key attribute; of several indexes' the one that allows the fewest bytes."""
    rules = {
        name: KeyRule(tag, 1 << number, st.MAX_KEY_BYTES[number], "") for number, (name, tag) in enumerate(keys.items())
    }
    for key in index_keys:
        known = rules.get(key.name, KeyRule(key.tag, INDEX_BIT, key.longest_bytes + 1, ""))
        if key.longest_bytes < known.longest:
            rules[key.name] = known._replace(longest=key.longest_bytes, index_name=key.index)
    return rules
