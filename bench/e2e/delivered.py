"""Read changes delivered by Firehose; the goal is the speed of a capture, ≥ 100,000 records per CPU second.

It is compared with the standard library and boto3, over an eighth of the changes: ``raw_decode`` of consecutive
records, Python objects, an Arrow table.
"""

from __future__ import annotations

import base64
import gzip
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from boto3.dynamodb.types import TypeDeserializer

import ddbio
from bench import orders
from bench.e2e import record

_FEWER, _OBJECT_RECORDS = 8, 10_000


def main() -> None:
    """Append a row with the median of the rounds."""
    arguments = record.parser("delivered")
    arguments.add_argument("--records", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    rates, peers = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        size_bytes = deliver(Path(folder), asked.records)
        # The first round compiles and imports.
        for number in range(asked.rounds + 1):
            began = time.process_time()
            rows = ddbio.read_changes(folder)
            passed = time.process_time() - began
            assert rows.num_rows == len(set(rows.column("_sequence").to_pylist())) == asked.records
            rates += [asked.records / passed] * bool(number)
            peers += [_read_plainly(Path(folder))] * bool(number)
    speed, peer = statistics.median(rates), statistics.median(peers)
    figures = {
        "records_per_cpu_second": round(speed),
        "times_as_many_as_boto3": round(speed / peer, 1),
        "stored_mb": round(size_bytes / 1e6, 1),
    }
    record.append("delivered", asked, figures)


def deliver(folder: Path, count: int) -> int:
    """Write objects of concatenated records, as Firehose does. Return their bytes."""
    size_bytes, keys = 0, [part.partition(":")[0] for part in orders.KEY.split(",")]
    lines = orders.lines("mixed", count)
    for first in range(0, count, _OBJECT_RECORDS):
        parts = list[str]()
        for offset, line in enumerate(lines[first : first + _OBJECT_RECORDS], first):
            document = json.loads(line)
            image = document.get("Item", document)
            inside = {"ApproximateCreationDateTime": 1793491203, "Keys": {name: image[name] for name in keys},
                      "NewImage": image, "SequenceNumber": str(10**21 + offset), "SizeBytes": len(line)}  # fmt: skip
            change = {"eventID": f"{offset:032x}", "eventName": "INSERT", "awsRegion": "eu-west-1", "dynamodb": inside}
            parts.append(json.dumps(change, separators=(",", ":")))
        data = gzip.compress("".join(parts).encode(), 6)
        (folder / f"orders-1-{first:09}.gz").write_bytes(data)
        size_bytes += len(data)
    return size_bytes


def _read_plainly(folder: Path) -> float:
    """Return records per CPU second with the standard library and boto3."""
    decode, decoder, count = TypeDeserializer().deserialize, json.JSONDecoder(object_hook=_with_bytes), 0
    began = time.process_time()
    for path in sorted(folder.iterdir())[:: max(1, _FEWER)]:
        text, offset, rows = gzip.decompress(path.read_bytes()).decode(), 0, []
        while offset < len(text):
            change, offset = decoder.raw_decode(text, offset)
            image = {name: repr(decode(value)) for name, value in change["dynamodb"]["NewImage"].items()}
            rows.append({"_op": change["eventName"], "_sequence": change["dynamodb"]["SequenceNumber"]} | image)
        count += pa.Table.from_pylist(rows).num_rows
    return count / (time.process_time() - began)


def _with_bytes(document: dict[str, Any]) -> dict[str, Any]:
    """Return an attribute value with its binary as bytes, which boto3 expects."""
    if document.keys() == {"B"} and isinstance(document["B"], str):
        return {"B": base64.b64decode(document["B"])}
    if document.keys() == {"BS"} and isinstance(document["BS"], list):
        return {"BS": [base64.b64decode(value) for value in document["BS"]]}
    return document


if __name__ == "__main__":
    main()
