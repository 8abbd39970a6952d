"""Damage of documents: cut, overwrite, drop, repeat and splice, from a seed."""

from __future__ import annotations

import random

from item_generator import BAD_BINARIES, BAD_NUMBERS

TOKENS = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80"]
TOKENS += [b"\\u", b"\\ud83d", b"\\udc00", b'"S"', b'"N":"', b'{"NULL":true}', b'{"NULL":false}', b"null", b"true"]
TOKENS += [b"false", b"1", b"-", b"\\x", b"{}", b"[]", b'{"S":"a"}', b'{"N":"1"}', b'{"BOOL":"true"}', b'{"S":1}']
TOKENS += [b'"Items"', b'"Item"', b"\xef\xbb\xbf", b"e5", b"=", b"\t", b"\x1f", b"NaN"]
TOKENS += [b'"' + text.encode() + b'"' for text in BAD_NUMBERS + BAD_BINARIES]


def mutate(body: bytes, chance: random.Random) -> bytes:
    """Return the document with one to three damages."""
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(7):
            case 0:
                body = body[:at]
            case 1:
                body = body[:at] + chance.randbytes(1) + body[at + 1 :]
            case 2:
                body = body[:at] + body[at + chance.randrange(1, 9) :]
            case 3:
                other = chance.randrange(len(body) + 1)
                body = body[:at] + body[other : other + chance.randrange(64)] + body[at:]
            case 4:
                body = body[:at] + chance.choice(TOKENS) + body[at + chance.choice([0, 0, 1, 4]) :]
            case 5:
                quote = body.find(b'"', at) + 1
                body = body[:quote] + chance.choice(TOKENS) + body[quote:]
            case 6:
                colon = body.find(b":", at) + 1
                end = body.find(b"}", colon)
                body = body[:colon] + chance.choice(TOKENS) + body[end:]
    return body
