"""Framing of items in a text (page, export lines, item lines or changes): detection, and reading in plain Python.

Text in another framing than the given one, or items that are not DynamoDB JSON, are a DecodeError.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ddbio.errors import DecodeError
from ddbio.items.attribute import Item, check_item, check_value
from ddbio.items.change_lines import is_change
from ddbio.items.json_text import first_document, parse_documents
from ddbio.items.number import quoted
from ddbio.items.page import ITEMS_MEMBER, items_of_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

Framing: TypeAlias = Literal["page", "export", "items", "changes"]
"""``page``: ``{"Items":[…]}``; ``export``: ``{"Item":{…}}``, ``items``: ``{…}``, ``changes``: a change, per line."""

NOT_ITEMS = "these are changes of items, not items: decode them by ChangeDecoder"

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html#API_Scan_ResponseSyntax
_RESPONSE = re.compile(rb'\s*\{\s*"(?:ConsumedCapacity|Count|Items|LastEvaluatedKey|ScannedCount)"')

# A first member that is a text, a number or binary. Only bare items have such a member, except with these names.
_FIRST_SCALAR = re.compile(rb'\{"([^"\\]{1,255})":\{"[SNB]":"')
_OF_OTHER_FRAMES = {b"Item", b"Items", b"Count", b"Records", b"dynamodb", b"Metadata"}
_HEAD_BYTES = 1 << 12
# The first document of any other framing contains one of these texts, or letters written as escapes.
_PARTS_OF_OTHER_FRAMES = (b'"Item', b'"Count"', b'"Records"', b'"dynamodb"', b'"Metadata"', b"\\u")


def framing_of(body: bytes | memoryview) -> Framing:
    """Return the framing of ``body``, from its first document.

    Raises
    ------
    DecodeError
        The body begins with something else.
    """
    if _begins_with_item(body):
        return "items"
    if _RESPONSE.match(body) and ITEMS_MEMBER.search(body):
        return "page"
    line, document = first_document(body) or (1, {})
    if not isinstance(document, dict):
        expected = 'a Scan page, or {"Item":{…}} or an item per line'
        raise DecodeError(f"line {line}: expected {expected}, found {type(document).__name__}", line=line)
    # No attribute value is a number or a list.
    if isinstance(document.get("Count"), int) or isinstance(document.get("Items"), list):
        return "page"
    if is_change(document):
        return "changes"
    return "export" if document.keys() == {"Item"} and not _is_value(document["Item"]) else "items"


def _begins_with_item(body: bytes | memoryview) -> bool:
    """Return whether the first document can only be a bare item, without parsing it."""
    first = _FIRST_SCALAR.match(body)
    if first is not None:
        return first[1] not in _OF_OTHER_FRAMES
    head = bytes(body[:_HEAD_BYTES])
    # No document contains these bytes: objects are separated by commas, and strings contain no line end.
    end = head.find(b"}\n{")
    return end > 0 and head[:1] == b"{" and not any(map(head[:end].__contains__, _PARTS_OF_OTHER_FRAMES))


def framed_items(data: Buffer) -> tuple[bytes | memoryview, Framing]:
    """Return the items of ``data`` and their framing. A response is reduced to ``{"Items":[…]}``.

    Raises
    ------
    DecodeError
        The data is not bytes, or begins with something else.
    """
    body = bytes_of(data)
    framing = framing_of(body)
    return (items_of_page(bytes(body)) if framing == "page" else body), framing


def bytes_of(data: Buffer) -> bytes | memoryview:
    """Return the bytes of ``data`` without a copy, or copied if they are not contiguous.

    Raises
    ------
    DecodeError
        The data is not bytes.
    """
    if isinstance(data, bytes):
        return data
    try:
        view = memoryview(data)
    except TypeError:
        raise DecodeError(f"a {type(data).__name__} is not bytes: give the UTF-8 text as bytes") from None
    return view.cast("B") if view.nbytes and view.c_contiguous else view.tobytes()


def _is_value(value: Any) -> bool:
    # No JSON is both an attribute value and an item, so a lone attribute named Item is not an export line.
    if not isinstance(value, dict) or len(value) != 1:
        return False
    try:
        check_value(value)
    except DecodeError:
        return False
    return True


def check_object(item: Any) -> None:
    """Raise unless an item is an object. A writer checks its values."""
    if type(item) is not dict:
        raise DecodeError(f"expected an object of attributes, found {quoted(item)}")


def checked_items(body: bytes, framing: Framing, check: Callable[[Any], None] = check_item) -> Iterator[Item]:
    """Yield each item, checked.

    Parameters
    ----------
    check
        ``check_item`` or ``check_object``.

    Raises
    ------
    DecodeError
        The bytes are not DynamoDB JSON in this framing.
    """
    for line, document in parse_documents(body):
        for location, item in _framed(document, framing, line):
            try:
                check(item)
            except DecodeError as error:
                raise DecodeError(f"{location}: {error}", line=line) from None
            except RecursionError:
                raise DecodeError(f"{location}: nested deeper than any DynamoDB item", line=line) from None
            yield item


def _framed(document: Any, framing: Framing, line: int) -> Iterator[tuple[str, Any]]:
    if framing == "items":
        yield f"line {line}", document
        return
    if framing == "changes":
        raise DecodeError(f"line {line}: {NOT_ITEMS}", line=line)
    member, kind = ("Items", list) if framing == "page" else ("Item", dict)
    if not isinstance(document, dict) or document.keys() != {member} or not isinstance(document[member], kind):
        advice = ": give pages one by one" if framing == "page" else ""
        raise DecodeError(f'line {line}: expected one {{"{member}": …}} and no other member{advice}', line=line)
    if framing == "export":
        yield f"line {line}", document[member]
        return
    for index, item in enumerate(document[member]):
        yield f"item {index} of the page", item
