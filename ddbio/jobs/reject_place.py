"""Check where rejects go before a job begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.commit.contents import require_target
from ddbio.jobs.stores import open_store

if TYPE_CHECKING:
    from ddbio.options import ConnectionOptions


def require_reject_place(reject_to: str | None, options: ConnectionOptions) -> None:
    """Refuse a folder for rejects that other programs keep a record of; errors are those of ``require_target``."""
    if reject_to is not None:
        require_target(open_store(reject_to, options))
