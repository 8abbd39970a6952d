"""The IAM policy of a verb with its options, made from the table of its calls."""

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
"""The version of the language of policies."""

_S3 = re.compile(r"s3[an]?://(arn:[^/]+(?:/[^/]+)?|[^/]+)/?(.*)", re.DOTALL)
_GLOB = re.compile(r"\[[^\]]*\]|\{[^}]*\}")
_ANY = "*"


@dataclass(frozen=True)
class Given:
    """What a policy is made for: a verb with its options, and where its resources are.

    Attributes
    ----------
    verb
        The words of its command, like ``export start``.
    options
        What is given to it, by name; flags that are not given are None or False.
    region, account, partition
        Of the table; ``*`` if they are not known.
    vpc_endpoints
        The endpoints by which all requests come; any if there are none.
    bucket_key, table_key
        KMS keys of buckets that encrypt by default, and of the tables.
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
    """The partition key of the table or index, which tells a Query from a Scan."""
    target: bool = field(default=False)
    """Whether the policy is that of the identity that works on the target, which has one of its own."""

    def get(self, name: str) -> Any:
        """Return an option, or what several of them say together."""
        if name in _DERIVED:
            return _DERIVED[name](self)
        return self.options.get(name)

    @property
    def has_other_target(self) -> bool:
        """Whether another identity works on the target than on the source."""
        return bool(self.options.get("target_role_arn") or self.options.get("target_profile"))

    def places(self, name: str) -> list[tuple[str, str]]:
        """Return bucket and key of each place on S3 that an option names."""
        value = self.get(name)
        texts = (
            value
            if isinstance(value, tuple | list)
            else str(value or "").split(",")
            if name == "from_export"
            else [value]
        )
        found = [_S3.fullmatch(str(each)) for each in texts if each]
        return [(match[1], match[2].rstrip("/")) for match in found if match is not None]

    def table_arn(self, name: str) -> str | None:
        """Return the ARN of the table that an option names; None if it names no table."""
        value = str(self.get(name) or "")
        if value.startswith("arn:"):
            return None if "/backup/" in value else value
        if not value or _S3.fullmatch(value) or not re.fullmatch(r"[\w.-]{3,255}", value, re.ASCII):
            return None
        region = self.get("target_region") if name == "target" else None
        return f"arn:{self.partition}:dynamodb:{region or self.region}:{self.account}:table/{value}"


def policy_of(given: Given) -> dict[str, Any]:
    """Return the policy that allows what a verb does with its options, and nothing else.

    Raises
    ------
    OptionError
        If there is no such verb.
    """
    return {
        "Version": VERSION,
        "Statement": _joined(each for row in rows_of(given) for each in _statements(row, given)),
    }


def rows_of(given: Given) -> list[Row]:
    """Return the rows of the table that a verb needs with its options.

    Raises
    ------
    OptionError
        If there is no such verb.
    """
    verb = given.verb
    if verb.startswith("plan "):
        verb = verb.removeprefix("plan ")
        verb = _PLANNED.get(verb, verb)
        given = replace(given, options={**given.options, "dry_run": True})
    if verb == "bulk report" and str(given.get("place")).startswith("arn:"):
        raise OptionError("the ARN of a bulk put does not say where its reports are: give their s3:// prefix")
    if verb not in TABLE:
        raise OptionError(f"verb {given.verb!r} is none of {', '.join(sorted(TABLE))}")
    found = [row for row in TABLE[verb] if _holds(row.when, given)]
    if not given.has_other_target:
        return found
    return [row for row in found if row.on.endswith(":target") == given.target]


def assumed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy of who assumes the roles that options name.

    Raises
    ------
    OptionError
        If they name none.
    """
    roles = [str(options[name]) for name in ("role_arn", "target_role_arn") if options.get(name)]
    if not roles:
        raise OptionError("principal=caller is who assumes a role: give role_arn or target_role_arn")
    return {"Version": VERSION, "Statement": _joined([_Statement("AssumeTheRoles", ("sts:AssumeRole",), tuple(roles))])}


