"""Sending of one lane's rows, with retries of throttled, unprocessed or lost ones, until each has a result.

A row is written, skipped or rejected. It counts as written only after the service has acknowledged it. A batch that the
service rejects is halved until the bad row is alone in its request.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ddbio.aws.error_codes import (
    THROTTLE_CODES,
    BotoCoreError,
    ClientError,
    error_code,
    is_transient,
    to_ddbio_error,
    was_sent,
)
from ddbio.aws.retry import backoff_seconds, report_throttle, throttled_too_long
from ddbio.budget import Grant
from ddbio.budget.pacing import ThrottleScope
from ddbio.errors import EndpointError, ServiceError
from ddbio.items.json_text import compact_json
from ddbio.items.number import canonical_number
from ddbio.items.page import units_in
from ddbio.load.batches import DeferredRows, Packer, WriteCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.transport import BodySender
    from ddbio.budget import Budget
    from ddbio.errors import DdbioError
    from ddbio.load.batches import Writes

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
# Codes for a bad row: in a separate request, only this row fails.
_ROW_CODES = frozenset(
    {"ValidationException", "SerializationException", "ItemCollectionSizeLimitExceededException", "413"}
)
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutItem.html: another write locks the item for now.
_CONFLICT_CODES = frozenset(
    {"ReplicatedWriteConflictException", "TransactionConflictException", "TransactionInProgressException"}
)
_CONDITION_CODE = "ConditionalCheckFailedException"
# Maximum ratio of unprocessed rows in a batch before its lane pauses.
_MAX_UNPROCESSED_RATIO = 0.5
# A partition saves up one second of its capacity: pauses of deferred rows stay well below that.
_MAX_DOUBLINGS = 3
# The maximum number of remembered responses. The responses of a table with indexes may all differ.
_MAX_REMEMBERED = 64
_UNKNOWN = object()
_NO_GRANT = Grant(0.0, 0.0)
# The weight of the last request in the moving ratio of consumed to expected units.
_LAST_WEIGHT = 0.2


@dataclass(slots=True)
class Send:
    """Request to the scheduler to send when the budget grants its units. The scheduler returns an `Answer`.

    A lane yields one request at a time, and may change and yield the same object again.

    Attributes
    ----------
    grant, sent_at
        The scheduler sets them when it sends the request.
    """

    operation: str = ""
    body: bytes = b""
    units: float = 0.0
    grant: Grant = _NO_GRANT
    sent_at: float = 0.0


class Pause(NamedTuple):
    """Request to the scheduler for a back-off before the next attempt. The scheduler returns nothing."""

    attempt: int


Answer: TypeAlias = bytes | ClientError | BotoCoreError
"""Body of the response to a request, or the error."""


class _Result(NamedTuple):
    """Unprocessed writes of a response, and the units that the others consumed, if the response has them."""

    unprocessed: dict[str, Any]
    consumed: float | None

    @classmethod
    def of(cls, body: bytes) -> _Result | None:
        """Parse the body of a response. Returns None if it is not DynamoDB's."""
        try:
            parsed = json.loads(body.decode())
            consumed = units_in(parsed.get("ConsumedCapacity"))
            unprocessed = parsed.get("UnprocessedItems") or {}
        except (ValueError, AttributeError, RecursionError):
            return None
        return cls(unprocessed, consumed) if isinstance(unprocessed, dict) else None


def begin(source: BodySender, table: str, send: Send) -> PendingResponse | ClientError | BotoCoreError:
    """Send the request of a lane. Return the request in flight, or the error."""
    try:
        return source.begin(send.operation, table, send.body)
    except (ClientError, BotoCoreError) as error:
        return error


def take(pending: PendingResponse) -> Answer:
    """Wait for the response to a request."""
    try:
        return pending.result()
    except (ClientError, BotoCoreError) as error:
        return error


@dataclass(frozen=True, slots=True)
class Reject:
    """Number of a row that the service rejected, the reason, and the origin of its writes."""

    row: int
    reason: str
    origin: object = None


_Sender: TypeAlias = "Packer | DeferredRows"
"""Source of a lane's rows in batches, which takes back rows that were not written: new or deferred rows."""


