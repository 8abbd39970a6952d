"""Formats of the dates and timestamps of a column in DynamoDB: text or a number, since DynamoDB has no time type.

A time column has the Arrow type of a timestamp or a date. Its metadata ``ddb:time`` is the format of the attribute:

=================================  =====================================================================
``iso_s``, ``_ms``, ``_us``, ``_ns``  ISO 8601 text in UTC with as many digits: ``2024-05-01T12:00:00.000Z``
the same and ``+00:00``               the same text that ends in ``+00:00``, as Python writes it
the same and ``_local``               text without a zone
``epoch_s``, ``_ms``, ``_us``, ``_ns``  the number of this unit since 1970
``date``                              ``2024-05-01``
=================================  =====================================================================

A format has exactly one text for each value, so a column and its format determine the attribute exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.schema.vectors import is_vector, stored_vector

if TYPE_CHECKING:
    from collections.abc import Iterable

DDB_TIME = b"ddb:time"
"""The metadata key of a time column's format."""

ISO = "iso"
"""Name of the option value for the most frequent format in a sample."""

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The number of decimals of a second."""

_DDB_TYPE = b"ddb:type"
_FORMAT = re.compile(r"(?P<kind>iso|epoch)_(?P<unit>s|ms|us|ns)(?P<zone>\+00:00|_local)?")
_ARROW = re.compile(r"timestamp\[(?P<unit>s|ms|us|ns)(, tz=(?P<zone>[^\]]+))?\]|date(?P<width>32|64)\[(day|ms)\]")
_FORMATS = (
    "iso, iso_s, iso_ms, iso_us, iso_ns (also with +00:00 or _local), epoch_s, epoch_ms, epoch_us, epoch_ns, date"
)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """Encoding of a time as an attribute."""

    kind: Literal["iso", "epoch", "date"]
    unit: str = "s"
    zone: str = ""
    """The suffix of the format's name: empty, ``+00:00`` or ``_local``."""

    def __str__(self) -> str:
        """Return the format's name."""
        return "date" if self.kind == "date" else f"{self.kind}_{self.unit}{self.zone}"

    @property
    def tag(self) -> str:
        """Return the DynamoDB type of the attribute."""
        return "N" if self.kind == "epoch" else "S"

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the column's type: microseconds, which every engine has, or nanoseconds if the format has them."""
        if self.kind == "date":
            return pa.date32()
        unit = "ns" if self.unit == "ns" else "us"
        return timestamp_type(unit, None if self.zone == "_local" else "UTC")

    @property
    def stored_type(self) -> pa.DataType:
        """Return the type of a column that contains the attribute itself."""
        return pa.int64() if self.kind == "epoch" else pa.string()

    @property
    def ending(self) -> str:
        """Return the suffix of the texts."""
        return {"": "Z", "_local": ""}.get(self.zone, self.zone)


def timestamp_type(unit: Any, zone: str | None) -> pa.DataType:
    """Return Arrow's type of timestamps of a unit, in a zone or without one."""
    return pa.timestamp(unit, zone)


def parse_format(text: str) -> TimeFormat:
    """Parse the name of a format.

    Raises
    ------
    ValueError
        No format has this name.
    """
    if text == "date":
        return TimeFormat("date")
    match = _FORMAT.fullmatch(text)
    if match is None or (match["kind"] == "epoch" and match["zone"]):
        raise ValueError(f"{text!r} is no format of a time: known are {_FORMATS}")
    return TimeFormat("iso" if match["kind"] == "iso" else "epoch", match["unit"], match["zone"] or "")


def is_time_column(arrow_type: Any) -> bool:
    """Return whether columns of this type contain timestamps or dates."""
    return pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type)


def format_of_field(field: pa.Field[Any]) -> TimeFormat | None:
    """Return the format in a time column's metadata, or None.

    Raises
    ------
    SchemaError
        The metadata names an unknown format, or one that the column's type cannot have.
    """
    text = (field.metadata or {}).get(DDB_TIME)
    if text is None or not is_time_column(field.type):
        return None
    try:
        time_format = parse_format(text.decode(errors="replace"))
    except ValueError as error:
        raise SchemaError(f"{field.name}: {error}") from None
    require_format(field.name, field.type, time_format)
    return time_format


