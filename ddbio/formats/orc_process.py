"""Reader of ORC files in child processes: a damaged file may crash pyarrow's reader, or keep it busy forever.

A child asks its parent for ranges of the file and answers with record batches, so it needs neither credentials nor the
store. It is killed if one request takes too much processor time, and its memory is limited in proportion to the size of
the file. Children that finish a request normally are reused.
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

# Kind of a message, and two numbers. The bytes of a range, or the text of an answer or an error, follow.
_HEADER = struct.Struct("<cqq")
_OPEN, _STRIPE, _RANGE, _ANSWER, _ERROR = b"o", b"s", b"r", b"a", b"e"
_MAX_IDLE = 4
# A stripe is read completely, and a few bytes may decompress to many.
_MEMORY_BYTES, _MEMORY_RATIO = 4 << 30, 16


class OrcProcess:
    """One ORC file that a child process reads.

    Parameters
    ----------
    file
        The file, opened for reading.
    path
        Its name, for messages.
    size_bytes
        Its size.
    limit_seconds
        Limit of processor time for opening the file, and for reading a stripe.
    """

    def __init__(self, file: io.RawIOBase, path: str, size_bytes: int, limit_seconds: float) -> None:
        self._file, self._path, self._limit_seconds = file, path, limit_seconds
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
            If the reader reports damage, crashes, or takes too long.
        """
        from ddbio.items.arrow_input import checked_batches  # noqa: PLC0415 - no child needs its imports

        yield from checked_batches(pa.ipc.open_stream(self._ask(_STRIPE, number)))

    def __del__(self) -> None:
        """Return the child to the pool."""
        child = getattr(self, "_child", None)
        if child is not None:
            _return_to_pool(child)

    def _ask(self, kind: bytes, number: int) -> bytes:
        child, self._child = self._child, None
        if child is None:
            raise DecodeError(f"{self._path}: its ORC reader has ended: open the file again", uri=self._path)
        try:
            answer = self._answer(child, kind, number)
        except DdbioError:
            self._child = child
            raise
        except _ReportedError as error:
            self._child = child
            advice = ": write the column as text, or the rows as Parquet" if "nanosecond" in str(error) else ""
            what = f"{self._path} cannot be read in the format of its name: {error}{advice}"
            raise DecodeError(what, uri=self._path) from None
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
            reply_kind, first, second = _HEADER.unpack(_read(answers, _HEADER.size))
            if reply_kind == _RANGE:
                data = b""
                try:
                    self._file.seek(first)
                    data = self._file.read(second) or b""
                except DdbioError as error:
                    # The child sees the end of the file, and keeps running.
                    failed = error
                _send(requests, _ANSWER, len(data), 0, data)
                continue
            text = _read(answers, first)
            if failed is not None:
                try:
                    raise failed
                finally:
                    # A garbage cycle is freed in any order: the child's pipes might be closed before it returns to the
                    # pool.
                    del failed
            if reply_kind == _ERROR:
                raise _ReportedError(text.decode())
            return text

    def _ended(self, status: int) -> DecodeError:
        how = f"ended with status {status}"
        if status == -signal.SIGPROF:
            how = f"did not come to an end within {self._limit_seconds:g} s of processor time"
        elif status < 0:
            how = f"crashed ({signal.Signals(-status).name})"
        return DecodeError(
            f"{self._path} cannot be read in the format of its name: the ORC reader {how}, so the file is damaged",
            uri=self._path,
        )


class _ReportedError(Exception):
    """Error that the reader raised in the child, as text."""


_idle: dict[int, deque[subprocess.Popen[bytes]]] = {}
# A reader in a garbage cycle must not take its child with it: the child's pipes would be closed before it returns to
# the pool.
_in_use: set[subprocess.Popen[bytes]] = set()


def _take_child() -> subprocess.Popen[bytes]:
    child = _idle_child() or _new_child()
    _in_use.add(child)
    return child


def _idle_child() -> subprocess.Popen[bytes] | None:
    # The children of a process that was forked belong to the parent process.
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


def _return_to_pool(child: subprocess.Popen[bytes]) -> None:
    idle = _idle.get(os.getpid())
    if idle is not None and len(idle) < _MAX_IDLE and not sys.is_finalizing():
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
    """The parent's file, as the child reads it."""

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
        remaining = max(0, self._size_bytes - self._at)
        requested = remaining if size is None or size < 0 else min(size, remaining)
        if not requested:
            return b""
        _send(sys.stdout.buffer, _RANGE, self._at, requested)
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
        # The timer's signal ends this process even inside a loop of the reader.
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
        except Exception as error:  # noqa: BLE001 - any error of the reader about the file
            text = str(error).encode(errors="replace")
            _send(sys.stdout.buffer, _ERROR, len(text), 0, text)
        else:
            _send(sys.stdout.buffer, _ANSWER, len(answer), 0, answer)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory(size_bytes: int, limits: tuple[int, int]) -> None:
    most, hard = limits
    limit = _MEMORY_BYTES + _MEMORY_RATIO * size_bytes
    # Not every system has such a limit.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(most, limit), hard))


def _as_stream(rows: pa.RecordBatch | pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue()


if __name__ == "__main__":
    _serve()
