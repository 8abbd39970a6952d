"""Say how the dates and timestamps of a column stand in DynamoDB, which has none: as text, or as a number.

A time column has the Arrow type of a timestamp or a date. Its metadata ``ddb:time`` holds the form of the attribute:

=================================  =====================================================================
``iso_s``, ``_ms``, ``_us``, ``_ns``  ISO 8601 text in UTC with as many digits: ``2024-05-01T12:00:00.000Z``
the same and ``+00:00``               the same text that ends in ``+00:00``, as Python writes it
the same and ``_local``               text without a zone
``epoch_s``, ``_ms``, ``_us``, ``_ns``  the number of this unit since 1970
``date``                              ``2024-05-01``
=================================  =====================================================================

A form has one text for each value, so that a column and its form are the attribute exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

DDB_TIME = b"ddb:time"
"""The metadata key of a time column's form."""

ISO = "iso"
"""Asks for the form that most texts of a sample have."""

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits after the point of a second."""

_DDB_TYPE = b"ddb:type"
_FORM = re.compile(r"(?P<kind>iso|epoch)_(?P<unit>s|ms|us|ns)(?P<zone>\+00:00|_local)?")
_ARROW = re.compile(r"timestamp\[(?P<unit>s|ms|us|ns)(, tz=(?P<zone>[^\]]+))?\]|date(?P<width>32|64)\[(day|ms)\]")
_KNOWN = "iso, iso_s, iso_ms, iso_us, iso_ns (also with +00:00 or _local), epoch_s, epoch_ms, epoch_us, epoch_ns, date"


@dataclass(frozen=True, slots=True)
class TimeForm:
    """Describe how a time is written as an attribute."""

    kind: Literal["iso", "epoch", "date"]
    unit: str = "s"
    zone: str = ""
    """What follows the unit in the form's name: nothing, ``+00:00`` or ``_local``."""

    def __str__(self) -> str:
        """Return the form's name."""
        return "date" if self.kind == "date" else f"{self.kind}_{self.unit}{self.zone}"

    @property
    def tag(self) -> str:
        """Return the DynamoDB type of the attribute."""
        return "N" if self.kind == "epoch" else "S"

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the column's type: microseconds, which every engine has, unless the form has nanoseconds."""
        if self.kind == "date":
            return pa.date32()
        unit = "ns" if self.unit == "ns" else "us"
        return timestamp_type(unit, None if self.zone == "_local" else "UTC")

    @property
    def stored_type(self) -> pa.DataType:
        """Return the type of a column that holds the attribute itself."""
        return pa.int64() if self.kind == "epoch" else pa.string()

    @property
    def ending(self) -> str:
        """Return how texts end."""
        return {"": "Z", "_local": ""}.get(self.zone, self.zone)


def timestamp_type(unit: Any, zone: str | None) -> pa.DataType:
    """Return Arrow's type of timestamps of a unit, in a zone or without one."""
    return pa.timestamp(unit, zone)


def parse_form(text: str) -> TimeForm:
    """Return the form of this name.

    Raises
    ------
    ValueError
        There is none.
    """
    if text == "date":
        return TimeForm("date")
    found = _FORM.fullmatch(text)
    if found is None or (found["kind"] == "epoch" and found["zone"]):
        raise ValueError(f"{text!r} is no form of a time: known are {_KNOWN}")
    return TimeForm("iso" if found["kind"] == "iso" else "epoch", found["unit"], found["zone"] or "")


def is_time_column(arrow_type: Any) -> bool:
    """Return whether a column of this type holds timestamps or dates."""
    return pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type)


def form_of_field(field: pa.Field[Any]) -> TimeForm | None:
    """Return the form that a time column's metadata declares, or None.

    Raises
    ------
    SchemaError
        The metadata names no form, or one that the column's type does not have.
    """
    text = (field.metadata or {}).get(DDB_TIME)
    if text is None or not is_time_column(field.type):
        return None
    try:
        form = parse_form(text.decode(errors="replace"))
    except ValueError as error:
        raise SchemaError(f"{field.name}: {error}") from None
    require_form(field.name, field.type, form)
    return form


