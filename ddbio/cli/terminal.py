"""What is printed for people: control and bidirectional characters are written as escapes, in one place.

A name or value of a table, a file or a bucket may hold characters that a terminal obeys: they set its title, clear it,
or show text in another order.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

# Controls of ASCII but for tabs and line ends, and DEL.
_ASCII = bytes({*range(32), 127} - {*b"\t\n"})
# What the UTF-8 of all others begins with: C1 controls, bidirectional marks, line separators and lone surrogates.
_BEGINNINGS = (b"\xc2", b"\xd8\x9c", b"\xe2\x80", b"\xe2\x81", b"\xed")
# https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Rows of tables that are shown.
MOST_ROWS = 20


def escaped(text: str) -> str:
    r"""Return a text whose control and bidirectional characters are escapes like ``\u001b``; tabs and line ends stay.

    JSON means the same afterwards: within its texts these are escapes of its own.
    """
    # To look for bytes is several times faster than to look for characters, which only few texts need; for one byte
    # it is faster still than for two.
    raw = text.encode("utf-8", "surrogatepass")
    has_others = any(each[:1] in raw and each in raw for each in _BEGINNINGS)
    if not has_others and len(raw.translate(None, _ASCII)) == len(raw):
        return text
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Escaping:
    """A stream of text that escapes what is written to it."""

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
    """Escape what is written to stdout and stderr while the context is open."""
    with ExitStack() as stack:
        # A stream is None where the process was started with it closed.
        if sys.stdout is not None:
            stack.enter_context(redirect_stdout(cast("TextIO", _Escaping(sys.stdout))))
        if sys.stderr is not None:
            stack.enter_context(redirect_stderr(cast("TextIO", _Escaping(sys.stderr))))
        yield


def plain(stream: TextIO) -> TextIO:
    """Return the stream itself: whoever writes to it escapes what is not its own."""
    return stream.stream if isinstance(stream, _Escaping) else stream


def data_out() -> TextIO:
    """Return stdout for data that another program reads as it is: nothing is escaped unless it is a terminal."""
    return sys.stdout if sys.stdout.isatty() else plain(sys.stdout)


def table_text(names: Sequence[str], rows: Iterable[Sequence[str]], whole: int = 0) -> str:
    """Return a table, its first column as text and the others as numbers, and how many rows there are beyond it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Without colours the console writes no escape sequences, which would be escaped.
    console = Console(file=sys.stdout, highlight=False, color_system=None)
    shown = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        shown.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        # Escaped here, since columns are as wide as what is shown; a line end is no other row.
        shown.add_row(*(Text(escaped(each).replace("\n", "\\n").replace("\t", "\\t")) for each in row))
    with console.capture() as captured:
        console.print(shown)
        if whole > MOST_ROWS:
            console.print(f"… and {whole - MOST_ROWS:,} more: --json has all")
    return f"\n{captured.get()}"[:-1]
