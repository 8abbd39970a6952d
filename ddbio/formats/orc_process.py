"""Read ORC files in child processes: a damaged file may crash pyarrow's reader, or keep it busy for ever.

A child asks its parent for ranges of the file and answers with record batches, so that it needs neither credentials nor
the store. It is killed if one request takes too much processor time, and may take only so much memory as the size of
the file explains. Children that work well are used again.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc

from ddbio.errors import DdbioError, DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

# Kind of a message, and two numbers. A range is followed by its bytes, an answer or an error by its text.
_HEADER = struct.Struct("<cqq")
_OPEN, _STRIPE, _RANGE, _ANSWER, _ERROR = b"o", b"s", b"r", b"a", b"e"
_MOST_IDLE = 4
# A stripe is read at once, and few bytes may stand for many.
_MEMORY_BYTES, _MEMORY_RATIO = 4 << 30, 16


class OrcProcess:
    """Read one ORC file in a child process.

    Parameters
    ----------
    file
        The file, opened to be read.
    place
        Its name, for messages.
    size_bytes
        Its size.
    limit_seconds
        Processor time that opening the file, or reading a stripe, may take.
    """

    def __init__(self, file: io.RawIOBase, place: str, size_bytes: int, limit_seconds: float) -> None:
        self._file, self._place, self._limit_seconds = file, place, limit_seconds
        self._child: subprocess.Popen[bytes] | None = _take_child()
        facts = json.loads(self._ask(_OPEN, size_bytes))
        self.stripes: int = facts["stripes"]
        self.rows: int = facts["rows"]
        self.schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(facts["schema"])))

    def read_stripe(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stripe.

        Raises
        ------
        DecodeError
            If the reader finds the file damaged, crashes, or takes too long.
        """
        from ddbio.items.arrow_input import checked_batches  # noqa: PLC0415 - no child needs what it imports

        yield from checked_batches(pa.ipc.open_stream(self._ask(_STRIPE, number)))

    def __del__(self) -> None:
        """Give the child back."""
        child = getattr(self, "_child", None)
        if child is not None:
            _give_back(child)

    def _ask(self, kind: bytes, number: int) -> bytes:
        child, self._child = self._child, None
        if child is None:
            raise DecodeError(f"{self._place}: its ORC reader has ended: open the file again", uri=self._place)
        try:
            answer = self._answer(child, kind, number)
        except DdbioError:
            self._child = child
            raise
        except _ReportedError as error:
            self._child = child
            advice = ": write the column as text, or the rows as Parquet" if "nanosecond" in str(error) else ""
            what = f"{self._place} cannot be read as its name says: {error}{advice}"
            raise DecodeError(what, uri=self._place) from None
        except (EOFError, BrokenPipeError):
            status = child.wait()
            _end(child)
            raise self._ended(status) from None
        except BaseException:
            _end(child)
            raise
        self._child = child
        return answer

    def _answer(self, child: subprocess.Popen[bytes], kind: bytes, number: int) -> bytes:
        requests: Any = child.stdin
        answers: Any = child.stdout
        failed: DdbioError | None = None
        _send(requests, kind, number, int(1e6 * self._limit_seconds))
        while True:
            found, first, second = _HEADER.unpack(_read(answers, _HEADER.size))
            if found == _RANGE:
                data = b""
                try:
                    self._file.seek(first)
                    data = self._file.read(second) or b""
                except DdbioError as error:
                    # The child finds that the file ends there, and lives on.
                    failed = error
                _send(requests, _ANSWER, len(data), 0, data)
                continue
            text = _read(answers, first)
            if failed is not None:
                try:
                    raise failed
                finally:
                    # Garbage in a cycle ends in any order: the child's pipes might be closed before it is given back.
                    del failed
            if found == _ERROR:
                raise _ReportedError(text.decode())
            return text

    def _ended(self, status: int) -> DecodeError:
        how = f"ended with status {status}"
        if status == -signal.SIGPROF:
            how = f"did not come to an end within {self._limit_seconds:g} s of processor time"
        elif status < 0:
            how = f"crashed ({signal.Signals(-status).name})"
        return DecodeError(
            f"{self._place} cannot be read as its name says: the ORC reader {how}, so the file is damaged",
            uri=self._place,
        )


class _ReportedError(Exception):
    """Carry the text of an error that the reader raised."""


_idle: dict[int, deque[subprocess.Popen[bytes]]] = {}
# A reader that is garbage in a cycle must not take its child with it: the child's pipes would be closed before it is
# given back.
_in_use: set[subprocess.Popen[bytes]] = set()


def _take_child() -> subprocess.Popen[bytes]:
    child = _idle_child() or _new_child()
    _in_use.add(child)
    return child


def _idle_child() -> subprocess.Popen[bytes] | None:
    # Children of the process that this one was forked from are not its own.
    idle = _idle.setdefault(os.getpid(), deque())
    with contextlib.suppress(IndexError):
        while True:
            child = idle.pop()
            if child.poll() is None:
                return child
            _end(child)
    return None


def _new_child() -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    command = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)  # noqa: S603


def _give_back(child: subprocess.Popen[bytes]) -> None:
    idle = _idle.get(os.getpid())
    if idle is not None and len(idle) < _MOST_IDLE and not sys.is_finalizing():
        _in_use.discard(child)
        idle.append(child)
    else:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    _in_use.discard(child)
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


@atexit.register
def _end_idle() -> None:
    for child in _idle.pop(os.getpid(), ()):
        _end(child)


def _send(pipe: IO[bytes], kind: bytes, first: int, second: int, data: Buffer = b"") -> None:
    pipe.write(_HEADER.pack(kind, first, second))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


class _ParentFile(io.RawIOBase):
    """Read the parent's file from the child."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes, self._at = size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size_bytes

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size_bytes - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        _send(sys.stdout.buffer, _RANGE, self._at, wanted)
        _, length, _ = _HEADER.unpack(_read(sys.stdin.buffer, _HEADER.size))
        data = _read(sys.stdin.buffer, length)
        self._at += length
        return data


def _serve() -> None:
    """Answer the parent's requests until it closes the pipe."""
    opened: Any = None
    limits = resource.getrlimit(resource.RLIMIT_AS)
    while header := sys.stdin.buffer.read(_HEADER.size):
        kind, number, microseconds = _HEADER.unpack(header)
        # Its signal ends this process even in the midst of a loop of the reader.
        signal.setitimer(signal.ITIMER_PROF, microseconds / 1e6)
        try:
            if kind == _OPEN:
                _limit_memory(number, limits)
                opened = pyarrow.orc.ORCFile(pa.PythonFile(_ParentFile(number), "r"))
                schema = opened.schema.serialize().to_pybytes().hex()
                answer = json.dumps({"stripes": opened.nstripes, "rows": opened.nrows, "schema": schema}).encode()
            else:
                answer = _as_stream(opened.read_stripe(number))
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - whatever the reader says of the file
            text = str(error).encode(errors="replace")
            _send(sys.stdout.buffer, _ERROR, len(text), 0, text)
        else:
            _send(sys.stdout.buffer, _ANSWER, len(answer), 0, answer)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory(size_bytes: int, limits: tuple[int, int]) -> None:
    most, hard = limits
    wanted = _MEMORY_BYTES + _MEMORY_RATIO * size_bytes
    # Not every system has such a limit.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(most, wanted), hard))


def _as_stream(rows: pa.RecordBatch | pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue()


if __name__ == "__main__":
    _serve()
