"""Proxy that enforces an IAM policy on endpoints, with the service's error messages.

Each request needs the permissions that the service checks: of a table, an index, a stream, a bucket or its keys, of the
key that encrypts an object, and of the service's own calls in the caller's name.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from ddbio.testing.expressions.partiql import parse_statement
from ddbio.testing.proxy import Upstream
from ddbio.testing.refusal import Refusal
from ddbio.testing.server import LOOPBACK, HttpReply, HttpRequest, Server, inflated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from ddbio.testing.expressions.partiql import Statement

_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
_JSON = {"Content-Type": "application/x-amz-json-1.0"}
_XML = {"Content-Type": "application/xml"}
_NOT_FOUND, _FORBIDDEN, _BAD_REQUEST, _OK = 404, 403, 400, 200
_KMS = ("aws:kms", "aws:kms:dsse")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html
_ACTIONS_OF_HEADERS = {
    "x-amz-tagging": "s3:PutObjectTagging",
    "x-amz-acl": "s3:PutObjectAcl",
    "x-amz-object-lock-mode": "s3:PutObjectRetention",
    "x-amz-object-lock-legal-hold": "s3:PutObjectLegalHold",
}
_ACTIONS_OF_BUCKETS = {
    "uploads": "s3:ListBucketMultipartUploads",
    "encryption": "s3:GetEncryptionConfiguration",
    "versioning": "s3:GetBucketVersioning",
    "publicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "lifecycle": "s3:GetLifecycleConfiguration",
    "object-lock": "s3:GetBucketObjectLockConfiguration",
}
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport_Requesting.html
_EXPORT_ACTIONS = ("s3:PutObject", "s3:PutObjectAcl", "s3:AbortMultipartUpload")
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazondynamodb.html
_WITHOUT_RESOURCE = frozenset(
    {"ListExports", "ListImports", "ListBackups", "ListTables", "DescribeLimits", "ListBulkOperations"}
)
# Operations that read or write items; the others work on an encrypted table without its key.
_ITEM_OPERATIONS = frozenset(
    {"BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"}
)
# The member with the statements. None: the request itself is the statement.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html
_STATEMENT_MEMBERS = {
    "BatchExecuteStatement": "Statements",
    "ExecuteStatement": None,
    "ExecuteTransaction": "TransactStatements",
}
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Tagging.Operations.html
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/rbac-create-table.html
_CREATION_ACTIONS = {"Tags": "dynamodb:TagResource", "ResourcePolicy": "dynamodb:PutResourcePolicy"}
_RESTORE_ACTIONS = ("BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem")
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataImport.Requesting.html
_LOG_ACTIONS = (
    "logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogGroups", "logs:DescribeLogStreams",
    "logs:PutLogEvents", "logs:PutRetentionPolicy",
)  # fmt: skip
_ARN_MEMBERS = ("StreamArn", "ExportArn", "ImportArn", "BackupArn", "BulkOperationArn", "TableArn", "ResourceArn")


@dataclass(frozen=True)
class Permission:
    """A permission that a request needs.

    Attributes
    ----------
    action, resource
        As in policies.
    context
        The condition keys of the request.
    """

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)


class PolicyProxy:
    """Proxy that forwards the requests that a policy allows to endpoints, while the context is open.

    Parameters
    ----------
    upstreams
        The endpoint of each service, by the service name in the signature of requests: ``dynamodb``, ``s3``,
        ``kinesis``,
        ``glue``, ``monitoring``, ``sts``.
    policy
        The policy of the caller, in IAM's format. None allows everything.
    account
        The account of all resources.
    bucket_key, table_key
        KMS keys that encrypt the objects of the buckets and the items of the tables, or None.
    vpc_endpoint
        The VPC endpoint that requests come from.

    Attributes
    ----------
    endpoint_url
        The address of all services.
    asked
        The permissions that requests needed, in order.
    denied
        The permissions that were refused.
    """

    def __init__(
        self,
        upstreams: Mapping[str, str],
        policy: Mapping[str, Any] | None = None,
        *,
        account: str = "000000000000",
        bucket_key: str | None = None,
        table_key: str | None = None,
        vpc_endpoint: str | None = None,
    ) -> None:
        self.policy = policy
        self.asked: list[Permission] = []
        self.denied: list[Permission] = []
        self.account, self.bucket_key, self.table_key, self.vpc_endpoint = account, bucket_key, table_key, vpc_endpoint
        self._upstreams = {service: Upstream(url) for service, url in upstreams.items()}
        # KMS keys of uploads, from S3's replies.
        self._upload_keys: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start to listen on the loopback interface."""
        self._server = Server(self._answer)
        self.endpoint_url = f"http://{LOOPBACK}:{self._server.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._server.stop()
        for upstream in self._upstreams.values():
            upstream.close()

    def allows(self, permission: Permission) -> bool:
        """Return whether the policy allows a permission."""
        if self.policy is None:
            return True
        context = {"aws:ResourceAccount": self.account, **permission.context}
        if self.vpc_endpoint and not permission.context.get("aws:ViaAWSService"):
            context["aws:SourceVpce"] = self.vpc_endpoint
        effects = {
            statement["Effect"] for statement in self.policy["Statement"] if _applies(statement, permission, context)
        }
        return effects == {"Allow"}

    def _answer(self, request: HttpRequest) -> HttpReply:
        scope = _SCOPE.search(request.headers.get("authorization", ""))
        region, service = scope.groups() if scope else ("us-east-1", "s3")
        if service == "s3":
            return self._answer_s3(request, region)
        needed = list(self._json_permissions(service, region, request))
        refused = self._refused(needed)
        if refused is not None:
            return _denial(service, refused)
        upstream = self._upstreams[service]
        is_stream = request.headers.get("x-amz-target", "").endswith(".SubscribeToShard")
        plain = replace(request, body=inflated(request.body, request.headers.get("content-encoding")))
        return upstream.stream(request) if is_stream else upstream.send(plain)

    def _refused(self, needed: Iterable[Permission]) -> Permission | None:
        """Record permissions, and return the first that is not allowed."""
        for permission in needed:
            self.asked.append(permission)
            if not self.allows(permission):
                self.denied.append(permission)
                return permission
        return None

    def _answer_s3(self, request: HttpRequest, region: str) -> HttpReply:
        parts = urlsplit(request.target)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if request.method == "POST" and "delete" in query:
            refused = [
                permission
                for name in re.findall(r"<Key>(.*?)</Key>", request.body.decode(), re.DOTALL)
                if (permission := self._refused([Permission("s3:DeleteObject", f"arn:aws:s3:::{bucket}/{name}")]))
            ]
            return _deletions(bucket, refused) if refused else self._upstreams["s3"].send(request)
        denied = self._refused(self._s3_permissions(request, bucket, key, query, region))
        if denied is not None:
            return _denial("s3", denied, has_body=request.method != "HEAD")
        reply = self._upstreams["s3"].send(request)
        if reply.status == _NOT_FOUND and key and request.method in {"GET", "HEAD"}:
            # https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html: 404 needs the permission to list.
            denied = self._refused([Permission("s3:ListBucket", f"arn:aws:s3:::{bucket}")])
            return reply if denied is None else _denial("s3", denied, has_body=request.method != "HEAD")
        headers = {name.lower(): value for name, value in reply.headers.items()}
        kms = headers.get("x-amz-server-side-encryption-aws-kms-key-id") or self.bucket_key
        if "uploads" in query and request.method == "POST" and kms:
            upload = re.search(rb"<UploadId>(.*?)</UploadId>", b"".join(bytes(chunk) for chunk in reply.body))
            if upload is not None:
                self._upload_keys[upload[1].decode()] = kms
        if request.method == "GET" and key and kms and reply.status < _BAD_REQUEST:
            denied = self._refused([self._kms("kms:Decrypt", kms, region)])
            return reply if denied is None else _denial("s3", denied)
        return reply

    def _s3_permissions(
        self, request: HttpRequest, bucket: str, key: str, query: Mapping[str, str], region: str
    ) -> Iterator[Permission]:
        """Yield the permissions of a request to S3 that are known before its reply."""
        bucket_arn, object_arn = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
        if not key:
            if actions := [action for name, action in _ACTIONS_OF_BUCKETS.items() if name in query]:
                yield Permission(actions[0], bucket_arn)
            else:
                prefix = {"s3:prefix": query["prefix"]} if "prefix" in query else {}
                yield Permission("s3:ListBucket", bucket_arn, prefix)
            return
        if request.method in {"GET", "HEAD"}:
            yield Permission("s3:GetObject", object_arn)
        elif request.method == "DELETE":
            yield Permission("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", object_arn)
        else:
            yield from self._write_permissions(request, object_arn, query, region)

    def _write_permissions(
        self, request: HttpRequest, object_arn: str, query: Mapping[str, str], region: str
    ) -> Iterator[Permission]:
        """Yield the permissions of a request that writes an object or a part."""
        yield Permission("s3:PutObject", object_arn)
        for header, action in _ACTIONS_OF_HEADERS.items():
            if header in request.headers:
                yield Permission(action, object_arn)
        if source := request.headers.get("x-amz-copy-source"):
            yield Permission("s3:GetObject", f"arn:aws:s3:::{unquote(source).lstrip('/')}")
        if "uploadId" in query:
            # S3 reads the parts again to join them.
            # https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
            if (kms_key := self._upload_keys.get(query["uploadId"])) is not None:
                yield self._kms("kms:Decrypt", kms_key, region)
            return
        own = request.headers.get("x-amz-server-side-encryption-aws-kms-key-id")
        says = request.headers.get("x-amz-server-side-encryption")
        used = own or (self.bucket_key if says is None else None)
        if used is not None and says in {None, *_KMS}:
            yield self._kms("kms:GenerateDataKey", used, region)

    def _kms(self, action: str, key: str, region: str, via: str = "s3") -> Permission:
        arn = key if key.startswith("arn:") else f"arn:aws:kms:{region}:{self.account}:key/{key}"
        context = {"kms:ViaService": f"{via}.{region}.amazonaws.com", "aws:ViaAWSService": "true"}
        return Permission(action, arn, context)

    def _json_permissions(self, service: str, region: str, request: HttpRequest) -> Iterator[Permission]:
        target, operation = request.headers.get("x-amz-target", ""), ""
        body = inflated(request.body, request.headers.get("content-encoding"))
        members: dict[str, Any] = {}
        if target:
            operation, members = target.rpartition(".")[2], json.loads(body or b"{}")
        elif "/operation/" in request.target:
            operation = request.target.rpartition("/")[2]
        else:
            members = dict(parse_qsl(body.decode()))
            operation = members.get("Action", "")
        arn_prefix = f"arn:aws:{service}:{region}:{self.account}"
        match service:
            case "dynamodb":
                permissions = (
                    self._partiql_permissions if operation in _STATEMENT_MEMBERS else self._dynamodb_permissions
                )
                needed = list(permissions(operation, members, arn_prefix, region))
                # A request without a known resource needs its own permission for everything.
                yield from needed or [Permission(f"dynamodb:{operation}", "*")]
            case "kinesis":
                arn = members.get("ConsumerARN") or members.get("StreamARN")
                if arn is None and "ShardIterator" in members:
                    arn = f"{arn_prefix}:stream/{json.loads(base64.b64decode(members['ShardIterator']))[0]}"
                yield Permission(f"kinesis:{operation}", str(arn or f"{arn_prefix}:stream/{members['StreamName']}"))
            case "glue":
                database = (
                    members.get("DatabaseName") or members.get("DatabaseInput", {}).get("Name") or members.get("Name")
                )
                table = members.get("TableName") or members.get("TableInput", {}).get("Name")
                if operation == "GetTable":
                    table = members["Name"]
                yield Permission(f"glue:{operation}", f"{arn_prefix}:catalog")
                yield Permission(f"glue:{operation}", f"{arn_prefix}:database/{database}")
                if table:
                    yield Permission(f"glue:{operation}", f"{arn_prefix}:table/{database}/{table}")
            case "sts":
                yield Permission(f"sts:{operation}", members.get("RoleArn", "*"))
            case _:
                prefix = {"monitoring": "cloudwatch"}.get(service, service)
                yield Permission(f"{prefix}:{operation}", "*")

    def _dynamodb_permissions(
        self, operation: str, members: Mapping[str, Any], arn_prefix: str, region: str
    ) -> Iterator[Permission]:
        def arn_of(name: str) -> str:
            return name if name.startswith("arn:") else f"{arn_prefix}:table/{name}"

        action = f"dynamodb:{operation}"
        if operation in _WITHOUT_RESOURCE:
            yield Permission(action, "*")
            return
        named = [members[name] for name in ("TableName", "SourceTableName", "SourceTableArn") if members.get(name)]
        named += list(members.get("RequestItems", {}))
        for write in members.get("TransactItems", ()):
            ((kind, action_members),) = write.items()
            kind = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "Get": "GetItem"}.get(
                kind, "ConditionCheckItem"
            )
            yield Permission(f"dynamodb:{kind}", arn_of(action_members["TableName"]))
        for name in dict.fromkeys(named):
            index = members.get("IndexName")
            yield Permission(action, f"{arn_of(name)}/index/{index}" if index else arn_of(name))
            if self.table_key and operation in _ITEM_OPERATIONS:
                yield self._kms("kms:Decrypt", self.table_key, region, "dynamodb")
        for name in _ARN_MEMBERS:
            if members.get(name):
                yield Permission(action, members[name])
        if operation == "GetRecords":
            # An iterator starts with the ARN of its stream, as in the service.
            yield Permission(action, members["ShardIterator"].partition("|")[0])
        if operation == "ListStreams":
            yield Permission(action, "*")
        yield from _creation_permissions(operation, members, arn_of)
        yield from self._service_permissions(operation, members, arn_of, region)

    def _partiql_permissions(
        self, operation: str, members: Mapping[str, Any], arn_prefix: str, region: str
    ) -> Iterator[Permission]:
        """Yield the permissions of statements, which do not follow from the operation's name."""
        for statement in _statements(operation, members):
            index = "" if statement.index is None else f"/index/{statement.index}"
            table = statement.table if statement.table.startswith("arn:") else f"{arn_prefix}:table/{statement.table}"
            yield Permission(f"dynamodb:PartiQL{statement.kind.capitalize()}", table + index)
            if self.table_key:
                yield self._kms("kms:Decrypt", self.table_key, region, "dynamodb")

    def _service_permissions(
        self, operation: str, members: Mapping[str, Any], arn_of: Any, region: str
    ) -> Iterator[Permission]:
        """Yield the permissions of DynamoDB's own calls in the caller's name, and of the resources it creates."""
        via = {"aws:ViaAWSService": "true"}
        if operation == "ExportTableToPointInTime":
            if self.table_key:
                yield self._kms("kms:Decrypt", self.table_key, region, "dynamodb")
            below = f"arn:aws:s3:::{members['S3Bucket']}/{members.get('S3Prefix', '')}".rstrip("/") + "/*"
            yield from (Permission(action, below, via) for action in _EXPORT_ACTIONS)
            key = members.get("S3SseKmsKeyId") or self.bucket_key
            if key and members.get("S3SseAlgorithm") != "AES256":
                yield from (self._kms(action, key, region) for action in ("kms:GenerateDataKey", "kms:Decrypt"))
        source = members.get("S3BucketSource") or members.get("InputS3Configuration")
        if source is not None:
            bucket = f"arn:aws:s3:::{source['S3Bucket']}"
            yield Permission("s3:ListBucket", bucket, {"s3:prefix": source.get("S3KeyPrefix", ""), **via})
            yield Permission("s3:GetObject", f"{bucket}/{source.get('S3KeyPrefix', '')}*", via)
            if self.bucket_key:
                yield self._kms("kms:Decrypt", self.bucket_key, region)
        if reports := members.get("OutputS3Configuration"):
            yield Permission(
                "s3:PutObject", f"arn:aws:s3:::{reports['S3Bucket']}/{reports.get('S3KeyPrefix', '')}/*", via
            )
            key = reports.get("S3SseKmsKeyId") or self.bucket_key
            if key:
                yield self._kms("kms:GenerateDataKey", key, region)
        yield from self._table_permissions(operation, members, arn_of, region)

    def _table_permissions(
        self, operation: str, members: Mapping[str, Any], arn_of: Any, region: str
    ) -> Iterator[Permission]:
        """Yield the permissions to create a table."""
        via = {"aws:ViaAWSService": "true"}
        if operation == "ImportTable":
            yield Permission("dynamodb:ImportTable", arn_of(members["TableCreationParameters"]["TableName"]))
            for action in _LOG_ACTIONS:
                yield Permission(action, f"arn:aws:logs:{region}:{self.account}:log-group:/aws-dynamodb/imports:*", via)
        if operation.startswith("RestoreTable"):
            target = arn_of(members["TargetTableName"])
            yield Permission(f"dynamodb:{operation}", target)
            yield from (Permission(f"dynamodb:{action}", target, via) for action in _RESTORE_ACTIONS)
        encrypted = members.get("SSESpecification", {}).get("KMSMasterKeyId") or (
            self.table_key if operation.startswith("RestoreTable") else None
        )
        if encrypted:
            yield from (
                self._kms(action, encrypted, region, "dynamodb") for action in ("kms:DescribeKey", "kms:CreateGrant")
            )


