"""Classification of AWS error codes, and translation of boto3's errors into ddbio's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError as BotoCoreError  # noqa: PLC0414 - for who sends requests
from botocore.exceptions import ClientError as ClientError  # noqa: PLC0414
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.exceptions import (
    CredentialRetrievalError,
    HTTPClientError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
    SSOError,
    TokenRetrievalError,
)

from ddbio.errors import (
    AccessDeniedError,
    DdbioError,
    EndpointError,
    NotFoundError,
    OptionError,
    ServiceError,
    ThrottledError,
)
from ddbio.secrets import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
THROTTLE_CODES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        "KMS.ThrottlingException",
    }
)
_DENIED_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "403",
    }
)
_MISSING_CODES = frozenset(
    {
        "BackupNotFoundException",
        "EntityNotFoundException",
        "ExportNotFoundException",
        "ImportNotFoundException",
        "NoSuchBucket",
        "NoSuchKey",
        "ResourceNotFoundException",
        "TableNotFoundException",
        "404",
    }
)
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/CommonErrors.html
_ADVICE = {
    "AlreadyExistsException": "it was created concurrently: try again",
    "BackupInUseException": "another backup or restore of it is running: wait for it to end",
    "ConcurrentModificationException": "it was changed concurrently: try again",
    "ContinuousBackupsUnavailableException": "a new table takes some seconds to be ready for backups: try again",
    "ExportConflictException": "the client token stands for another request of the last eight hours: give another one",
    "IdempotentParameterMismatchException": "the client token stands for another request: give another one",
    "ImportConflictException": "the client token stands for another import: give another one",
    "InvalidExportTimeException": "choose times within the recovery window, 15 minutes to 24 hours apart",
    "InvalidRestoreTimeException": "choose a time within the recovery window",
    "LimitExceededException": "too many such jobs run at the same time: wait for one to end",
    "PointInTimeRecoveryUnavailableException": "turn point-in-time recovery on, and choose a later time",
    "ResourceInUseException": "there is such a table, or it is being changed: choose another name, or wait",
    "TableAlreadyExistsException": "choose a name that no table has",
    "TableInUseException": "the table is being created, changed or deleted: wait until it is ACTIVE",
}
_CREDENTIAL_ERRORS = (
    CredentialRetrievalError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
_KMS_ACTION = re.compile(r"kms:[A-Za-z*]+")
# https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
_REFUSED_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
_SERVER_ERROR = 500
# https://www.rfc-editor.org/rfc/rfc9110#name-408-request-timeout
# https://www.rfc-editor.org/rfc/rfc6585#section-4: a proxy requests a retry.
_REPEATABLE_STATUSES = frozenset({408, 429})


def error_code(error: Exception) -> str:
    """Return the AWS code of an error, or an empty text if it has no code."""
    return str(_error_member(error).get("Code", "")) if isinstance(error, ClientError) else ""


def throttling_reasons(error: Exception) -> list[str]:
    """Return the throttling reasons of the service. Some endpoints give none."""
    response: Mapping[str, Any] = getattr(error, "response", {})
    reasons = response.get("ThrottlingReasons") or response.get("throttlingReasons") or []
    return [str(reason.get("reason", "")) for reason in reasons]


def is_throttled(error: Exception) -> bool:
    """Return whether a request was throttled."""
    return error_code(error) in THROTTLE_CODES


def may_pass(error: Exception) -> bool:
    """Return whether an idempotent request may succeed on a retry: it was throttled, or the failure is transient."""
    return is_transient(error) or is_throttled(error)


def is_transient(error: Exception) -> bool:
    """Return whether a failure is transient: a broken connection, a 5xx, a 408 or a 429."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return status >= _SERVER_ERROR or status in _REPEATABLE_STATUSES
    if isinstance(error, (CredentialRetrievalError, MetadataRetrievalError)):
        # Credentials also come from a service, which may recover.
        return True
    return isinstance(error, (HTTPClientError, BotoConnectionError)) and not isinstance(error, SSLError)


def was_sent(error: Exception) -> bool:
    """Return whether a failed request was sent, so that credentials were available."""
    return not isinstance(error, _CREDENTIAL_ERRORS)


