"""Reproducible realistic orders for the benchmarks."""

from __future__ import annotations

import json

KEY = "order_id:S,placed_at:S"
"""The key of a table for the orders."""

_TEXTS = (
    "please leave the parcel at reception",
    "façade Müller señor déjà-vu Łódź København",
    "请把包裹放在门口 東京都渋谷区 快递",
    "شكرا جزيلا من فضلك اترك الطرد عند الباب",
    "कृपया पार्सल दरवाज़े पर छोड़ दें",
    'ring "twice" — пожалуйста,\nжди!',
    "📦 thanks 🙏🏽 see you 😀",
)
_STATES = ("placed", "paid", "shipped", "delivered", "returned")
_LABELS = ("bulky", "cold", "express", "fragile", "insured", "signed")
# A multiplier that visits all 64-bit numbers: https://en.wikipedia.org/wiki/Linear_congruential_generator
_STEP, _MASK = 6364136223846793005, 2**64 - 1


def order_lines(count: int) -> list[bytes]:
    """Return ``count`` orders as lines of DynamoDB JSON, about 500 bytes each."""
    return [_line(number) for number in range(count)]


def _line(number: int) -> bytes:
    drawn = (number * _STEP + 1442695040888963407) & _MASK
    item = {
        "order_id": {"S": f"o-{drawn:016x}"},
        "placed_at": {"S": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:00Z"},
        "status": {"S": _STATES[drawn % 5]},
        "quantity": {"N": str(drawn % 50 + 1)},
        "total": {"N": f"{drawn % 10**6}.{drawn % 9 + 1}"},
        "serial": {"N": str(10**20 + drawn)},
        "gift": {"BOOL": drawn % 10 == 0},
        "labels": {"SS": [_LABELS[drawn % 3], _LABELS[3 + drawn % 3]]},
        "comment": {"S": _TEXTS[drawn // 7 % len(_TEXTS)]},
        "coupon": {"NULL": True} if drawn % 2 else {"S": f"SAVE{drawn % 100}"},
        "address": {
            "M": {"street": {"S": f"{_TEXTS[drawn % 2][:12]} {drawn % 400}"}, "zip": {"N": str(drawn % 99_999)}}
        },
        "lines": {"L": [{"M": {"sku": {"S": f"sku-{drawn % 10**6:06d}"}, "price": {"N": str(drawn % 10**4)}}}]},
    }
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()
