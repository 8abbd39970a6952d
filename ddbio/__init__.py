"""Move data between Amazon DynamoDB and S3, fast and exactly; importing it loads neither boto3 nor pyspark.

The names below are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ddbio.version import __version__

if TYPE_CHECKING:
    from ddbio.api.backups import create_backup, list_backups, restore_table
    from ddbio.api.bulk import (
        cancel_bulk_put,
        describe_bulk_put,
        list_bulk_puts,
        read_bulk_report,
        start_bulk_put,
        wait_bulk_put,
    )
    from ddbio.api.exports import (
        describe_export,
        fold_exports,
        fold_exports_to_files,
        list_exports,
        read_export,
        read_export_batches,
        read_export_to_files,
        start_export,
        wait_export,
    )
    from ddbio.api.imports import (
        describe_import,
        list_imports,
        start_import,
        wait_import,
        write_import_files,
    )
    from ddbio.api.sessions import register
    from ddbio.api.tables import digest, infer_schema, read_table, scan_batches, scan_to_files
    from ddbio.api.writes import copy_table, create_table_like, load_files, write_table
    from ddbio.core.changes import ChangeDecoder
    from ddbio.core.decode import from_dynamodb_json
    from ddbio.core.encode import to_dynamodb_json
    from ddbio.core.loads.idempotency import idempotency_key
    from ddbio.core.schema.item_schema import ItemSchema
    from ddbio.errors import DdbioError

__all__ = [
    "ChangeDecoder",
    "DdbioError",
    "ItemSchema",
    "__version__",
    "cancel_bulk_put",
    "copy_table",
    "create_backup",
    "create_table_like",
    "describe_bulk_put",
    "describe_export",
    "describe_import",
    "digest",
    "fold_exports",
    "fold_exports_to_files",
    "from_dynamodb_json",
    "idempotency_key",
    "infer_schema",
    "list_backups",
    "list_bulk_puts",
    "list_exports",
    "list_imports",
    "load_files",
    "read_bulk_report",
    "read_export",
    "read_export_batches",
    "read_export_to_files",
    "read_table",
    "register",
    "restore_table",
    "scan_batches",
    "scan_to_files",
    "start_bulk_put",
    "start_export",
    "start_import",
    "to_dynamodb_json",
    "wait_bulk_put",
    "wait_export",
    "wait_import",
    "write_import_files",
    "write_table",
]

_HOMES = {
    "ChangeDecoder": "ddbio.core.changes",
    "DdbioError": "ddbio.errors",
    "ItemSchema": "ddbio.core.schema.item_schema",
    "cancel_bulk_put": "ddbio.api.bulk",
    "copy_table": "ddbio.api.writes",
    "create_backup": "ddbio.api.backups",
    "create_table_like": "ddbio.api.writes",
    "describe_bulk_put": "ddbio.api.bulk",
    "describe_export": "ddbio.api.exports",
    "describe_import": "ddbio.api.imports",
    "digest": "ddbio.api.tables",
    "fold_exports": "ddbio.api.exports",
    "fold_exports_to_files": "ddbio.api.exports",
    "from_dynamodb_json": "ddbio.core.decode",
    "idempotency_key": "ddbio.core.loads.idempotency",
    "infer_schema": "ddbio.api.tables",
    "list_backups": "ddbio.api.backups",
    "list_bulk_puts": "ddbio.api.bulk",
    "list_exports": "ddbio.api.exports",
    "list_imports": "ddbio.api.imports",
    "load_files": "ddbio.api.writes",
    "read_bulk_report": "ddbio.api.bulk",
    "read_export": "ddbio.api.exports",
    "read_export_batches": "ddbio.api.exports",
    "read_export_to_files": "ddbio.api.exports",
    "read_table": "ddbio.api.tables",
    "register": "ddbio.api.sessions",
    "restore_table": "ddbio.api.backups",
    "scan_batches": "ddbio.api.tables",
    "scan_to_files": "ddbio.api.tables",
    "start_bulk_put": "ddbio.api.bulk",
    "start_export": "ddbio.api.exports",
    "start_import": "ddbio.api.imports",
    "to_dynamodb_json": "ddbio.core.encode",
    "wait_bulk_put": "ddbio.api.bulk",
    "wait_export": "ddbio.api.exports",
    "wait_import": "ddbio.api.imports",
    "write_import_files": "ddbio.api.imports",
    "write_table": "ddbio.api.writes",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module at first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
