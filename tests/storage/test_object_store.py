"""Common behaviour of all stores, and a file over ranges of an object."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from ddbio.storage.local_store import LocalStore
from ddbio.storage.object_store import RangeFile
from ddbio.storage.staged import StoredObject

DATA = bytes(range(100))
SEEKS = st.tuples(st.just("seek"), st.integers(-120, 120), st.sampled_from([0, 1, 2]))
READS = st.tuples(st.just("read"), st.integers(-1, 130), st.none())


class Store:
    """Store of one object, which counts the bytes that are read."""

    def __init__(self):
        self.given = 0

    def read_range(self, entry, start, length):
        """Return a range, which must be within the object."""
        assert start >= 0
        assert 0 < length <= entry.size_bytes - start
        self.given += length
        return DATA[start : start + length]


@given(st.lists(SEEKS | READS, max_size=20))
def test_it_reads_as_a_file_does(steps):
    """For any seeks and reads, the bytes are those of a file, and only they are requested."""
    store = Store()
    file, model, wanted = RangeFile(store, StoredObject("a", len(DATA))), io.BytesIO(DATA), 0
    assert (file.readable(), file.seekable(), file.size()) == (True, True, 100)
    for verb, number, whence in steps:
        if verb == "seek":
            position = number + {0: 0, 1: model.tell(), 2: len(DATA)}[whence]
            if position >= 0:
                assert file.seek(number, whence) == model.seek(number, whence)
        else:
            data = file.read(number)
            wanted += len(data)
            assert data == model.read(number)
        assert file.tell() == model.tell()
    assert store.given == wanted


def test_one_of_several_writers_makes_a_file(make_store):
    """Of concurrent writers exactly one makes a small file, and the others report that it exists."""
    store, writers = make_store(), 4
    rounds = 300 if isinstance(store, LocalStore) else 10
    together = threading.Barrier(writers)

    def write(number, name):
        together.wait()
        return store.put_if_absent(f"_ddbio/{name}.json", f"{number}".encode())

    with ThreadPoolExecutor(writers) as pool:
        for name in range(rounds):
            made = [*pool.map(write, range(writers), [name] * writers)]
            assert sum(made) == 1, name
            assert store.read(f"_ddbio/{name}.json") == f"{made.index(True)}".encode()
