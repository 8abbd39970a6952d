"""Short JSON messages between workers and the driver, after each has proved that it knows the job's key.

The key itself is never sent, and nothing is unpickled. Messages after the handshake are neither encrypted nor signed:
they hold only counts and rates.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
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

    Every failure is an ``OSError`` (no peer, or a wrong one) or a ``ValueError`` (not JSON); close the channel then.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float) -> None:
        self._socket = connection
        self._socket.settimeout(timeout_seconds)
        # Two short messages in a row would otherwise wait for a delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._reader = connection.makefile("rb")

    def send(self, message: object) -> None:
        """Send one message."""
        self._socket.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next message."""
        line = self._reader.readline(_MAX_MESSAGE_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionError("the peer hung up or sent an overlong message")
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
        self._socket.settimeout(None)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
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
