"""Conversion between the text Ion of exports and lines of DynamoDB JSON, value by value in plain Python.

A string is S, a decimal N, a blob B, a struct M, and a list L unless annotated as a set; bool and null are BOOL and
NULL. Numbers are canonical. This is the reference for ``ion``, and reads the lines that the compiled loop refuses. Ion
that no export contains is a DecodeError.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError
from ddbio.items.attribute import decode_base64, encode_base64
from ddbio.items.json_text import compact_json
from ddbio.items.number import canonical_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.items.attribute import AttributeValue

# https://amazon-ion.github.io/ion-docs/docs/spec.html
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*+") |
    (?P<symbol>'(?:[^'\\]|\\.)*+') |
    (?P<blob>\{\{[A-Za-z0-9+/=\s]*\}\}) |
    (?P<number>-?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[dD][+-]?[0-9]+)?(?![A-Za-z0-9_$.])) |
    (?P<word>(?!\$[0-9]+(?![A-Za-z0-9_$]))[A-Za-z_$][A-Za-z0-9_$]*) |
    (?P<mark>::|[{}\[\]:,]) |
    (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_PLAIN = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "v": "\v",
          "?": "?", "'": "'", '"': '"', "/": "/", "\\": "\\"}  # fmt: skip
_WORDS: dict[str, dict[str, Any]] = {"null": {"NULL": True}, "true": {"BOOL": True}, "false": {"BOOL": False}}
_SETS = {"$dynamodb_SS": "SS", "$dynamodb_NS": "NS", "$dynamodb_BS": "BS"}
_VERSION = "$ion_1_0"
# The service's documentation shows each change inside one more struct. No reader of real files has reported one.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
_WRAPPED = re.compile(r"\s*(?:\$ion_1_0\s*)*\{\s*Record\s*:")

_Token = tuple[str, str]


def ion_to_json_lines(block: bytes) -> bytes:
    """Convert each document of whole lines of Ion to a line of DynamoDB JSON.

    Raises
    ------
    DecodeError
        The bytes are not Ion of an export. The message names the line.
    """
    lines = []
    for number, line in enumerate(block.split(b"\n"), 1):
        try:
            document = _document(line.decode())
        except (DecodeError, ValueError, RecursionError) as error:
            message = "nested too deep" if isinstance(error, RecursionError) else str(error)
            raise DecodeError(f"line {number}: {message}", line=number) from None
        if document is not None:
            lines.append(compact_json(document) + "\n")
    return "".join(lines).encode()


def _document(line: str) -> dict[str, Any] | None:
    tokens = _tokens(line)
    kind, text = next(tokens)
    while (kind, text) == ("word", _VERSION):
        kind, text = next(tokens)
    if kind == "end":
        return None
    if (kind, text) != ("mark", "{"):
        raise DecodeError(f"expected a struct, found {text[:40]!r}")
    value = _struct(tokens)
    if next(tokens)[0] != "end":
        raise DecodeError("expected the end of the line after a struct")
    if value.keys() == {"Record"} and _WRAPPED.match(line):
        value = _members("Record", value["Record"])
    return {name: _members(name, members) for name, members in value.items()}


def _members(name: str, value: dict[str, Any]) -> Any:
    if value.keys() != {"M"}:
        raise DecodeError(f"{name}: expected a struct")
    return value["M"]


def _tokens(line: str) -> Iterator[_Token]:
    position = 0
    while True:
        match = _TOKEN.match(line, position)
        if match is None or match.lastgroup is None:
            raise DecodeError(f"no Ion of an export at {line[position : position + 40]!r}")
        yield match.lastgroup, match[match.lastgroup]
        position = match.end()


def _struct(tokens: Iterator[_Token]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for kind, text in tokens:
        if (kind, text) == ("mark", "}"):
            return members
        name = text if kind == "word" else _unescape(text) if kind in {"text", "symbol"} else None
        if name is None or name in members or next(tokens) != ("mark", ":"):
            raise DecodeError(f"expected a unique field name and a colon, found {text[:40]!r}")
        members[name] = _value(next(tokens), tokens)
        following = next(tokens)
        if following == ("mark", "}"):
            return members
        _require_comma(*following)
    raise DecodeError("a struct does not end")


def _list(tokens: Iterator[_Token]) -> list[Any]:
    elements: list[Any] = []
    for token in tokens:
        if token == ("mark", "]"):
            return elements
        elements.append(_value(token, tokens))
        following = next(tokens)
        if following == ("mark", "]"):
            return elements
        _require_comma(*following)
    raise DecodeError("a list does not end")


def _require_comma(kind: str, text: str) -> None:
    if (kind, text) != ("mark", ","):
        raise DecodeError(f"expected a comma, found {text[:40]!r}")


def _value(token: _Token, tokens: Iterator[_Token]) -> dict[str, Any]:  # noqa: PLR0911 - one line a type
    match token:
        case ("text", text):
            return {"S": _unescape(text)}
        case ("number", text):
            return {"N": _number(text)}
        case ("blob", text):
            return {"B": encode_base64(decode_base64("".join(text[2:-2].split())))}
        case ("mark", "{"):
            return {"M": _struct(tokens)}
        case ("mark", "["):
            return {"L": _list(tokens)}
        case ("word", word) if word in _WORDS:
            return dict(_WORDS[word])
        case ("word", word) if word in _SETS and next(tokens) == ("mark", "::") and next(tokens) == ("mark", "["):
            tag = _SETS[word]
            return {tag: [_element(element, tag[0]) for element in _list(tokens)]}
    raise DecodeError(f"expected a value of an export, found {token[1][:40]!r}")


def _element(value: dict[str, Any], tag: str) -> str:
    if value.keys() != {tag}:
        raise DecodeError(f"a set of {tag} has an element of another type")
    element: str = value[tag]
    return element


def _number(text: str) -> str:
    digits, _, exponent = text.replace("_", "").lower().partition("d")
    return canonical_number(f"{digits.removesuffix('.')}e{exponent or 0}")


def _unescape(quoted: str) -> str:
    text = quoted[1:-1]
    if "\\" not in text:
        return text
    # Two surrogates are one character. A lone surrogate is an error.
    return _ESCAPE.sub(_character, text).encode("utf-16", "surrogatepass").decode("utf-16")


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is not None:
        return chr(int(code, 16))
    if match[4] not in _PLAIN:
        raise DecodeError(f"Ion has no escape {match[0]!r}")
    return _PLAIN[match[4]]


def ion_line(document: dict[str, Any]) -> bytes:
    """Return a line of an export in Ion: ``{Item:{…}}``, or a change with ``Metadata``."""
    return (
        f"$ion_1_0 {{{','.join(f'{name}:{_print_struct(members)}' for name, members in document.items())}}}\n".encode()
    )


def _print_struct(members: dict[str, AttributeValue]) -> str:
    return "{" + ",".join(f"{_print_text(name)}:{_print_value(value)}" for name, value in members.items()) + "}"


def _print_value(value: AttributeValue) -> str:  # noqa: PLR0911 - one line a type
    ((tag, content),) = value.items()
    match tag:
        case "M":
            return _print_struct(content)
        case "L":
            return "[" + ",".join(map(_print_value, content)) + "]"
        case "SS" | "NS" | "BS":
            return f"$dynamodb_{tag}::[" + ",".join(_print_value({tag[0]: element}) for element in content) + "]"
        case "BOOL":
            return "true" if content else "false"
        case "NULL":
            return "null"
        case "B":
            return f"{{{{{content}}}}}"
        case "N":
            return str(content) if "." in content else f"{content}."
    return _print_text(content)


def _print_text(text: str) -> str:
    # Ion has all escapes of JSON.
    return json.dumps(text, ensure_ascii=False)
