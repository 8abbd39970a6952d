"""Make the error replies with which DynamoDB refuses a request."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue, Item

_KIB = 1024


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Return the units of one read: one for each 4 KiB begun, at least one, and half of them if eventually consistent.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
    """
    whole = max(1, _begun(size_bytes, 4 * _KIB))
    return whole if consistent else whole / 2


def write_units(size_bytes: int) -> float:
    """Return the units of one write: one for each KiB begun; to delete what is not there costs one as well.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
    """
    return float(max(1, _begun(size_bytes, _KIB)))


def item_bytes(item: Item) -> int:
    """Return the size of an item: the UTF-8 of its names, and its values.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _begun(size_bytes: int, unit_bytes: int) -> int:
    return -(-size_bytes // unit_bytes)


def _value_bytes(value: AttributeValue) -> int:
    ((tag, content),) = value.items()
    match tag:
        case "S":
            return len(content.encode())
        case "N":
            return number_bytes(content)
        case "B":
            return len(base64.b64decode(content))
        case "BOOL" | "NULL":
            return 1
        case "SS" | "NS" | "BS":
            # No overhead of sets is published.
            return sum(_value_bytes({tag[0]: element}) for element in content)
        case _:
            return _container_bytes(tag, content)


def _container_bytes(tag: str, content: Any) -> int:
    """Return the size of a list or map: 3 bytes, and each element with 1 byte more."""
    elements = item_bytes(content) if tag == "M" else sum(map(_value_bytes, content))
    return 3 + elements + len(content)


@lru_cache(maxsize=1 << 16)
def number_bytes(text: str) -> int:
    """Return the size of a number: 1 byte, 1 for each two significant digits, and 1 for a minus sign.

    The guide calls its rule approximate and does not mention the sign; calculators of item sizes add a byte for it.
    """
    coefficient = text.upper().split("E")[0]
    digits = coefficient.replace(".", "").strip("-+").strip("0")
    return 1 + _begun(len(digits), 2) + (text[0] == "-" and digits != "")


_SERVICE = "com.amazonaws.dynamodb.v20120810#"
_CORAL_SERVICE = "com.amazon.coral.service#"
_CORAL_VALIDATE = "com.amazon.coral.validate#"


class Refusal(Exception):  # noqa: N818 - an answer of the service, not a failure of the fake
    """Carry one error reply: its type, its text, its HTTP status and any further members."""

    def __init__(self, kind: str, message: str | None = None, status: int = 400, **members: Any) -> None:
        super().__init__(kind, message, status, members)
        self.status = status
        self.body: dict[str, Any] = {"__type": kind}
        if message is not None:
            self.body["message"] = message
        self.body |= members


def invalid(message: str) -> Refusal:
    """Return DynamoDB's ValidationException."""
    return Refusal(_CORAL_VALIDATE + "ValidationException", message)


def invalid_values(message: str) -> Refusal:
    """Return the ValidationException that DynamoDB gives for values it does not accept."""
    return invalid("One or more parameter values were invalid: " + message)


def constraint(value: object, member: str, rule: str) -> Refusal:
    """Return the ValidationException of one member that breaks its model's constraint."""
    return invalid(
        f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: Member must {rule}"
    )


def lacking(feature: str) -> Refusal:
    """Return the ValidationException for a feature of the service that the fake does not have."""
    return invalid(f"{feature} is not supported by ddbio.testing; use a full emulator for it")


def malformed(message: str | None = None) -> Refusal:
    """Return DynamoDB's SerializationException, which often has no text."""
    return Refusal(_CORAL_SERVICE + "SerializationException", message)


def unknown_operation(operation: str) -> Refusal:
    """Return DynamoDB's own answer to an operation it does not know."""
    return Refusal(
        _CORAL_SERVICE + "UnknownOperationException", f"{operation or 'No operation'} is not served by ddbio.testing"
    )


def unauthenticated() -> Refusal:
    """Return the answer to a request without any credentials."""
    return Refusal(_CORAL_SERVICE + "MissingAuthenticationTokenException", "Request is missing Authentication Token")


def bad_signature(message: str) -> Refusal:
    """Return the answer to a signature that cannot belong to the request."""
    return Refusal(_CORAL_SERVICE + "InvalidSignatureException", message)


def not_found(message: str = "Requested resource not found") -> Refusal:
    """Return DynamoDB's ResourceNotFoundException."""
    return Refusal(_SERVICE + "ResourceNotFoundException", message)


def table_not_found(message: str) -> Refusal:
    """Return the error of calls about backups for a missing table."""
    return Refusal(_SERVICE + "TableNotFoundException", message)


def service_refusal(code: str, message: str) -> Refusal:
    """Return another of DynamoDB's own exceptions by its code."""
    return Refusal(_SERVICE + code, message)


def limit_exceeded(message: str) -> Refusal:
    """Return DynamoDB's LimitExceededException."""
    return Refusal(_SERVICE + "LimitExceededException", message)


def in_use(message: str) -> Refusal:
    """Return DynamoDB's ResourceInUseException."""
    return Refusal(_SERVICE + "ResourceInUseException", message)


def condition_failed(item: Item | None) -> Refusal:
    """Return DynamoDB's ConditionalCheckFailedException, with the item that failed the condition if it is shown."""
    shown: dict[str, Any] = {} if item is None else {"Item": item}
    return Refusal(_SERVICE + "ConditionalCheckFailedException", "The conditional request failed", **shown)


def throttled(reason: str, resource: str) -> Refusal:
    """Return DynamoDB's ProvisionedThroughputExceededException, or RequestLimitExceeded, with its detailed reason."""
    reasons = [{"reason": reason, "resource": resource}]
    if reason.endswith("AccountLimitExceeded"):
        return Refusal(
            _SERVICE + "RequestLimitExceeded",
            "Throughput exceeds the current throughput limit for your account. Please contact AWS Support.",
            ThrottlingReasons=reasons,
        )
    return Refusal(
        _SERVICE + "ProvisionedThroughputExceededException",
        "The level of configured provisioned throughput for the table was exceeded. "
        "Consider increasing your provisioning level with the UpdateTable API.",
        ThrottlingReasons=reasons,
    )


def broken(
    message: str = "The request processing has failed because of an unknown error", status: int = 500
) -> Refusal:
    """Return DynamoDB's InternalServerError, or another HTTP-level refusal by its status."""
    return Refusal(_SERVICE + "InternalServerError", message, status)
