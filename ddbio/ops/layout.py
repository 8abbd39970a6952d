"""Report how a dataset lies in files, reading the footers of Parquet and ORC and no row."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ddbio.charts.layout import layout_page
from ddbio.charts.page import write_page
from ddbio.core.folders.layout import LayoutCounter
from ddbio.core.folders.snapshot import LiveFile
from ddbio.errors import NotFoundError
from ddbio.files.footers import FooterReader
from ddbio.files.formats import format_of, is_row_file
from ddbio.files.snapshot import live_files
from ddbio.ops.job.report import Clock
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from ddbio.core.folders.layout import Footer, LayoutReport
    from ddbio.core.folders.staged import StoredObject
    from ddbio.files.object_store import ObjectStore
    from ddbio.options import ConnectionOptions, LayoutOptions

# A request to S3 takes some tens of milliseconds, mostly waiting.
_THREADS = 32
_AHEAD = 8 * _THREADS


def layout(options: LayoutOptions) -> LayoutReport:
    """Return how the live files of a folder lie, and show it where the options say.

    Raises
    ------
    NotFoundError
        If the folder holds no file of rows.
    DecodeError
        If the footer of a file is damaged.
    OptionError
        If charts are asked for and matplotlib is not installed.
    TargetError
        If a page cannot be written.
    """
    clock = Clock()
    store, files = open_dataset(options.path, options)
    counter = LayoutCounter(int(options.small_than))
    for file, entry, footer in _with_footers(store, files):
        # Of a file that was replaced nobody noted the rows.
        rows = file.rows if file.size_bytes == entry.size_bytes else None
        counter.add(entry.size_bytes, _format_name(file.path), file.partition, rows, footer)
    report = counter.report(options.path, clock.seconds(), clock.cpu_seconds())
    if options.html is not None or options.png is not None:
        write_page(layout_page(report), options.html, options.png)
    return report


def open_dataset(source: str, options: ConnectionOptions) -> tuple[ObjectStore, list[tuple[LiveFile, StoredObject]]]:
    """Return a store and the live files in it, those of a folder or one file, each as it is noted and as it is now.

    Raises
    ------
    OptionError
        If the path is of no store.
    NotFoundError
        If there is no file of rows, or a live one is gone.
    """
    folder, _, last = source.rstrip("/").rpartition("/")
    if is_row_file(last):
        store = open_store(folder or ("/" if source.startswith("/") else "."), options)
        for entry in store.list(last):
            if entry.path == last:
                return store, [(LiveFile(last, entry.size_bytes), entry)]
    store = open_store(source, options)
    stored = {entry.path: entry for entry in store.list()}
    files = live_files(store).files
    if not files:
        raise NotFoundError(f"{source} holds no file of rows")
    for file in files:
        if file.path not in stored:
            raise NotFoundError(f"{store.uri}/{file.path} is not there, and the folder's manifests say that it is")
    return store, [(file, stored[file.path]) for file in files]


def _with_footers(
    store: ObjectStore, files: Iterable[tuple[LiveFile, StoredObject]]
) -> Iterator[tuple[LiveFile, StoredObject, Footer | None]]:
    """Yield each file with its footer, in the files' order, while a bounded number of footers is read ahead."""
    reader = FooterReader(store)
    waiting: deque[tuple[LiveFile, StoredObject, Future[Footer | None]]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-footer") as pool:
        for file, entry in files:
            waiting.append((file, entry, pool.submit(reader.read, entry)))
            if len(waiting) == _AHEAD:
                yield _awaited(*waiting.popleft())
        while waiting:
            yield _awaited(*waiting.popleft())


def _awaited(
    file: LiveFile, entry: StoredObject, footer: Future[Footer | None]
) -> tuple[LiveFile, StoredObject, Footer | None]:
    return file, entry, footer.result()


def _format_name(path: str) -> str:
    found = format_of(path)
    return "other" if found is None else found.name