def require_form(name: str, arrow_type: Any, form: TimeForm) -> None:
    """Raise SchemaError if a column of this type cannot have the form."""
    if form.kind == "date" and not pa.types.is_date(arrow_type):
        raise SchemaError(f"{name}: an Arrow {arrow_type} is more than a date: declare iso_us, or another form")
    if form.kind == "iso" and pa.types.is_date(arrow_type):
        raise SchemaError(f"{name}: an Arrow {arrow_type} is a date: declare the form date, or an epoch")
    if pa.types.is_timestamp(arrow_type) and form.kind == "iso" and (arrow_type.tz is None) != (form.zone == "_local"):
        advice = "iso_us_local" if arrow_type.tz is None else "iso_us"
        raise SchemaError(f"{name}: {form} does not say the zone as an Arrow {arrow_type} does: declare {advice}")


def normalize_time(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a time column with its DynamoDB type and its form; without one it is ISO text, or a count of its unit.

    Raises
    ------
    SchemaError
        The column cannot have the form or the DynamoDB type that its metadata declares.
    """
    metadata = dict(field.metadata or {})
    tag = metadata.get(_DDB_TYPE, b"").decode(errors="replace")
    form = form_of_field(field) or _usual_form(field.type, tag)
    if tag not in {"", form.tag}:
        raise SchemaError(f"{field.name}: {form} is DynamoDB's {form.tag}, not {tag}: change one of them")
    metadata |= {_DDB_TYPE: form.tag.encode(), DDB_TIME: str(form).encode()}
    return pa.field(field.name, field.type, nullable=True, metadata=metadata)


def _usual_form(arrow_type: Any, tag: str) -> TimeForm:
    if pa.types.is_date(arrow_type):
        return TimeForm("date")
    if tag == "N":
        return TimeForm("epoch", arrow_type.unit)
    return TimeForm("iso", arrow_type.unit, "_local" if arrow_type.tz is None else "")


def with_form(field: pa.Field[Any], form: TimeForm) -> pa.Field[Any]:
    """Return the field with the form, and the DynamoDB type of that, in its metadata."""
    metadata = {**(field.metadata or {}), _DDB_TYPE: form.tag.encode(), DDB_TIME: str(form).encode()}
    return field.with_metadata(metadata)  # type: ignore[arg-type] # stubs


def without_form(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a time column without its form and the DynamoDB type of that; any other field as it is."""
    if DDB_TIME not in (field.metadata or ()):
        return field
    kept = {key: value for key, value in (field.metadata or {}).items() if key not in {DDB_TIME, _DDB_TYPE}}
    return field.with_metadata(kept)  # type: ignore[arg-type] # stubs


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that hold the attributes themselves in the place of time columns."""
    return pa.schema([stored_field(field) for field in schema])


def stored_field(field: pa.Field[Any], arrow_type: pa.DataType | None = None) -> pa.Field[Any]:
    """Return the column of an attribute itself in the place of a time column; any other field as it is."""
    form = form_of_field(field)
    if form is None:
        return field
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != DDB_TIME}
    metadata[_DDB_TYPE] = form.tag.encode()
    return pa.field(field.name, arrow_type or form.stored_type, nullable=True, metadata=metadata)


def time_type_of_text(text: str) -> pa.DataType | None:
    """Return the Arrow type of a time column that ``str`` gives this text, or None."""
    found = _ARROW.fullmatch(text)
    if found is None:
        return None
    if found["width"]:
        return pa.date32() if found["width"] == "32" else pa.date64()
    return timestamp_type(found["unit"], found["zone"])


def parse_forms(given: Iterable[tuple[str, str]]) -> dict[str, TimeForm | None]:
    """Return the forms by attribute; None asks for the one that a sample shows.

    Raises
    ------
    ValueError
        A text names no form.
    """
    return {name: None if text == ISO else parse_form(text) for name, text in given}
