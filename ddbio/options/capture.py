"""Options of change capture."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field
from pydantic.dataclasses import dataclass

from ddbio.options.files import Compression  # noqa: TC001 - pydantic reads the types at run time
from ddbio.options.limits import PriceOptions
from ddbio.options.parsing import CONFIG, Pairs


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureOptions(PriceOptions):
    """Choose a table whose changes are captured, and the log that they go to."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    source: Literal["streams", "kinesis"] = "streams"
    """Where changes are read: the table's own stream, or the Kinesis data stream that they go to."""
    stream: str | None = None
    """The data stream, by name or ARN, if the changes of the table go to several."""
    fan_out: Annotated[str, Field(min_length=1)] | None = None
    """A consumer of the data stream, by name or ARN, that gets its records by enhanced fan-out instead of polling
    them; one that is named and not there is registered, and stays."""
    leases: Annotated[int, Field(ge=1, le=1000)] = 1
    """Parts of the shards that processes take leases of: so many processes can share a capture."""
    available_now: bool = False
    """Stop when the changes that are there are captured; otherwise go on until it is told to stop."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """End after this time, with what was captured by then written."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture, under which later runs go on; default follows from the table and its stream."""
    start: Literal["trim-horizon", "latest"] = "trim-horizon"
    """Where a new capture begins: at the oldest change that the stream has, or now."""
    on_gap: Literal["fail", "continue"] = "fail"
    """What to do if changes are gone before they were read: stop, or note that and go on behind the gap."""
    flush_seconds: Annotated[float, Field(gt=0, le=3600)] = 1.0
    """How long changes are gathered at most until they are written."""
    flush_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=128 * 1024 * 1024)] = ByteSize(8 * 1024 * 1024)
    """How many bytes of records are gathered at most until they are written."""
    old_image: bool = False
    """Keep the item as it was before each change, in the column ``_old_image``."""
    schema: Any = None
    """Columns of the items, as for a scan; default is inferred from a sample of the table and the first changes."""
    numbers: Literal["exact", "float64", "text"] = "exact"
    """Type of inferred columns of numbers: ``float64`` takes the nearest double unless all are whole."""
    types: Pairs | None = None
    """Types of columns by attribute, instead of those inferred: ``price=decimal(38, 9),payload=json``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items of the table to read to infer the columns."""
    compression: Compression = "zstd"
    """Codec of the files."""
