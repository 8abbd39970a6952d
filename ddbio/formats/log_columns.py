"""Names of the columns of a log, other than those of the items' attributes."""

from __future__ import annotations

from ddbio.items.schema.folded import fold, with_checksum

OPERATION, SEQUENCE, EVENT_TIME, EXPIRED = "_op", "_sequence", "_event_time", "_expired"
EVENT_ID = "_event_id"
"""Identifier of changes from Kinesis, which distinguishes changes from duplicates."""
TABLE = "_table"
"""Column of the transformation's lines: the table of the change. A log has one table, and no such column."""
OLD_IMAGE, OLD_RESCUE = "_old_image", "_old_rescue"
HEALED_BY = "_healed_by"
"""Source of changes that have healed a gap: the export, or the table itself."""
EXPIRED_AT, INFERRED = "_expired_at", "_inferred"
"""Columns of archived items: the time of expiry, and whether the cause of the deletion was not in the log."""

LOG_COLUMNS = frozenset(
    {OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, EVENT_ID, HEALED_BY, OLD_IMAGE, OLD_RESCUE, "_rescue"}
)
"""All columns of a log that are not attributes."""
ARCHIVE_COLUMNS = frozenset({SEQUENCE, EVENT_ID, EVENT_TIME, EXPIRED_AT, INFERRED, "_rescue"})
"""All columns of an archive that are not attributes."""
LINE_MEMBERS = frozenset({OPERATION, SEQUENCE, EVENT_ID, EVENT_TIME, EXPIRED, TABLE})
"""The members of a line of JSON that are not attributes."""

TIME_TO_LIVE = "dynamodb.amazonaws.com"
"""Principal in the record of an item that its time to live deleted."""


def line_member(attribute: str) -> str:
    """Return the name of an attribute in a line; one that equals the name of a member of lines has a checksum."""
    return with_checksum(attribute) if fold(attribute) in LINE_MEMBERS else attribute


def attribute_of_member(name: str) -> str:
    """Return the attribute with this name in a line."""
    attribute = name.rpartition("_")[0]
    return attribute if fold(attribute) in LINE_MEMBERS and line_member(attribute) == name else name
