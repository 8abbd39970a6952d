"""IAM policy of a verb with its options, from the table of its calls."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.advice.iam_calls import TABLE
from ddbio.catalog.definition import parse_table_name
from ddbio.errors import OptionError
from ddbio.options import option_names
from ddbio.scan.conditions import key_query, parse_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddbio.advice.iam_calls import Row
    from ddbio.advice.options import IamOptions

VERSION = "2012-10-17"
"""The version of the policy language."""

_S3 = re.compile(r"s3[an]?://(arn:[^/]+(?:/[^/]+)?|[^/]+)/?(.*)", re.DOTALL)
_GLOB = re.compile(r"\[[^\]]*\]|\{[^}]*\}")
_ANY = "*"


@dataclass(frozen=True)
class PolicyRequest:
    """Input of a policy: a verb with its options, and the location of its resources.

    Attributes
    ----------
    verb
        Words of the command, such as ``export start``.
    options
        Options by name; flags that are not set are None or False.
    region, account, partition
        Location of the table; ``*`` if unknown.
    vpc_endpoints
        VPC endpoints that all requests use; any endpoint if empty.
    bucket_key, table_key
        KMS keys of the buckets' default encryption, and of the tables.
    """

    verb: str
    options: Mapping[str, Any]
    region: str = _ANY
    account: str = _ANY
    partition: str = "aws"
    vpc_endpoints: tuple[str, ...] = ()
    bucket_key: str | None = None
    table_key: str | None = None
    partition_key: str | None = None
    """The partition key of the table or index. It determines whether a condition is a Query or a Scan."""
    target: bool = field(default=False)
    """Whether this is the policy of the separate identity for the target."""

    def get(self, name: str) -> Any:
        """Return an option, or a value derived from several options."""
        if name in _DERIVED:
            return _DERIVED[name](self)
        return self.options.get(name)

    @property
    def has_other_target(self) -> bool:
        """Return whether the target has a different identity than the source."""
        return bool(self.options.get("target_role_arn") or self.options.get("target_profile"))

    def locations(self, name: str) -> list[tuple[str, str]]:
        """Return bucket and key of each S3 location in an option."""
        value = self.get(name)
        texts = (
            value
            if isinstance(value, tuple | list)
            else str(value or "").split(",")
            if name == "from_export"
            else [value]
        )
        matches = [_S3.fullmatch(str(text)) for text in texts if text]
        return [(match[1], match[2].rstrip("/")) for match in matches if match is not None]

    def table_arn(self, name: str) -> str | None:
        """Return the ARN of the table in an option; None if the option names no table."""
        value = str(self.get(name) or "")
        if value.startswith("arn:"):
            return None if "/backup/" in value else value
        if not value or _S3.fullmatch(value) or not re.fullmatch(r"[\w.-]{3,255}", value, re.ASCII):
            return None
        region = self.get("target_region") if name == "target" else None
        return f"arn:{self.partition}:dynamodb:{region or self.region}:{self.account}:table/{value}"


def policy_of(request: PolicyRequest) -> dict[str, Any]:
    """Return the least-privilege policy of a verb with its options.

    Raises
    ------
    OptionError
        If the verb does not exist.
    """
    return {
        "Version": VERSION,
        "Statement": _merge_statements(
            statement for row in rows_of(request) for statement in _statements(row, request)
        ),
    }


def rows_of(request: PolicyRequest) -> list[Row]:
    """Return the rows of the table that apply to a verb with its options.

    Raises
    ------
    OptionError
        If the verb does not exist.
    """
    verb = request.verb
    if verb.startswith("plan "):
        verb = verb.removeprefix("plan ")
        verb = _PLANNED.get(verb, verb)
        request = replace(request, options={**request.options, "dry_run": True})
    if verb == "bulk report" and str(request.get("place")).startswith("arn:"):
        raise OptionError("the ARN of a bulk put does not contain the location of its reports: give their s3:// prefix")
    if verb not in TABLE:
        raise OptionError(f"verb {request.verb!r} is none of {', '.join(sorted(TABLE))}")
    rows = [row for row in TABLE[verb] if _is_required(row.when, request)]
    if not request.has_other_target:
        return rows
    return [row for row in rows if row.on.endswith(":target") == request.target]


def assumed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy that allows assuming the roles of the options.

    Raises
    ------
    OptionError
        If the options name no role.
    """
    roles = [str(options[name]) for name in ("role_arn", "target_role_arn") if options.get(name)]
    if not roles:
        raise OptionError("principal=caller needs a role to assume: give role_arn or target_role_arn")
    return {
        "Version": VERSION,
        "Statement": _merge_statements([_Statement("AssumeTheRoles", ("sts:AssumeRole",), tuple(roles))]),
    }


