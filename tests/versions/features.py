"""Features by version of Spark: the table of ``docs/spark.md``. A test of this folder shows each row.

A test calls ``has`` for the side of its row on which a version is, and fails if the row is wrong for it.
``connect_job.py`` tests the column of Spark Connect.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = {
    (3, 5): "Spark 3.5 (EMR 7, Glue 5)",
    (4, 0): "4.0 (EMR 8.0, Databricks 17.3 LTS)",
    (4, 1): "4.1 (EMR 8.1, Databricks 18, Glue 6)",
    (4, 2): "4.2",
    (4, 3): "4.3",
}
"""The versions whose environments ``./task versions`` makes, and their platforms."""

YES = "yes"


@dataclass(frozen=True)
class Feature:
    """Feature: the first version of Spark that supports it, and the support by Spark Connect.

    Attributes
    ----------
    test
        The test that shows it, on every version.
    connect
        ``yes``, or ``yes`` with a condition, if it runs on Spark Connect. Otherwise the alternative.
    until
        The version before which it costs more, and the reason.
    """

    words: str
    test: str
    connect: str = YES
    since: tuple[int, int] = (3, 5)
    until: tuple[tuple[int, int], str] | None = None

    def cell(self, version: tuple[int, int]) -> str:
        """Return the table's cell for a version."""
        if version < self.since:
            return "no"
        return f"{YES}, {self.until[1]}" if self.until and version < self.until[0] else YES


FEATURES = {
    "verbs": Feature(
        "the direct path: engine `spark` of `scan`, `load`, `export read`, `apply`",
        "test_the_engine",
        "no: the formats",
    ),
    "functions": Feature("`ddbio.spark.scan`, `read_export`, `write`", "test_a_table_as_a_frame", "no: the formats"),
    "lookup": Feature("`ddbio.spark.lookup`", "test_lookup"),
    "formats": Feature(
        '`format("dynamodb")`, `format("dynamodb-export")`, `ddbio.register(spark)`', "test_formats", since=(4, 0)
    ),
    "streams": Feature('`readStream.format("dynamodb-log")`, `"dynamodb-streams"`', "test_streams", since=(4, 0)),
    "pushdown": Feature('`format("dynamodb-pushdown")`', "test_push_down_or_its_error", since=(4, 0)),
    "write_batch": Feature("`ddbio.spark.write_batch` in `foreachBatch`", "test_batches_of_a_stream"),
    "apply_batch": Feature(
        "`ddbio.spark.apply_batch` in `foreachBatch`", "test_changes_of_a_stream", 'yes, with `engine="local"`'
    ),
    "frame_functions": Feature("[functions of frames](functions.md)", "test_functions"),
    "column_functions": Feature(
        "functions of columns, `idempotency_key`", "test_functions", until=((4, 1), "one worker each")
    ),
    "frames": Feature("`ddbio.digest` and `ddbio.validate` of a DataFrame", "test_frames_are_digested_and_compared"),
    "sized_files": Feature("`ddbio.spark.sized_files`", "test_files_of_one_size"),
}
"""The features that users call, by a short name."""


def has(name: str, version: tuple[int, int]) -> bool:
    """Return whether a version has a feature."""
    return version >= FEATURES[name].since


def table() -> str:
    """Return the table of ``docs/spark.md``."""
    rows = [["", *VERSIONS.values(), "Spark Connect, from 4.0 on"]]
    rows += [[feature.words, *map(feature.cell, VERSIONS), feature.connect] for feature in FEATURES.values()]
    lines = ["| " + " | ".join(row).lstrip() + " |\n" for row in rows]
    return "".join([lines[0], "|" + "---|" * len(rows[0]) + "\n", *lines[1:]])
