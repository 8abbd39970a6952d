"""Say which native export is started."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_IncrementalExportSpecification.html
_SHORTEST, _LONGEST = timedelta(minutes=15), timedelta(hours=24)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportStartOptions(ConnectionOptions):
    """Say which table is exported, as of when, and where to."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``; the service puts ``AWSDynamoDB/ID`` below it."""
    at: AwareDatetime | None = None
    """Time, with its zone, whose state a full export holds; default is now."""
    from_time: AwareDatetime | None = None
    """Begin of the window of an incremental export, with its zone."""
    to_time: AwareDatetime | None = None
    """End of that window, 15 minutes to 24 hours after its begin."""
    view: Literal["new_image", "new_and_old_images"] = "new_and_old_images"
    """Whether an incremental export has each item as it was before the window too."""
    format: Literal["dynamodb_json", "ion"] = "dynamodb_json"
    """Format of the data files."""
    kms_key: str | None = None
    """KMS key by which the objects are encrypted; default is S3's own."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, where it is another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Token under which the same request is the same export for eight hours; default is a new one."""
    enable_pitr: bool = False
    """Turn point-in-time recovery on where it is off; AWS bills it."""

    @model_validator(mode="after")
    def _check_times(self) -> ExportStartOptions:
        if (self.from_time is None) != (self.to_time is None):
            raise ValueError("from_time and to_time belong together: give both or neither")
        if self.from_time is None or self.to_time is None:
            return self
        if self.at is not None:
            raise ValueError("at is for a full export, from_time and to_time for an incremental one")
        if not _SHORTEST <= self.to_time - self.from_time <= _LONGEST:
            raise ValueError("the window from from_time to to_time has to be 15 minutes to 24 hours long")
        return self
