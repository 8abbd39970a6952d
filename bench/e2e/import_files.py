"""Write files for an import, compared with only encoding and compressing the same rows; goal: ≥ 0.6 × that."""

from __future__ import annotations

import functools
import tempfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import ddbio
from bench import data, decoders, pairs
from bench.e2e import record
from ddbio.formats.text_writers import compress
from ddbio.items.decode import Decoder
from ddbio.items.encode import Encoder

if TYPE_CHECKING:
    from ddbio.load.import_files import ImportFilesReport

DDBIO, STEPS = "ddbio", "encode + compress"
COMPRESSIONS = ("zstd", "gzip")
_KEY = {"pk": "S", "sk": "S"}
_PREFIX, _SUFFIX = b'{"Item":', b"}"


def main() -> None:
    """Append a row with both compressions."""
    arguments = record.parser("import_files")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--items", type=int, default=150_000)
    asked = arguments.parse_args()
    rows = rows_of(data.scaled(asked.items))
    record.append(
        "import_files", asked, {compression: measure(rows, compression, asked.rounds) for compression in COMPRESSIONS}
    )


def measure(rows: pa.Table, compression: Any, rounds: int) -> dict[str, Any]:
    """Return the speed, and the share of its steps alone, in CPU seconds of this process."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            DDBIO: functools.partial(write, rows, folder, compression),
            STEPS: functools.partial(encode_and_compress, rows, compression),
        }
        report = write(rows, folder, compression)
        if report.items != rows.num_rows:
            raise AssertionError(f"{report.items} of {rows.num_rows} rows written")
        encode_and_compress(rows, compression)
        seconds = pairs.interleave(ways, rounds)
    return {
        "items": report.items,
        "json_bytes": report.json_bytes,
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, report.json_bytes), 1),
        "times_as_fast_as": {STEPS: round(pairs.speed_ratio(seconds, DDBIO, STEPS), 3)},
    }


def rows_of(count: int) -> pa.Table:
    """Return ``count`` items as typed columns, a few megabytes per batch."""
    lines = data.lines("export", count)
    decoder = Decoder(decoders.schema_of("export"))
    step = 16_384
    batches = [decoder.decode(b"\n".join(lines[at : at + step]), "items") for at in range(0, count, step)]
    return pa.Table.from_batches(batches)


def write(rows: pa.Table, folder: str, compression: Any) -> ImportFilesReport:
    """Write files like the verb."""
    return ddbio.write_import_files(rows, folder, key="pk:S,sk:S", compression=compression, mode="overwrite")


def encode_and_compress(rows: pa.Table, compression: Any) -> int:
    """Encode and compress the same rows, batch by batch, and write nothing."""
    encoder = Encoder(rows.schema, keys=_KEY)
    return sum(
        len(compress(pa.py_buffer(encoder.encode_lines(batch, prefix=_PREFIX, suffix=_SUFFIX)), compression))
        for batch in rows.to_batches()
    )


if __name__ == "__main__":
    main()
