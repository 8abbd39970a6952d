"""Delta Lake without a JVM: the log of the table is read and written by deltalake, its data files by us."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.formats.lake_columns import BUCKET
from ddbio.lake_formats.bucket_files import NOTED
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
# What deltalake raises if a table, or the store below it, fails.
_ERRORS = (DeltaError, OSError)
_UNREADABLE = "cannot be read"
_LOG = "_delta_log/"
_LOGGED = re.compile(r"_delta_log/(\d{20})\.[^/]+")
# Readers that use deltalake's statistics take a missing least or greatest value for null, unless this property of the
# table leaves the column out: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
_STATISTICS = "delta.dataSkippingStatsColumns"


class DeltaLakeTable:
    """Read and change a Delta table.

    Parameters
    ----------
    store
        The folder of the table.
    gateway
        How deltalake, whose object store has not all options of S3 requests, reaches a folder on S3.
    """

    keeps_bucket = False

    def __init__(self, store: ObjectStore, gateway: S3Gateway | None = None) -> None:
        self.store = store
        self._gateway, self._uri, self._options = gateway or None, store.uri, dict[str, str]()
        if gateway:
            # Of two writers that create one object of the log, S3 refuses the second.
            self._uri, self._options = gateway.uri, {**gateway.connection_settings(), "aws_conditional_put": "etag"}

    @readable
    def load(self, version: int | None = None) -> LakeState | None:
        """Return the newest state, or that of a version; None if there is no table."""
        if self._gateway is not None:
            self._gateway.failure = None
        try:
            table = DeltaTable(self._uri, version=version, storage_options=self._options)
        except TableNotFoundError as error:
            # Who may not read it is told that there is none.
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
        """Return the data files of the newest version, if another program made the table; None if ddbio did."""
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
            found: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        except _ERRORS as error:
            raise self._failure(error, _UNREADABLE) from error
        if unknown:
            raise TargetError(
                f"the Delta table {self.store.uri} has features that ddbio cannot read, {', '.join(sorted(unknown))}: "
                "write its rows to another folder with Spark; REORG TABLE … APPLY (PURGE) removes deletion vectors",
                self.store.uri,
            )
        if elsewhere := [each["path"] for each in found if "://" in each["path"] or each["path"].startswith("/")]:
            raise TargetError(
                f"the Delta table {self.store.uri} has files elsewhere, such as {elsewhere[0]}: it is a shallow clone, "
                "so read the table that it was made of",
                self.store.uri,
            )
        names = metadata.partition_columns
        return tuple(
            ForeignFile(
                contained(unquote(each["path"]), self.store.uri),
                "parquet",
                {name: each[f"partition.{name}"] for name in names},
            )
            for each in found
        )

    def before(self, state: LakeState) -> int | None:
        """Return the number of the version before one; None if it is the first, 0."""
        return state.version - 1 if state.version else None

    def position(self, state: LakeState, name: str) -> int:
        """Return how far a source is applied, by the transactions of the table."""
        return int(state.handle.transaction_version(name) or 0)

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> LakeState:
        """Make an empty table, partitioned by its bucket."""
        try:
            table = DeltaTable.create(
                self._uri,
                schema,
                partition_by=[BUCKET],
                configuration={**properties, _STATISTICS: ",".join(NOTED)},
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )
        except _ERRORS as error:
            self._raise_refusal(error)
            if any(True for _ in self.store.list(_LOG)):
                raise ConflictError(str(error)) from error
            raise TargetError(f"no Delta table could be made at {self.store.uri}: {error}", self.store.uri) from error
        return self._state(table)

    def file_schema(self, state: LakeState) -> pa.Schema:
        """Return the schema of data files: the bucket is in the name of their folder."""
        return pa.schema([field for field in state.schema if field.name != BUCKET])

    def alter(self, state: LakeState, fields: Sequence[pa.Field[Any]], properties: Mapping[str, str]) -> LakeState:
        """Add columns and set properties, each in a commit of its own."""
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
            # The next version may be free only because it was deleted for its age.
            raise ConflictError(f"version {state.version} of {self.store.uri} has expired")
        self._limit_statistics(state)
        now_ms = int(time.time() * 1000)
        actions: list[Any] = [_add_action(each, now_ms) for each in commit.added]
        actions += [
            RemoveAction(each.path, True, now_ms, each.size_bytes, {BUCKET: str(each.bucket)})  # noqa: FBT003 - deltalake's
            for each in commit.removed
        ]
        properties = CommitProperties(
            custom_metadata=dict(commit.metadata),
            # Our transactions conflict with those of other writers: what they decided is decided again.
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
        # The handle may have been of an older version than the commit's own.
        table.update_incremental()
        return table.version()

    def cluster(self, state: LakeState, names: Sequence[str], file_bytes: int) -> None:
        """Rewrite all files in Z-order of some columns, by deltalake."""
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
        """Return the commits and checkpoints of older versions: a checkpoint of the first that stays replaces them."""
        del state
        listed = ((each, _LOGGED.fullmatch(each.path)) for each in self.store.list(_LOG))
        return [each for each, match in listed if match is not None and int(match[1]) < since]

    def forget(self, state: LakeState, since: int) -> LakeState:
        """Write checkpoints of the first version that stays, and of the newest, which readers look for first."""
        try:
            for version in dict.fromkeys([since, state.version]):
                DeltaTable(self._uri, version=version, storage_options=self._options).create_checkpoint()
        except _ERRORS as error:
            raise self._failure(error) from error
        return state

    def _set_properties(self, table: DeltaTable, properties: Mapping[str, str]) -> None:
        """Commit properties: deltalake's own call holds the interpreter's lock, which our gateway to S3 needs."""
        known, now_ms = table.metadata(), int(time.time() * 1000)
        # https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-metadata
        metadata = {
            "id": str(known.id),
            "name": known.name,
            "description": known.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": known.partition_columns,
            "configuration": {**known.configuration, **properties},
            "createdTime": known.created_time,
        }
        said = {"timestamp": now_ms, "operation": "SET TBLPROPERTIES", "operationParameters": {**properties}}
        lines = [{"metaData": metadata}, {"commitInfo": said}]
        path = f"{_LOG}{table.version() + 1:020}.json"
        if not self.store.put_if_absent(path, "\n".join(map(json.dumps, lines)).encode()):
            raise ConflictError(f"another writer changed {self.store.uri}: {path} is there already")
        table.update_incremental()

    def _state(self, table: DeltaTable) -> LakeState:
        found: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        if "deletionVectors" in (table.protocol().reader_features or ()) and self._has_deletion_vectors(table):
            raise TargetError(
                f"the Delta table {self.store.uri} has deletion vectors, which the local engine does not read: purge "
                "them (REORG TABLE … APPLY (PURGE)), or use Spark",
                self.store.uri,
            )
        files = [
            LakeFile(
                contained(unquote(each["path"]), self.store.uri),
                each["size_bytes"],
                each.get(f"partition.{BUCKET}") or 0,
            )
            for each in found
        ]
        given: Any = table.schema().to_arrow()
        schema = pa.schema(given)
        return LakeState(table.version(), schema, table.metadata().configuration, tuple(files), table)

    def _has_deletion_vectors(self, table: DeltaTable) -> bool:
        try:
            return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))
        except DeltaError:
            # One that cannot be read is there.
            return True

    def _limit_statistics(self, state: LakeState) -> None:
        """Make the table's property name only columns whose statistics all files have."""
        table: DeltaTable = state.handle
        known = table.metadata().configuration.get(_STATISTICS)
        if known is not None and {*filter(None, known.split(","))} <= {*NOTED}:
            return
        version = state.version
        # Deltalake tells statistics of the columns alone that the property names.
        for columns in (lambda: NOTED, lambda: _columns_with_statistics(table)):
            wanted = ",".join(columns())
            if table.metadata().configuration.get(_STATISTICS) != wanted:
                self.alter(state, (), {_STATISTICS: wanted})
                version += 1
        if table.version() != version:
            raise ConflictError(f"another writer changed {self.store.uri} before its property {_STATISTICS} was set")

    def _failure(self, error: Exception, what: str = "took no commit") -> Exception:
        self._raise_refusal(error)
        if what != _UNREADABLE and (isinstance(error, CommitFailedError) or _CONFLICT.search(str(error))):
            return ConflictError(str(error))
        return TargetError(f"the Delta table {self.store.uri} {what}: {error}", self.store.uri)

    def _raise_refusal(self, error: Exception) -> None:
        """Raise what S3 has refused, if that is why deltalake failed: its own words do not name the permission."""
        if self._gateway is not None and self._gateway.failure is not None:
            failure, self._gateway.failure = self._gateway.failure, None
            raise failure from error


def _columns_with_statistics(table: DeltaTable) -> list[str]:
    """Return the columns whose least and greatest value all files have; older releases left out those of long texts."""
    files: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        name
        for name in NOTED
        if all(
            each.get(f"min.{name}") is not None or each.get(f"null_count.{name}") == each.get("num_records")
            for each in files
        )
    ]


def _add_action(staged: StagedFile, now_ms: int) -> AddAction:
    statistics: dict[str, Any] = {"numRecords": staged.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, each in (staged.statistics or {}).items():
        statistics["nullCount"][name] = each["nulls"]
        if each["min"] is not None:
            statistics["minValues"][name], statistics["maxValues"][name] = each["min"], each["max"]
    # Deltalake takes paths as they are stored, URL-encoded; ours have nothing to encode.
    return AddAction(staged.path, staged.size_bytes, dict(staged.partition), now_ms, True, json.dumps(statistics))  # noqa: FBT003 - deltalake's
