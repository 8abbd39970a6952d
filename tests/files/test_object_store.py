"""A file over ranges of an object reads as a file does, and asks for no more than is read."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.core.folders.staged import StoredObject
from ddbio.files.object_store import RangeFile

DATA = bytes(range(100))
SEEKS = st.tuples(st.just("seek"), st.integers(-120, 120), st.sampled_from([0, 1, 2]))
READS = st.tuples(st.just("read"), st.integers(-1, 130), st.none())


class Store:
    """Stand for a store of one object, and count the bytes it gives."""

    def __init__(self):
        self.given = 0

    def read_range(self, entry, start, length):
        """Return a range, which must lie within the object."""
        assert start >= 0
        assert 0 < length <= entry.size_bytes - start
        self.given += length
        return DATA[start : start + length]


@settings(deadline=None)
@given(st.lists(SEEKS | READS, max_size=20))
def test_it_reads_as_a_file_does(steps):
    """Whatever is sought and read, the bytes are those of a file, and only those are asked for."""
    store = Store()
    file, model, wanted = RangeFile(store, StoredObject("a", len(DATA))), io.BytesIO(DATA), 0
    assert (file.readable(), file.seekable(), file.size()) == (True, True, 100)
    for verb, number, whence in steps:
        if verb == "seek":
            place = number + {0: 0, 1: model.tell(), 2: len(DATA)}[whence]
            if place >= 0:
                assert file.seek(number, whence) == model.seek(number, whence)
        else:
            found = file.read(number)
            wanted += len(found)
            assert found == model.read(number)
        assert file.tell() == model.tell()
    assert store.given == wanted
