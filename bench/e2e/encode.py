"""Encode columns, compared with boto3, goal ≥ 30 ×, and with pyarrow.json decoding the same bytes, goal ≥ 3 ×."""

from __future__ import annotations

import functools
from typing import Any, get_args

from bench import data, decoders, encode, pairs
from bench.e2e import record
from ddbio.items.encode import Encoder


def main() -> None:
    """Append a row with every shape."""
    arguments = record.parser("encode")
    arguments.add_argument("--rounds", type=int, default=7)
    asked = arguments.parse_args()
    record.append("encode", asked, {shape: measure(shape, asked.rounds) for shape in get_args(data.Shape)})


def measure(shape: data.Shape, rounds: int) -> dict[str, Any]:
    """Return speeds, and the ratio of ddbio's speed to that of each other method."""
    encode.Encode.check(shape)
    batch = encode.batch_of(shape)
    encode_lines = functools.partial(Encoder(batch.schema).encode_lines, batch, prefix=b'{"Item":', suffix=b"}")
    body = encode_lines()
    ways: dict[str, Any] = {
        encode.DDBIO: encode_lines,
        encode.BOTO3: functools.partial(encode.encoders(shape)[encode.BOTO3], batch),
        decoders.PYARROW: functools.partial(decoders.decoders(shape, "export")[decoders.PYARROW], body),
    }
    seconds = pairs.interleave(ways, rounds)
    return {
        "wire_bytes": len(body),
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, len(body)), 1),
        "times_as_fast_as": record.rounded(
            {name: pairs.speed_ratio(seconds, encode.DDBIO, name) for name in ways if name != encode.DDBIO}
        ),
    }


if __name__ == "__main__":
    main()
