"""Numbers that loops and Python share: statuses, indices of the state array, kinds of nodes, type tags."""

from __future__ import annotations

from typing import Final

# The result of a scan. Functions that return a position return the negated status instead.
DONE: Final = 0
ERROR: Final = 1
FULL: Final = 2
GROW_NODES: Final = 3
GROW_UNESCAPED: Final = 4
GROW_NAMES: Final = 6
GROW_TEXTS: Final = 7
GROW_TAPE: Final = 8

# Indices of the state array.
POSITION: Final = 0
INSIDE: Final = 1
ROWS: Final = 2
MAX_ROWS: Final = 3
UNESCAPED: Final = 4
UNESCAPED_END: Final = 5
MISFITS: Final = 6
INSTANCE: Final = 7
NAMES: Final = 8
NAMES_MASK: Final = 9
CHANGE_MEMBERS: Final = 10
CHANGE_INSTANCE: Final = 11
CONTAINER: Final = 12
TIME: Final = 13
TIME_POWER: Final = 14
IS_DELETED: Final = 15
TAPE: Final = 16
N_PATHS: Final = 17
TEXTS: Final = 18
NAME_START: Final = 19
NAME_LENGTH: Final = 20
HAS_LOOKUP: Final = 21
STATE_LENGTH: Final = 22

FRAMINGS: Final = {"items": 0, "export": 1, "page": 2, "changes": 3, "column": 4}
ITEMS, EXPORT, PAGE, CHANGES, COLUMN = range(5)

# The nodes of a change: each image is the root of the nodes of its attributes.
WRITE_TIME, KEYS, NEW_IMAGE, OLD_IMAGE, DELETED = 1, 2, 3, 4, 5

# The container of a stream record: the array ``Records``, which is the first member of its body, or a later one.
RECORDS_FIRST, RECORDS_LATER = -1, -2

# The types of DynamoDB.
TAGS: Final = ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M")
S, N, B, BOOL, NULL, SS, NS, BS, L, M = range(10)

# The kinds of nodes, containers first.
STRUCT, LIST, SET, MAP = 0, 1, 2, 3
TEXT, NUMBER_TEXT, INTEGER, DECIMAL, BOOLEAN, BINARY, JSON, NOTHING = 4, 5, 6, 7, 8, 9, 10, 11

# The columns of the misfit list.
MISFIT_ROW, MISFIT_NODE, MISFIT_NAME, MISFIT_NAME_LENGTH, MISFIT_START, MISFIT_STOP = range(6)
MISFIT_KIND = 6
MISFIT_WIDTH: Final = 8

# The reason of an entry in the misfit list.
FITS, IS_UNKNOWN, IS_OTHER_TYPE, IS_UNFIT, IS_NULL = range(5)

MAX_SKIPPED_DEPTH: Final = 64
