"""Spell DynamoDB JSON as the text Ion of exports and imports, plainly; the way back is not its business."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddbio.core.attribute import AttributeValue


def ion_line(document: dict[str, Any]) -> bytes:
    """Return a line of an export in Ion: ``{Item:{…}}``, or a change with ``Metadata``."""
    return f"$ion_1_0 {{{','.join(f'{name}:{_struct(members)}' for name, members in document.items())}}}\n".encode()


def _struct(members: dict[str, AttributeValue]) -> str:
    return "{" + ",".join(f"{_text(name)}:{_value(value)}" for name, value in members.items()) + "}"


def _value(value: AttributeValue) -> str:  # noqa: PLR0911 - one line a type
    ((tag, content),) = value.items()
    match tag:
        case "M":
            return _struct(content)
        case "L":
            return "[" + ",".join(map(_value, content)) + "]"
        case "SS" | "NS" | "BS":
            return f"$dynamodb_{tag}::[" + ",".join(_value({tag[0]: each}) for each in content) + "]"
        case "BOOL":
            return "true" if content else "false"
        case "NULL":
            return "null"
        case "B":
            return f"{{{{{content}}}}}"
        case "N":
            return str(content) if "." in content else f"{content}."
    return _text(content)


def _text(text: str) -> str:
    # Of JSON's escapes, Ion knows all.
    return json.dumps(text, ensure_ascii=False)
