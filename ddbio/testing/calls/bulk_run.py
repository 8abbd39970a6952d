"""Put the items of objects into a table, each by its condition, and report those that were not put.

The members of a line beside ``Item`` are those of PutItem, and reports are objects of gzipped JSON Lines: what AWS says
of both leaves their names open, so that these are this stand-in's own.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from ddbio.core.ion.plain import ion_to_json_lines
from ddbio.testing.calls.imports import inflated_object
from ddbio.testing.calls.writes import planned_put
from ddbio.testing.expressions.condition import Guard, write_placeholders
from ddbio.testing.refusal import Refusal, invalid
from ddbio.testing.request import Request

if TYPE_CHECKING:
    from ddbio.core.attribute import Item
    from ddbio.testing.tables.delivery import Delivery
    from ddbio.testing.tables.table import Table

_MEMBERS = {"Item", "ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ERROR, _CONDITION = "ERROR", "CONDITION_CHECK_FAILURE"


class BulkRun:
    """Hold one bulk put's counts and what it reports."""

    def __init__(self, table: Table, delivery: Delivery, reports: dict[str, Any], name: str) -> None:
        self._table, self._delivery, self._reports, self._name = table, delivery, reports, name
        self._processed = self._failed = self._size_bytes = 0
        self._told: dict[str, list[dict[str, Any]]] = {_ERROR: [], _CONDITION: []}

    def end(self, source: dict[str, Any]) -> dict[str, Any]:
        """Put all, report, and return how the operation is then described."""
        for key in self._delivery.list(source["S3Bucket"], source.get("S3KeyPrefix", "")):
            body = self._delivery.get(source["S3Bucket"], key)
            self._size_bytes += len(body)
            text = inflated_object(body, source.get("InputCompressionType", "NONE"))
            for line in (ion_to_json_lines(text) if source["InputFormat"] == "ION" else text).split(b"\n"):
                if line.strip():
                    self._take(line)
        self._report()
        return {
            "BulkOperationStatus": "COMPLETED_WITH_ERRORS" if self._failed else "COMPLETED",
            "ProcessedItemCount": self._processed,
            "FailedItemCount": self._failed,
            "ProcessedInputBytes": self._size_bytes,
            "TotalInputBytes": self._size_bytes,
        }

    def _take(self, line: bytes) -> None:
        self._processed += 1
        told: dict[str, Any] = {}
        try:
            stated = json.loads(line)
            told = {"Item": stated["Item"]}
            existing = self._put(stated)
        except (ValueError, TypeError, KeyError, AttributeError, Refusal) as error:
            self._failed += 1
            told = told or {"Record": line.decode(errors="replace")}
            words = error.body.get("message") if isinstance(error, Refusal) else f"The line is no item: {error}"
            self._told[_ERROR].append({**told, "ErrorCode": "ValidationException", "ErrorMessage": words})
            return
        if existing is not None:
            # A condition that does not hold is no error of the operation.
            shown = {"ExistingItem": existing} if existing else {}
            self._told[_CONDITION].append({**told, **shown, "ErrorCode": "ConditionalCheckFailedException"})

    def _put(self, stated: dict[str, Any]) -> Item | None:
        """Put an item; return the one that is there instead, empty where none is, if the condition does not hold."""
        if not stated.keys() <= _MEMBERS:
            raise invalid(f"Unknown members: {sorted(stated.keys() - _MEMBERS)}")
        request = Request(stated)
        placeholders = write_placeholders(request)
        guard = Guard.asked(request, placeholders)
        placeholders.check_all_used()
        write = planned_put(self._table, stated["Item"])
        change = self._table.plan_write(write.key, write.new, write.size_bytes)
        if guard.refusal(change.old) is not None:
            return change.old or {}
        change.apply()
        return None

    def _report(self) -> None:
        prefix = self._reports.get("S3KeyPrefix", "").rstrip("/")
        for kind in self._reports["OutputType"]:
            if self._told[kind]:
                lines = "".join(json.dumps(each) + "\n" for each in self._told[kind])
                key = f"{prefix}/{self._name}/{kind}/0000.json.gz".lstrip("/")
                self._delivery.put(self._reports["S3Bucket"], key, gzip.compress(lines.encode()))
        counts = {kind: len(told) for kind, told in self._told.items()}
        key = f"{prefix}/{self._name}/manifest.json".lstrip("/")
        self._delivery.put(self._reports["S3Bucket"], key, json.dumps({"Records": counts}).encode())