_PLANNED = {
    "export": "export start", "import": "import start", "bulk": "bulk start", "backup": "backup create",
    "restore": "backup restore", "export-read": "export read", "export-fold": "export fold",
    "import-files": "import files",
}  # fmt: skip


def _holds(when: str, given: Given) -> bool:
    for term in when.split():
        name, mark, wanted = term.partition("=")
        value = given.get(name.strip("!"))
        held = str(value) in wanted.split("|") if mark else bool(value)
        if held == name.endswith("!") if mark else held == name.startswith("!"):
            return False
    return True


def _is_query(given: Given) -> bool:
    """Return whether a condition may be one that the service answers by a Query: that depends on the table's key."""
    if not given.options.get("where"):
        return False
    condition = parse_condition(str(given.options["where"]))
    names = [given.partition_key] if given.partition_key else condition.names()
    return any(key_query(condition, (name,)) is not None for name in names)


def _is_scan(given: Given) -> bool:
    """Return whether items may be read by Scans: always, but by keys and by Queries that are known to be such."""
    return not given.options.get("keys") and not (given.partition_key and _is_query(given))


def _written(given: Given) -> str:
    """Return which operation writes rows."""
    default = "create" if given.verb == "archive restore" else "upsert"
    mode, newer_by = given.options.get("mode") or default, given.options.get("newer_by")
    if mode == "update":
        return "update"
    if mode == "delete":
        return "delete" if newer_by else "batch"
    return "put" if newer_by or mode == "create" else "batch"


_DERIVED: dict[str, Any] = {
    "queries": _is_query,
    "scans": _is_scan,
    "writes": _written,
    "registers": lambda given: (
        bool(given.options.get("fan_out")) and not str(given.options["fan_out"]).startswith("arn:")
    ),
    "from_backup": lambda given: "/backup/" in str(given.options.get("source")),
    "compares": lambda given: given.options.get("verify") or given.options.get("expect_digest"),
    "deletes": lambda given: given.options.get("vacuum_older_than") or given.options.get("expire_snapshots_older_than"),
    # What is put into a table is noted beside the objects, unless another place is given.
    "replayed": lambda given: (
        given.options.get("state") or (given.options.get("source") if given.options.get("table") else None)
    ),
    "staging": lambda given: given.options.get("source") or next(iter((given.options.get("paths") or ())[:-1]), None),
    "dest": lambda given: (
        given.options.get("dest") or given.options.get("path") or (given.options.get("paths") or (None,))[-1]
    ),
}


class _Statement(NamedTuple):
    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


def _statements(row: Row, given: Given) -> Iterator[_Statement]:
    """Yield a statement of a row for each place that it is about."""
    kind, _, name = row.on.partition(":")
    actions = tuple(row.actions.split())
    by_service = row.sid.startswith("ByDynamoDB") or actions[0].startswith("kms:")
    entry: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    if given.vpc_endpoints and not by_service:
        entry = (("StringEquals", "aws:SourceVpce", given.vpc_endpoints),)
    owner = given.options.get("s3_expected_bucket_owner")
    if kind in {"bucket", "uploads", "keys"} and owner:
        entry = (*entry, ("StringEquals", "aws:ResourceAccount", (str(owner),)))
    if kind == "bucket":
        for bucket, key in given.places(name):
            # Who may not list is not told that an object is missing: such a request has no prefix.
            patterns = _listed(key, is_folder=name not in _MAYBE_FILES)
            prefix = (("StringLikeIfExists", "s3:prefix", patterns),) if key else ()
            yield _Statement(row.sid, actions, (_bucket_arn(bucket, given),), (*entry, *prefix))
        return
    resources = tuple(dict.fromkeys(_RESOURCES[kind](given, name)))
    if resources:
        yield _Statement(row.sid, actions, resources, entry)


def _listed(key: str, *, is_folder: bool) -> tuple[str, ...]:
    """Return the prefixes by which a place is listed, which may be a folder, one object, or a glob."""
    literal = _GLOB.sub(_ANY, key)
    if any(each in literal for each in "*?"):
        return (f"{re.split(r'[*?]', literal)[0]}*",)
    return (f"{literal}/*",) if is_folder else (literal, f"{literal}/*", *_notes_beside(literal))


