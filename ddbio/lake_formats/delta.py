"""Delta Lake without a JVM: deltalake reads and writes the log of the table, and ddbio its data files."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.formats.lake_columns import BUCKET
from ddbio.lake_formats.bucket_files import STATISTICS_COLUMNS
from ddbio.lake_formats.table import KEYS, ConflictError, ForeignFile, LakeFile, LakeState, readable
from ddbio.storage.staged import contained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.aws.s3_gateway import S3Gateway
    from ddbio.lake_formats.table import Commit
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile, StoredObject

try:
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    raise OptionError("Delta needs the library deltalake: pip install 'ddbio[delta]'") from error

_READ_FEATURES = frozenset(
    {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "checkConstraints", "columnMapping", "deletionVectors"}
)
_CONFLICT = re.compile(r"(?i)conflict|concurrent|already exists|failed to commit|version .* exists")
# Errors of deltalake when a table, or its store, fails.
_ERRORS = (DeltaError, OSError)
_UNREADABLE = "cannot be read"
_LOG = "_delta_log/"
_LOGGED = re.compile(r"_delta_log/(\d{20})\.[^/]+")
# Readers that use deltalake's statistics treat a missing minimum or maximum as null, unless this property of the table
# leaves the column out: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
_STATISTICS = "delta.dataSkippingStatsColumns"


class DeltaLakeTable:
    """A Delta table in a folder.

    Parameters
    ----------
    store
        The folder of the table.
    gateway
        Access to a folder on S3 for deltalake, whose object store lacks some options of S3 requests.
    """

    keeps_bucket = False

    def __init__(self, store: ObjectStore, gateway: S3Gateway | None = None) -> None:
        self.store = store
        self._gateway, self._uri, self._options = gateway or None, store.uri, dict[str, str]()
        if gateway:
            # If two writers create the same object of the log, S3 refuses the second one.
            self._uri, self._options = gateway.uri, {**gateway.connection_settings(), "aws_conditional_put": "etag"}

    @readable
    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version; None if there is no table."""
        if self._gateway is not None:
            self._gateway.failure = None
        try:
            table = DeltaTable(self._uri, version=version, storage_options=self._options)
        except TableNotFoundError as error:
            # Without read permission, deltalake reports that there is no table.
            self._raise_refusal(error)
            return None
        except _ERRORS as error:
            if version is None or isinstance(error, OSError):
                raise self._failure(error, _UNREADABLE) from error
            self._raise_refusal(error)
            raise NotFoundError(f"the Delta table {self.store.uri} has no version {version}: {error}") from error
        return self._state(table)

    @readable
    def foreign_files(self) -> tuple[ForeignFile, ...] | None:
        """Return the data files of the newest version, if another program created the table; None if ddbio did."""
        try:
            table = DeltaTable(self._uri, storage_options=self._options)
            metadata, features = table.metadata(), {*(table.protocol().reader_features or ())}
            if KEYS in metadata.configuration:
                return None
            # https://github.com/delta-io/delta/blob/master/PROTOCOL.md#valid-feature-names-in-table-features
            unknown = features - _READ_FEATURES
            if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
                unknown.add("columnMapping")
            if "deletionVectors" in features and self._has_deletion_vectors(table):
                unknown.add("deletionVectors")
            add_actions: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        except _ERRORS as error:
            raise self._failure(error, _UNREADABLE) from error
        if unknown:
            raise TargetError(
                f"the Delta table {self.store.uri} has features that ddbio cannot read, {', '.join(sorted(unknown))}: "
                "write its rows to another folder with Spark; REORG TABLE … APPLY (PURGE) removes deletion vectors",
                self.store.uri,
            )
        if elsewhere := [
            action["path"] for action in add_actions if "://" in action["path"] or action["path"].startswith("/")
        ]:
            raise TargetError(
                f"the Delta table {self.store.uri} has files elsewhere, such as {elsewhere[0]}: it is a shallow clone, "
                "so read its source table",
                self.store.uri,
            )
        names = metadata.partition_columns
        return tuple(
            ForeignFile(
                contained(unquote(action["path"]), self.store.uri),
                "parquet",
                {name: action[f"partition.{name}"] for name in names},
            )
            for action in add_actions
        )

    def before(self, state: LakeState) -> int | None:
        """Return the number of the preceding version; None if this is the first version, 0."""
        return state.version - 1 if state.version else None

    def position(self, state: LakeState, name: str) -> int:
        """Return the applied position of a source, from the transactions of the table."""
        return int(state.handle.transaction_version(name) or 0)

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Create an empty table, partitioned by its bucket."""
        try:
            table = DeltaTable.create(
                self._uri,
                schema,
                partition_by=[BUCKET],
                configuration={**properties, _STATISTICS: ",".join(STATISTICS_COLUMNS)},
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )
        except _ERRORS as error:
            self._raise_refusal(error)
            if any(True for _ in self.store.list(_LOG)):
                raise ConflictError(str(error)) from error
            raise TargetError(f"cannot create a Delta table at {self.store.uri}: {error}", self.store.uri) from error
        return self._state(table)

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the schema of data files, without the bucket, which is in the name of their folder."""
        return pa.schema([field for field in state.schema if field.name != BUCKET])

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Add columns and set properties, in separate commits."""
        table: DeltaTable = state.handle
        try:
            if fields:
                table.alter.add_columns(Schema.from_arrow(pa.schema(list(fields))).fields)
            if properties:
                self._set_properties(table, properties)
        except _ERRORS as error:
            raise self._failure(error) from error
        return self._state(table)

    def commit(self, state: LakeState, commit: Commit) -> int:
        """Add and remove files in one version."""
        table: DeltaTable = state.handle
        if not any(True for _ in self.store.list(f"{_LOG}{state.version:020}.json")):
            # The next version may be free only because it expired and was deleted.
            raise ConflictError(f"version {state.version} of {self.store.uri} has expired")
        self._limit_statistics(state)
        now_ms = int(time.time() * 1000)
        actions: list[Any] = [_add_action(staged, now_ms) for staged in commit.added]
        actions += [
            RemoveAction(file.path, True, now_ms, file.size_bytes, {BUCKET: str(file.bucket)})  # noqa: FBT003 - deltalake's
            for file in commit.removed
        ]
        properties = CommitProperties(
            custom_metadata=dict(commit.metadata),
            # Our transactions conflict with those of other writers, so that we decide again with the new state.
            max_commit_retries=0 if commit.exact else 3,
            app_transactions=[Transaction(name, number) for name, number in commit.positions.items()],
        )
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                [BUCKET],
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except _ERRORS as error:
            raise self._failure(error) from error
        # The handle may be of an older version than the one before the commit.
        table.update_incremental()
        return table.version()

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Rewrite all files in Z-order of some columns, with deltalake."""
        self._limit_statistics(state)
        table: DeltaTable = state.handle
        try:
            table.optimize.z_order(
                list(names),
                target_size=file_bytes,
                commit_properties=CommitProperties(custom_metadata={"ddbio": '{"verb": "maintain"}'}),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except _ERRORS as error:
            raise self._failure(error) from error

    def outdated(self, state: LakeState, since: int) -> list[StoredObject]:
        """Return the commits and checkpoints before a version, whose checkpoint replaces them."""
        del state
        listed = ((entry, _LOGGED.fullmatch(entry.path)) for entry in self.store.list(_LOG))
        return [entry for entry, match in listed if match is not None and int(match[1]) < since]

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Write checkpoints of the first kept version, and of the newest, which readers look for first."""
        try:
            for version in dict.fromkeys([since, state.version]):
                DeltaTable(self._uri, version=version, storage_options=self._options).create_checkpoint()
        except _ERRORS as error:
            raise self._failure(error) from error
        return state

    def _set_properties(self, table: DeltaTable, properties: Mapping[str, str]) -> None:
        """Commit properties directly: deltalake's call holds the GIL, but our S3 gateway needs it."""
        current, now_ms = table.metadata(), int(time.time() * 1000)
        # https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-metadata
        metadata = {
            "id": str(current.id),
            "name": current.name,
            "description": current.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": current.partition_columns,
            "configuration": {**current.configuration, **properties},
            "createdTime": current.created_time,
        }
        commit_info = {"timestamp": now_ms, "operation": "SET TBLPROPERTIES", "operationParameters": {**properties}}
        lines = [{"metaData": metadata}, {"commitInfo": commit_info}]
        path = f"{_LOG}{table.version() + 1:020}.json"
        if not self.store.put_if_absent(path, "\n".join(map(json.dumps, lines)).encode()):
            raise ConflictError(f"another writer changed {self.store.uri}: {path} exists already")
        table.update_incremental()

    def _state(self, table: DeltaTable) -> LakeState:
        add_actions: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        if "deletionVectors" in (table.protocol().reader_features or ()) and self._has_deletion_vectors(table):
            raise TargetError(
                f"the Delta table {self.store.uri} has deletion vectors, which the local engine does not read: purge "
                "them (REORG TABLE … APPLY (PURGE)), or use Spark",
                self.store.uri,
            )
        files = [
            LakeFile(
                contained(unquote(action["path"]), self.store.uri),
                action["size_bytes"],
                action.get(f"partition.{BUCKET}") or 0,
            )
            for action in add_actions
        ]
        arrow_schema: Any = table.schema().to_arrow()
        schema = pa.schema(arrow_schema)
        return LakeState(table.version(), schema, table.metadata().configuration, tuple(files), table)

    def _has_deletion_vectors(self, table: DeltaTable) -> bool:
        try:
            return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))
        except DeltaError:
            # A deletion vector exists, but cannot be read.
            return True

    def _limit_statistics(self, state: LakeState) -> None:
        """Limit the table's property to columns whose statistics all files have."""
        table: DeltaTable = state.handle
        names = table.metadata().configuration.get(_STATISTICS)
        if names is not None and {*filter(None, names.split(","))} <= {*STATISTICS_COLUMNS}:
            return
        version = state.version
        # Deltalake reports statistics only for the columns in the property.
        for columns in (lambda: STATISTICS_COLUMNS, lambda: _columns_with_statistics(table)):
            value = ",".join(columns())
            if table.metadata().configuration.get(_STATISTICS) != value:
                self.alter(state, (), {_STATISTICS: value})
                version += 1
        if table.version() != version:
            raise ConflictError(f"another writer changed {self.store.uri} before its property {_STATISTICS} was set")

    def _failure(self, error: Exception, what: str = "took no commit") -> Exception:
        self._raise_refusal(error)
        if what != _UNREADABLE and (isinstance(error, CommitFailedError) or _CONFLICT.search(str(error))):
            return ConflictError(str(error))
        return TargetError(f"the Delta table {self.store.uri} {what}: {error}", self.store.uri)

    def _raise_refusal(self, error: Exception) -> None:
        """Raise the error of S3 if it made deltalake fail, since deltalake's message does not name the permission."""
        if self._gateway is not None and self._gateway.failure is not None:
            failure, self._gateway.failure = self._gateway.failure, None
            raise failure from error


def _columns_with_statistics(table: DeltaTable) -> list[str]:
    """Return the columns with minimum and maximum in all files; older releases omitted those of long texts."""
    files: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        name
        for name in STATISTICS_COLUMNS
        if all(
            action.get(f"min.{name}") is not None or action.get(f"null_count.{name}") == action.get("num_records")
            for action in files
        )
    ]


def _add_action(staged: StagedFile, now_ms: int) -> AddAction:
    statistics: dict[str, Any] = {"numRecords": staged.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in (staged.statistics or {}).items():
        statistics["nullCount"][name] = column["nulls"]
        if column["min"] is not None:
            statistics["minValues"][name], statistics["maxValues"][name] = column["min"], column["max"]
    # Deltalake expects URL-encoded paths; ours have no characters to encode.
    return AddAction(staged.path, staged.size_bytes, dict(staged.partition), now_ms, True, json.dumps(statistics))  # noqa: FBT003 - deltalake's
