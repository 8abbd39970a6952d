"""Look at what is there, and change nothing: the layout of files, whether two sides are the same, what jobs need."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.api.signature import takes
from ddbio.ops import doctor as doctors
from ddbio.ops import layout as layouts
from ddbio.ops.validation import validate as validations
from ddbio.options import DoctorOptions, LayoutOptions, ValidateOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias, Unpack

    import pyarrow as pa

    from ddbio.api.keywords import DoctorKeywords, LayoutKeywords, ValidateKeywords
    from ddbio.core.doctor import DoctorReport
    from ddbio.core.folders.layout import LayoutReport
    from ddbio.core.validation.comparison import ValidatePlan, ValidationReport

    Side: TypeAlias = str | os.PathLike[str] | pa.Table | pa.RecordBatch | Any


@takes(DoctorOptions)
def doctor(
    table: str | None = None, location: str | None = None, **options: Unpack[DoctorKeywords]
) -> DoctorReport:  # fmt: skip
    """Return what is wrong with this machine, credentials, endpoints, a table and a bucket, and what to do about it.

    What fails, be it for a missing permission, is a finding and no error. Nothing is changed, and no item or object is
    read; no check takes longer than half a minute.

    Parameters
    ----------
    table
        Name or ARN of a table whose settings are checked.
    location
        ``s3://bucket/prefix`` whose bucket's settings are checked.
    **options
        Those of the connection, as the job would have them.

    Raises
    ------
    OptionError
        If an option is wrong by itself.
    """
    return doctors.doctor(parse_options(DoctorOptions, {**options, "table": table, "location": location}))


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


@takes(ValidateOptions)
def validate(
    source: Side, target: Side | None = None, *, master: str | None = None, conf: Mapping[str, str] | None = None,
    **options: Unpack[ValidateKeywords],
) -> ValidationReport:  # fmt: skip
    """Return whether two sides hold the same items, which keys differ, and which quality rules hold.

    Parameters
    ----------
    source, target
        A ``pyarrow`` table or batch, a data frame that offers itself as Arrow, or a Spark DataFrame; an ``s3://`` URI,
        a path with a slash or the name of a data file, of files or of a native export; any other text is the name of a
        table. Without a target only rules are evaluated.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        ``key`` names the key attributes where no table or manifest does, ``rules`` a YAML file of quality rules,
        ``sample`` the share of the keys to compare, ``rcu_per_second`` or ``read_ratio`` the budget; see
        :class:`ddbio.ValidateKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return validations.validate(_validate_options(source, target, options), source, target, master=master, conf=conf)


@takes(ValidateOptions)
def plan_validate(
    source: Side,
    target: Side | None = None,
    *,
    from_file: str | os.PathLike[str] | None = None,
    **options: Unpack[ValidateKeywords],
) -> ValidatePlan:
    """Return what a validation would read and cost, and by which key it would compare.

    Parameters
    ----------
    source, target
        As for :func:`validate`.
    from_file
        Describes the tables among the sides as DescribeTable does, in JSON; they need not exist.
    **options
        As for :func:`validate`.

    Raises
    ------
    DdbioError
        If the validation would be refused.
    """
    statistics = None if from_file is None else os.fspath(from_file)
    return validations.plan_validate(_validate_options(source, target, options), source, target, statistics)


def _validate_options(source: Side, target: Side | None, given: Any) -> ValidateOptions:
    names = {"source": source, "target": target}
    shown = {
        name: os.fspath(side) if isinstance(side, (str, os.PathLike)) else "data"
        for name, side in names.items()
        if side is not None
    }
    return parse_options(ValidateOptions, {**given, **shown})
