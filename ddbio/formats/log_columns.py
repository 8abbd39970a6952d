"""Name the columns that a log has beside the attributes of the items."""

from __future__ import annotations

from ddbio.items.schema.folded import fold, with_checksum

OPERATION, SEQUENCE, EVENT_TIME, EXPIRED = "_op", "_sequence", "_event_time", "_expired"
EVENT_ID = "_event_id"
"""Of changes from Kinesis: what tells them apart, and a duplicate from a change."""
TABLE = "_table"
"""Of lines that the transformation makes: the table of the change. A log is of one table, and has no such column."""
OLD_IMAGE, OLD_RESCUE = "_old_image", "_old_rescue"
HEALED_BY = "_healed_by"
"""Of changes that have healed a gap: by which export, or that the table itself was read."""
EXPIRED_AT, INFERRED = "_expired_at", "_inferred"
"""Of archived items: when they expired, and whether the log did not say why they were deleted."""

LOG_COLUMNS = frozenset(
    {OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, EVENT_ID, HEALED_BY, OLD_IMAGE, OLD_RESCUE, "_rescue"}
)
"""All columns of a log that are no attribute's."""
ARCHIVE_COLUMNS = frozenset({SEQUENCE, EVENT_ID, EVENT_TIME, EXPIRED_AT, INFERRED, "_rescue"})
"""All columns of an archive that are no attribute's."""
LINE_MEMBERS = frozenset({OPERATION, SEQUENCE, EVENT_ID, EVENT_TIME, EXPIRED, TABLE})
"""The members of a line of JSON that are no attributes."""

TIME_TO_LIVE = "dynamodb.amazonaws.com"
"""Who deleted an item, by its record, if its time to live did."""


def line_member(attribute: str) -> str:
    """Return the name of an attribute in a line: one that is called as a member of the line has a checksum."""
    return with_checksum(attribute) if fold(attribute) in LINE_MEMBERS else attribute


def attribute_of_member(name: str) -> str:
    """Return the attribute that a line calls so."""
    attribute = name.rpartition("_")[0]
    return attribute if fold(attribute) in LINE_MEMBERS and line_member(attribute) == name else name
