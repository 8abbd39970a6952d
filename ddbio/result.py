"""Base of plans, jobs and reports: plain values, JSON, and readable output for a prompt and for notebooks."""

from __future__ import annotations

import dataclasses
import html
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

# A result is shown in one line up to this length.
_LINE_LENGTH = 100
# Longer sequences are shown as their first values and the number of the others.
_SHOWN_VALUES = 5


class Result:
    """Base of the frozen dataclasses that verbs return, with ``to_dict``, ``to_json`` and readable output."""

    __slots__ = ()

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        """Set ``__repr__``, because ``dataclass`` generates one only for a class without it."""
        super().__init_subclass__()
        if "__repr__" not in vars(cls):
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, in order, as plain values; times are ISO 8601 text."""
        return {field.name: _plain(getattr(self, field.name)) for field in self._fields()}

    def to_json(self) -> str:
        """Return the fields as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __repr__(self) -> str:
        """Return the non-empty fields, each on its own line if one line is too short."""
        shown = [f"{name}={_short(value)}" for name, value in self._informative()]
        name = type(self).__name__
        line = f"{name}({', '.join(shown)})"
        return (
            line
            if len(line) <= _LINE_LENGTH
            else "\n    ".join([f"{name}(", *(f"{field_text}," for field_text in shown)]) + "\n)"
        )

    def _repr_html_(self) -> str:
        """Return the non-empty fields as a table, which notebooks show."""
        rows = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(_short(value))}</td></tr>"
            for name, value in self._informative()
        )
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"

    @classmethod
    def _fields(cls) -> Sequence[dataclasses.Field[Any]]:
        """Return the fields in the order in which they are shown."""
        return dataclasses.fields(cls)

    def _informative(self) -> list[tuple[str, Any]]:
        values = ((field.name, getattr(self, field.name)) for field in self._fields())
        return [(name, value) for name, value in values if value is not None and not _is_empty(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (tuple, list)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return value


def _is_empty(value: Any) -> bool:
    return isinstance(value, (str, tuple, list, dict)) and not value


def _short(value: Any) -> str:
    if isinstance(value, (tuple, list)) and len(value) > _SHOWN_VALUES:
        opening, closing = ("(", ")") if isinstance(value, tuple) else ("[", "]")
        first = ", ".join(map(_short, value[:_SHOWN_VALUES]))
        return f"{opening}{first}, … {len(value) - _SHOWN_VALUES} more{closing}"
    text = repr(value)
    if "\n" in text and not isinstance(value, Result):
        # A schema or a table of Arrow.
        return f"<{type(value).__name__} of {len(value)}>"
    return text.replace("\n", "\n    ")
