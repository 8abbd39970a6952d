"""AWS Lambda handlers. Set one as a function's handler, such as ``ddbio.lambda_handlers.firehose_transform``.

They are configured by environment variables, and import their dependencies at the first call.
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

# Logs by stream, reused for the next event.
_LOGS: dict[tuple[str, str, str], Any] = {}


def firehose_transform(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Transform change records for Firehose: one line of plain JSON per change, with partition keys by its hour in UTC.

    A record that is not a change is ``ProcessingFailed``, so that Firehose writes it under the error prefix. With
    ``DDBIO_TABLE``, changes of other tables are ``Dropped``; without it, each line contains its table in ``_table``.
    """
    del context
    answer = transform_event(event, os.environ.get(TABLE))
    foreign = sum(record["result"] == "Dropped" for record in answer["records"])
    if foreign:
        _LOG.warning("%d changes of other tables than %s were dropped", foreign, os.environ[TABLE])
    return answer


def log_changes(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Write the records of a table's stream into the log in the folder ``DDBIO_LOG``, each record once.

    ``DDBIO_LOG_OPTIONS`` contains options such as ``table``, ``old_image``, ``schema`` and ``reject_to`` as a JSON
    object. A log belongs to one table: with ``table``, records of other tables are skipped; without it, they are
    refused. Enable ``ReportBatchItemFailures``: if a record of a batch is not a change, the records before it are
    written, and Lambda sends the others again.

    Raises
    ------
    OptionError
        If the folder or the options are missing or invalid, or the log contains changes of another table.
    DdbioError
        If the log cannot be written. Lambda then sends the batch again, completely or divided.
    """
    from ddbio.cdc.options import StreamEventOptions  # noqa: PLC0415 - see below
    from ddbio.cdc.stream_events import StreamEventLog  # noqa: PLC0415 - a transformation starts without it
    from ddbio.options import parse_options  # noqa: PLC0415 - the same

    del context
    dest, text = os.environ.get(LOG), os.environ.get(LOG_OPTIONS, "{}")
    options = json.loads(text)
    if not dest or not isinstance(options, dict):
        raise OptionError(f"set {LOG} to a folder, and {LOG_OPTIONS}, if at all, to options as JSON")
    records, failed = event.get("Records", []), list[dict[str, str]]()
    table = options.get("table")
    for arn in dict.fromkeys(record.get("eventSourceARN", "") for record in records):
        cache_key, own_records = (
            (dest, text, arn),
            [record for record in records if record.get("eventSourceARN", "") == arn],
        )
        own = table_of({"eventSourceARN": arn})
        if table is not None and own not in {None, table, table_of({"eventSourceARN": table})}:
            _LOG.warning("%d changes of table %s were skipped: the log belongs to %s", len(own_records), own, table)
            continue
        if cache_key not in _LOGS:
            _LOGS[cache_key] = StreamEventLog(parse_options(StreamEventOptions, {**options, "dest": dest}), arn)
        number = _LOGS[cache_key].write(own_records)
        failed += [] if number is None else [{"itemIdentifier": number}]
    return {"batchItemFailures": failed}


def load_objects(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Load each object that an S3 event reports as created into the table ``DDBIO_TABLE``.

    ``DDBIO_LOAD_OPTIONS`` contains options of a load as a JSON object. If they include ``state``, an s3:// prefix, a
    repeated event writes nothing twice: the load id contains bucket, key and version of the object.

    Raises
    ------
    OptionError
        If the table or the options are missing or invalid.
    DdbioError
        If a load fails. Lambda then sends the event again.
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
        # A key is not a glob, regardless of its characters.
        report = load_files(f"s3://{bucket}/{escape_glob(key)}", table, job_id=job_id, **options)
        reports.append({"bucket": bucket, "key": key, "written": report.written, "rejected": report.rejected})
    return {"loads": reports}


def _created(event: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return bucket, key and version of each created object, from an event of S3 or EventBridge."""
    if event.get("source") == "aws.s3":
        detail = event["detail"]
        object_details = detail["object"]
        # Keys of EventBridge are not encoded.
        return [(detail["bucket"]["name"], object_details["key"], _version(object_details, "version-id"))]
    created = [
        record for record in event.get("Records", []) if record.get("eventName", "").startswith("ObjectCreated:")
    ]
    return [
        (record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"]), _version(record["s3"]["object"]))
        for record in created
    ]


def _version(described: dict[str, Any], name: str = "versionId") -> str:
    return str(described.get(name) or described.get("eTag") or described.get("etag") or "")
