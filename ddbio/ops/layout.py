"""Report how a dataset lies in files, reading the footers of Parquet and ORC and no row."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ddbio.charts.layout import layout_page
from ddbio.charts.page import write_page
from ddbio.core.layout import LayoutCounter
from ddbio.core.snapshot import LiveFile
from ddbio.core.staged import StoredObject
from ddbio.errors import NotFoundError
from ddbio.files.footers import FooterReader
from ddbio.files.formats import format_of, is_row_file
from ddbio.files.snapshot import live_files
from ddbio.ops.job.report import Clock
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from ddbio.core.layout import Footer, LayoutReport
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
    if not files:
        raise NotFoundError(f"{options.path} holds no file of rows")
    counter = LayoutCounter(int(options.small_than))
    for file, footer in _with_footers(store, files):
        counter.add(file.size_bytes, _format_name(file.path), file.partition, file.rows, footer)
    report = counter.report(options.path, clock.seconds(), clock.cpu_seconds())
    if options.html is not None or options.png is not None:
        write_page(layout_page(report), options.html, options.png)
    return report


def open_dataset(source: str, options: ConnectionOptions) -> tuple[ObjectStore, tuple[LiveFile, ...]]:
    """Return a store and the live files in it: those of a folder, or one file.

    Raises
    ------
    OptionError
        If the path is of no store.
    NotFoundError
        If a live file is gone.
    """
    folder, _, last = source.rstrip("/").rpartition("/")
    if is_row_file(last):
        store = open_store(folder or ".", options)
        entries = [entry for entry in store.list(last) if entry.path == last]
        if entries:
            return store, tuple(LiveFile(entry.path, entry.size_bytes) for entry in entries)
    store = open_store(source, options)
    return store, tuple(_as_stored(store, live_files(store).files))


def _as_stored(store: ObjectStore, files: Iterable[LiveFile]) -> Iterator[LiveFile]:
    """Yield the files as they are now: one that was replaced has another size, and rows that nobody noted."""
    sizes = {entry.path: entry.size_bytes for entry in store.list()}
    for file in files:
        size = sizes.get(file.path)
        if size is None:
            raise NotFoundError(f"{store.uri}/{file.path} is not there, and the folder's manifests say that it is")
        yield file if size == file.size_bytes else replace(file, size_bytes=size, rows=None, statistics=None)


def _with_footers(store: ObjectStore, files: Iterable[LiveFile]) -> Iterator[tuple[LiveFile, Footer | None]]:
    """Yield each file with its footer, in the files' order, while a bounded number of footers is read ahead."""
    reader = FooterReader(store)
    waiting: deque[tuple[LiveFile, Future[Footer | None]]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-footer") as pool:
        for file in files:
            waiting.append((file, pool.submit(reader.read, StoredObject(file.path, file.size_bytes))))
            if len(waiting) == _AHEAD:
                first, footer = waiting.popleft()
                yield first, footer.result()
        while waiting:
            first, footer = waiting.popleft()
            yield first, footer.result()


def _format_name(path: str) -> str:
    found = format_of(path)
    return "other" if found is None else found.name
