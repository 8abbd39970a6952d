"""The names of formats and codecs in options.

What the formats are is said by ``formats/registry.py`` and ``lake_formats/registry.py``; a test compares the names.
"""

from __future__ import annotations

from typing import Literal

InputFormat = Literal["parquet", "orc", "avro", "json", "csv", "arrow"]
"""Formats of files that are read."""

CompactFormat = Literal["parquet", "orc", "avro", "csv", "json"]
"""Formats of files that are read and written: those of compactions, and of tables in catalogs."""

FileFormatName = Literal[CompactFormat, "dynamodb-json"]
"""Formats of files that are written."""

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
"""How a column says times: ``iso`` text, or a number of units since 1970; ``auto`` tells it by each value."""
