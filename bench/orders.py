"""Reproducible realistic orders of about 650 bytes each. Sizes scale with ``$BENCH_SCALE``.

They have text in several scripts, escapes, NULL next to values, optional members, sets, numbers of many widths, and a
long tail of attributes outside any sample, in two of three rows.
"""

from __future__ import annotations

import base64
import functools
import json
import random
from typing import TYPE_CHECKING, Any, Literal

import ddbio
from bench import data

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["ascii", "mixed", "tailed"]
"""Text in ASCII only; in several scripts; and the same rows, two of three with attributes without a column."""

KEY = "order_id:S,placed_at:S"
KEYS = [part.partition(":")[0] for part in KEY.split(",")]
NULL_PATHS = frozenset({".coupon", ".address.unit"})
"""Attributes with NULL next to values, as the author of a schema for another library would know them."""

ITEMS = 100_000
"""About 66 MB: larger than a cache, so that all bytes are read from memory."""

BODY_BYTES, SMALL_ITEMS = 8_000_000, 100
TAIL_SHARE, TAIL_NAMES = 2 / 3, 40
_SAMPLED = 2_000
_ESCAPED_SHARE = 0.02

_TEXTS = {
    "ascii": "please leave the parcel at reception ring twice thank you very much blue size large second floor",
    "latin": "façade Müller señor déjà-vu Łódź København crème brûlée naïve Zürich Ångström año mañana garçon",
    "cjk": "请把包裹放在门口 東京都渋谷区 配送時間 快递 谢谢 서울특별시 감사합니다 配達してください 北京市",
    "arabic": "شكرا جزيلا من فضلك اترك الطرد عند الباب شارع القاهرة رقم الطابق الثاني",
    "hindi": "कृपया पार्सल दरवाज़े पर छोड़ दें धन्यवाद मुंबई सड़क दूसरी मंज़िल नीला",
    "cyrillic": "пожалуйста оставьте посылку возле двери спасибо улица Ленина второй этаж синий",
    "emoji": "📦 thanks 🙏🏽 👩‍👩‍👧 gift 🎁 for 🎂 see you 😀 ❤️",
}
_WORDS = {script: text.split() for script, text in _TEXTS.items()}
# Bytes of a comment in each script, so that items have the same size as JSON.
_COMMENT_BYTES = 70
_SCRIPTS = ("latin", "latin", "latin", "cjk", "cjk", "arabic", "hindi", "cyrillic", "emoji")
_CITIES = {
    "ascii": ("Springfield", "Portland", "Dublin"),
    "latin": ("Zürich", "Łódź", "São Paulo"),
    "cjk": ("東京", "서울", "上海"),
    "arabic": ("القاهرة", "الرباط"),
    "hindi": ("मुंबई", "दिल्ली"),
    "cyrillic": ("Москва", "София"),
    "emoji": ("Paris", "Oslo"),
}
_LABELS = ("fragile", "express", "bulky", "cold", "signed", "insured")
_STATES = ("placed", "paid", "shipped", "delivered", "returned")


@functools.lru_cache(maxsize=4)
def lines(kind: Kind, count: int) -> tuple[bytes, ...]:
    """Return ``count`` items as bare lines of DynamoDB JSON, without line ends."""
    rng = random.Random(data.SEED)
    return tuple(_line(_order(rng, kind, number), rng) for number in range(count))


