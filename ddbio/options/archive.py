"""Options of archives of expired items."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.files import Compression  # noqa: TC001 - pydantic reads the types at run time
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, Names


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ArchiveOptions(ConnectionOptions):
    """Choose a log whose expired items are archived, and the folder that they go to."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the log of ``capture``, with old images; or, with ``log``, the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the archive: ``s3://bucket/prefix`` or a local folder; ``s3_storage_class`` is for its files."""
    log: str | None = None
    """Folder of the log that the changes of the table ``source`` are captured into first."""
    ttl: str | None = None
    """Attribute by which items expire; default is the table's own, or the time of each delete."""
    infer: bool = False
    """Take unmarked deletes of expired items too: replicas of global tables get those of other Regions unmarked."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the archive, under which later runs go on; default follows from the log."""
    compression: Compression = "zstd"
    """Codec of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ArchiveRestoreOptions(LimitOptions):
    """Choose archived items, and the table that they are put back into."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the archive."""
    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    from_key: Names | None = None
    """The first key that is restored: the partition key, and the sort key behind it, as text."""
    to_key: Names | None = None
    """The last key; one without a sort key stands for all items with that partition key."""
    since: AwareDatetime | None = None
    """Restore what expired from this time on."""
    until: AwareDatetime | None = None
    """Restore what expired before this time."""
    mode: Literal["create", "upsert"] = "create"
    """``create`` leaves items alone that the table has; ``upsert`` replaces them."""
    ttl: Literal["drop", "keep"] = "drop"
    """Leave the attribute out by which the items expired, or keep it: the service then deletes them again."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the whole job may use."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExpiredReadOptions(ConnectionOptions):
    """Choose a table or an export whose expired items are wanted that are not deleted yet."""

    source: Annotated[str, Field(min_length=1)]
    """The table, or the folder of an export."""
    ttl: str | None = None
    """Attribute by which items expire; default is the table's own."""
    at: AwareDatetime | None = None
    """Time, with its zone, at which items have to be expired; default is now."""
    schema: Any = None
    """Columns of the items, as for a scan."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that a scan may use."""
