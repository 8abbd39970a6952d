"""Simulate jobs in virtual time, without AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.errors import OptionError
from ddbio.ops import simulation
from ddbio.options import SimulateScanOptions, parse_options
from ddbio.options.simulation import SCENARIOS

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import SimulateScanKeywords
    from ddbio.core.simulation import SimulationReport


@takes(SimulateScanOptions)
def simulate_scan(scenario: str | None = None, **options: Unpack[SimulateScanKeywords]) -> SimulationReport:
    """Return what a scan of a table that need not exist would do: time, units, throttling; no service is called.

    The planner, the budget and its pacer are those of real scans, on a virtual clock; the table's partitions and the
    times of pages are a model. The same options give the same report.

    Parameters
    ----------
    scenario
        A named simulation, ``long-tail``, whose values the options change.
    **options
        ``table_bytes`` and ``item_bytes`` describe the table, ``tasks`` and ``lanes`` the cluster, ``rcu_per_second``
        the budget, ``skew`` how unequal segments are; ``static_shares`` gives each task a fixed share instead of
        leases. See :class:`ddbio.SimulateScanKeywords` for all.

    Raises
    ------
    OptionError
        If an option is wrong, or there is no such scenario.
    """
    if scenario is not None and scenario not in SCENARIOS:
        raise OptionError(f"there is no scenario {scenario!r}: there is {', '.join(SCENARIOS)}")
    named = SCENARIOS[scenario] if scenario is not None else {}
    return simulation.simulate_scan(parse_options(SimulateScanOptions, {**named, **options}))
