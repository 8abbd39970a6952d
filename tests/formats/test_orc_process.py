"""ORC in a child process: damaged files that crash the reader or keep it busy are errors, others are read."""

import gc
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest

from ddbio.errors import DecodeError, NotFoundError
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.orc import OrcReader
from ddbio.formats.orc_process import OrcProcess
from ddbio.formats.row_files import RowFiles
from ddbio.storage.local_store import LocalStore
from ddbio.storage.object_store import RangeFile

DAMAGED = Path(__file__).parent / "damaged"
ROWS = pa.table({"pk": ["a", "b", "c"], "n": [1, None, 3]})


def entry_of(store, name):
    """Return the entry of a file."""
    return next(entry for entry in store.list() if entry.path == name)


@pytest.fixture
def store(tmp_path):
    """Return a store with an intact file."""
    pyarrow.orc.write_table(ROWS, tmp_path / "whole.orc")
    return LocalStore(tmp_path)


@pytest.mark.parametrize("name", ["endless.orc", "crash.orc"])
def test_a_damaged_file_ends(name):
    """A byte that makes pyarrow 25 loop or crash is an error of that file; another version may read it."""
    store = LocalStore(DAMAGED)
    reader = OrcReader(store, entry_of(store, name), ReadOptions(), limit_seconds=1.0)
    error_of_file = None
    try:
        list(reader.read(0, 0))
    except DecodeError as error:
        error_of_file = error
    assert error_of_file is None or (
        error_of_file.uri == name and f"{name} cannot be read in the format of its name" in str(error_of_file)
    )


def test_reading_is_bounded(tmp_path):
    """A file that exceeds the limit of processor time raises an error with the limit, and the next file is read."""
    pyarrow.orc.write_table(pa.table({"n": np.random.default_rng(1).random(3_000_000)}), tmp_path / "large.orc")
    store = LocalStore(tmp_path)
    large = entry_of(store, "large.orc")
    with pytest.raises(DecodeError, match=r"large\.orc .* did not come to an end within 0\.0.* s of processor time"):
        list(OrcReader(store, large, ReadOptions(), limit_seconds=0.001 - large.size_bytes / 1_000_000).read(0, 0))
    assert OrcReader(store, large, ReadOptions()).parts().rows == 3_000_000


def test_a_child_reads_many_files(store):
    """The same child reads one file after the other, also after a file that is not ORC."""
    (Path(store.uri) / "other.orc").write_bytes(b"no ORC at all")
    files = RowFiles(store)
    for _ in range(3):
        with pytest.raises(DecodeError, match=r"other\.orc cannot be read in the format of its name"):
            files.parts(entry_of(store, "other.orc"))
        intact = entry_of(store, "whole.orc")
        assert files.parts(intact).rows == len(ROWS)
        assert pa.Table.from_batches(files.read(intact, 0)) == ROWS


def test_a_deleted_file_is_not_found(store):
    """An error in the parent, which reads the file, is raised unchanged."""
    intact = entry_of(store, "whole.orc")
    (Path(store.uri) / "whole.orc").unlink()
    with pytest.raises(NotFoundError, match=r"whole\.orc"):
        RowFiles(store).parts(intact)


def test_a_reader_in_a_cycle_gives_its_child_back(store):
    """A reader in a garbage cycle returns a child with open pipes to the pool, without a warning."""
    entry = entry_of(store, "whole.orc")
    reader = OrcProcess(RangeFile(store, entry), entry.path, entry.size_bytes, 60.0)
    child, reader.itself = reader._child, reader
    pipes, number = (child.stdin, child.stdout), child.pid
    del reader, child
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert [pipe.closed for pipe in pipes] == [False, False]
    assert OrcProcess(RangeFile(store, entry), entry.path, entry.size_bytes, 60.0)._child.pid == number
