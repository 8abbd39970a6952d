"""Run every case again, sequentially, each in a separate process. Then update the table and the picture.

``python -m bench.e2e`` runs all, ``python -m bench.e2e verbs write`` some; ``--dry-run`` stores nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time

from bench import report
from bench.e2e import record
from bench.figures import CASES

MATRIX = "matrix"
"""It has rows of many cases, and separate pages: it only runs if it is named."""


def main() -> int:
    """Return the number of failed cases. The rows of the others are stored."""
    arguments = record.parser("")
    names = [*CASES, MATRIX]
    arguments.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    asked = arguments.parse_args()
    unknown = set(asked.cases) - set(names)
    if unknown:
        arguments.error(f"no case {', '.join(sorted(unknown))}")
    failed = []
    for case in asked.cases or CASES:
        began = time.perf_counter()
        words = ["--dry-run"] if asked.dry_run else []
        code = subprocess.run([sys.executable, "-m", f"bench.e2e.{case}", *words], check=False).returncode
        outcome = f"failed with {code}" if code else "done"
        sys.stderr.write(f"{case}: {outcome} after {time.perf_counter() - began:.0f} s\n")
        failed += [case] if code else []
    if not asked.dry_run:
        report.main([])
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
