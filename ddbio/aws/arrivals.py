"""Wait for the answers to requests that were sent, whichever comes first."""

from __future__ import annotations

import math
import select
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddbio.aws.bodies import Pending


class Arrivals:
    """Hold requests until they are answered, or their time is over.

    Parameters
    ----------
    can_wake
        Whether another thread may wake who waits.
    """

    def __init__(self, *, can_wake: bool = False) -> None:
        self._poll = select.poll()
        self._awaited: dict[int, Pending] = {}
        self._bell = socket.socketpair() if can_wake else None
        if self._bell is not None:
            self._poll.register(self._bell[0], select.POLLIN)

    def add(self, pending: Pending) -> None:
        """Wait for this one too."""
        descriptor = pending.fileno()
        self._awaited[descriptor] = pending
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float | None) -> list[Pending]:
        """Return those whose result is there, or will not come in time, as soon as there are any; hold them no more.

        Parameters
        ----------
        seconds
            How long to wait at most; None waits for the first.
        """
        if seconds is None and len(self._awaited) == 1 and self._bell is None:
            # Whoever takes its result waits for it there.
            return [self._take(descriptor) for descriptor in list(self._awaited)]
        # All have as long: the first that came is the first to expire.
        oldest = next(iter(self._awaited.items()), None)
        left = math.inf if oldest is None else oldest[1].expires_at - time.monotonic()
        most = left if seconds is None else min(seconds, left)
        came = [descriptor for descriptor, _ in self._poll.poll(None if most == math.inf else max(0, 1000 * most))]
        if not came and oldest is not None and left <= most:
            came = [oldest[0]]
        if self._bell is not None and self._bell[0].fileno() in came:
            came.remove(self._bell[0].fileno())
            self._bell[0].recv(4096)
        return [self._take(descriptor) for descriptor in came]

    def wake(self) -> None:
        """Let who waits, or will wait next, go on at once."""
        if self._bell is not None:
            self._bell[1].send(b"!")

    def close(self) -> None:
        """Wait for nothing any more."""
        for end in self._bell or ():
            end.close()

    def _take(self, descriptor: int) -> Pending:
        self._poll.unregister(descriptor)
        return self._awaited.pop(descriptor)
