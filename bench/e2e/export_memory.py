"""Peak resident memory of one task above its start, reading one large file of an export.

Goal: ≤ 256 MiB for a file of 1 GB gzipped. The file repeats one gzip member, which readers cannot detect.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from base64 import b64encode
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ddbio
from bench import data, decoders
from bench.e2e import processes, record
from ddbio.testing.export import ExportWriter, put_manifest

ITEMS = 100_000
COPIES = (1, 4)


def main() -> None:
    """Append a row: the same job on files of two sizes."""
    arguments = record.parser("export_memory")
    arguments.add_argument(
        "--copies", type=int, nargs="+", default=COPIES, help="sizes of the file, each 13 MB gzipped"
    )
    asked = arguments.parse_args()
    figures = []
    for copies in asked.copies:
        with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(1) as pool:
            home = grown(ExportWriter(Path(folder), files=1).full(data.items("orders", data.scaled(ITEMS))), copies)
            figures.append(pool.apply(measure, (home,)))
    record.append("export_memory", asked, {"runs": figures})


def grown(home: Path, copies: int) -> Path:
    """Return the export with ``times`` as many items in its one file."""
    path = max((home / "data").iterdir(), key=lambda entry: entry.stat().st_size)
    member = path.read_bytes()
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("wb") as file:
        for _ in range(copies):
            file.write(member)
            md5.update(member)
    entries = [json.loads(line) for line in (home / "manifest-files.json").read_text("utf-8").splitlines()]
    (entry,) = (entry for entry in entries if entry["dataFileS3Key"].endswith(path.name))
    entry |= {"itemCount": entry["itemCount"] * copies, "md5Checksum": b64encode(md5.digest()).decode()}
    put_manifest(home, "manifest-files", "".join(json.dumps(entry) + "\n" for entry in entries).encode())
    summary = json.loads((home / "manifest-summary.json").read_bytes())
    put_manifest(home, "manifest-summary", json.dumps({**summary, "itemCount": entry["itemCount"]}).encode())
    return home


def measure(home: Path) -> dict[str, Any]:
    """Write the export as one task of the local engine and return its peak memory."""
    schema = decoders.schema_of("orders")
    out = home / "out"
    processes.reset_peak()
    before = processes.resident_mebibytes()
    report = ddbio.read_export_to_files(home, out, engine="local", tasks=1, schema=schema)
    peak = processes.peak_mebibytes()
    shutil.rmtree(out)
    return {
        "items": report.items,
        "file_bytes": sum(path.stat().st_size for path in (home / "data").iterdir()),
        "json_bytes": report.json_bytes,
        "seconds": report.seconds,
        "start_mebibytes": round(before, 1),
        "growth_mebibytes": round(peak - before, 1),
    }


if __name__ == "__main__":
    main()