def bodies(kind: Kind, *, small: bool = False, prefix: bytes = b"", suffix: bytes = b"") -> list[bytes]:
    """Return all items in bodies of some megabytes, or in bodies of ``count`` items like the pages of a query."""
    texts = lines(kind, data.scaled(ITEMS))
    step = SMALL_ITEMS if small else max(1, BODY_BYTES * len(texts) // sum(map(len, texts)))
    return [
        b"".join(b"%b%b%b\n" % (prefix, line, suffix) for line in texts[start : start + step])
        for start in range(0, len(texts), step)
    ]


@functools.lru_cache(maxsize=4)
def schema_of(kind: Kind) -> pa.Schema:
    """Return the schema of a sample, which has no attributes of the tail."""
    settled: Kind = "mixed" if kind == "tailed" else kind
    return ddbio.infer_schema(b"\n".join(lines(settled, _SAMPLED))).to_arrow()


def items(kind: Kind, count: int) -> list[dict[str, Any]]:
    """Return the items as parsed by ``json.loads``."""
    return [json.loads(line) for line in lines(kind, count)]


def _line(item: dict[str, Any], rng: random.Random) -> bytes:
    # Many pipelines contain the default output of Python's json.
    return json.dumps(item, separators=(",", ":"), ensure_ascii=rng.random() < _ESCAPED_SHARE).encode()


def _order(rng: random.Random, kind: Kind, number: int) -> dict[str, Any]:
    script = "ascii" if kind == "ascii" else rng.choice(_SCRIPTS)
    item: dict[str, Any] = {
        "order_id": {"S": f"o-{rng.getrandbits(64):016x}"},
        "placed_at": {"S": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:00Z"},
        "status": {"S": rng.choice(_STATES)},
        "quantity": {"N": str(rng.randrange(1, 50))},
        "total": {"N": _decimal(rng, rng.choice((10, 10**3, 10**6)))},
        "points": {"N": str(rng.randrange(-(10 ** rng.randrange(1, 12)), 10**12))},
        "serial": {"N": str(rng.randrange(10**24, 10**25))},
        "gift": {"BOOL": rng.random() < 0.1},
        "labels": {"SS": sorted(rng.sample(_LABELS, 2))},
        "receipt": {"B": base64.b64encode(rng.randbytes(18)).decode()},
        "coupon": {"NULL": True} if rng.random() < 0.5 else {"S": f"SAVE{rng.randrange(100)}"},
        "comment": {"S": _comment(rng, script)},
        "address": {"M": _address(rng, script)},
        "lines": {"L": [{"M": _entry(rng)} for _ in range(rng.randrange(1, 3))]},
    }
    if rng.random() < 0.6:
        item["phone"] = {"S": f"+{rng.randrange(10**10, 10**11)}"}
    if rng.random() < 0.3:
        item["ratings"] = {"NS": sorted({str(rng.randrange(1, 500)) for _ in range(3)})}
    if kind == "tailed" and rng.random() < TAIL_SHARE:
        for tail_number in rng.sample(range(TAIL_NAMES), rng.randrange(1, 4)):
            item[f"x_{tail_number:02d}"] = _tail_value(rng, tail_number, script)
    return item


def _address(rng: random.Random, script: str) -> dict[str, Any]:
    members: dict[str, Any] = {
        "street": {"S": f"{rng.choice(_WORDS[script])} {rng.randrange(1, 400)}"},
        "city": {"S": rng.choice(_CITIES[script])},
        "zip": {"N": str(rng.randrange(10_000, 99_999))},
    }
    if rng.random() < 0.5:
        members["unit"] = {"NULL": True} if rng.random() < 0.3 else {"S": f"{rng.randrange(1, 90)}b"}
    return members


def _entry(rng: random.Random) -> dict[str, Any]:
    return {"sku": {"S": f"sku-{rng.randrange(10**6):06d}"}, "price": {"N": _decimal(rng, 10**4)}}


def _comment(rng: random.Random, script: str) -> str:
    """Return text with occasional quotes and line breaks; control characters are rare."""
    words, size = [], 0
    while size < _COMMENT_BYTES:
        word = rng.choice(_WORDS[script])
        drawn = rng.random()
        if drawn < 0.03:
            word = f'"{word}"'
        elif drawn < 0.05:
            word = f"{word}\n"
        elif drawn < 0.055:
            word = f"{word}\\\x07"
        words.append(word)
        size += len(word.encode()) + 1
    return " ".join(words)


def _tail_value(rng: random.Random, tail_number: int, script: str) -> dict[str, Any]:
    match tail_number % 4:
        case 0:
            return {"S": rng.choice(_WORDS[script])}
        case 1:
            return {"N": _decimal(rng, 10**5)}
        case 2:
            return {"M": {"by": {"S": rng.choice(_WORDS[script])}, "at": {"N": str(rng.randrange(10**9))}}}
    return {"L": [{"S": rng.choice(_LABELS)}, {"BOOL": rng.random() < 0.5}]}


def _decimal(rng: random.Random, below: int) -> str:
    """Return a number with up to two decimals in the notation of the service."""
    units, cents_left = divmod(rng.randrange(100 * below), 100)
    return f"{units}.{cents_left:02d}".rstrip("0").rstrip(".")
