"""Name the columns that a log has beside the attributes of the items."""

from __future__ import annotations

OPERATION, SEQUENCE, EVENT_TIME, EXPIRED = "_op", "_sequence", "_event_time", "_expired"
EVENT_ID = "_event_id"
"""Of changes from Kinesis: what tells them apart, and a duplicate from a change."""
TABLE = "_table"
"""Of lines that the transformation makes: the table of the change. A log is of one table, and has no such column."""
OLD_IMAGE, OLD_RESCUE = "_old_image", "_old_rescue"

TIME_TO_LIVE = "dynamodb.amazonaws.com"
"""Who deleted an item, by its record, if its time to live did."""
