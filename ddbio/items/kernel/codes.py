"""Number what loops and Python exchange: statuses, places in the state array, kinds of nodes, type tags."""

from __future__ import annotations

from typing import Final

# How a scan ended. Functions that return a place return the negative status instead.
DONE: Final = 0
ERROR: Final = 1
FULL: Final = 2
GROW_ELEMENTS: Final = 3
GROW_UNESCAPED: Final = 4
GROW_MISFITS: Final = 5
GROW_NAMES: Final = 6

# Places in the state array.
PLACE: Final = 0
INSIDE: Final = 1
ROWS: Final = 2
MAX_ROWS: Final = 3
UNESCAPED: Final = 4
UNESCAPED_END: Final = 5
MISFITS: Final = 6
INSTANCE: Final = 7
NAMES: Final = 8
SPACE: Final = 9
OUTPUT_BYTES: Final = 10
N_NODES: Final = 11
LOOKUP_MASK: Final = 12
NAMES_MASK: Final = 13
MISFITS_END: Final = 14
CHANGE_MEMBERS: Final = 15
SAVED_SIZE: Final = 16
CHANGE_INSTANCE: Final = 17
AROUND: Final = 18
TIME: Final = 19
TIME_POWER: Final = 20
HAS_MERGED_NULLS: Final = 21
SAVED_MERGED_NULLS: Final = 22
STATE_LENGTH: Final = 23
# After the state of a decoder: the NULLs of each node's attribute that became missing values.
MERGED_NULLS: Final = STATE_LENGTH

FRAMINGS: Final = {"items": 0, "export": 1, "page": 2, "changes": 3}
ITEMS, EXPORT, PAGE, CHANGES = 0, 1, 2, 3

# The nodes of a change: each image is the root of items' nodes.
WRITE_TIME, KEYS, NEW_IMAGE, OLD_IMAGE, DELETED = 1, 2, 3, 4, 5

# What is around a stream record: an array of records, which is its body's first member, or a later one.
RECORDS_FIRST, RECORDS_LATER = -1, -2

# DynamoDB's types.
TAGS: Final = ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M")
S, N, B, BOOL, NULL, SS, NS, BS, L, M = range(10)

# The kinds of nodes: the containers first.
STRUCT, LIST, SET, MAP = 0, 1, 2, 3
TEXT, NUMBER_TEXT, INTEGER, DECIMAL, BOOLEAN, BINARY, JSON, NOTHING = 4, 5, 6, 7, 8, 9, 10, 11

# The columns of the misfit list.
MISFIT_ROW, MISFIT_NODE, MISFIT_NAME, MISFIT_NAME_LENGTH, MISFIT_START, MISFIT_STOP = range(6)
MISFIT_KIND = 6
MISFIT_WIDTH: Final = 8

# Why a value is in the misfit list.
FITS, IS_UNKNOWN, IS_OTHER_TYPE, IS_UNFIT, IS_NULL = range(5)

# What the stack holds of an open container.
FRAME_CONTEXT, FRAME_INDEX, FRAME_INSTANCE, FRAME_LAST, FRAME_FIRST = range(5)
FRAME_WIDTH: Final = 6

MAX_SKIPPED_DEPTH: Final = 64

# What the plan of the output knows of a node: entries, those that are null, places and sizes of its buffers in bytes.
PLAN_LENGTH, PLAN_NULLS, PLAN_BITS, PLAN_BITS_BYTES, PLAN_FIRST, PLAN_FIRST_BYTES = range(6)
PLAN_SECOND, PLAN_SECOND_BYTES = 6, 7
PLAN_WIDTH: Final = 8

# How far the values of a block are stored, and how much of each array is used.
STORED_NODE, STORED_RUNS, STORED_INDICES, STORED_WORDS = range(4)