def _notes_beside(key: str) -> list[str]:
    """Return where it is noted what an object holds, if a key is that of one: its folder may be the output of a job."""
    folder, _, name = key.rpartition("/")
    return [f"{folder}/_ddbio/*".lstrip("/")] if "." in name else []


def _bucket_arn(bucket: str, given: Given) -> str:
    return bucket if bucket.startswith("arn:") else f"arn:{given.partition}:s3:::{bucket}"


def _keys(given: Given, name: str) -> Iterator[str]:
    for bucket, key in given.places(name):
        below = _bucket_arn(bucket, given) + ("/object" if bucket.startswith("arn:") else "")
        if not key:
            yield f"{below}/*"
            continue
        is_folder = name not in _MAYBE_FILES or str(given.get(name)).endswith("/")
        literal = _GLOB.sub(_ANY, key)
        if any(each in literal for each in "*?"):
            yield f"{below}/{literal}"
        else:
            kept = [f"{literal}/*"] if is_folder else [literal, f"{literal}/*", *_notes_beside(literal)]
            yield from (f"{below}/{each}" for each in kept)


_MAYBE_FILES = frozenset({"source", "staging", "target", "retry_rejects", "path"})


def _table(given: Given, name: str) -> Iterator[str]:
    arn = given.table_arn(name)
    if arn is not None:
        yield arn


def _below_table(suffix: str) -> Any:
    return lambda given, name: [f"{arn}/{suffix}" for arn in _table(given, name)]


def _items_of(given: Given, name: str) -> list[str]:
    index = given.options.get("index")
    return [f"{arn}/index/{index}" if index else arn for arn in _table(given, name)]


def _kms_arn(key: str, given: Given) -> str:
    if key.startswith("arn:"):
        return key
    kind = "" if key.startswith("alias/") else "key/"
    return f"arn:{given.partition}:kms:{given.region}:{given.account}:{kind}{key}"


def _own_key(given: Given, name: str) -> list[str]:
    """Return the key by which the objects of a place are encrypted that a verb writes."""
    if not given.places(name):
        return []
    key = given.options.get("s3_sse_kms_key_id")
    if key and key != "aws/s3":
        return [_kms_arn(str(key), given)]
    says = given.options.get("s3_sse")
    return [_kms_arn(given.bucket_key, given)] if given.bucket_key and not key and not says else []


def _report_key(given: Given, name: str) -> list[str]:
    """Return the key of objects that DynamoDB writes, which the request need not name."""
    key = given.options.get("kms_key")
    return [_kms_arn(str(key), given)] if key and given.places(name) else _own_key(given, name)


def _export_key(given: Given, name: str) -> list[str]:
    """Return the key of an export's objects: without one the request says that S3's own keys encrypt them."""
    return _report_key(replace(given, bucket_key=None), name)


def _glue(given: Given, name: str) -> list[str]:
    text = str(given.options.get(name) or "")
    if not text.startswith("glue://"):
        return []
    place, found = f"arn:{given.partition}:glue:{given.region}:{given.account}", parse_table_name(text)
    return [f"{place}:catalog", f"{place}:database/{found.database}", f"{place}:table/{found.database}/{found.table}"]


def _kinesis(given: Given, name: str) -> list[str]:
    arn = given.options.get(name)
    if arn and str(arn).startswith("arn:"):
        return [str(arn)]
    return [f"arn:{given.partition}:kinesis:{given.region}:{given.account}:stream/{arn or _ANY}"]


def _consumer(given: Given, name: str) -> list[str]:
    consumer = str(given.options.get(name) or "")
    if consumer.startswith("arn:"):
        return [consumer]
    return [f"{arn}/consumer/{consumer}:*" for arn in _kinesis(given, "stream")]


def _of_job(given: Given, name: str) -> list[str]:
    """Return the ARN of a job, or of what it is a part of."""
    arn = str(given.options.get(name) or "")
    return [arn] if arn.startswith("arn:") else []


def _table_key(given: Given, name: str) -> list[str]:
    has_table = name == "target" or given.table_arn(name) or given.get("from_backup")
    return [_kms_arn(given.table_key, given)] if given.table_key and has_table else []


