"""Maintenance of Hudi tables: one commit deletes tombstones, and has Hudi's own services cluster, clean and archive."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from ddbio.formats.lake_columns import BUCKET, DELETED, KEY, TIME, VERSION
from ddbio.lake.maintain import (
    SMALL_RATIO,
    MaintainReport,
    abort_staged,
    columns_of,
    open_maintainer,
    plan_expired,
    plan_swept,
)
from ddbio.lake.registering import check_lake_catalog, register_lake
from ddbio.lake_formats.hudi import TIMELINE
from ddbio.lake_formats.table import FLOOR
from ddbio.options.parsing import seconds_of
from ddbio.spark.engine import SparkEngine
from ddbio.spark.hudi import HudiTable, claimed, hudi_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.jobs.report import Clock
    from ddbio.lake.options import MaintainOptions
    from ddbio.lake.sweep import Sweep
    from ddbio.lake_formats.hudi import Instant
    from ddbio.lake_formats.table import LakeFile, LakeState
    from ddbio.storage.object_store import ObjectStore

_NO_LIMIT = str(1 << 50)


def maintain_table(
    options: MaintainOptions, clock: Clock, master: str | None, conf: Mapping[str, str]
) -> MaintainReport:
    """Do all due maintenance in one commit, while other jobs of ddbio wait. Without due work there is no commit.

    The same commit raises the floor and deletes the tombstones: no process can die between the two.

    Raises
    ------
    OptionError
        If this Spark, or its session, has no writer of Hudi, or ddbio did not make the table.
    DdbioError
        As ``ddbio.lake.maintain.maintain``.
    """
    now = time.time()
    job = open_maintainer(options)
    with closing(SparkEngine(master, dict(conf))) as engine:
        check_lake_catalog(options)
        table = HudiTable(hudi_store(options.table, options, engine.session), engine.session, engine.parallelism)
        with claimed(table.store) as claim:
            table.fence = claim.require
            until = job.horizon(options.tombstones_older_than)
            before, tombstones, files = job.plan(until)
            sweep, log = plan_swept(job.table, before, options, now), plan_expired(job.table, before, options, now)
            stored, kept = _stored(table.store), before
            if until is not None:
                floor = max(until, int(before.properties.get(FLOOR, until)))
                kept = dataclasses.replace(before, properties={**before.properties, FLOOR: str(floor)})
            if files or sweep.files or log.files:
                services = _clustering(options, before, files) | _cleaning(options, table, sweep, log, now)
                _commit(table, kept, tombstones, services)
            after = job.state()
            abort_staged(table, options, now)
            register_lake(options, table, after)
        cpu_seconds = round(engine.cpu_seconds(), 3)
    left = _stored(table.store)
    gone = [(path, size) for path, size in stored.items() if path not in left]
    data = [size for path, size in gone if not path.startswith(TIMELINE)]
    logged = [size for path, size in gone if path.startswith(TIMELINE)]
    had, has = {file.path for file in before.files}, {file.path for file in after.files}
    floor_us = after.properties.get(FLOOR)
    is_asked = options.vacuum_older_than is not None or options.expire_snapshots_older_than is not None
    return MaintainReport(
        table=table.store.uri,
        version=after.version,
        tombstones=tombstones,
        rewritten_files=len(had - has),
        written_files=len(has - had),
        gc_floor_us=None if floor_us is None else int(floor_us),
        seconds=round(clock.seconds(), 3),
        cpu_seconds=cpu_seconds,
        deleted_files=len(data),
        deleted_bytes=sum(data),
        deleted_log_files=len(logged),
        deleted_log_bytes=sum(logged),
        since_version=max(sweep.since_version, log.since_version) if is_asked else None,
    )


def _commit(table: HudiTable, state: LakeState, tombstones: int, services: Mapping[str, str]) -> None:
    if tombstones:
        floor = int(state.properties[FLOOR])
        gone = table.keys().where(sql.col(DELETED) & (sql.col(TIME) <= floor))
        table.write(gone.select(KEY, BUCKET, VERSION), "delete", state, services)
    else:
        table.write(table.no_rows(state), "upsert", state, services)


def _clustering(options: MaintainOptions, state: LakeState, files: Sequence[LakeFile]) -> dict[str, str]:
    """Return Hudi's options to rewrite the small files of the buckets that need it, or all files if they are sorted.

    https://hudi.apache.org/docs/1.2.0/configurations#Clustering-Configs
    """
    if not files:
        return {}
    target, plan = int(options.target_file_bytes), "hoodie.clustering.plan.strategy"
    settings = {
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "1",
        "hoodie.clustering.plan.partition.filter.mode": "SELECTED_PARTITIONS",
        f"{plan}.partition.selected": ",".join(
            f"{BUCKET}={bucket}" for bucket in sorted({file.bucket for file in files})
        ),
        f"{plan}.target.file.max.bytes": str(target),
        f"{plan}.small.file.limit": str(int(SMALL_RATIO * target)),
        f"{plan}.max.num.groups": "100000",
    }
    if options.sort_by is not None:
        names = columns_of(state.schema, options.sort_by)
        settings[f"{plan}.small.file.limit"] = _NO_LIMIT
        settings[f"{plan}.sort.columns"] = ",".join(dict.fromkeys([*names, KEY]))
    return settings


def _cleaning(options: MaintainOptions, table: HudiTable, sweep: Sweep, log: Sweep, now: float) -> dict[str, str]:
    """Return Hudi's options to delete files of old versions, and to archive old commits.

    Hudi counts commits: those since a time, and the maintaining one. It keeps the files of the version before them.

    https://hudi.apache.org/docs/1.2.0/configurations#Clean-Configs
    """
    settings, timeline = dict[str, str](), table.timeline()
    kept = options.expire_snapshots_older_than
    if log.files and kept is not None:
        oldest = table.ddbio_commit_of(log.since_version)
        left = sum(instant.number >= oldest for instant in timeline) + 1
        settings |= {
            "hoodie.archive.automatic": "true",
            "hoodie.keep.min.commits": str(left),
            "hoodie.keep.max.commits": str(left + 1),
            "hoodie.clean.commits.retained": str(_commits_since(timeline, now - seconds_of(kept)) + 1),
        }
    swept = options.vacuum_older_than
    if sweep.files and swept is not None:
        settings |= {
            "hoodie.clean.automatic": "true",
            "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
            "hoodie.clean.commits.retained": str(_commits_since(timeline, now - seconds_of(swept)) + 1),
        }
    return settings


def _commits_since(timeline: Sequence[Instant], cut: float) -> int:
    return sum(instant.modified_at >= cut for instant in timeline)


def _stored(store: ObjectStore) -> dict[str, int]:
    """Return the sizes of the data files and of the timeline's files, by path."""
    listed = [entry for folder in (f"{BUCKET}=", TIMELINE) for entry in store.list(folder)]
    # Next to each file on a disk, Hadoop has a hidden file with its checksum.
    return {entry.path: entry.size_bytes for entry in listed if "/." not in entry.path}
