"""Names of formats and codecs in options.

``formats/registry.py`` and ``lake_formats/registry.py`` define the formats. A test compares the names.
"""

from __future__ import annotations

from typing import Literal

InputFormat = Literal["parquet", "orc", "avro", "json", "csv", "arrow"]
"""Input file formats."""

CompactFormat = Literal["parquet", "orc", "avro", "csv", "json"]
"""Formats that are read and written, for compactions and for tables in catalogs."""

FileFormatName = Literal[CompactFormat, "dynamodb-json"]
"""Output file formats."""

LakeFormatName = Literal["delta", "iceberg", "hudi"]
"""Formats of lake tables."""

ServiceFormat = Literal["dynamodb_json", "ion"]
"""Formats of the service's exports and bulk puts."""

ImportFormat = Literal[ServiceFormat, "csv"]
"""Formats of the service's imports."""

Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]
"""Codecs of files."""

ImportCompression = Literal["zstd", "gzip", "none"]
"""Codecs of the service's imports and bulk puts."""

TimeUnit = Literal["auto", "iso", "s", "ms", "us", "ns"]
"""Format of times: ``iso`` text, or units since 1970. ``auto`` detects it for each value."""
