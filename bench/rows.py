"""Shown rows of ``results/e2e``: the latest ones at full scale."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def newest(path: Path) -> dict[str, Any] | None:
    """Return the last row at full scale."""
    if not path.exists():
        return None
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return next((row for row in reversed(rows) if row["scale"] == 1.0), None)