def require_format(name: str, arrow_type: Any, time_format: TimeFormat) -> None:
    """Raise SchemaError if a column of this type cannot have the format."""
    if time_format.kind == "date" and not pa.types.is_date(arrow_type):
        raise SchemaError(f"{name}: an Arrow {arrow_type} is more than a date: declare iso_us, or another format")
    if time_format.kind == "iso" and pa.types.is_date(arrow_type):
        raise SchemaError(f"{name}: an Arrow {arrow_type} is a date: declare the format date, or an epoch")
    if (
        pa.types.is_timestamp(arrow_type)
        and time_format.kind == "iso"
        and (arrow_type.tz is None) != (time_format.zone == "_local")
    ):
        advice = "iso_us_local" if arrow_type.tz is None else "iso_us"
        raise SchemaError(f"{name}: {time_format} has another zone than an Arrow {arrow_type}: declare {advice}")


def normalize_time(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a time column with its DynamoDB type and format. The default is ISO text, or for N the count of its unit.

    Raises
    ------
    SchemaError
        The column cannot have the format or the DynamoDB type that its metadata declares.
    """
    metadata = dict(field.metadata or {})
    tag = metadata.get(_DDB_TYPE, b"").decode(errors="replace")
    time_format = format_of_field(field) or _default_format(field.type, tag)
    if tag not in {"", time_format.tag}:
        raise SchemaError(f"{field.name}: {time_format} is DynamoDB's {time_format.tag}, not {tag}: change one of them")
    metadata |= {_DDB_TYPE: time_format.tag.encode(), DDB_TIME: str(time_format).encode()}
    return pa.field(field.name, field.type, nullable=True, metadata=metadata)


def _default_format(arrow_type: Any, tag: str) -> TimeFormat:
    if pa.types.is_date(arrow_type):
        return TimeFormat("date")
    if tag == "N":
        return TimeFormat("epoch", arrow_type.unit)
    return TimeFormat("iso", arrow_type.unit, "_local" if arrow_type.tz is None else "")


def with_format(field: pa.Field[Any], time_format: TimeFormat) -> pa.Field[Any]:
    """Return the field with the format, and its DynamoDB type, in its metadata."""
    metadata = {**(field.metadata or {}), _DDB_TYPE: time_format.tag.encode(), DDB_TIME: str(time_format).encode()}
    return field.with_metadata(metadata)  # type: ignore[arg-type] # stubs


def without_format(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a time column without its format and the format's DynamoDB type. Other fields stay unchanged."""
    if DDB_TIME not in (field.metadata or ()):
        return field
    kept = {key: value for key, value in (field.metadata or {}).items() if key not in {DDB_TIME, _DDB_TYPE}}
    return field.with_metadata(kept)  # type: ignore[arg-type] # stubs


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with columns of the attributes themselves instead of time and vector columns."""
    return pa.schema([stored_vector(field) if is_vector(field.type) else stored_field(field) for field in schema])


def stored_field(field: pa.Field[Any], arrow_type: pa.DataType | None = None) -> pa.Field[Any]:
    """Return the column of the attribute itself for a time column. Other fields stay unchanged."""
    time_format = format_of_field(field)
    if time_format is None:
        return field
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != DDB_TIME}
    metadata[_DDB_TYPE] = time_format.tag.encode()
    return pa.field(field.name, arrow_type or time_format.stored_type, nullable=True, metadata=metadata)


def time_type_of_text(text: str) -> pa.DataType | None:
    """Return the Arrow time type whose ``str`` is this text, or None."""
    match = _ARROW.fullmatch(text)
    if match is None:
        return None
    if match["width"]:
        return pa.date32() if match["width"] == "32" else pa.date64()
    return timestamp_type(match["unit"], match["zone"])


def parse_formats(options: Iterable[tuple[str, str]]) -> dict[str, TimeFormat | None]:
    """Return the formats by attribute. None is the format that a sample shows.

    Raises
    ------
    ValueError
        A text is not the name of a format.
    """
    return {name: None if text == ISO else parse_format(text) for name, text in options}
