"""Properties of the lake table formats, for options and listings. ``lake_formats/registry.py`` opens the tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class LakeFormatFacts:
    """Properties of a format that do not need its library.

    Attributes
    ----------
    title, table
        Name of the format, and of a table in this format, in messages.
    folder, metadata
        Folder of a table's metadata, and a regular expression of paths in it that identify a table.
    services
        The format's own services that rewrite and delete files.
    deleted_column
        Name of the column that marks tombstones for readers.
    refused
        Reasons why the format does not support ``local`` (engines without Spark), ``append``, ``fold``, ``rows``
        (changes passed as rows), ``dry_run`` or ``z_order_by``.
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
        """Whether a Spark library writes the tables, from rows that tasks have staged."""
        return "local" in self.refused

    def check(self, feature: str) -> None:
        """Raise if the format does not support a feature.

        Raises
        ------
        OptionError
            With the reason and the alternative.
        """
        if feature in self.refused:
            raise OptionError(self.refused[feature])


_Z_ORDER = "z_order_by is for Delta tables: give sort_by"

# The first format with metadata in a folder wins: other programs add Iceberg metadata to Hudi tables.
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
                "format hudi is written by Hudi's writer for Spark 3.5: give engine='spark' and a session with its "
                "jar (org.apache.hudi:hudi-spark3.5-bundle_2.12), or choose delta or iceberg"
            ),
            "append": "a Hudi table has each key once: give mode error or overwrite, and merge changes with apply",
            "fold": "a fold cannot write a Hudi table: write one from the full export with 'ddbio export read'",
            "rows": "format hudi takes the folder of a log or an export; rows are merged into delta or iceberg",
            "dry_run": "format hudi has no dry run: Spark decides the effect of changes during the merge",
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
        # The specification reserves ``_deleted``.
        deleted_column="_is_deleted",
        refused={"z_order_by": _Z_ORDER},
    ),
}
"""Lake table formats: see ``docs/apply.md``."""


def check_engine_of(table_format: str, engine: str) -> None:
    """Raise if a lake table that only Spark writes has another engine.

    Raises
    ------
    OptionError
        If the engine is not Spark.
    """
    if engine != "spark":
        LAKE_FORMATS[table_format].check("local")