_PLANNED = {
    "export": "export start", "import": "import start", "bulk": "bulk start", "backup": "backup create",
    "restore": "backup restore", "export-read": "export read", "export-fold": "export fold",
    "import-files": "import files",
}  # fmt: skip


def _is_required(when: str, request: PolicyRequest) -> bool:
    for term in when.split():
        name, mark, wanted = term.partition("=")
        value = request.get(name.strip("!"))
        held = str(value) in wanted.split("|") if mark else bool(value)
        if held == name.endswith("!") if mark else held == name.startswith("!"):
            return False
    return True


def _is_query(request: PolicyRequest) -> bool:
    """Return whether the service may execute the condition as a Query, which depends on the table's key."""
    if not request.options.get("where"):
        return False
    condition = parse_condition(str(request.options["where"]))
    names = [request.partition_key] if request.partition_key else condition.names()
    return any(key_query(condition, (name,)) is not None for name in names)


def _is_scan(request: PolicyRequest) -> bool:
    """Return whether items may be read by Scans: not by keys, nor by a condition that is certainly a Query."""
    return not request.options.get("keys") and not (request.partition_key and _is_query(request))


def _write_operation(request: PolicyRequest) -> str:
    """Return the operation that writes rows."""
    default = "create" if request.verb == "archive restore" else "upsert"
    mode, newer_by = request.options.get("mode") or default, request.options.get("newer_by")
    if mode == "update":
        return "update"
    if mode == "delete":
        return "delete" if newer_by else "batch"
    return "put" if newer_by or mode == "create" else "batch"


_DERIVED: dict[str, Any] = {
    "queries": _is_query,
    "scans": _is_scan,
    "writes": _write_operation,
    "registers": lambda request: (
        bool(request.options.get("fan_out")) and not str(request.options["fan_out"]).startswith("arn:")
    ),
    "from_backup": lambda request: "/backup/" in str(request.options.get("source")),
    "compares": lambda request: request.options.get("verify") or request.options.get("expect_digest"),
    "deletes": lambda request: (
        request.options.get("vacuum_older_than") or request.options.get("expire_snapshots_older_than")
    ),
    # Records of applied files are stored next to the objects, unless another location is request.
    "replayed": lambda request: (
        request.options.get("state") or (request.options.get("source") if request.options.get("table") else None)
    ),
    "staging": lambda request: (
        request.options.get("source") or next(iter((request.options.get("paths") or ())[:-1]), None)
    ),
    "dest": lambda request: (
        request.options.get("dest") or request.options.get("path") or (request.options.get("paths") or (None,))[-1]
    ),
}


class _Statement(NamedTuple):
    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


def _statements(row: Row, request: PolicyRequest) -> Iterator[_Statement]:
    """Yield the statements of a row, one per resource."""
    kind, _, name = row.on.partition(":")
    actions = tuple(row.actions.split())
    by_service = row.sid.startswith("ByDynamoDB") or actions[0].startswith("kms:")
    entry: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    if request.vpc_endpoints and not by_service:
        entry = (("StringEquals", "aws:SourceVpce", request.vpc_endpoints),)
    owner = request.options.get("s3_expected_bucket_owner")
    if kind in {"bucket", "uploads", "keys"} and owner:
        entry = (*entry, ("StringEquals", "aws:ResourceAccount", (str(owner),)))
    if kind == "bucket":
        for bucket, key in request.locations(name):
            # Without ListBucket, S3 reports a missing object as denied. Such a request has no prefix.
            patterns = _listed(key, is_folder=name not in _MAYBE_FILES)
            prefix = (("StringLikeIfExists", "s3:prefix", patterns),) if key else ()
            yield _Statement(row.sid, actions, (_bucket_arn(bucket, request),), (*entry, *prefix))
        return
    resources = tuple(dict.fromkeys(_RESOURCES[kind](request, name)))
    if resources:
        yield _Statement(row.sid, actions, resources, entry)


def _listed(key: str, *, is_folder: bool) -> tuple[str, ...]:
    """Return the prefixes for listing a location, which may be a folder, an object, or a glob."""
    literal = _GLOB.sub(_ANY, key)
    if any(character in literal for character in "*?"):
        return (f"{re.split(r'[*?]', literal)[0]}*",)
    return (f"{literal}/*",) if is_folder else (literal, f"{literal}/*", *_metadata_prefix(literal))


def _metadata_prefix(key: str) -> list[str]:
    """Return the prefix of the metadata folder that may describe an object: its folder may be the output of a job."""
    folder, _, name = key.rpartition("/")
    return [f"{folder}/_ddbio/*".lstrip("/")] if "." in name else []