def _statements(operation: str, members: Mapping[str, Any]) -> list[Statement]:
    """Return the PartiQL statements of a request. The list is empty if one of them does not parse."""
    member = _STATEMENT_MEMBERS[operation]
    try:
        listed = [members] if member is None else members[member]
        return [parse_statement(part["Statement"], part.get("Parameters") or []) for part in listed]
    except (Refusal, RecursionError, TypeError, AttributeError, KeyError):
        return []


def _applies(statement: Mapping[str, Any], permission: Permission, context: Mapping[str, str]) -> bool:
    return (
        any(_matches(pattern, permission.action) for pattern in _as_list(statement["Action"]))
        and any(_covers(pattern, permission.resource) for pattern in _as_list(statement["Resource"]))
        and all(
            _holds(operator, context.get(name), _as_list(values))
            for operator, tests in statement.get("Condition", {}).items()
            for name, values in tests.items()
        )
    )


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _matches(pattern: str, text: str) -> bool:
    expression = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _covers(pattern: str, resource: str) -> bool:
    """Return whether a pattern covers a resource. The resource may itself be a prefix with ``*``."""
    return pattern == resource or _matches(pattern, resource)


def _holds(operator: str, value: str | None, wanted: list[str]) -> bool:
    name = operator.removesuffix("IfExists")
    if value is None:
        return name != operator
    same = {"StringEquals": lambda pattern: pattern == value, "StringLike": lambda pattern: _matches(pattern, value)}[
        name
    ]
    return any(map(same, wanted))