_RESOURCES: dict[str, Any] = {
    "all": lambda *_: [_ANY],
    "allstreams": lambda given, _: [f"arn:{given.partition}:dynamodb:{given.region}:{given.account}:table/*/stream/*"],
    "alltables": lambda given, _: [f"arn:{given.partition}:dynamodb:{given.region}:{given.account}:table/*"],
    "arn": _of_job,
    "backedup": lambda given, name: [each.partition("/backup/")[0] for each in _of_job(given, name)],
    "backups": _below_table("backup/*"),
    "consumer": _consumer,
    "exportkey": _export_key,
    "exports": _below_table("export/*"),
    "glue": _glue,
    "imported": lambda given, name: [each.partition("/import/")[0] for each in _of_job(given, name)],
    "importlogs": lambda given, _: [
        f"arn:{given.partition}:logs:{given.region}:{given.account}:log-group:/aws-dynamodb/imports:*"
    ],
    "items": _items_of,
    "keys": _keys,
    "kinesis": _kinesis,
    "newkey": lambda given, _: [
        _kms_arn(key, given)
        for key in [given.options.get("kms_key")]
        if key and key not in {"aws/dynamodb", "aws/owned"}
    ],
    "readkey": lambda given, name: (
        [_kms_arn(given.bucket_key, given)] if given.bucket_key and given.places(name) else []
    ),
    "reportkey": _report_key,
    "stream": _below_table("stream/*"),
    "table": _table,
    "tablekey": _table_key,
    "uploads": lambda given, name: [_bucket_arn(bucket, given) for bucket, _ in given.places(name)],
    "writekey": _own_key,
}


def _joined(statements: Iterable[_Statement]) -> list[dict[str, Any]]:
    """Return statements as policies have them: what one allows no other one repeats, and each has a name of its own."""
    allowed, found = set[tuple[str, str, Any]](), dict[tuple[Any, ...], list[_Statement]]()
    for each in statements:
        actions = tuple(
            action
            for action in each.actions
            if any((action, resource, each.condition) not in allowed for resource in each.resources)
        )
        allowed |= {(action, resource, each.condition) for action in actions for resource in each.resources}
        if actions:
            found.setdefault((each.resources, each.condition, each.sid), []).append(each._replace(actions=actions))
    names, written = set[str](), list[dict[str, Any]]()
    for (resources, condition, sid), group in found.items():
        number = next(n for n in range(1, len(names) + 2) if f"{sid}{n if n > 1 else ''}" not in names)
        name = f"{sid}{number if number > 1 else ''}"
        names.add(name)
        every = list(dict.fromkeys(action for each in group for action in each.actions))
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
        The words of its command: ``scan``, ``export start``, ``plan copy``.
    arguments
        The verb's arguments and options by name, such as ``{"table": "orders", "dest": "s3://bucket/prefix"}``.

    Returns
    -------
    dict
        The policy as IAM takes it, as JSON.

    Raises
    ------
    OptionError
        If there is no such verb or option.
    """
    known = option_names() | _OF_COMMANDS
    if unknown := sorted(set(arguments) - known):
        raise OptionError(f"unknown option {unknown[0]!r} of {verb}")
    if options.principal == "caller":
        return assumed(arguments)
    return policy_of(given_of(verb, arguments, options))


def given_of(verb: str, arguments: Mapping[str, Any], options: IamOptions) -> Given:
    """Return what the policy of a verb is made for; region and account are those of its options and the environment."""
    role = str(arguments.get("target_role_arn" if options.principal == "target" else "role_arn") or "")
    found = re.fullmatch(r"arn:([^:]+):iam::(\d{12}):.*", role)
    region = arguments.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "*"
    return Given(
        verb=verb,
        options=arguments,
        region=str(region),
        account=options.account or (found[2] if found else "*"),
        partition=found[1] if found else _partition(str(region)),
        vpc_endpoints=options.vpc_endpoint or (),
        bucket_key=options.bucket_kms_key,
        table_key=options.table_kms_key,
        partition_key=options.partition_key,
        target=options.principal == "target",
    )


def _partition(region: str) -> str:
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