def _bucket_arn(bucket: str, request: PolicyRequest) -> str:
    return bucket if bucket.startswith("arn:") else f"arn:{request.partition}:s3:::{bucket}"


def _keys(request: PolicyRequest, name: str) -> Iterator[str]:
    for bucket, key in request.locations(name):
        below = _bucket_arn(bucket, request) + ("/object" if bucket.startswith("arn:") else "")
        if not key:
            yield f"{below}/*"
            continue
        is_folder = name not in _MAYBE_FILES or str(request.get(name)).endswith("/")
        literal = _GLOB.sub(_ANY, key)
        if any(character in literal for character in "*?"):
            yield f"{below}/{literal}"
        else:
            kept = [f"{literal}/*"] if is_folder else [literal, f"{literal}/*", *_metadata_prefix(literal)]
            yield from (f"{below}/{key}" for key in kept)


_MAYBE_FILES = frozenset({"source", "staging", "target", "retry_rejects", "path"})


def _table(request: PolicyRequest, name: str) -> Iterator[str]:
    arn = request.table_arn(name)
    if arn is not None:
        yield arn


def _below_table(suffix: str) -> Any:
    return lambda request, name: [f"{arn}/{suffix}" for arn in _table(request, name)]


def _items_of(request: PolicyRequest, name: str) -> list[str]:
    index = request.options.get("index")
    return [f"{arn}/index/{index}" if index else arn for arn in _table(request, name)]


def _kms_arn(key: str, request: PolicyRequest) -> str:
    if key.startswith("arn:"):
        return key
    kind = "" if key.startswith("alias/") else "key/"
    return f"arn:{request.partition}:kms:{request.region}:{request.account}:{kind}{key}"


def _own_key(request: PolicyRequest, name: str) -> list[str]:
    """Return the encryption key of the objects that a verb writes."""
    if not request.locations(name):
        return []
    key = request.options.get("s3_sse_kms_key_id")
    if key and key != "aws/s3":
        return [_kms_arn(str(key), request)]
    says = request.options.get("s3_sse")
    return [_kms_arn(request.bucket_key, request)] if request.bucket_key and not key and not says else []


def _report_key(request: PolicyRequest, name: str) -> list[str]:
    """Return the key of objects that DynamoDB writes. Requests need not name it."""
    key = request.options.get("kms_key")
    return [_kms_arn(str(key), request)] if key and request.locations(name) else _own_key(request, name)


def _export_key(request: PolicyRequest, name: str) -> list[str]:
    """Return the key of an export's objects. Without a key the request asks for encryption with S3 managed keys."""
    return _report_key(replace(request, bucket_key=None), name)


def _glue(request: PolicyRequest, name: str) -> list[str]:
    text = str(request.options.get(name) or "")
    if not text.startswith("glue://"):
        return []
    prefix, table = f"arn:{request.partition}:glue:{request.region}:{request.account}", parse_table_name(text)
    return [
        f"{prefix}:catalog",
        f"{prefix}:database/{table.database}",
        f"{prefix}:table/{table.database}/{table.table}",
    ]


def _kinesis(request: PolicyRequest, name: str) -> list[str]:
    arn = request.options.get(name)
    if arn and str(arn).startswith("arn:"):
        return [str(arn)]
    return [f"arn:{request.partition}:kinesis:{request.region}:{request.account}:stream/{arn or _ANY}"]


def _consumer(request: PolicyRequest, name: str) -> list[str]:
    consumer = str(request.options.get(name) or "")
    if consumer.startswith("arn:"):
        return [consumer]
    return [f"{arn}/consumer/{consumer}:*" for arn in _kinesis(request, "stream")]


def _of_job(request: PolicyRequest, name: str) -> list[str]:
    """Return the ARN of a job or of its parent."""
    arn = str(request.options.get(name) or "")
    return [arn] if arn.startswith("arn:") else []


def _table_key(request: PolicyRequest, name: str) -> list[str]:
    has_table = name == "target" or request.table_arn(name) or request.get("from_backup")
    return [_kms_arn(request.table_key, request)] if request.table_key and has_table else []


