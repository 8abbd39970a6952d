"""Measure what one core of this machine does in a second."""

from __future__ import annotations

import functools
import gzip
import io
import socket
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip

from ddbio.core.items.decode import from_dynamodb_json
from ddbio.core.items.encode import to_dynamodb_json
from ddbio.core.planning.speeds import Speeds
from ddbio.ops.user_files import SPEEDS, write_user_file

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS = 20_000
_SECONDS = 0.4
_LOOPBACK_BYTES = 128 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


def calibrate() -> Speeds:
    """Measure this machine in some seconds, store the profile, and return it.

    Raises
    ------
    OptionError
        If the profile cannot be written.
    """
    speeds = _measured()
    write_user_file(SPEEDS, [speeds.to_json(), "\n"])
    return speeds


def _measured() -> Speeds:
    table = _sample()
    text = to_dynamodb_json(table)
    columns = pa.Table.from_batches([from_dynamodb_json(text)])
    sink = io.BytesIO()
    pq.write_table(columns, sink, compression="zstd")
    gzipped, zipped = gzip.compress(text, 6), pa.compress(text, codec="zstd", asbytes=True)
    return Speeds(
        decode=_speed(len(text), functools.partial(from_dynamodb_json, text, schema=columns.schema)),
        encode=_speed(len(text), functools.partial(to_dynamodb_json, table)),
        parquet_write=_speed(columns.nbytes, lambda: pq.write_table(columns, io.BytesIO(), compression="zstd")),
        parquet_read=_speed(columns.nbytes, lambda: pq.read_table(io.BytesIO(sink.getvalue()), use_threads=False)),
        gunzip=_speed(len(text), lambda: igzip.decompress(gzipped)),  # type: ignore[no-untyped-call]
        zstd=_speed(len(text), lambda: pa.decompress(zipped, len(text), codec="zstd")),
        loopback=_loopback(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _speed(size: int, run: Callable[[], object]) -> float:
    """Return bytes a second of processor time; the first run, which may compile, does not count."""
    run()
    runs, began = 0, time.process_time()
    while (spent := time.process_time() - began) < _SECONDS:
        run()
        runs += 1
    return round(size * runs / spent)


def _sample() -> pa.Table:
    """Return rows as tables have them: keys, text, numbers, a list and a map."""
    numbers = range(_ROWS)
    return pa.table(
        {
            "pk": [f"customer-{number % 977:06d}" for number in numbers],
            "sk": [
                f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}T{number % 24:02d}:00:00Z#{number}"
                for number in numbers
            ],
            "amount": pa.array([number * 37 % 100_000 for number in numbers], pa.int64()),
            "ratio": pa.array([number / 7 for number in numbers], pa.float64()),
            "is_open": [number % 3 == 0 for number in numbers],
            "note": [f"order {number} of the day, " + "sent by post " * (number % 5) for number in numbers],
            "tags": [[f"tag-{number % 50}", f"tag-{number % 7}"] for number in numbers],
            "place": [{"city": f"city-{number % 300}", "zip": f"{number % 100_000:05d}"} for number in numbers],
        }
    )


def _loopback() -> float | None:
    """Return bytes a second through a socket of this machine, by the clock; None if it has none."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
            receiver, _ = server.accept()
            thread = threading.Thread(target=_send, args=(sender,))
            began = time.perf_counter()
            thread.start()
            with receiver:
                buffer, left = bytearray(_CHUNK_BYTES), _LOOPBACK_BYTES
                while left > 0 and (count := receiver.recv_into(buffer)):
                    left -= count
            thread.join()
            return round((_LOOPBACK_BYTES - left) / (time.perf_counter() - began))
    except OSError:
        return None


def _send(sender: socket.socket) -> None:
    chunk = bytes(_CHUNK_BYTES)
    for _ in range(_LOOPBACK_BYTES // _CHUNK_BYTES):
        sender.sendall(chunk)
