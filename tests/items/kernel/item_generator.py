"""Generator of items, schemas that nearly fit them, and texts of both, from a seed: a hundred thousand in seconds."""

# ruff: noqa: PLR0911 - one line a type
from __future__ import annotations

import base64
import json
import random
from typing import Any

import pyarrow as pa

from ddbio.items.kernel.codes import MAX_SKIPPED_DEPTH
from ddbio.items.schema.arrow import list_of, tagged_field

NAMES = ["pk", "sk", "n", "a.b", "#x", "A", "a", "nul\0name", "naïve", "名", "Item", "Items", 'quote"d', "x" * 27]
NAMES += ["y" * 28, "y" * 40, "back\\slash", "_rescue", "", "tab\tbed", "😀"]
TEXTS = ["", "a", "plain text", "é", "名前", "😀", 'q"q', "b\\b", "\0", "\x1f\x7f", "line\nline", "x" * 31, "x" * 32]
TEXTS += ["x" * 33, "z" * 200, "é" * 20, "tab\t" * 9, "/"]
NUMBERS = ["0", "-1", "1", "7", "12345678", "123456789", "-99999999", "9223372036854775807", "-9223372036854775808"]
NUMBERS += ["9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "127"]
NUMBERS += ["128", "-129", "0.1", "-0.5", "1.25", "12.50", "3.4028235E38", "3.4028236E38", "1e125", "9" * 38 + "e87"]
NUMBERS += ["1e-130", "0." + "0" * 129 + "1", "+5", "007", "1e3", "1E-3", "-0", "0.0", ".5", "5.", "1" * 19, "1" * 20]
NUMBERS += ["9" * 38, "-" + "9" * 38, "1.000", "00.10", "123456789012345678.12", "0e999", "99999999999999999999.9999"]
NUMBERS += ["16777217", "340282346638528870000000000000000000000"]
BAD_NUMBERS = ["", "-", "1_0", " 1", "1 ", "1e", "e5", ".", "1.2.3", "0x10", "NaN", "Infinity", "1e126", "1e-131"]
BAD_NUMBERS += ["9" * 39, "1e9999999999999999999", "\u0661"]
BAD_BINARIES = ["a", "ab", "abc", "ab=", "a===", "====", "ab=c", "ab==ab==", "ab\n=", "é===", "ab c", "-_==", "abcd="]
SCALARS = ["S", "N", "B", "BOOL", "NULL"]
ELEMENTS = {"SS": "S", "NS": "N", "BS": "B"}
NUMBER_TYPES: list[Any] = [pa.int64(), pa.int64(), pa.decimal128(38, 2), pa.decimal128(38, 10), pa.string()]
NUMBER_TYPES += [pa.float64(), pa.int8(), pa.int32(), pa.uint16(), pa.uint64(), pa.decimal128(9, 2)]
NUMBER_TYPES += [pa.decimal128(38, 38), pa.decimal256(60, 20), pa.float32()]


class Generator:
    """Generator of schemas and items from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self) -> pa.Schema:
        """Draw a schema of up to eight attributes."""
        names = self.random.sample([name for name in NAMES if name != "_rescue"], self.random.randrange(0, 9))
        return pa.schema([self.field(name, 2) for name in names])

    def field(self, name: str, depth: int) -> pa.Field[Any]:
        """Draw a field of any type."""
        tag = self.random.choice(
            ["S", "N", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "JSON", *(["L", "M", "M", "MAP"] if depth else [])]
        )
        match tag:
            case "S" | "JSON" | "NULL":
                return tagged_field(
                    name, self.random.choice([pa.string(), pa.string(), pa.string(), pa.large_string()]), tag
                )
            case "N":
                return tagged_field(name, self.random.choice(NUMBER_TYPES), tag)
            case "B":
                return tagged_field(name, self.random.choice([pa.binary(), pa.binary(), pa.large_binary()]), tag)
            case "BOOL":
                return tagged_field(name, pa.bool_(), tag)
            case "SS" | "NS" | "BS":
                types = {"S": [pa.string()], "N": NUMBER_TYPES, "B": [pa.binary()]}
                element = tagged_field("element", self.random.choice(types[ELEMENTS[tag]]), ELEMENTS[tag])
                return tagged_field(name, list_of(element), tag)
            case "L":
                element = self.field("element", depth - 1)
                return tagged_field(name, self.random.choice([pa.list_, pa.list_, pa.large_list])(element), tag)
            case "M":
                names = self.random.sample(NAMES, self.random.randrange(1, 5))
                return tagged_field(name, pa.struct([self.field(member, depth - 1) for member in names]), tag)
        return tagged_field(name, pa.map_(pa.string(), self.field("value", depth - 1)), "M")

    def item(self, fields: list[pa.Field[Any]]) -> dict[str, Any]:
        """Draw an item that nearly fits the fields."""
        chosen = [field for field in fields if self.random.random() < 0.85]
        if self.random.random() < 0.3:
            self.random.shuffle(chosen)
        item = {field.name: self.value(field) for field in chosen}
        if self.random.random() < 0.1:
            item.setdefault(self.random.choice(NAMES), self.any_value(3))
        return item

    def value(self, field: pa.Field[Any]) -> dict[str, Any]:
        """Draw a value that mostly fits a field."""
        tag, arrow_type = field.metadata[b"ddb:type"].decode(), field.type
        chance = self.random.random()
        if chance < 0.03 or tag == "JSON":
            return self.any_value(3)
        if chance < 0.07 or tag == "NULL":
            return {"NULL": True}
        match tag:
            case "L":
                return {"L": [self.value(arrow_type.field(0)) for _ in range(self.random.randrange(4))]}
            case "M" if pa.types.is_map(arrow_type):
                keys = self.random.sample(NAMES, self.random.randrange(4))
                return {"M": {key: self.value(arrow_type.item_field) for key in keys}}
            case "M":
                return {"M": self.item([arrow_type.field(index) for index in range(arrow_type.num_fields)])}
            case "N":
                return {"N": self.fitting_number(arrow_type)}
            case "NS":
                return {"NS": [self.fitting_number(arrow_type.field(0).type) for _ in range(self.random.randrange(4))]}
        return {tag: self.content(tag, 0)}

    def fitting_number(self, arrow_type: Any) -> str:
        """Draw a number that mostly fits a type."""
        if self.random.random() < 0.1:
            return self.number()
        if pa.types.is_decimal(arrow_type):
            integer = self.random.randrange(10 ** max(1, min(18, arrow_type.precision - arrow_type.scale)))
            text = (
                f"{integer if arrow_type.precision > arrow_type.scale else 0}.{self.random.randrange(100):02d}".rstrip(
                    "0"
                ).rstrip(".")
            )
            return self.random.choice(["", "-"]) + text
        bits = arrow_type.bit_width - 1 if pa.types.is_integer(arrow_type) else 60
        number = self.random.getrandbits(self.random.randrange(1, bits + 1))
        return str(-number if self.random.random() < 0.3 else number)

    def any_value(self, depth: int) -> dict[str, Any]:
        """Draw a value of any type."""
        tag = self.random.choice([*SCALARS, *ELEMENTS, *(["L", "M"] if depth else [])])
        return {tag: self.content(tag, depth)}

    def content(self, tag: str, depth: int) -> Any:
        """Draw the content of a type."""
        match tag:
            case "S":
                return self.random.choice(TEXTS)
            case "N":
                return self.number()
            case "B":
                return self.binary()
            case "BOOL":
                return self.random.random() < 0.5
            case "NULL":
                return True
            case "L":
                return [self.any_value(depth - 1) for _ in range(self.random.randrange(4))]
            case "M":
                names = self.random.sample(NAMES, self.random.randrange(4))
                return {name: self.any_value(depth - 1) for name in names}
        return [self.content(ELEMENTS[tag], 0) for _ in range(self.random.randrange(4))]

    def number(self) -> str:
        """Draw a number in one of many notations."""
        if self.random.random() < 0.5:
            return self.random.choice(NUMBERS)
        digits = str(self.random.randrange(1, 10 ** self.random.randrange(1, 39)))
        point = self.random.randrange(len(digits) + 1)
        text = digits[:point] + self.random.choice(["", "", "."]) + digits[point:]
        return self.random.choice(["", "-", "+"]) + text + self.random.choice(["", "", "", "e0", "E+2", "e-3"])

    def binary(self) -> str:
        """Draw base64 text."""
        return base64.b64encode(self.random.randbytes(self.random.randrange(9))).decode()

    def spell(self, value: Any) -> bytes:
        """Return JSON of a value: mostly compact, sometimes with white space and superfluous escapes."""
        chance = self.random.random()
        if chance < 0.7:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=chance < 0.2).encode()
        blanks = [" ", "", "\t", "\r", "  "] if chance < 0.9 else ["", " ", "\n"]
        return self._spell_loosely(value, blanks).encode()

    def _spell_loosely(self, value: Any, blanks: list[str]) -> str:
        def blank() -> str:
            return self.random.choice(blanks)

        if isinstance(value, dict):
            members = (
                f"{blank()}{self._text(name)}{blank()}:{blank()}{self._spell_loosely(member, blanks)}{blank()}"
                for name, member in value.items()
            )
            return "{" + (",".join(members) or blank()) + "}"
        if isinstance(value, list):
            return (
                "["
                + (",".join(blank() + self._spell_loosely(element, blanks) + blank() for element in value) or blank())
                + "]"
            )
        return self._text(value) if isinstance(value, str) else json.dumps(value)

    def _text(self, text: str) -> str:
        chance = self.random.random()
        if chance < 0.2:
            return '"' + "".join(f"\\u{unit:04x}" for unit in _units(text)) + '"'
        return json.dumps(text, ensure_ascii=chance < 0.5).replace("/", "\\/" if chance < 0.3 else "/")

    def document(self, items: list[Any], framing: str) -> bytes:
        """Return items in their framing."""
        if framing == "page":
            return b'{"Items":[' + b",".join(map(self.spell, items)) + b"]}"
        lines = [{"Item": item} for item in items] if framing == "export" else items
        return b"".join(self.spell(line) + self.random.choice([b"\n", b"\n", b"\r\n", b"", b"\n\n"]) for line in lines)


def deepest_items() -> list[dict[str, Any]]:
    """Return items of the maximum number of levels, and of one more, that end with a value of each kind."""
    items = []
    for inner in ({"S": "x"}, {"SS": ["a", "b"]}, {"NS": ["1"]}, {"L": []}, {"M": {}}, {"L": [{"M": {}}]}):
        value: dict[str, Any] = inner
        for level in range(MAX_SKIPPED_DEPTH):
            value = {"L": [value]} if level % 2 else {"M": {"a": value}}
        items.append({"pk": {"S": "a"}, "n": {"N": "1"}, "deep": value})
    return items


def _units(text: str) -> list[int]:
    encoded = text.encode("utf-16-le")
    return [int.from_bytes(encoded[offset : offset + 2], "little") for offset in range(0, len(encoded), 2)]