_RESOURCES: dict[str, Any] = {
    "all": lambda *_: [_ANY],
    "allstreams": lambda request, _: [
        f"arn:{request.partition}:dynamodb:{request.region}:{request.account}:table/*/stream/*"
    ],
    "alltables": lambda request, _: [f"arn:{request.partition}:dynamodb:{request.region}:{request.account}:table/*"],
    "arn": _of_job,
    "backedup": lambda request, name: [arn.partition("/backup/")[0] for arn in _of_job(request, name)],
    "backups": _below_table("backup/*"),
    "consumer": _consumer,
    "exportkey": _export_key,
    "exports": _below_table("export/*"),
    "glue": _glue,
    "imported": lambda request, name: [arn.partition("/import/")[0] for arn in _of_job(request, name)],
    "importlogs": lambda request, _: [
        f"arn:{request.partition}:logs:{request.region}:{request.account}:log-group:/aws-dynamodb/imports:*"
    ],
    "items": _items_of,
    "keys": _keys,
    "kinesis": _kinesis,
    "newkey": lambda request, _: [
        _kms_arn(key, request)
        for key in [request.options.get("kms_key")]
        if key and key not in {"aws/dynamodb", "aws/owned"}
    ],
    "readkey": lambda request, name: (
        [_kms_arn(request.bucket_key, request)] if request.bucket_key and request.locations(name) else []
    ),
    "reportkey": _report_key,
    "stream": _below_table("stream/*"),
    "table": _table,
    "tablekey": _table_key,
    "uploads": lambda request, name: [_bucket_arn(bucket, request) for bucket, _ in request.locations(name)],
    "writekey": _own_key,
}


def _merge_statements(statements: Iterable[_Statement]) -> list[dict[str, Any]]:
    """Return the statements of a policy, without repeated permissions and with unique names."""
    allowed, groups = set[tuple[str, str, Any]](), dict[tuple[Any, ...], list[_Statement]]()
    for candidate in statements:
        actions = tuple(
            action
            for action in candidate.actions
            if any((action, resource, candidate.condition) not in allowed for resource in candidate.resources)
        )
        allowed |= {(action, resource, candidate.condition) for action in actions for resource in candidate.resources}
        if actions:
            groups.setdefault((candidate.resources, candidate.condition, candidate.sid), []).append(
                candidate._replace(actions=actions)
            )
    names, written = set[str](), list[dict[str, Any]]()
    for (resources, condition, sid), group in groups.items():
        number = next(n for n in range(1, len(names) + 2) if f"{sid}{n if n > 1 else ''}" not in names)
        name = f"{sid}{number if number > 1 else ''}"
        names.add(name)
        every = list(dict.fromkeys(action for part in group for action in part.actions))
        statement: dict[str, Any] = {"Sid": name, "Effect": "Allow", "Action": every, "Resource": list(resources)}
        if condition:
            statement["Condition"] = {}
            for operator, key, values in condition:
                statement["Condition"].setdefault(operator, {})[key] = list(values)
        written.append(statement)
    return written


# Arguments and flags that only the command line has.
_OF_COMMANDS = frozenset({
    "as_json", "base", "conf", "create_table", "csv", "days", "diff", "dry_run", "exit_code", "files", "form",
    "from_file", "history", "increments", "like", "master", "out", "paths", "policy", "rollback", "to", "to_version",
    "strict", "waits", "write_to",
})  # fmt: skip


def iam_policy(verb: str, arguments: Mapping[str, Any], options: IamOptions) -> dict[str, Any]:
    """Return the IAM policy that allows what a verb does with these arguments, and nothing else. Nothing is called.

    Parameters
    ----------
    verb
        Words of the command: ``scan``, ``export start``, ``plan copy``.
    arguments
        The verb's arguments and options by name, such as ``{"table": "orders", "dest": "s3://bucket/prefix"}``.

    Returns
    -------
    dict
        The policy as JSON.

    Raises
    ------
    OptionError
        If the verb or an option does not exist.
    """
    names = option_names() | _OF_COMMANDS
    if unknown := sorted(set(arguments) - names):
        raise OptionError(f"unknown option {unknown[0]!r} of {verb}")
    if options.principal == "caller":
        return assumed(arguments)
    return policy_of(policy_request(verb, arguments, options))


def policy_request(verb: str, arguments: Mapping[str, Any], options: IamOptions) -> PolicyRequest:
    """Return the input of a verb's policy. Region and account are those of its options and the environment."""
    role = str(arguments.get("target_role_arn" if options.principal == "target" else "role_arn") or "")
    match = re.fullmatch(r"arn:([^:]+):iam::(\d{12}):.*", role)
    region = arguments.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "*"
    return PolicyRequest(
        verb=verb,
        options=arguments,
        region=str(region),
        account=options.account or (match[2] if match else "*"),
        partition=match[1] if match else _partition(str(region)),
        vpc_endpoints=options.vpc_endpoint or (),
        bucket_key=options.bucket_kms_key,
        table_key=options.table_kms_key,
        partition_key=options.partition_key,
        target=options.principal == "target",
    )


def _partition(region: str) -> str:
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
