"""Short JSON messages between workers and the driver, after each has proved that it knows the job's key.

The key itself is never sent, and nothing is unpickled. Messages after the handshake are neither encrypted nor signed:
they hold only counts and rates.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

__all__ = ["FIRST_PAUSE_SECONDS", "BudgetAddress", "MessageChannel", "connect_to_driver", "next_pause"]

FIRST_PAUSE_SECONDS = 5.0
"""From a failed attempt to reach the driver to the next one."""

_LONGEST_PAUSE_SECONDS, _GROWTH = 120.0, 2.0

_MAX_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BudgetAddress:
    """Where a job's budget is served, and the key to it; the key is left out of ``repr``."""

    host: str
    port: int
    key: bytes = field(repr=False)


class MessageChannel:
    """Sends and receives JSON messages, one a line, over a connected socket.

    The timeout is of a whole message: a peer that sends it byte by byte has no longer for it. Every failure is an
    ``OSError`` (no peer, or a wrong one) or a ``ValueError`` (not JSON); close the channel then.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float) -> None:
        self._socket = connection
        self._timeout_seconds: float | None = timeout_seconds
        # Two short messages in a row would otherwise wait for a delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._received = b""

    def send(self, message: object) -> None:
        """Send one message."""
        if self._timeout_seconds is not None:
            # What is left of it after a message is that of the next one no more.
            self._socket.settimeout(self._timeout_seconds)
        self._socket.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next message."""
        limit = self._timeout_seconds
        until = None if limit is None else time.monotonic() + limit
        while b"\n" not in self._received:
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the peer took too long for a message")
                self._socket.settimeout(left)
            piece = self._socket.recv(_MAX_MESSAGE_BYTES)
            self._received += piece
            is_overlong = len(self._received) >= _MAX_MESSAGE_BYTES and b"\n" not in self._received[:_MAX_MESSAGE_BYTES]
            if not piece or is_overlong:
                raise ConnectionError("the peer hung up or sent an overlong message")
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line, parse_constant=_refuse_constant)

    def authenticate_worker(self, key: bytes) -> None:
        """Make the worker prove that it knows the key, then prove the same to it.

        Raises
        ------
        ConnectionError
            The peer does not know the key.
        """
        challenge = secrets.token_hex()
        self.send(challenge)
        answer, counter_challenge = self.receive()
        if not hmac.compare_digest(str(answer).encode(), _proof(key, "worker", challenge).encode()):
            raise ConnectionError("the peer does not know the key")
        self.send(_proof(key, "driver", str(counter_challenge)))

    def authenticate_to_driver(self, key: bytes) -> None:
        """Prove to the driver that this worker knows the key, and make it prove the same.

        Raises
        ------
        ConnectionError
            The peer does not know the key.
        """
        challenge = secrets.token_hex()
        self.send([_proof(key, "worker", str(self.receive())), challenge])
        if not hmac.compare_digest(str(self.receive()).encode(), _proof(key, "driver", challenge).encode()):
            raise ConnectionError("the peer does not know the key")

    def disable_timeout(self) -> None:
        """Wait without a timeout from now on."""
        self._timeout_seconds = None
        self._socket.settimeout(None)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def connect_to_driver(address: BudgetAddress, connect_seconds: float, timeout_seconds: float) -> MessageChannel | None:
    """Return a channel to the driver, or None if it is not reached, or does not know the key.

    Parameters
    ----------
    connect_seconds
        How long to wait for the connection.
    timeout_seconds
        How long to wait for each message then.
    """
    channel = None
    try:
        connection = socket.create_connection((address.host, address.port), connect_seconds)
        channel = MessageChannel(connection, timeout_seconds)
        channel.authenticate_to_driver(address.key)
    except (OSError, ValueError):
        if channel is not None:
            channel.close()
        return None
    return channel


def next_pause(pause_seconds: float) -> float:
    """Return the pause after one that was in vain."""
    return min(_LONGEST_PAUSE_SECONDS, pause_seconds * _GROWTH)


def _proof(key: bytes, role: str, challenge: str) -> str:
    return hmac.new(key, f"{role} {challenge}".encode(), "sha256").hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
