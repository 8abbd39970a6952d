"""Copy rows' texts behind each other in another order; refuses to know what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.core.kernel.cache import loop
from ddbio.core.kernel.encode.text import put, put_exactly
from ddbio.core.kernel.memory import PAD, pointers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class _Texts(NamedTuple):
    texts: npt.NDArray[np.uint8]
    separator: npt.NDArray[np.uint8]
    out: npt.NDArray[np.uint8]


@loop
def arrange(  # noqa: PLR0913, PLR0917 - compiled code has no objects
    texts: Any, begins: Any, ends: Any, rows: Any, separator: Any, out: Any, starts: Any
) -> None:
    """Copy the texts of some rows in their order, the separator behind each, and note where each begins.

    A row's text lies from ``begins`` to ``ends``. ``separator`` and ``out`` are padded; ``starts`` has one place more
    than ``rows``: where the last copy ends.
    """
    p = pointers(_Texts(texts, separator, out))
    at, end = 0, len(texts)
    for place in range(len(rows)):
        starts[place] = at
        first = begins[rows[place]]
        at = put_exactly(p.out, at, p.texts, first, ends[rows[place]] - first, end)
        at = put(p.out, at, p.separator, 0, len(separator) - PAD)
    starts[len(rows)] = at
