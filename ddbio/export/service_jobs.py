"""Jobs that the service runs itself: exports, imports, bulk puts, backups and restores.

For each kind of job, one object (:class:`ServiceJob`) contains its API calls, the mapping of a description to the
fields of its dataclass, and the functions that plan, request and check it. The public functions are made from it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddbio.aws.control_plane import call, describe_table, list_pages
from ddbio.errors import AccessDeniedError, DdbioError, NotFoundError, OptionError, ServiceError
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.waiting import Job, await_end
from ddbio.options.connection import OBJECT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddbio.export.options import WaitOptions
    from ddbio.jobs.estimate import EstimatedPlan, Figures
    from ddbio.options import ConnectionOptions

JobT = TypeVar("JobT", bound=Job)
EntryT = TypeVar("EntryT")
ResultT = TypeVar("ResultT")

COURSE = (
    "started_at=StartTime ended_at=EndTime client_token=ClientToken failure_code=FailureCode "
    "failure_message=FailureMessage "
)
"""The members of a description for start, end, token and failure of a job, and their fields."""
S3_KEY = "aws/s3"
"""S3's own KMS key; requests to the service use it when they name no key."""

# Values of fields of these types if the service omits a member; other fields are None.
_MISSING = {"bool": False, "int": 0, "str": ""}


@dataclass(frozen=True, kw_only=True)
class Descriptions(Generic[JobT, EntryT]):
    """Format of the service's descriptions and lists of jobs of a kind.

    Attributes
    ----------
    name
        The name in errors and in API calls: ``export`` has ``DescribeExport`` and ``ListExports``.
    job, entry
        The dataclasses of a job and of an entry of a list.
    description, entries
        The member of DescribeX's response that describes a job, and the member of ListXs' response with the entries.
    members
        ``field=Member`` or ``field=Outer.Member`` for each field that is a member of the description.
    computed
        The fields that are computed from the description.
    lists
        The first line of the docstring of the public function that lists jobs.
    table
        The member of ListXs' request that chooses a table; None if there is none.
    filters
        Other members of ListXs' request.
    tokens
        The member of ListXs' response with the token of the next page; and that of the request, if its name differs.
    parts
        Members of the description whose members are read like its own.
    """

    name: str
    job: type[JobT]
    entry: type[EntryT]
    description: str
    entries: str
    members: str
    computed: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    lists: str
    table: str | None = "TableArn"
    filters: Mapping[str, str] = field(default_factory=dict)
    tokens: Sequence[str] = ("NextToken",)
    parts: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """Return the noun in the names of its calls."""
        return self.name.title().replace(" ", "")

    def describe(self, arn: str, options: ConnectionOptions) -> JobT:
        """Return the description of a job.

        Parameters
        ----------
        arn
            As :func:`start` returned it.

        Raises
        ------
        DdbioError
            If the service refuses; the message describes the problem and its solution.
        """
        members = {f"{self.noun}Arn": arn}
        reply = call(dynamodb_spec(options), f"Describe{self.noun}", f"{self.name} {arn}", members)
        return self.parse(reply[self.description], self.job)

    def list_of(self, options: ConnectionOptions, table: str | None = None) -> list[EntryT]:
        """Return the jobs that the service lists, of one table or of all.

        Parameters
        ----------
        table
            Name or ARN.

        Raises
        ------
        DdbioError
            If the service refuses; the message describes the problem and its solution.
        """
        spec = dynamodb_spec(options)
        if table is not None and self.table == "TableArn" and not table.startswith("arn:"):
            table = describe_table(spec, table).arn
        members = {**self.filters, **({self.table: table} if self.table and table else {})}
        resource = f"{self.name}s of {table or 'all tables'}"
        replies = list_pages(spec, f"List{self.noun}s", resource, members, self.tokens)
        return [self.parse(entry, self.entry) for reply in replies for entry in reply.get(self.entries, [])]

    def parse(self, description: Mapping[str, Any], result: type[ResultT]) -> ResultT:
        """Return a description as a dataclass; fields that the service omits keep their defaults."""
        for part in self.parts:
            description = {**description, **description.get(part, {})}
        paths = dict(pair.split("=") for pair in self.members.split())
        types = {field.name: str(field.type) for field in dataclasses.fields(result)}  # type: ignore[arg-type]
        values = {name: _value(description, paths[name], kind) for name, kind in types.items() if name in paths}
        computed = {name: self.computed[name](description) for name in types.keys() & self.computed.keys()}
        return result(**values, **computed)

    def public_list(self) -> Callable[..., Any]:
        """Return the public function that lists jobs."""
        _, _, sections = _text(Descriptions.list_of).partition("\n")
        return _public(self.list_of, f"{self.lists}\n{sections}", f"list[{self.entry.__name__}]")