class Lane:
    """Writer of the rows of one lane, one request after the other, so that rows of one key keep their order.

    A lane does not send or wait itself. It yields each step, and the scheduler returns the response. So one thread can
    serve many lanes.

    Parameters
    ----------
    key_names
        The table's key attributes, which identify unprocessed writes.
    deadline_seconds
        The time without any written row after which the lane fails.
    endpoint_url
        The URL of the endpoint, for messages.
    clock
        Returns monotonic seconds.

    Attributes
    ----------
    counts
        The counts of rows by result.
    rejects
        Rows that the service rejected. The caller removes them.
    deferred
        Unprocessed rows: their partition of the table is at its limit. It may be replaced before any are added.
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
        # Requests with equal units whose rows are all written have equal responses: the known ones, and the consumed
        # units.
        self._usual: dict[Answer, float | None] = {}
        # The time from which deferred rows are sent before new ones, and the number of their attempts in a row without
        # success.
        self._retry_at, self._retries = 0.0, 0
        self.counts = WriteCounts()
        self.rejects: deque[Reject] = deque()
        self.deferred = DeferredRows()

    def write(self, writes: Writes, origin: object = None) -> Generator[Send | Pause, Answer | None, None]:
        """Yield the steps that write the rows.

        After the last one each row is written, skipped, rejected or deferred.

        Parameters
        ----------
        origin
            The origin of the writes, for the rejects.

        Raises
        ------
        ThrottledError
            If nothing was written for ``deadline_seconds``.
        EndpointError
            If the endpoint was not reachable for this time.
        DdbioError
            If the service rejects the table, the credentials or the operation itself.
        """
        packer, waiting, usual = Packer(writes, origin), self.deferred.rows, self._usual
        attempt, step = 0, Send()
        while batch := packer.take():
            while waiting and self._retries_first(writes, batch):
                yield from self.retry()
            step.operation, step.body, expected = writes.request(batch)
            step.units = expected * self._ratio
            # This runs for each request, so even the call of a cast is avoided.
            answer: Answer = yield step  # type: ignore[assignment] # to a Send
            consumed: Any = usual.get(answer, _UNKNOWN)
            if consumed is not _UNKNOWN:
                self._count_written(len(batch), expected, step.grant, consumed)
                attempt = 0
                continue
            left = self._settle(step, answer, expected, packer, batch)
            if left <= len(batch) * _MAX_UNPROCESSED_RATIO:
                # Most partitions accept more.
                attempt = 0
                continue
            # Some rows were written, so the partition will accept more soon. Pauses grow only while it accepts none.
            attempt = attempt if left == len(batch) else 0
            yield Pause(attempt)
            attempt += 1

    def retry(self) -> Generator[Send | Pause, Answer | None, None]:
        """Yield the steps that send a batch of the deferred rows again; see ``write``."""
        if self._clock() < self._retry_at:
            yield Pause(self._retries)
        deferred = self.deferred
        batch = deferred.take()
        expected = deferred.units_of(batch)
        step = Send(deferred.template_of(batch).operation, deferred.body(batch), expected * self._ratio)
        answer = cast("Answer", (yield step))
        left = self._settle(step, answer, expected, deferred, batch)
        is_served = left <= len(batch) * _MAX_UNPROCESSED_RATIO
        self._retries = max(0, self._retries - 1) if is_served else min(_MAX_DOUBLINGS, self._retries + 1)
        self._retry_at = self._clock() + (0.0 if is_served else backoff_seconds(self._retries))

    def _retries_first(self, writes: Writes, batch: Sequence[int]) -> bool:
        """Return whether deferred rows are sent before a batch of new ones."""
        deferred = self.deferred
        return self._clock() >= self._retry_at or deferred.is_full or deferred.delays(writes, batch)

    def _settle(self, step: Send, answer: Answer, expected: float, sender: _Sender, batch: Sequence[int]) -> int:
        """Process the response to a batch. Return the number of its rows to send again."""
        grant = step.grant
        # The time that the lane waited for the budget does not count as lack of progress.
        if self._failing_since is None:
            self._failing_since = step.sent_at
        if isinstance(answer, bytes):
            left = self._answered(answer, grant, expected, sender, batch)
        else:
            # A failed condition is billed, and a request whose response was lost may be. A refused request is not
            # billed.
            is_skipped = error_code(answer) == _CONDITION_CODE
            may_have_cost = is_skipped or (is_transient(answer) and was_sent(answer))
            self._budget.settle(grant, grant.units if may_have_cost else 0.0, items=int(is_skipped))
            left = self._failed(answer, sender, batch)
        if left < len(batch):
            self._failing_since = None
        if left:
            self.counts.retries += 1
            self._check_deadline()
        return left

    def _answered(self, body: bytes, grant: Grant, expected: float, sender: _Sender, batch: Sequence[int]) -> int:
        """Count the written rows of a response. Defer or give back the other rows, and return their number."""
        result = _Result.of(body)
        if result is None:
            raise EndpointError(
                f"{self._endpoint_url} answered a write with a response that is not DynamoDB's: {body[:60]!r}; is the "
                "endpoint right?",
                self._endpoint_url,
            )
        left: list[int] = []
        units = expected
        if result.unprocessed:
            left = self._leftovers(result.unprocessed, sender, batch)
            units -= sender.units_of(left)
            self.counts.unprocessed += 1
            self._count_hot_keys(sender, left)
        else:
            if len(self._usual) >= _MAX_REMEMBERED:
                self._usual.clear()
            self._usual[body] = result.consumed
        self._count_written(len(batch) - len(left), units, grant, result.consumed)
        if not (left and sender.defer(left, self.deferred)):
            sender.settle(batch, left)
        return len(left)

    def _leftovers(self, unprocessed: dict[str, Any], sender: _Sender, batch: Sequence[int]) -> list[int]:
        """Return the unprocessed rows of a batch in its order. They are identified by their keys."""
        returned = {_key(write, self._key_names) for listed in unprocessed.values() for write in listed}
        for position in batch:
            if position not in sender.keys:
                ((write,),) = _request(sender, position)["RequestItems"].values()
                sender.keys[position] = _key(write, self._key_names)
        left = [position for position in batch if sender.keys[position] in returned]
        if len(left) != len(returned):
            raise ServiceError(
                f"the service returned {len(returned)} unprocessed writes, of which {len(left)} were sent"
            )
        return left

    def _count_written(self, rows: int, expected: float, grant: Grant, consumed: float | None) -> None:
        """Count the written rows of a response, and its consumed units."""
        self._failure = None
        if rows:
            self._failing_since = None
        self._budget.settle(grant, expected * self._ratio if consumed is None else consumed, items=rows)
        if consumed is not None and expected:
            self._ratio += _LAST_WEIGHT * (consumed / expected - self._ratio)
        self.counts.written += rows

    def _failed(self, error: ClientError | BotoCoreError, sender: _Sender, batch: Sequence[int]) -> int:
        """Skip, halve, reject, defer or give back the rows of a failed request.

        Return the number of rows to send again.
        """
        code = error_code(error)
        if code == _CONDITION_CODE:
            self.counts.skipped += 1
            return 0
        if code in _ROW_CODES:
            if len(batch) > 1:
                self.counts.retries += 1
                sender.halve(batch)
            else:
                row, origin = sender.row(batch[0])
                self.rejects.append(Reject(row, _reason(error), origin))
                sender.settle(batch, [])
            return 0
        is_hot = False
        if code in THROTTLE_CODES:
            is_hot = report_throttle(self._budget, error) is ThrottleScope.KEY_RANGE
            if is_hot:
                self._count_hot_keys(sender, batch)
        elif code not in _CONFLICT_CODES and not is_transient(error):
            raise self._error(error) from error
        self._failure = error
        if not (is_hot and sender.defer(batch, self.deferred)):
            sender.give_back(batch)
        return len(batch)

    def _count_hot_keys(self, sender: _Sender, positions: Sequence[int]) -> None:
        # A row is counted once: further unprocessed attempts may be due to its partition, not to its key.
        for position in set(positions) - sender.counted:
            self.counts.hot_keys.add(_partition_key(sender, position, self._key_names[0]))
        sender.counted.update(positions)

    def _check_deadline(self) -> None:
        """Raise if no row was written for ``deadline_seconds``."""
        now = self._clock()
        idle_seconds = now - (now if self._failing_since is None else self._failing_since)
        if idle_seconds <= self._deadline_seconds:
            return
        error = self._failure
        if error is not None and error_code(error) not in THROTTLE_CODES:
            failure = self._error(error)
            failure.args = (f"{failure}; gave up after {idle_seconds:.0f} s, deadline_seconds", *failure.args[1:])
            raise failure from error
        raise throttled_too_long(f"writing to table {self.table!r}", "a row", idle_seconds)

    def _error(self, error: ClientError | BotoCoreError) -> DdbioError:
        return to_ddbio_error(error, action="dynamodb:write", resource=f"table {self.table!r}")


def _key(write: dict[str, Any], key_names: tuple[str, ...]) -> tuple[Any, ...]:
    item = write["PutRequest"]["Item"] if "PutRequest" in write else write["DeleteRequest"]["Key"]
    return tuple(_canonical(item[name]) for name in key_names)


def _canonical(value: dict[str, Any]) -> tuple[str, str]:
    ((tag, content),) = value.items()
    return tag, canonical_number(content) if tag == "N" else content


def _partition_key(sender: _Sender, position: int, name: str) -> str:
    request = _request(sender, position)
    if "RequestItems" in request:
        ((request,),) = request["RequestItems"].values()
        (request,) = request.values()
    return compact_json((request.get("Item") or request["Key"])[name])


def _request(sender: _Sender, position: int) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(sender.body([position]))
    return request


def _reason(error: ClientError | BotoCoreError) -> str:
    response: dict[str, Any] = getattr(error, "response", {}).get("Error", {})
    return f"{response.get('Code')}: {response.get('Message') or 'no text'}"
