"""Count the rows of files: as noted, else by their footers, else by reading them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ddbio.formats.row_files import FooterReader, read_batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.commit.snapshot import LiveFile
    from ddbio.storage.object_store import ObjectStore

# Reading a footer is mostly waiting for S3.
_THREADS = 16


def count_rows(store: ObjectStore, files: Iterable[LiveFile]) -> int:
    """Return how many rows some files hold.

    Raises
    ------
    DecodeError, NotFoundError
        If a file whose rows are not noted cannot be read, or is gone.
    """
    files = list(files)
    unknown = {each.path for each in files if each.rows is None}
    known = sum(each.rows for each in files if each.rows is not None)
    if not unknown:
        return known
    reader = FooterReader(store)
    entries = [each for each in store.list() if each.path in unknown]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-footers") as pool:
        for entry, footer in zip(entries, pool.map(reader.read, entries), strict=True):
            if footer is None:
                known += sum(batch.num_rows for batch in read_batches(store, entry))
            else:
                known += footer.rows
    return known