@dataclass(frozen=True, kw_only=True)
class ServiceJob(Descriptions[JobT, EntryT]):
    """Kind of job that is started, and runs in the service until it ends.

    Attributes
    ----------
    started_by
        The public function that starts a job.
    plan
        Returns the plan for options, after all checks.
    request
        Requests the job of options and their plan, and returns it; its docstring is that of ``start``.
    check
        Returns a finished job, or raises its error; its docstring is that of ``wait``.
    actual
        Returns the actual figures of a job; None if they are not known yet.
    log
        The name of its log.
    """

    started_by: str
    plan: Callable[[Any], EstimatedPlan]
    request: Callable[[Any, Any], JobT]
    check: Callable[[JobT, Any], JobT]
    actual: Callable[[JobT], Figures | None]
    log: str = "ddbio.import"

    def start(self, options: Any) -> JobT:
        """Request a job and return immediately."""
        plan = self.plan(options)
        log = logging.getLogger(self.log)
        log.info("%s of table %s: planned: %s", self.name, options.table, plan.figures)
        return dataclasses.replace(self.request(options, plan), planned=plan.figures)  # type: ignore[type-var]

    def wait(self, options: WaitOptions, watch: Callable[[JobT, float], None] | None = None) -> JobT:
        """Return a job once it has completed; see :func:`ddbio.jobs.waiting.await_end`."""
        return self.check(await_end(lambda: self.describe(options.arn, options), options, watch), options)

    def describe(self, arn: str, options: ConnectionOptions) -> JobT:
        """Return the state of a job and its actual figures."""
        job = super().describe(arn, options)
        return dataclasses.replace(job, actual=self.actual(job))  # type: ignore[type-var]

    def public_functions(self) -> tuple[Callable[..., Any], ...]:
        """Return ``start``, ``wait``, ``describe`` and ``list_of`` as functions, each with its own docstring."""
        job, word = self.job.__name__, self.started_by.removeprefix("start_").replace("_", " ")
        a_job = f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
        described = _text(Descriptions.describe).replace("a job", a_job).replace("`start`", f"`{self.started_by}`")
        return (
            _public(self.start, _text(self.request), job),
            _public(self.wait, _text(self.check), job),
            _public(self.describe, described, job),
            self.public_list(),
        )


def _text(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""


def _public(method: Callable[..., Any], text: str, result: str) -> Callable[..., Any]:
    """Return a method as a function with a separate docstring and return annotation."""

    @functools.wraps(method)
    def function(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    function.__doc__ = text
    signature = inspect.signature(method).replace(return_annotation=result)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _value(description: Mapping[str, Any], path: str, kind: str) -> Any:
    """Return a member for a field of this type; times are ISO 8601, and S3 locations are URIs."""
    outer, _, name = path.rpartition(".")
    value = (description.get(outer, {}) if outer else description).get(name)
    if value is None:
        return _MISSING.get(kind)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict) and "S3Bucket" in value:
        return f"s3://{value['S3Bucket']}/{value.get('S3KeyPrefix', '')}".rstrip("/")
    return bool(value) if kind == "bool" else value


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``.

    Raises
    ------
    OptionError
        If the text is not such a URI.
    """
    scheme, mark, path = uri.partition("://")
    bucket, _, prefix = path.partition("/")
    if scheme not in {"s3", "s3a"} or not mark or not bucket:
        raise OptionError(f"{uri!r} is not s3://bucket/prefix: the service itself can only access S3")
    return bucket, prefix.strip("/")


def service_key(options: ConnectionOptions, kms_key: str | None) -> str | None:
    """Return the KMS key of objects that DynamoDB writes; None if S3's own keys encrypt them.

    Parameters
    ----------
    kms_key
        The given key for these objects; by default it is the key of all objects.

    Raises
    ------
    OptionError
        If an option of objects is set that the service has no parameter for.
    """
    for name in OBJECT_OPTIONS:
        if getattr(options, name):
            raise OptionError(
                f"option {name!r}: DynamoDB writes these objects itself and has no parameter for it: omit it"
            )
    if options.s3_sse == "aws:kms:dsse":
        raise OptionError(
            "option 's3_sse': DynamoDB writes these objects itself, with AES256 or aws:kms: use one of them"
        )
    return kms_key or options.s3_sse_kms_key_id or (S3_KEY if options.s3_sse == "aws:kms" else None)


def kms_members(key: str | None) -> dict[str, str]:
    """Return the members of a request for the encryption of its objects."""
    if key is None:
        return {}
    return {"S3SseAlgorithm": "KMS"} | ({} if key == S3_KEY else {"S3SseKmsKeyId": key})


def failure_of(what: str, code: str | None, message: str | None, remaining: str = "") -> DdbioError:
    """Return the error of a failed job of the service.

    Parameters
    ----------
    what
        The job, for example ``export arn:…``.
    remaining
        Description of what the job left, if anything.
    """
    text = f"{what} failed: {code or 'no code'} ({(message or 'no text').rstrip('.')})"
    if code is not None and "NoSuch" in code:
        return NotFoundError(f"{text}; check the bucket's name and region")
    if code is not None and ("AccessDenied" in code or "KMS" in code.upper()):
        return AccessDeniedError(f"{text}; check the policies of the bucket and of its key", None, what)
    return ServiceError(f"{text}; {remaining}" if remaining else text, code)


def source_members(plan: Any) -> dict[str, Any]:
    """Return the members of a request for the objects that the service reads."""
    return with_values({"S3Bucket": plan.bucket, "S3KeyPrefix": plan.prefix, "S3BucketOwner": plan.bucket_owner})


def with_values(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a request that have a value."""
    return {name: value for name, value in members.items() if value}
