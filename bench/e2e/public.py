"""Call every public function on one core, compared with its loops and with ``pyarrow.json``, in turns.

Goals: ``from_dynamodb_json`` with a schema ≥ 0.9 × the kernel for all rows, ≥ 5.5 × ``pyarrow.json`` on several
scripts; without one ≥ 0.4 × and ≥ 2.5 ×; ``to_dynamodb_json`` with ``_rescue`` in two rows of three ≥ 2 ×
``pyarrow.json``; ``infer_schema`` ≥ 3 × ``pyarrow.json``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bench import orders, pairs, public
from bench.e2e import record

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Append a row with every function."""
    arguments = record.parser("public")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="calls whose name holds this; prints them, and keeps no row")
    asked = arguments.parse_args()
    for kind in get_args(orders.Kind):
        public.check(kind)
    with tempfile.TemporaryDirectory() as folder:
        chosen = {name: make for name, make in calls(Path(folder)).items() if asked.only in name}
        # One at a time: each keeps its bodies, and some keep results.
        figures = {name: measure(make(), asked.rounds) for name, make in chosen.items()}
    record.append("public", asked, figures)


def calls(folder: Path) -> dict[str, Callable[[], public.Call]]:
    """Return the factory of each call's methods, by the name of its figures."""
    return {
        "decode ascii": lambda: public.decode("ascii"),
        "decode mixed": lambda: public.decode("mixed"),
        "decode tailed": lambda: public.decode("tailed"),
        "decode small": lambda: public.decode("mixed", small=True),
        "decode_unknown ascii": lambda: public.decode_unknown("ascii"),
        "decode_unknown mixed": lambda: public.decode_unknown("mixed"),
        "decode_unknown small": lambda: public.decode_unknown("mixed", small=True),
        "encode mixed": lambda: public.encode("mixed"),
        "encode tailed": lambda: public.encode("tailed"),
        "infer ascii": lambda: public.infer("ascii"),
        "infer mixed": lambda: public.infer("mixed"),
        "infer tailed": lambda: public.infer("tailed"),
        "digest_bytes mixed": lambda: public.digest_bytes("mixed"),
        "digest_columns mixed": lambda: public.digest_columns("mixed"),
        "digest_columns tailed": lambda: public.digest_columns("tailed"),
        "hash_keys mixed": lambda: public.hash_keys("mixed"),
        "read_export mixed": lambda: public.read_export("mixed", folder),
        "changes mixed": lambda: public.changes("mixed"),
    }


def measure(call: public.Call, rounds: int) -> dict[str, Any]:
    """Return speeds, and the ratio of ddbio's speed to each other method, with garbage collection as in programs."""
    pairs.interleave(call.ways, 1, collecting=True)
    seconds = pairs.interleave(call.ways, rounds, collecting=True)
    return {
        "json_bytes": call.json_bytes,
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, call.json_bytes), 1),
        "times_as_fast_as": record.rounded(
            {name: pairs.speed_ratio(seconds, public.DDBIO, name) for name in seconds if name != public.DDBIO}
        ),
    }


if __name__ == "__main__":
    main()
