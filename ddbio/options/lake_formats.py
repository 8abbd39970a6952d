"""Facts about the formats of lake tables, for options and listings; ``lake_formats/registry.py`` opens the tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class LakeFormatFacts:
    """What is known of a format without its library.

    Attributes
    ----------
    title, table
        The name of the format, and of a table of it, in messages.
    folder, metadata
        The folder of a table's own metadata, and a regular expression of the paths in it by which a table is known.
    services
        What of the format itself rewrites and deletes files.
    deleted_column
        The name that readers see of the column which marks tombstones.
    refused
        Why the format cannot have some options or inputs: ``local`` (engines without Spark), ``append``, ``fold``,
        ``rows`` (changes that are given as rows), ``dry_run`` and ``z_order_by``.
    """

    title: str
    table: str
    folder: str
    metadata: str = ".+"
    services: str
    deleted_column: str = "_deleted"
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_written_by_spark(self) -> bool:
        """Return whether only a library for Spark writes tables, of the rows that tasks have staged."""
        return "local" in self.refused

    def check(self, wanted: str) -> None:
        """Refuse what the format cannot have.

        Raises
        ------
        OptionError
            Saying why, and what to give instead.
        """
        if wanted in self.refused:
            raise OptionError(self.refused[wanted])


_Z_ORDER = "z_order_by is for Delta tables: give sort_by"

# The first one of which a folder has metadata is its format: other programs add that of Iceberg to Hudi tables.
LAKE_FORMATS: Final[dict[str, LakeFormatFacts]] = {
    "delta": LakeFormatFacts(
        title="Delta", table="a Delta table", folder="_delta_log/", services="OPTIMIZE and VACUUM"
    ),
    "hudi": LakeFormatFacts(
        title="Hudi",
        table="a Hudi table",
        folder=".hoodie/",
        services="clustering and cleaning",
        refused={
            "local": (
                "format hudi is written by Hudi's own writer for Spark 3.5: give engine='spark' and a session with its "
                "jar (org.apache.hudi:hudi-spark3.5-bundle_2.12), or choose delta or iceberg"
            ),
            "append": "a key is in a Hudi table once: give mode error or overwrite, and merge changes by apply",
            "fold": "a fold makes no Hudi table: make one of the full export by 'ddbio export read'",
            "rows": "format hudi takes the folder of a log or an export; rows are merged into delta or iceberg",
            "dry_run": "there is no dry run for format hudi: Spark decides what changes do while it merges",
            "z_order_by": _Z_ORDER,
        },
    ),
    "iceberg": LakeFormatFacts(
        title="Iceberg",
        table="an Iceberg table",
        folder="metadata/",
        # https://iceberg.apache.org/spec/: the table's metadata, lists of manifests, and manifests.
        metadata=r"(?:[^/]*\.metadata\.json(?:\.gz)?|[^/]*\.gz\.metadata\.json|version-hint\.text|snap-[^/]*\.avro)",
        services="rewrite_data_files and expire_snapshots",
        # The specification keeps ``_deleted`` for itself.
        deleted_column="_is_deleted",
        refused={"z_order_by": _Z_ORDER},
    ),
}
"""Formats that are tables of files: see ``docs/apply.md``."""


def check_engine_of(table_format: str, engine: str) -> None:
    """Refuse another engine than Spark for a lake table that only Spark writes.

    Raises
    ------
    OptionError
        If it is another.
    """
    if engine != "spark":
        LAKE_FORMATS[table_format].check("local")
