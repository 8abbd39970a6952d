"""Output for people: all control and bidirectional characters are escaped here.

Names and values of a table, a file or a bucket may contain characters that a terminal executes: they set its title,
clear it, or show text in another order.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

# ASCII control characters except tabs and line ends, and DEL.
_ASCII = bytes({*range(32), 127} - {*b"\t\n"})
# First UTF-8 bytes of all others: C1 controls, bidirectional marks, line separators and lone surrogates.
_BEGINNINGS = (b"\xc2", b"\xd8\x9c", b"\xe2\x80", b"\xe2\x81", b"\xed")
# https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Maximum number of rows in a shown table.
MAX_ROWS = 20


def escaped(text: str) -> str:
    r"""Return a text whose control and bidirectional characters are escapes like ``\u001b``; tabs and line ends stay.

    JSON keeps its meaning: within its texts these are JSON escapes.
    """
    # A search for bytes is several times faster than one for characters, which few texts need. For one byte it is even
    # faster than for two.
    raw = text.encode("utf-8", "surrogatepass")
    has_others = any(beginning[:1] in raw and beginning in raw for beginning in _BEGINNINGS)
    if not has_others and len(raw.translate(None, _ASCII)) == len(raw):
        return text
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _Escaping:
    """Text stream that escapes its input."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(escaped(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.stream.writelines(map(escaped, lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def escaping() -> Iterator[None]:
    """Escape output to stdout and stderr while the context is open."""
    with ExitStack() as stack:
        # A stream is None if the process was started with it closed.
        if sys.stdout is not None:
            stack.enter_context(redirect_stdout(cast("TextIO", _Escaping(sys.stdout))))
        if sys.stderr is not None:
            stack.enter_context(redirect_stderr(cast("TextIO", _Escaping(sys.stderr))))
        yield


def plain(stream: TextIO) -> TextIO:
    """Return the unescaped stream. The caller escapes foreign text."""
    return stream.stream if isinstance(stream, _Escaping) else stream


def data_out() -> TextIO:
    """Return stdout for data that another program reads: nothing is escaped unless it is a terminal."""
    return sys.stdout if sys.stdout.isatty() else plain(sys.stdout)


def table_text(names: Sequence[str], rows: Iterable[Sequence[str]], total: int = 0) -> str:
    """Return a table with its first column as text and the others as numbers, and the number of further rows."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Without colours the console writes no escape sequences, which would be escaped.
    console = Console(file=sys.stdout, highlight=False, color_system=None)
    shown = Table(box=None, pad_edge=False)
    for index, name in enumerate(names):
        shown.add_column(name, justify="right" if index else "left", overflow="fold")
    for row in rows:
        # Escaped here, because column widths depend on the shown text. A line end must not start another row.
        shown.add_row(*(Text(escaped(cell).replace("\n", "\\n").replace("\t", "\\t")) for cell in row))
    with console.capture() as captured:
        console.print(shown)
        if total > MAX_ROWS:
            console.print(f"… and {total - MAX_ROWS:,} more: --json has all")
    return f"\n{captured.get()}"[:-1]
