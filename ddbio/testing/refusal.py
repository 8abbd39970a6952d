"""Error replies with which DynamoDB refuses a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.items.attribute import Item


_SERVICE = "com.amazonaws.dynamodb.v20120810#"
_CORAL_SERVICE = "com.amazon.coral.service#"
_CORAL_VALIDATE = "com.amazon.coral.validate#"


class Refusal(Exception):  # noqa: N818 - an answer of the service, not a failure of the fake
    """One error reply: its type, its text, its HTTP status and any further members."""

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
    """Return DynamoDB's ValidationException for values that it does not accept."""
    return invalid("One or more parameter values were invalid: " + message)


def violations(problems: Sequence[str]) -> Refusal:
    """Return the ValidationException of all constraints of the model that a request breaks."""
    noun = "error" if len(problems) == 1 else "errors"
    return invalid(f"{len(problems)} validation {noun} detected: {'; '.join(problems)}")


def constraint(value: object, member: str, rule: str) -> Refusal:
    """Return the ValidationException of one member that breaks a constraint of the model."""
    return violations([f"Value '{value}' at '{member}' failed to satisfy constraint: Member must {rule}"])


def constraint_of_map(shown: str, member: str, most: int) -> Refusal:
    """Return the ValidationException of a map of lists if one of them is empty or too long."""
    rule = f"[Member must have length less than or equal to {most}, Member must have length greater than or equal to 1]"
    return violations(
        [f"Value '{shown}' at '{member}' failed to satisfy constraint: Map value must satisfy constraint: {rule}"]
    )


def required_parameter(name: str) -> Refusal:
    """Return the ValidationException of a missing parameter that the service checks before the model."""
    return invalid(f"The parameter '{name}' is required but was not present in the request")


def lacking(feature: str) -> Refusal:
    """Return the ValidationException for a feature of the service that the fake does not have."""
    return invalid(f"{feature} is not supported by ddbio.testing; use a full emulator for it")


def malformed(message: str | None = None) -> Refusal:
    """Return DynamoDB's SerializationException, which often has no text."""
    return Refusal(_CORAL_SERVICE + "SerializationException", message)


def unknown_operation(operation: str) -> Refusal:
    """Return DynamoDB's reply to an unknown operation."""
    return Refusal(
        _CORAL_SERVICE + "UnknownOperationException", f"{operation or 'No operation'} is not served by ddbio.testing"
    )


def unauthenticated() -> Refusal:
    """Return the reply to a request without credentials."""
    return Refusal(_CORAL_SERVICE + "MissingAuthenticationTokenException", "Request is missing Authentication Token")


def bad_signature(message: str) -> Refusal:
    """Return the reply to a signature that cannot belong to the request."""
    return Refusal(_CORAL_SERVICE + "InvalidSignatureException", message)


def not_found(message: str = "Requested resource not found") -> Refusal:
    """Return DynamoDB's ResourceNotFoundException."""
    return Refusal(_SERVICE + "ResourceNotFoundException", message)


def access_denied(message: str) -> Refusal:
    """Return DynamoDB's AccessDeniedException."""
    return Refusal(_CORAL_SERVICE + "AccessDeniedException", message)


def table_not_found(message: str) -> Refusal:
    """Return the TableNotFoundException of calls about backups."""
    return Refusal(_SERVICE + "TableNotFoundException", message)


def service_refusal(code: str, message: str) -> Refusal:
    """Return another exception of DynamoDB by its code."""
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


def canceled(reasons: list[dict[str, Any]]) -> Refusal:
    """Return DynamoDB's TransactionCanceledException, with the reason of each item."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    return Refusal(
        _SERVICE + "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=reasons,
    )


def duplicate_item() -> Refusal:
    """Return DynamoDB's DuplicateItemException."""
    return Refusal(_SERVICE + "DuplicateItemException", "Duplicate primary key exists in table")


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
    """Return DynamoDB's InternalServerError, or another refusal by its HTTP status."""
    return Refusal(_SERVICE + "InternalServerError", message, status)
