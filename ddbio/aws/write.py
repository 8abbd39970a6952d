"""Write one lane's rows until each is written, skipped or rejected; never count a row before the service took it.

Refuses to encode, to pack and to decide what becomes of rejected rows.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.error_codes import THROTTLE_CODES, error_code, is_transient, throttling_reasons, to_ddbio_error
from ddbio.core.loads.batches import Packer
from ddbio.core.loads.counts import HotKeys
from ddbio.core.number import canonical_number
from ddbio.core.pacing import ThrottleScope, parse_throttle_reason
from ddbio.core.text.json_text import compact_json
from ddbio.errors import EndpointError, ServiceError, ThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.transport import BodySender
    from ddbio.budget import Budget, Grant
    from ddbio.core.loads.batches import Writes
    from ddbio.errors import DdbioError

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
# What is wrong with a row: sent again alone, it fails alone.
_ROW_CODES = frozenset(
    {"ValidationException", "SerializationException", "ItemCollectionSizeLimitExceededException", "413"}
)
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutItem.html: another write holds the item for now.
_CONFLICT_CODES = frozenset(
    {"ReplicatedWriteConflictException", "TransactionConflictException", "TransactionInProgressException"}
)
_LOST_CODE = "ConditionalCheckFailedException"
# How fast the ratio of real to expected units follows what was consumed.
_SHARE_OF_NEWEST = 0.2


class Send(NamedTuple):
    """Ask for a request to be sent when the budget grants its units; an `Answer` is what comes back."""

    operation: str
    body: bytes
    units: float


class Pause(NamedTuple):
    """Ask for a pause before the next attempt; nothing comes back."""

    attempt: int


class Answer(NamedTuple):
    """Hold what became of a request: the body that answered it, or what failed, and when it was sent."""

    grant: Grant
    sent_at: float
    body: bytes = b""
    error: ClientError | BotoCoreError | None = None


class _Done(NamedTuple):
    """Hold what an answer says was done: writes that come back, and the units of the others where it says so."""

    unprocessed: dict[str, Any]
    consumed: float | None

    @classmethod
    def of(cls, reply: bytes) -> _Done | None:
        """Return what an answer says; None where it is none of DynamoDB's."""
        try:
            told = json.loads(reply.decode())
        except ValueError:
            return None
        return cls(told.get("UnprocessedItems") or {}, _consumed(told)) if isinstance(told, dict) else None


class Sent(NamedTuple):
    """Hold what a lane waits for, when it was sent, and what granted it."""

    pending: PendingResponse
    grant: Grant
    sent_at: float

    def take(self) -> Answer:
        """Wait for the answer."""
        try:
            return Answer(self.grant, self.sent_at, self.pending.result())
        except (ClientError, BotoCoreError) as error:
            return Answer(self.grant, self.sent_at, error=error)


def begin(source: BodySender, table: str, send: Send, grant: Grant, at: float) -> Sent | Answer:
    """Send what a lane asks for; return what it waits for, or that it failed."""
    try:
        return Sent(source.begin(send.operation, table, send.body), grant, at)
    except (ClientError, BotoCoreError) as error:
        return Answer(grant, at, error=error)


@dataclass(frozen=True, slots=True)
class Reject:
    """Say which row the service refused, and why."""

    row: int
    reason: str


@dataclass
class LaneTally:
    """Count what one lane did."""

    written: int = 0
    skipped: int = 0
    retries: int = 0
    unprocessed: int = 0
    hot: HotKeys = field(default_factory=HotKeys)
    rejects: deque[Reject] = field(default_factory=deque)


