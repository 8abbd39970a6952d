"""Hold the rows of a batch whose data is scanned block by block; refuses nothing: it grows with the values found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.core.kernel import state as st
from ddbio.core.kernel.decode.assemble import SparseTexts
from ddbio.core.kernel.decode.glean import fill_kept, keep_block, plan_kept
from ddbio.core.rescue import MisfitLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.core.kernel.decode.scratch import Work
    from ddbio.core.kernel.decode.tables import Node, Tables

_LEAST_ROOM = 4096
_FIXED_BYTES = {st.STRUCT: 0, st.INTEGER: 8, st.DECIMAL: 16, st.BOOLEAN: 0}
_OFFSET_BYTES = 4


class Kept(NamedTuple):
    """Hold the values of the blocks: a run per block and node that has any, an index per value, and its words."""

    runs: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    words: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    n_valid: npt.NDArray[np.int64]
    n_bytes: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]


class Backlog:
    """Hold what the scanned blocks of one batch have kept so far."""

    def __init__(self, nodes: list[Node], tables: Tables) -> None:
        self._tables = tables
        n_nodes, n_spaces = len(nodes), max(node.space for node in nodes) + 1
        self._fixed_bytes = np.zeros(n_spaces, np.int64)
        for node in nodes[1:]:
            self._fixed_bytes[node.space] += _FIXED_BYTES.get(node.kind, _OFFSET_BYTES)
        counts = [np.zeros(n_nodes, np.int64) for _ in range(3)]
        self._kept = Kept(
            np.empty(n_nodes, np.int64),
            np.empty(_LEAST_ROOM, np.int32),
            np.empty(_LEAST_ROOM, np.int64),
            np.zeros(4, np.int64),
            np.zeros(n_spaces, np.int64),
            *counts,
        )
        self.clear()

    @property
    def row_bytes(self) -> int:
        """Return what a row takes of the columns, whatever it holds."""
        return int(self._fixed_bytes[0])

    @property
    def kept_bytes(self) -> int:
        """Return how much memory the arrays take."""
        return sum(array.nbytes for array in self._kept)

    @property
    def n_rows(self) -> int:
        """Return how many rows there are."""
        return int(self._kept.length[0])

    @property
    def column_bytes(self) -> int:
        """Return what the columns will take, without the texts."""
        return int(self._fixed_bytes @ self._kept.length)

    def clear(self) -> None:
        """Forget all rows."""
        kept = self._kept
        for counts in (kept.used, kept.length, kept.n_valid, kept.n_bytes):
            counts[:] = 0
        kept.used[st.KEPT_NODE] = 1
        self.texts = list[SparseTexts]()
        self.sizes = list[npt.NDArray[np.int64]]()
        self.log = MisfitLog()

    def add(self, work: Work, texts: Sequence[SparseTexts]) -> None:
        """Keep the rows of a block, and the rescue texts of some of them."""
        self.texts += [each._replace(rows=each.rows + self.n_rows) for each in texts]
        self.sizes.append(work.sizes[: int(work.state[st.ROWS])].copy())
        while not keep_block(self._tables, work, self._kept):
            self._grow(work)

    def plan(self, plan: npt.NDArray[np.int64]) -> int:
        """Plan the columns; return their bytes."""
        return int(plan_kept(self._tables, self._kept, plan))

    def fill(self, work: Work, plan: npt.NDArray[np.int64], output: npt.NDArray[np.uint8]) -> None:
        """Fill the planned columns."""
        fill_kept(self._tables, work, self._kept, plan, output, output.view(np.int32), output.view(np.int64))

    def _grow(self, work: Work) -> None:
        kept, longest = self._kept, int(max(work.state[st.ROWS], work.count.max()))
        used = kept.used.tolist()
        for array, needed in (
            (kept.runs, used[st.KEPT_RUNS] + 1),
            (kept.indices, used[st.KEPT_INDICES] + longest),
            (kept.words, used[st.KEPT_WORDS] + 2 * longest),
        ):
            if needed > len(array):
                # In place, for the largest arrays move without a copy.
                array.resize(needed + len(array) // 4, refcheck=False)
