"""How large rows become as files: by writing a sample of them to memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.formats.file_format import WriterOptions
from ddbio.formats.registry import FORMATS
from ddbio.storage.staged import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from ddbio.options import Compression


class _Counter:
    """Count the bytes of a file, and keep none."""

    closed = False

    def __init__(self) -> None:
        self.size_bytes = 0

    def write(self, data: Buffer, /) -> int:
        size_bytes = memoryview(data).nbytes
        self.size_bytes += size_bytes
        return size_bytes

    def finish(self, rows: int) -> StagedFile:
        return StagedFile("", self.size_bytes, rows, {})

    def abort(self) -> None:
        self.closed = True


def file_row_bytes(rows: pa.Table, file_format: str, compression: Compression | None) -> float:
    """Return about how many bytes a row takes in a file of many; 0 if there are no rows.

    What every file has once, such as its schema, is not counted. Values that repeat far off make real files smaller.
    """
    chosen = FORMATS[file_format]
    open_writer = chosen.open_writer
    if not rows.num_rows or open_writer is None:
        return 0.0
    options = WriterOptions(chosen.codec(compression), 256 * 1024 * 1024, rows)
    whole, empty = _Counter(), _Counter()
    for table, counter in ((rows, whole), (rows.slice(0, 0), empty)):
        writer = open_writer(counter, rows.schema, options)
        if table.num_rows:
            writer.write_group(table)
        writer.finish()
    return max(1.0, whole.size_bytes - empty.size_bytes) / rows.num_rows