def _denial_message(refused: Permission) -> str:
    return (
        f"User: arn:aws:iam::000000000000:user/test is not authorized to perform: {refused.action} on resource: "
        f"{refused.resource} because no identity-based policy allows the {refused.action} action"
    )


def _denial(service: str, refused: Permission, *, has_body: bool = True) -> HttpReply:
    if service in {"s3", "sts"}:
        inner = f"<Code>AccessDenied</Code><Message>{_denial_message(refused)}</Message>"
        body = (
            f"<Error>{inner}</Error>" if service == "s3" else f"<ErrorResponse><Error>{inner}</Error></ErrorResponse>"
        )
        return HttpReply(_FORBIDDEN, [body.encode()] if has_body else [], _XML)
    body = json.dumps(
        {"__type": "AccessDeniedException", "Message": _denial_message(refused), "message": _denial_message(refused)}
    )
    return HttpReply(_BAD_REQUEST, [body.encode()], _JSON)


def _deletions(bucket: str, refused: list[Permission]) -> HttpReply:
    arn_prefix = f"arn:aws:s3:::{bucket}/"
    errors = "".join(
        f"<Error><Key>{permission.resource.removeprefix(arn_prefix)}</Key><Code>AccessDenied</Code><Message>{_denial_message(permission)}</Message></Error>"
        for permission in refused
    )
    return HttpReply(_OK, [f"<DeleteResult>{errors}</DeleteResult>".encode()], _XML)


def _creation_permissions(operation: str, members: Mapping[str, Any], arn_of: Any) -> Iterator[Permission]:
    """Yield the permissions of the settings that a new table has from its creation."""
    for member, action in _CREATION_ACTIONS.items():
        if operation == "CreateTable" and members.get(member):
            yield Permission(action, arn_of(members["TableName"]))
