"""Streams of record batches: iterators with a schema, which other libraries read as Arrow data."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.errors import ThrottledError
from ddbio.items.arrow_input import record_batch_reader
from ddbio.items.batch_stream import RecordBatchStream

SCHEMA = pa.schema([pa.field("n", pa.int64(), metadata={b"ddb:type": b"N"})])
BATCHES = [pa.record_batch([pa.array([n, n + 1])], schema=SCHEMA) for n in (0, 2, 4)]
TABLE = pa.Table.from_batches(BATCHES)


def stream_of(batches, ended=None):
    """Return a stream of batches, or of errors to raise, that records its end."""

    def generate():
        try:
            for batch in batches:
                if isinstance(batch, Exception):
                    raise batch
                yield batch
        finally:
            if ended is not None:
                ended.append(True)

    return RecordBatchStream(SCHEMA, generate())


def test_it_is_an_iterator():
    """Batches come one by one, in order, and the schema is available before the first."""
    stream = stream_of(BATCHES)
    assert stream.schema.equals(SCHEMA, check_metadata=True)
    assert next(stream) == BATCHES[0]
    assert list(stream) == BATCHES[1:]
    assert next(stream, None) is None


@pytest.mark.parametrize("end", [lambda stream: stream.close(), lambda stream: stream.__exit__(None, None, None)])
def test_closing_ends_what_feeds_it(end):
    """Closing the stream or leaving a block ends the generator. No batch follows."""
    ended = []
    with stream_of(BATCHES, ended) as stream:
        next(stream)
        assert ended == []
        end(stream)
        assert ended == [True]
        assert list(stream) == []


def test_dropping_it_ends_what_feeds_it():
    """Leaving a loop drops the stream, which ends the generator. Dropping a reader of it does the same."""
    ended = []
    for _ in stream_of(BATCHES, ended):
        break
    assert ended == [True]
    reader = stream_of(BATCHES, ended).to_reader()
    reader.read_next_batch()
    del reader
    assert ended == [True, True]


@pytest.mark.parametrize(
    "read",
    [
        RecordBatchStream.read_all,
        lambda stream: stream.to_reader().read_all(),
        pa.table,
        lambda stream: pa.RecordBatchReader.from_stream(stream).read_all(),
        lambda stream: record_batch_reader(stream).read_all(),
    ],
)
def test_others_read_it_as_arrow(read):
    """It becomes one table, a reader, and an object of any library that reads Arrow's C stream, also if it is empty."""
    assert read(stream_of(BATCHES)).equals(TABLE)
    nothing = read(stream_of([]))
    assert (nothing.num_rows, nothing.schema.equals(SCHEMA, check_metadata=True)) == (0, True)


@pytest.mark.parametrize(
    "read", [list, RecordBatchStream.read_all, lambda stream: record_batch_reader(stream).read_all()]
)
def test_errors_stay_what_they_are(read):
    """An error that ends the stream keeps its class."""
    with pytest.raises(ThrottledError, match="for a minute"):
        read(stream_of([BATCHES[0], ThrottledError("throttled for a minute")]))
