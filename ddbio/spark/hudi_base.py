"""Base load of a Hudi table: tasks stage the rows as Parquet files, and Hudi's own writer inserts them in a commit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.jobs.stores import open_store
from ddbio.lake_formats.base_load import LakeTarget
from ddbio.spark.hudi import HudiTable, has_avro_names, hudi_store, running_hudi_session
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.commit.committer import CommitInfo
    from ddbio.jobs.staging import Staging
    from ddbio.lake_formats.base_load import LakeStaging
    from ddbio.options import FilesOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile

_FOLDER = f"{META}base"


@dataclass
class HudiTarget(LakeTarget):
    """Target that commits the staged files of jobs to a Hudi table.

    Attributes
    ----------
    parts
        Store of the staged rows, in the table's folder, in a location that readers of Hudi ignore.
    """

    parts: ObjectStore = field(kw_only=True)

    def describe(self, columns: pa.Schema, keys: Sequence[str], buckets: int) -> None:
        """Choose the layout of items with these columns.

        Attributes with invalid Avro names stay in the rescue column.
        """
        super().describe(columns, keys, buckets)
        assert self.shape is not None  # noqa: S101 - it was described
        named = pa.schema([attribute for attribute in self.shape.attributes if has_avro_names(attribute)])
        self.shape = dataclasses.replace(self.shape, attributes=named)

    def staging(self, staging: Staging) -> LakeStaging:
        """Return the staging of files that Hudi's writer reads."""
        return dataclasses.replace(super().staging(staging), store=self.parts)

    def commit(self, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()) -> int:
        """Complete the files, have Hudi insert their rows in one commit, and delete them."""
        version = super().commit(job_id, staged, info, replaced)
        self._clear(job_id)
        return version

    def abort(self, job_id: str) -> None:
        """Delete the staged files of a job, and its claim."""
        self.parts.abort(job_id)
        self._clear(job_id)
        super().abort(job_id)

    def _complete(self, staged: Sequence[StagedFile]) -> None:
        for file in staged:
            self.parts.complete(file)

    def _clear(self, job_id: str) -> None:
        self.parts.delete([file.path for file in self.parts.list() if f"-{job_id}-" in file.path])


def hudi_target(options: FilesOptions, loaded_us: int, *, is_instant: bool) -> HudiTarget:
    """Return the target of a base load to the Hudi table of the options, with the running session.

    Raises
    ------
    OptionError
        If no session runs, or it has no writer of Hudi.
    """
    session = running_hudi_session()
    parts = open_store(f"{options.dest.rstrip('/')}/{_FOLDER}", options, is_temporary=True)
    table = HudiTable(
        hudi_store(options.dest, options, session), session, session.sparkContext.defaultParallelism, parts
    )
    return HudiTarget(table, options.mode, loaded_us, is_instant=is_instant, parts=parts)
