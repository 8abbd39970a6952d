"""Compile all loops in several processes, for this processor or for every processor of its kind."""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.cdc.plain_lines import plain_lines
from ddbio.errors import OptionError
from ddbio.items import decode, digest_columns, digest_json, encode, raw_items
from ddbio.items import ion as ion_blocks
from ddbio.items.changes import ChangeDecoder
from ddbio.items.decode import Decoder, infer_schema_of_bodies
from ddbio.items.item_key import key_hashes
from ddbio.items.kernel.cache import cache_folder, portable_environment, use_cache_folder
from ddbio.items.kernel.column_chunks import chunks_by_loop
from ddbio.items.kernel.members import Openings
from ddbio.items.kernel.typed_items import typed_lines
from ddbio.items.raw_items import PageSplitter
from ddbio.jobs.report import WarmReport
from ddbio.lake_formats import keys as lake_keys
from ddbio.lake_formats import reordering
from ddbio.load.encode import RowEncoder
from ddbio.load.plan import WritePlan
from ddbio.storage import checksums

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("ddbio.kernel")

MOST_PROCESSES = 4
"""More processes would only compile again what several loops call: the longest loop takes a third of the time."""

# A value of every type, and of every column type for numbers.
_ITEM = (
    b'{"s":{"S":"a"},"n":{"N":"1"},"d":{"N":"1.5"},"t":{"N":"1e60"},"b":{"B":"AA=="},"o":{"BOOL":true},'
    b'"z":{"NULL":true},"ss":{"SS":["a"]},"ns":{"NS":["1"]},"bs":{"BS":["AA=="]},"l":{"L":[{"N":"1"}]},'
    b'"m":{"M":{"a":{"S":"a"}}},"p":{"M":{"a":{"S":"a"}}}}\n'
)
_CHANGE = b'{"Metadata":{"WriteTimestampMicros":{"N":"1"}},"Keys":{"a":{"S":"a"}},"NewImage":{"a":{"S":"a"}}}\n'
_RECORD = b'{"eventName":"MODIFY","dynamodb":{"ApproximateCreationDateTime":1,"Keys":{"a":{"S":"a"}}}}'


def _items() -> pa.RecordBatch:
    schema = infer_schema_of_bodies([(_ITEM, "items")]).to_arrow()
    texts = pa.field("p", pa.map_(pa.string(), pa.string()))
    return Decoder(schema.set(schema.get_field_index("p"), texts)).decode(_ITEM, "items")


def _decode_sizes() -> None:
    Decoder(pa.schema([]), item_size=True).decode(b"{}", "items")


def _decode_misfits() -> None:
    Decoder(pa.schema([])).decode(b'{"a":{"S":"a"}}', "items")


def _decode_changes() -> None:
    ChangeDecoder(pa.schema([("a", pa.string())]), ["a"]).decode(_CHANGE)


def _print_members() -> None:
    plain_lines(_RECORD)


def _find_members() -> None:
    Openings((b"name",)).find(b"{}")


def _type_items() -> None:
    typed_lines(b'{"a":null}')


def _read_chunks() -> None:
    chunks_by_loop(b"\0", 0, 0)


def _hash_keys() -> None:
    key_hashes(_items(), ["s", "t", "d"])


def _write() -> None:
    batch = _items()
    RowEncoder(batch.schema, WritePlan("table", (("s", "S"),), "upsert", None, None, 1, None)).encode(batch)


def _split_page() -> None:
    PageSplitter().decode_batches(b'{"Items":[{}]}', "page")


WARM_UPS: tuple[Callable[[], object], ...] = (
    _decode_sizes,
    encode.warm,
    _decode_changes,
    _find_members,
    _print_members,
    _type_items,
    _read_chunks,
    ion_blocks.warm,
    digest_json.warm,
    digest_columns.warm,
    _hash_keys,
    checksums.warm,
    lake_keys.warm,
    reordering.warm,
    raw_items.warm,
    decode.warm,
    _write,
    _split_page,
    _decode_misfits,
)
"""Functions that together call every loop with every type of argument: whoever adds a loop adds a call of it.

Processes that share the work take them in this order; those that need no loop of their own come last.
"""


def warm_here(part: int | None = None) -> None:
    """Compile all loops in this process, or load them from the cache.

    Parameters
    ----------
    part
        The index of the one of ``WARM_UPS`` to call; all by default.
    """
    for warm_up in WARM_UPS if part is None else WARM_UPS[part : part + 1]:
        warm_up()


def warm(to: str | os.PathLike[str] | None = None) -> WarmReport:
    """Compile all loops ahead of their first use, or load those that are stored already.

    Parameters
    ----------
    to
        A folder, or an archive ``….zip``, for loops that every processor of this kind runs, to be shipped; by default
        they are compiled for this one, and stored where the next process of this user looks.

    Raises
    ------
    OptionError
        If the folder or the archive cannot be made.
    """
    began = time.monotonic()
    folder = warm_all(None if to is None else os.fspath(to))
    return WarmReport(round(time.monotonic() - began, 3), None if folder is None else str(folder))


def warm_all(to: str | None = None) -> Path | None:
    """Compile all loops that are not compiled yet; return the folder that holds them, or None if there is none.

    Parameters
    ----------
    to
        A folder, or an archive ``….zip``, for loops to ship, which every processor of this kind runs; by default loops
        are compiled for this processor, and stored where the next process of this user looks.

    Raises
    ------
    OptionError
        If the folder or the archive cannot be made.
    """
    if to is not None and to.endswith(".zip"):
        with tempfile.TemporaryDirectory() as made:
            warm_all(made)
            return packed(Path(made), Path(to).resolve())
    folder = cache_folder() if to is None else _created(to)
    if folder is None:
        warm_here()
        return None
    before = dict(os.environ)
    if to is not None:
        # The processes read the environment when they start.
        os.environ.update(portable_environment(), DDBIO_KERNEL_DIR="")
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(folder,)) as pool:
            parts = [pool.submit(warm_here, part) for part in range(len(WARM_UPS))]
            for count, part in enumerate(as_completed(parts), 1):
                part.result()
                _LOG.info("compiled %d of %d parts", count, len(parts))
    finally:
        os.environ.clear()
        os.environ.update(before)
    if to is not None:
        for lock in folder.glob("*.lock"):
            lock.unlink(missing_ok=True)
    return folder


def packed(folder: Path, archive: Path) -> Path:
    """Pack the loops of a folder into an archive, and return its path.

    Raises
    ------
    OptionError
        If the archive cannot be written.
    """
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for each in sorted(folder.glob("*.nbc")):
                file.write(each, each.name)
    except OSError as error:
        raise OptionError(f"no archive of loops can be written at {archive}: {error.strerror}") from None
    return archive


def _begin(folder: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_cache_folder(folder)
    # Who compiles all loops need not be warned by each process that this takes time.
    _LOG.setLevel(logging.ERROR)


def _end_with_parent() -> None:
    """End this process if its parent was killed, which the pool does not notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _created(to: str) -> Path:
    folder = Path(to).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"no folder for loops can be made at {to}: {error.strerror}") from None
    return folder
