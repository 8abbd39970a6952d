"""Handlers of AWS Lambda: name one as a function's handler, such as ``ddbio.lambda_handlers.firehose_transform``.

They are set by environment variables, and import what they need when they are first called.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from typing import Any
from urllib.parse import unquote_plus

from ddbio.cdc.transform import transform_event
from ddbio.errors import OptionError
from ddbio.items.stream_records import table_of

_LOG = logging.getLogger("ddbio.changes")
TABLE, LOAD_OPTIONS = "DDBIO_TABLE", "DDBIO_LOAD_OPTIONS"
LOG, LOG_OPTIONS = "DDBIO_LOG", "DDBIO_LOG_OPTIONS"

# Of the log of each stream, for the next event.
_LOGS: dict[tuple[str, str, str], Any] = {}


def firehose_transform(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Transform change records for Firehose: one line of plain JSON a change, with partition keys by its hour in UTC.

    A record that is no change is ``ProcessingFailed``, so that Firehose puts it under the error prefix. With
    ``DDBIO_TABLE``, changes of other tables are ``Dropped``; without it, each line names its table in ``_table``.
    """
    del context
    answer = transform_event(event, os.environ.get(TABLE))
    foreign = sum(each["result"] == "Dropped" for each in answer["records"])
    if foreign:
        _LOG.warning("%d changes of other tables than %s were dropped", foreign, os.environ[TABLE])
    return answer


def log_changes(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Write the records of a table's stream into the log in the folder of ``DDBIO_LOG``, each once.

    ``DDBIO_LOG_OPTIONS`` holds ``table``, ``old_image``, ``schema``, ``reject_to`` and their like as a JSON object. A
    log is of one table: with ``table`` records of others are left out, without it they are refused. Turn on
    ``ReportBatchItemFailures``: of a batch with a record that is no change, what is before it is written, and Lambda
    sends the rest again.

    Raises
    ------
    OptionError
        If the folder or the options are missing or wrong, or the log has the changes of another table.
    DdbioError
        If the log cannot be written; Lambda then sends the batch again, whole or divided.
    """
    from ddbio.cdc.options import StreamEventOptions  # noqa: PLC0415 - the same
    from ddbio.cdc.stream_events import StreamEventLog  # noqa: PLC0415 - a transformation starts without it
    from ddbio.options import parse_options  # noqa: PLC0415 - the same

    del context
    dest, text = os.environ.get(LOG), os.environ.get(LOG_OPTIONS, "{}")
    options = json.loads(text)
    if not dest or not isinstance(options, dict):
        raise OptionError(f"set {LOG} to a folder, and {LOG_OPTIONS}, if at all, to options as JSON")
    records, failed = event.get("Records", []), list[dict[str, str]]()
    table = options.get("table")
    for arn in dict.fromkeys(each.get("eventSourceARN", "") for each in records):
        place, found = (dest, text, arn), [each for each in records if each.get("eventSourceARN", "") == arn]
        own = table_of({"eventSourceARN": arn})
        if table is not None and own not in {None, table, table_of({"eventSourceARN": table})}:
            _LOG.warning("%d changes of table %s were left out: the log is of %s", len(found), own, table)
            continue
        if place not in _LOGS:
            _LOGS[place] = StreamEventLog(parse_options(StreamEventOptions, {**options, "dest": dest}), arn)
        number = _LOGS[place].write(found)
        failed += [] if number is None else [{"itemIdentifier": number}]
    return {"batchItemFailures": failed}


def load_objects(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Load each object that an S3 event says was created into the table of ``DDBIO_TABLE``.

    ``DDBIO_LOAD_OPTIONS`` holds options of a load as a JSON object. With ``state`` among them, an s3:// prefix, an
    event that comes twice writes nothing twice: the load is named by bucket, key and version of the object.

    Raises
    ------
    OptionError
        If the table or the options are missing or wrong.
    DdbioError
        If a load fails; Lambda then sends the event again.
    """
    from ddbio import load_files  # noqa: PLC0415 - a transformation starts without it
    from ddbio.storage.paths import escape_glob  # noqa: PLC0415 - the same

    del context
    table, options = os.environ.get(TABLE), json.loads(os.environ.get(LOAD_OPTIONS, "{}"))
    if not table or not isinstance(options, dict):
        raise OptionError(f"set {TABLE} to a table, and {LOAD_OPTIONS}, if at all, to a load's options as JSON")
    reports = []
    for bucket, key, version in _created(event):
        job_id = "object_" + hashlib.sha256(f"{bucket}/{key} {version}".encode()).hexdigest()[:24]
        # A key is no glob, whatever signs it has.
        report = load_files(f"s3://{bucket}/{escape_glob(key)}", table, job_id=job_id, **options)
        reports.append({"bucket": bucket, "key": key, "written": report.written, "rejected": report.rejected})
    return {"loads": reports}


def _created(event: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return bucket, key and version of each created object, of S3's own event or of one through EventBridge."""
    if event.get("source") == "aws.s3":
        detail = event["detail"]
        found = detail["object"]
        # Keys of EventBridge are not encoded.
        return [(detail["bucket"]["name"], found["key"], _version(found, "version-id"))]
    created = [each for each in event.get("Records", []) if each.get("eventName", "").startswith("ObjectCreated:")]
    return [
        (each["s3"]["bucket"]["name"], unquote_plus(each["s3"]["object"]["key"]), _version(each["s3"]["object"]))
        for each in created
    ]


def _version(described: dict[str, Any], name: str = "versionId") -> str:
    return str(described.get(name) or described.get("eTag") or described.get("etag") or "")
