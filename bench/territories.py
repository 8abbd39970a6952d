"""Names of territories in all languages of Unicode's CLDR, from babel: real text in dozens of scripts."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def territory_lines(count: int) -> Iterator[bytes]:
    """Yield items as bare lines of DynamoDB JSON. After the last name they repeat with further numbers.

    Raises
    ------
    RuntimeError
        If babel, which contains the names, is not installed.
    """
    try:
        from babel import Locale, localedata  # noqa: PLC0415 - only this shape needs it
    except ImportError:
        raise RuntimeError("the names of territories come from babel: pip install babel") from None
    made = 0
    for turn in itertools.count():
        for identifier in sorted(localedata.locale_identifiers()):
            locale = Locale.parse(identifier)
            script = {"script": {"S": locale.script}} if locale.script else {}
            for code, name in sorted(locale.territories.items()):
                if made == count:
                    return
                item = {
                    "locale": {"S": identifier if not turn else f"{identifier}#{turn}"},
                    "territory": {"S": code},
                    "name": {"S": name},
                    "language": {"S": locale.language},
                    **script,
                    "language_name": {"S": locale.display_name or identifier},
                    "right_to_left": {"BOOL": locale.text_direction == "rtl"},
                    "letters": {"N": str(len(name))},
                    "bytes": {"N": str(len(name.encode()))},
                }
                yield json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()
                made += 1
