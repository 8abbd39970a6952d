"""Strict parsing and printing of JSON: duplicate names, invalid UTF-8 and text after the document are errors."""

from __future__ import annotations

import codecs
import json
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

TOO_DEEP = "nested deeper than any DynamoDB item"

_BLANK = re.compile(r"[ \t\r\n]*")
_BYTE_ORDER_MARK = "\ufeff"
_FIRST_BYTES, _FIRST_GROWTH = 1024, 8
_EXPONENT = re.compile(r"(?<=[eE])([+-]?)[0-9]+$")


def compact_json(value: Any) -> str:
    """Return JSON text without white space, with unescaped non-ASCII characters, and members in their order.

    Raises
    ------
    DecodeError
        The value is nested too deeply.
    """
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None


def parse_json(data: bytes) -> Any:
    """Return the one document of ``data``.

    Raises
    ------
    DecodeError
        The data is not exactly one JSON document. The message contains line and column.
    """
    documents = list(parse_documents(data))
    if len(documents) != 1:
        raise DecodeError(f"expected one JSON document, found {len(documents)}")
    return documents[0][1]


def first_document(data: bytes | memoryview) -> tuple[int, Any] | None:
    """Return the first document of ``data`` and its line, or None. If it is an object, the text after it is not read.

    Raises
    ------
    DecodeError
        As ``parse_documents``, for the whole data.
    """
    size = _FIRST_BYTES
    while size < len(data):
        document = _first_object(bytes(data[:size]))
        if document is not None:
            return document
        size *= _FIRST_GROWTH
    return next(parse_documents(bytes(data)), None)


def _first_object(head: bytes) -> tuple[int, Any] | None:
    """Return the first document if it is an object that ends within these bytes, else None.

    Duplicate names are not checked here. The code that reads the items checks them.
    """
    try:
        text = codecs.utf_8_decode(head)[0].removeprefix(_BYTE_ORDER_MARK)
        position = _after_blank(text, 0)
        document, _ = _QUICK_DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    return (1 + text.count("\n", 0, position), document) if isinstance(document, dict) else None


def parse_documents(data: bytes, *, decimals: bool = False, written: bool = False) -> Iterator[tuple[int, Any]]:
    """Yield each document of ``data`` with the line it starts on, from 1. White space may separate documents.

    Parameters
    ----------
    decimals
        Parse every number as a ``Decimal``, with all its digits.
    written
        Parse every number as a :class:`WrittenNumber`, a ``Decimal`` that also keeps its text.

    Raises
    ------
    DecodeError
        The bytes are not UTF-8 or not JSON, or an object names a member twice.
    """
    text, decoder = _text(data), _WRITTEN_DECODER if written else EXACT_DECODER if decimals else _DECODER
    line, counted, position = 1, 0, _after_blank(text, 0)
    while position < len(text):
        line += text.count("\n", counted, position)
        counted = position
        try:
            document, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            message = f"line {error.lineno}: column {error.colno}: this is not JSON: {error.msg}"
            raise DecodeError(message, line=error.lineno) from None
        except DecodeError as error:
            raise DecodeError(f"line {line}: {error}", line=line) from None
        except RecursionError:
            raise DecodeError(f"line {line}: {TOO_DEEP}", line=line) from None
        yield line, document
        position = _after_blank(text, end)


def _text(data: bytes) -> str:
    try:
        return data.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DecodeError(f"line {line}: byte {error.start} is not UTF-8: {error.reason}", line=line) from None


def _after_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def exact_number(text: str) -> Decimal:
    """Return the number of a text. An exponent that ``Decimal`` cannot store becomes another that no item may have."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal(_EXPONENT.sub(r"\g<1>999999", text))


class WrittenNumber(Decimal):
    """Number of JSON with the text as which it is written.

    Attributes
    ----------
    text
        The text: ``1e5`` differs from ``1E+5``.
    """

    text: str

    def __new__(cls, text: str) -> Self:
        """Return the number of a text."""
        number = super().__new__(cls, exact_number(text))
        number.text = text
        return number


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DecodeError(f"the name {twice!r} occurs twice in one object")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members)
_QUICK_DECODER = json.JSONDecoder()
EXACT_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_members, parse_float=exact_number, parse_int=Decimal, parse_constant=Decimal
)
"""Decodes every number as a ``Decimal``, with all its digits, and refuses a name that occurs twice in an object."""
_WRITTEN_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_members,
    parse_float=WrittenNumber,
    parse_int=WrittenNumber,
    parse_constant=WrittenNumber,
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
