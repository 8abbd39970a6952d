"""Look at what is there, and change nothing: the layout of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import layout as layouts
from ddbio.options import LayoutOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import LayoutKeywords
    from ddbio.core.layout import LayoutReport


@takes(LayoutOptions)
def layout(path: str | os.PathLike[str], **options: Unpack[LayoutKeywords]) -> LayoutReport:
    """Return how a dataset lies in files: their sizes, small ones, row groups, partitions, and what each column takes.

    Only the footers of Parquet and ORC are read, and no row.

    Parameters
    ----------
    path
        ``s3://bucket/prefix`` or a local folder, or one file.
    **options
        ``small_than`` is the size below which a file is small; ``html`` and ``png`` name files for a page and for
        charts; the rest is of the connection; see :class:`ddbio.LayoutKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return layouts.layout(parse_options(LayoutOptions, {**options, "path": os.fspath(path)}))
