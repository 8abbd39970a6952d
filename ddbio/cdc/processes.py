"""Work at the leases that this process holds, one thread for each, while others hold the rest."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from ddbio.cdc.leases import Leases
    from ddbio.cdc.loop import CaptureLoop

    OpenPart: TypeAlias = Callable[[int, threading.Event], AbstractContextManager[CaptureLoop]]

log = logging.getLogger("ddbio.capture")

_LOOKS_A_LEASE = 5
_WAKE_SECONDS = 0.1


@dataclass
class _Part:
    """Hold the thread that works at one lease."""

    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    loop: CaptureLoop | None = None
    error: BaseException | None = None
    is_done: bool = False

    def end(self) -> None:
        """Stop the thread when its batch is written."""
        self.stop.set()
        if self.thread is not None:
            self.thread.join()


@dataclass
class Parts:
    """Capture the shards of all leases that this process gets.

    Attributes
    ----------
    open_part
        Opens the capture of a lease.
    loops
        All captures that were begun, for their counts.
    """

    leases: Leases
    open_part: OpenPart
    available_now: bool = False
    loops: list[CaptureLoop] = field(default_factory=list)
    _parts: dict[int, _Part] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        """Work until it is told to stop; or until what there was at the beginning is captured, as far as others let it.

        Raises
        ------
        DdbioError
            As the capture of a lease.
        """
        try:
            while not stop.is_set():
                self.leases.look()
                self._adjust()
                if self.available_now and not self._parts:
                    break
                self._wait(stop)
                self._take_ended()
        finally:
            for part in self._parts.values():
                part.stop.set()
            for part in self._parts.values():
                part.end()
            self.leases.close()
        self._take_ended()

    def _adjust(self) -> None:
        """Begin at leases that are new here, and end at those that others have or should have."""
        for lease in [each for each in self._parts if each not in self.leases.held]:
            log.warning("another process has taken lease %d over", lease)
            self._parts.pop(lease).end()
        for lease in self.leases.surplus():
            if lease in self._parts:
                self._parts.pop(lease).end()
            self.leases.give(lease)
        for lease in self.leases.held:
            if lease not in self._parts and lease not in self._done:
                part = self._parts[lease] = _Part()
                part.thread = threading.Thread(target=self._work, args=(lease, part), name=f"ddbio-lease-{lease}")
                part.thread.start()

    def _work(self, lease: int, part: _Part) -> None:
        try:
            with self.open_part(lease, part.stop) as loop:
                self.loops.append(loop)
                loop.run(available_now=self.available_now)
                part.is_done = not part.stop.is_set()
        except TargetError as error:
            # Who went on meanwhile is told by the leases, at the next look.
            log.warning("lease %d: %s", lease, error)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            part.error = error

    def _wait(self, stop: threading.Event) -> None:
        until = time.monotonic() + self.leases.lease_seconds / _LOOKS_A_LEASE
        while time.monotonic() < until and not stop.wait(_WAKE_SECONDS):
            if any(each.thread is not None and not each.thread.is_alive() for each in self._parts.values()):
                return

    def _take_ended(self) -> None:
        for lease, part in list(self._parts.items()):
            if part.thread is not None and not part.thread.is_alive():
                del self._parts[lease]
                if part.is_done:
                    self._done.add(lease)
                if part.error is not None:
                    raise part.error
