"""Simulate jobs in virtual time, without AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.errors import OptionError
from ddbio.ops import simulation
from ddbio.options import SimulateLoadOptions, SimulateScanOptions, parse_options
from ddbio.options.simulation import SCENARIOS

if TYPE_CHECKING:
    from typing import Any, Unpack

    from ddbio.api.keywords import SimulateLoadKeywords, SimulateScanKeywords
    from ddbio.core.planning.simulation import SimulationReport


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
    return simulation.simulate_scan(parse_options(SimulateScanOptions, {**_named(scenario), **options}))


@takes(SimulateLoadOptions)
def simulate_load(**options: Unpack[SimulateLoadKeywords]) -> SimulationReport:
    """Return what a load into a table that need not exist would do: time, units, throttling; no service is called.

    The planner, the budget and its pacer are those of real loads, on a virtual clock; the table's partitions and the
    times of requests are a model. The same options give the same report.

    Parameters
    ----------
    **options
        ``source_bytes`` and ``item_bytes`` describe the rows, ``tasks`` and ``lanes`` the cluster, ``wcu_per_second``
        the budget, ``hot_key`` the share of one key; ``lose`` and ``join`` are executors. See
        :class:`ddbio.SimulateLoadKeywords` for all.

    Raises
    ------
    OptionError
        If an option is wrong, or all executors are lost.
    """
    return simulation.simulate_load(parse_options(SimulateLoadOptions, options))


def _named(scenario: str | None) -> dict[str, Any]:
    """Return the values of a scenario."""
    if scenario is not None and scenario not in SCENARIOS:
        raise OptionError(f"there is no scenario {scenario!r}: there is {', '.join(SCENARIOS)}")
    return SCENARIOS[scenario] if scenario is not None else {}
