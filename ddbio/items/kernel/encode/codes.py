"""Numbers that the printing loop and Python share: steps, states of values, reasons of refusals, limits."""

from __future__ import annotations

from typing import Final

# The state of a value in its row: left out, printed, DynamoDB's NULL, or to be refused.
ABSENT, VALUE, NULL, BAD = range(4)

# The steps of a row's program: the contents of leaves, then the openings and ends of containers.
TEXT, NUMBER, INTEGER, UNSIGNED, WIDE, BOOLEAN, BINARY, RAW, MEMBERS, NOTHING = range(10)
STRUCT, STRUCT_END, LIST, LIST_END, MAP, KEY, MAP_END, END = range(10, 18)

# The words of an entry of RAW and MEMBERS: a span, the size, and a bit for each key.
RAW_WORDS: Final = 3

# The reason why a row is refused.
FINE, PREPARED, NOT_A_NUMBER, NO_KEY, EMPTY_KEY, LONG_KEY, LARGE, DEEP, EMPTY_SET, NULL_IN_SET, DUPLICATE, NAME = range(
    12
)
REFUSAL_WIDTH: Final = 4

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items
MAX_ITEM_BYTES: Final = 400 * 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
MAX_KEY_BYTES: Final = (2048, 1024)
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_NAME_BYTES: Final = 65_535
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_DEPTH: Final = 32
