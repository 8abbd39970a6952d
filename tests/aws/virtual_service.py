"""Service in virtual time that stores writes, and misbehaves by a script."""

from __future__ import annotations

import json
import random

import numpy as np
from botocore.exceptions import ClientError, ConnectionClosedError

from ddbio.load.batches import Writes, packing_order, write_units
from ddbio.load.requests import PUT, batch_template

TEMPLATE = batch_template("rows", *PUT)


class Clock:
    """Clock that advances only by waits."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        """Return the virtual seconds."""
        return self.now


def error_of(code, status=400, **response):
    """Return the error that botocore raises for a code."""
    members = {"Error": {"Code": code, "Message": "told"}, "ResponseMetadata": {"HTTPStatusCode": status}, **response}
    return ClientError(members, "BatchWriteItem")


class Service:
    """Service that stores items, and misbehaves by a script: a function of this service and the sent writes."""

    endpoint_url = "http://virtual"

    def __init__(self, clock, misbehave=lambda service, writes: None):
        self.clock, self.misbehave = clock, misbehave
        self.items, self.history, self.calls = {}, [], 0

    def call(self, operation, table, body):
        """Answer a request after the checks of the service."""
        self.calls += 1
        self.clock.now += 0.005
        request = json.loads(body)
        assert (operation, table, len(body) <= 16 << 20) == ("BatchWriteItem", "rows", True)
        writes = request["RequestItems"]["rows"]
        keys = [write["PutRequest"]["Item"]["pk"]["S"] for write in writes]
        assert 1 <= len(writes) <= 25
        assert len(set(keys)) == len(keys)
        left = self.misbehave(self, writes) or []
        self.commit([write for write in writes if write not in left])
        consumed = [{"TableName": "rows", "CapacityUnits": float(len(writes) - len(left))}]
        return json.dumps({"UnprocessedItems": {"rows": left} if left else {}, "ConsumedCapacity": consumed}).encode()

    def commit(self, writes):
        """Store the items of writes."""
        for write in writes:
            item = write["PutRequest"]["Item"]
            self.items[item["pk"]["S"]] = int(item["n"]["N"])
            self.history.append((item["pk"]["S"], int(item["n"]["N"])))


def writes_of(keys, frame=TEMPLATE, numbers=None):
    """Return puts of rows with these keys. A row's number, from 0 by default, is in attribute n."""
    numbers = np.arange(len(keys)) if numbers is None else np.asarray(numbers, np.int64)
    named = zip(numbers, keys, strict=True)
    texts = [json.dumps({"pk": {"S": f"k{key}"}, "n": {"N": str(n)}}).encode() for n, key in named]
    hashes = np.asarray(keys, np.uint64)
    order = packing_order(hashes)
    sizes = np.asarray([len(text) for text in texts], np.int64)[order]
    return laid_out(numbers[order], hashes[order], write_units(sizes), [texts[row] for row in order], frame)


def laid_out(rows, hashes, units, parts, frame):
    """Return writes of these parts."""
    separator = frame.separator or b""
    texts = np.frombuffer(b"".join(part + separator for part in parts), np.uint8)
    starts = np.cumsum([0, *(len(part) + len(separator) for part in parts)])
    return Writes(rows, hashes, units, texts, starts, frame, {})


def storm(seed):
    """Return a random misbehaviour: the frequency of each fault, in episodes."""
    draw = random.Random(seed)
    odds = {fault: draw.choice([0, 0, 0.05, 0.3]) for fault in ("left", "throttle", "lost", "reset", "refused")}
    bad = {f"k{key}" for key in draw.sample(range(200), draw.choice([0, 0, 3]))}

    def misbehave(service, writes):
        if any(write["PutRequest"]["Item"]["pk"]["S"] in bad for write in writes):
            raise error_of("ValidationException")
        struck = next((fault for fault, odd in odds.items() if draw.random() < odd), None)
        if struck == "left":
            return draw.sample(writes, draw.randint(1, len(writes)))
        if struck == "throttle":
            raise error_of("ProvisionedThroughputExceededException")
        if struck == "refused":
            raise error_of("InternalServerError", 500)
        if struck in {"lost", "reset"}:
            service.commit(draw.sample(writes, draw.randint(0, len(writes))) if struck == "reset" else writes)
            if struck == "lost":
                raise error_of("InternalServerError", 500)
            raise ConnectionClosedError(endpoint_url="simulated")
        return []

    return misbehave, bad
