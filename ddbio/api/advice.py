"""Advise on the way to keep a copy of a table, and on the capacity that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import advice, provisioning
from ddbio.options import AdviseOptions, PlanCapacityOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import AdviseKeywords, PlanCapacityKeywords
    from ddbio.core.planning.advice import Advice
    from ddbio.core.planning.provisioning import CapacityPlan


@takes(AdviseOptions)
def advise(table: str | None = None, **options: Unpack[AdviseKeywords]) -> Advice:
    """Return which way to keep a copy of a table in S3 costs least, and what each costs, takes and cannot do.

    Compared are scans, full and incremental exports, streams with Firehose, Kinesis Data Streams, zero-ETL, Glue and
    EMR Serverless. The table is described, and CloudWatch asked how much changes; no item is read.

    Parameters
    ----------
    table
        Name of the table, or its ARN; ``from_file`` instead describes one that need not exist.
    **options
        ``freshness`` is how often the copy is brought up to date, ``changes_per_second`` how much changes;
        ``rcu_per_second`` or ``read_ratio`` bound a scan; ``html`` and ``png`` name files for a page and for charts;
        see :class:`ddbio.AdviseKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return advice.advise(parse_options(AdviseOptions, {**options, "table": table}))


@takes(PlanCapacityOptions)
def plan_capacity(table: str, **options: Unpack[PlanCapacityKeywords]) -> CapacityPlan:
    """Return which mode, capacity and class a table should have, by what it and its indexes have consumed.

    What CloudWatch has counted, or a file says, is replayed against auto scaling. Nothing of the table is read or
    changed.

    Parameters
    ----------
    table
        Name of the table, or its ARN; with ``csv`` only a name.
    **options
        ``days`` is how far back CloudWatch is asked, ``csv`` a file instead, ``target`` the share of the capacity that
        auto scaling keeps consumed; ``html`` and ``png`` name files for a page and for charts; see
        :class:`ddbio.PlanCapacityKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return provisioning.plan_capacity(parse_options(PlanCapacityOptions, {**options, "table": table}))
