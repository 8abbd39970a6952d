"""Check every option once, where Python keywords, Spark option text and CLI flags meet; refuses unknown names.

Each verb has one frozen options class. A name may be given in snake_case, camelCase or, as PySpark hands it to a data
source, all lower case. Values may be text. What is wrong is one :class:`~ddbio.errors.OptionError`.
"""

from ddbio.options.backup import BackupCreateOptions, RestoreOptions
from ddbio.options.bulk import BulkReportOptions, BulkStartOptions
from ddbio.options.columns import ColumnOptions
from ddbio.options.connection import ConnectionOptions, connection_of
from ddbio.options.copy import CopyOptions, CreateLikeOptions
from ddbio.options.export import ExportFoldOptions, ExportReadOptions, ExportToFilesOptions, ExportWindowsOptions
from ddbio.options.export_start import ExportStartOptions
from ddbio.options.files import Compression, Engine, FilesOptions, Mode
from ddbio.options.import_files import ImportFilesFromOptions, ImportFilesOptions
from ddbio.options.import_start import ImportStartOptions, ImportWaitOptions
from ddbio.options.parsing import camel_case, descriptions_of, parse_options
from ddbio.options.scan import AcceptEncoding, ScanOptions, ScanToFilesOptions
from ddbio.options.source import JsonFormat, SourceOptions
from ddbio.options.waiting import PatienceOptions, WaitOptions
from ddbio.options.write import LoadOptions, WriteOptions

__all__ = [
    "AcceptEncoding",
    "BackupCreateOptions",
    "BulkReportOptions",
    "BulkStartOptions",
    "ColumnOptions",
    "Compression",
    "ConnectionOptions",
    "CopyOptions",
    "CreateLikeOptions",
    "Engine",
    "ExportFoldOptions",
    "ExportReadOptions",
    "ExportStartOptions",
    "ExportToFilesOptions",
    "ExportWindowsOptions",
    "FilesOptions",
    "ImportFilesFromOptions",
    "ImportFilesOptions",
    "ImportStartOptions",
    "ImportWaitOptions",
    "JsonFormat",
    "LoadOptions",
    "Mode",
    "PatienceOptions",
    "RestoreOptions",
    "ScanOptions",
    "ScanToFilesOptions",
    "SourceOptions",
    "WaitOptions",
    "WriteOptions",
    "camel_case",
    "connection_of",
    "descriptions_of",
    "parse_options",
]