def to_ddbio_error(error: Exception, *, action: str, resource: str) -> DdbioError:
    """Return the error for the user: the action, the resource, and advice.

    Parameters
    ----------
    action
        API action (``dynamodb:Scan``) or a description of it.
    resource
        Target of the action.
    """
    if isinstance(error, ClientError):
        return _from_service(error, action, resource)
    if isinstance(error, _CREDENTIAL_ERRORS):
        return _without_credentials(error, f"{action} on {resource}", action, resource)
    if isinstance(error, (NoRegionError, ProfileNotFound)):
        advice = "give a profile that exists and a region, as options or by AWS_PROFILE and AWS_REGION"
        return OptionError(f"{_text(error)}: {advice}")
    if isinstance(error, (HTTPClientError, BotoConnectionError)):
        return EndpointError(f"{action} on {resource}: {_text(error)}; is the endpoint right and up?", resource)
    if isinstance(error, BotoCoreError):
        return ServiceError(f"{action} on {resource} failed: {_text(error)}")
    return OptionError(f"{action} on {resource}: {_text(error)}")


def _text(error: Exception) -> str:
    return without_secrets(str(error)).rstrip(".")


def _without_credentials(error: Exception, what: str, action: str, resource: str) -> AccessDeniedError:
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or run where a role is attached"
        return AccessDeniedError(f"no AWS credentials found for {what}: {advice}", action, resource)
    if isinstance(error, (SSOError, TokenRetrievalError)):
        return AccessDeniedError(f"{_text(error)}: log in again by aws sso login", action, resource)
    advice = "check the source of the credentials: the role's trust policy, the instance's role, the process"
    return AccessDeniedError(f"no credentials for {what}: {_text(error)}; {advice}", action, resource)


def _from_service(error: ClientError, action: str, resource: str) -> DdbioError:
    if error.operation_name == "AssumeRole":
        advice = "check the role's ARN, its trust policy and external id, and that you may do sts:AssumeRole"
        text = f"sts:AssumeRole refused ({error_code(error)}: {_message(error)}); {advice}"
        return AccessDeniedError(text, "sts:AssumeRole", resource)
    return _from_request(error, action, resource)


def _message(error: ClientError) -> str:
    text = _error_member(error).get("Message") or _error_member(error).get("message") or "no text"
    return without_secrets(str(text)).rstrip(".")


def _from_request(error: ClientError, action: str, resource: str) -> DdbioError:
    code, message = error_code(error), _message(error)
    if code in _MISSING_CODES and not (code == "404" and action.startswith("dynamodb:")):
        advice = "check the name, the region and the endpoint"
        return NotFoundError(f"{action}: {resource} does not exist ({message}); {advice}")
    if code.startswith("KMS.") and not is_throttled(error):
        # https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html: disabled, in another state, gone, denied.
        advice = "check that the KMS key is enabled, and that its policy allows you kms:Decrypt and kms:GenerateDataKey"
        return AccessDeniedError(f"{action} on {resource} refused ({code}: {message}); {advice}", action, resource)
    if code in _DENIED_CODES:
        if (refused := _REFUSED_ACTION.search(message)) is not None and not refused[1].startswith("kms:"):
            # A request may need several permissions, and the service names the missing one.
            action = refused[1]
        # A missing KMS permission is reported as a missing permission on the object.
        kms_action = _KMS_ACTION.search(message)
        advice = f"check the credentials and that they allow {action}{' and ' + kms_action[0] if kms_action else ''}"
        return AccessDeniedError(f"{action} on {resource} refused ({code}: {message}); {advice}", action, resource)
    if is_throttled(error):
        return ThrottledError(f"{action} on {resource}: throttled ({code}: {message}); try again later")
    if code.isdigit() or is_transient(error):
        text = f"the endpoint failed ({code}: {message}); try again"
        if code.isdigit():
            text = f"HTTP {code} and no AWS error; is the endpoint right?"
        return EndpointError(f"{action} on {resource}: {text}", resource)
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    return ServiceError(f"{action} on {resource} refused ({code}: {message}){advice}", code)


def _error_member(error: Exception) -> Mapping[str, Any]:
    return error.response.get("Error", {}) if isinstance(error, ClientError) else {}
