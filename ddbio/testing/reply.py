"""Name the form of a reply's body; refuses to copy a page before it is sent."""

from __future__ import annotations

from typing import TypeAlias

Chunks: TypeAlias = "list[bytes | memoryview]"
"""The body of a reply in pieces, so that a page goes from the store to the socket without a copy."""