class Lane:
    """Write the rows of one lane, one request after the other, so that rows of one key keep their order.

    It asks for each step and is told what came of it, so that one thread can serve many lanes.

    Parameters
    ----------
    key_names
        The table's key attributes, by which unprocessed writes are recognised.
    deadline_seconds
        How long to go on while nothing is written.
    endpoint_url
        Where the requests go, for messages.
    clock
        Returns monotonic seconds.
    """

    def __init__(
        self,
        table: str,
        key_names: Sequence[str],
        budget: Budget,
        deadline_seconds: float,
        *,
        endpoint_url: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table, self._key_names = table, tuple(key_names)
        self._budget, self._deadline_seconds, self._clock = budget, deadline_seconds, clock
        self._endpoint_url = endpoint_url
        self._ratio = 1.0
        self._failing_since: float | None = None
        self._failure: ClientError | BotoCoreError | None = None
        self._last = (b"{}", _Done({}, None))
        self._noted: set[int] = set()
        self.tally = LaneTally()

    def write(self, writes: Writes) -> Generator[Send | Pause, Answer | None, None]:
        """Yield the steps after which every row was written, skipped or rejected.

        Raises
        ------
        ThrottledError
            If nothing was written for ``deadline_seconds``.
        EndpointError
            If the endpoint stayed out of reach.
        DdbioError
            If the service refuses the table, the credentials or the operation itself.
        """
        packer = Packer(writes)
        self._noted.clear()
        attempt = 0
        while batch := packer.take():
            expected = writes.units_of(batch)
            answer = yield Send(writes.template_of(batch).operation, writes.body(batch), expected * self._ratio)
            left = self._settle(cast("Answer", answer), expected, (writes, packer, batch))
            if left < len(batch):
                self._failing_since = None
            if not left:
                attempt = 0
                continue
            self.tally.retries += 1
            self._give_up()
            yield Pause(attempt)
            attempt += 1

    def _settle(self, answer: Answer, expected: float, sent: tuple[Writes, Packer, Sequence[int]]) -> int:
        """Return how many of the batch's rows the packer took back to be sent after a pause."""
        grant, sent_at, reply, error = answer
        # What the budget made the lane wait before is no lack of progress.
        if self._failing_since is None:
            self._failing_since = sent_at
        if error is None:
            return self._answered(self._done(reply), grant, expected, sent)
        # A lost condition is billed, a broken answer may have cost everything; a refusal costs nothing.
        lost = error_code(error) == _LOST_CODE
        self._budget.settle(grant, grant.units if lost or is_transient(error) else 0.0, items=int(lost))
        return self._refused(error, *sent)

    def _done(self, reply: bytes) -> _Done:
        # Requests of as many units, all written, have the same answer.
        if reply != self._last[0]:
            done = _Done.of(reply)
            if done is None:
                raise EndpointError(
                    f"{self._endpoint_url} answered a write with what is not DynamoDB's: {reply[:60]!r}; is the "
                    "endpoint right?",
                    self._endpoint_url,
                )
            self._last = (reply, done)
        return self._last[1]

    def _answered(self, done: _Done, grant: Grant, expected: float, sent: tuple[Writes, Packer, Sequence[int]]) -> int:
        writes, packer, batch = sent
        left: list[int] = []
        self._failure = None
        if done.unprocessed:
            left = _leftovers(done.unprocessed, writes, batch, self._key_names)
            packer.give_back(left)
            self.tally.unprocessed += 1
            self._note_keys(writes, left)
        written = len(batch) - len(left)
        processed = expected if not left else expected - writes.units_of(left)
        consumed = done.consumed
        self._budget.settle(grant, processed * self._ratio if consumed is None else consumed, items=written)
        if consumed is not None and processed:
            self._ratio += _SHARE_OF_NEWEST * (consumed / processed - self._ratio)
        self.tally.written += written
        return len(left)

    def _refused(self, error: ClientError | BotoCoreError, writes: Writes, packer: Packer, batch: Sequence[int]) -> int:
        code = error_code(error)
        if code == _LOST_CODE:
            self.tally.skipped += 1
            return 0
        if code in _ROW_CODES:
            if len(batch) > 1:
                self.tally.retries += 1
                packer.halve(batch)
            else:
                (place,) = batch
                self.tally.rejects.append(Reject(int(writes.rows[place]), _reason(error)))
            return 0
        if code in THROTTLE_CODES:
            reasons = throttling_reasons(error)
            scope = parse_throttle_reason(reasons, code)
            if scope is ThrottleScope.KEY_RANGE:
                self._note_keys(writes, batch)
            self._budget.throttled(scope, ", ".join(reasons) or code)
        elif code not in _CONFLICT_CODES and not is_transient(error):
            raise self._told(error) from error
        self._failure = error
        packer.give_back(batch)
        return len(batch)

    def _note_keys(self, writes: Writes, places: Sequence[int]) -> None:
        # A row that waits for its partition comes back again and again: that tells nothing of its key.
        for place in set(places) - self._noted:
            self.tally.hot.add(_partition_key(writes, place, self._key_names[0]))
        self._noted.update(places)

    def _give_up(self) -> None:
        now = self._clock()
        idle_seconds = now - (now if self._failing_since is None else self._failing_since)
        if idle_seconds <= self._deadline_seconds:
            return
        error = self._failure
        if error is not None and error_code(error) not in THROTTLE_CODES:
            failure = self._told(error)
            failure.args = (f"{failure}; gave up after {idle_seconds:.0f} s, deadline_seconds", *failure.args[1:])
            raise failure from error
        raise ThrottledError(
            f"writing to table {self.table!r} was throttled for {idle_seconds:.0f} s without a row: raise its "
            "capacity, lower the budget, or raise deadline_seconds",
            elapsed_seconds=idle_seconds,
        )

    def _told(self, error: ClientError | BotoCoreError) -> DdbioError:
        return to_ddbio_error(error, action="dynamodb:write", resource=f"table {self.table!r}")


def _consumed(reply: dict[str, Any]) -> float | None:
    told = reply.get("ConsumedCapacity")
    if not told:
        return None
    return sum(float(each.get("CapacityUnits", 0.0)) for each in (told if isinstance(told, list) else [told]))


def _leftovers(
    unprocessed: dict[str, Any], writes: Writes, batch: Sequence[int], key_names: tuple[str, ...]
) -> list[int]:
    """Return the batch's rows that came back, in the batch's order; they are told by their keys alone."""
    keys = {_key(each, key_names) for listed in unprocessed.values() for each in listed}
    sent = {place: _request(writes, place)["RequestItems"].popitem()[1][0] for place in batch}
    left = [place for place in batch if _key(sent[place], key_names) in keys]
    if len(left) != len(keys):
        raise ServiceError(f"the service returned {len(keys)} unprocessed writes, of which {len(left)} were sent")
    return left


def _key(write: dict[str, Any], key_names: tuple[str, ...]) -> tuple[Any, ...]:
    item = write["PutRequest"]["Item"] if "PutRequest" in write else write["DeleteRequest"]["Key"]
    return tuple(_canonical(item[name]) for name in key_names)


def _canonical(value: dict[str, Any]) -> tuple[str, str]:
    ((tag, content),) = value.items()
    return tag, canonical_number(content) if tag == "N" else content


def _partition_key(writes: Writes, place: int, name: str) -> str:
    request = _request(writes, place)
    if "RequestItems" in request:
        ((request,),) = request["RequestItems"].values()
        (request,) = request.values()
    return compact_json((request.get("Item") or request["Key"])[name])


def _request(writes: Writes, place: int) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(writes.body([place]))
    return request


def _reason(error: ClientError | BotoCoreError) -> str:
    told: dict[str, Any] = getattr(error, "response", {}).get("Error", {})
    return f"{told.get('Code')}: {told.get('Message') or 'no text'}"
