"""The sizes that Arrow's buffers claim to inflate to are checked before they are inflated."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

import pyarrow as pa
import pytest

from ddbio.errors import DecodeError
from ddbio.formats.arrow_ipc import check_messages
from ddbio.formats.row_files import RowFiles
from ddbio.storage.local_store import LocalStore

MIB = 1 << 20
ROWS = pa.RecordBatch.from_pydict({
    "pk": [f"k{number}" for number in range(1000)],
    "n": [0] * 1000,
    "words": pa.array(["x" * 100, None] * 500).dictionary_encode(),
    "lists": [["a", "b"]] * 1000,
    "views": pa.array(["y" * 30] * 1000, pa.string_view()),
})  # fmt: skip
OPENED = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}
ALL_FORMATS = pytest.mark.parametrize("form", OPENED)


def written(form, compression, *batches):
    """Return batches as a file or a stream."""
    sink = io.BytesIO()
    with OPENED[form](sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


@ALL_FORMATS
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_complete_files_pass(form, compression):
    """Batches and dictionaries, with and without compression."""
    check_messages(written(form, compression, ROWS, ROWS.slice(3, 5), ROWS.slice(0, 0)))


@ALL_FORMATS
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("column", ["rows", "dictionary"])
@pytest.mark.parametrize("claimed", [100 * MIB, 1 << 40, (1 << 63) - 1])
def test_a_buffer_that_claims_too_much_is_refused(form, compression, column, claimed):
    """The claimed size of a compressed buffer is checked, both of rows and of a dictionary."""
    numbers = pa.array(range(20_000), pa.int64())
    indices = pa.array([0], pa.int8())
    array = numbers if column == "rows" else pa.DictionaryArray.from_arrays(indices, numbers)
    data = written(form, compression, pa.RecordBatch.from_arrays([array], ["c"]))
    size = struct.pack("<q", numbers.nbytes)
    assert data.count(size) == 1
    with pytest.raises(DecodeError, match="1000 times its size: write it without compression"):
        check_messages(data.replace(size, struct.pack("<q", claimed)))


def test_a_footer_that_names_a_batch_twice_is_refused(tmp_path):
    """A small file cannot list the same rows many times."""
    data = written("file", None, ROWS, ROWS)
    with pa.ipc.open_file(data) as file:
        assert file.num_record_batches == 2
    # Each block of the footer starts with the offset of a message.
    starts = [offset for offset in range(8, len(data) - 8, 8) if data[offset : offset + 4] == b"\xff" * 4]
    blocks = {struct.pack("<q", start) for start in starts}
    (footer_bytes,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = range(len(data) - 10 - footer_bytes, len(data) - 18)
    block_offsets = [offset for offset in footer if data[offset : offset + 8] in blocks]
    first, second = block_offsets[-2:]
    doubled = data[:second] + data[first : first + 24] + data[second + 24 :]
    (tmp_path / "x.arrow").write_bytes(doubled)
    store = LocalStore(tmp_path)
    (entry,) = store.list()
    with pytest.raises(DecodeError, match=r"x\.arrow: its footer is damaged: it names a batch twice"):
        list(RowFiles(store).read_file(entry))


@ALL_FORMATS
def test_any_cut_is_an_error_or_complete(form):
    """A file that is cut anywhere is read, or raises a documented error."""
    data = written(form, "zstd", ROWS.slice(0, 3))
    for end in range(0, len(data), 7):
        with suppress(DecodeError, pa.ArrowException, EOFError, OSError):
            check_messages(data[:end])
