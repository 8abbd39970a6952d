"""Price book of a region, from the user or from ddbio, and the cost of a table's capacity units."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ddbio.aws.control_plane import read_offers
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import OptionError
from ddbio.jobs.clients import price_list_spec
from ddbio.jobs.estimate import Prices, compute_parts
from ddbio.jobs.price_list import price_queries, refreshed_book
from ddbio.jobs.prices import OWN_REGION, PriceBook, capacity_cost, joined_cost
from ddbio.jobs.service_estimates import CapturePlan
from ddbio.jobs.service_estimates import plan_capture as captured
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.advice.options import PlanCaptureOptions, PricesRefreshOptions
    from ddbio.aws.table_description import TableDescription
    from ddbio.jobs.estimate import Part
    from ddbio.jobs.prices import Cost
    from ddbio.options import PriceOptions


def user_file(name: str) -> Path:
    """Return the path of a file in ``DDBIO_CONFIG_DIR``, by default ddbio's folder in the user's configuration.

    References
    ----------
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    own = os.environ.get("DDBIO_CONFIG_DIR")
    root = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ddbio" if own is None else Path(own)
    return root / name


def write_user_file(name: str, parts: Iterable[str]) -> Path:
    """Write a file of the user's settings, and return its path.

    Raises
    ------
    OptionError
        If it cannot be written.
    """
    path = user_file(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(parts), encoding="utf-8")
    except OSError as error:
        raise OptionError(
            f"{path} cannot be written: {error.strerror}: set DDBIO_CONFIG_DIR to another folder"
        ) from None
    return path


# Path of a region's price book, among the user's files.
_FILE = "prices/{}.json"


def cost_of(what: Literal["reads", "writes"], units: float, table: TableDescription, path: str | None = None) -> Cost:
    """Return the cost of a table's capacity units.

    Parameters
    ----------
    path
        A file with a price book. The default is ddbio's book of the table's region, or that of us-east-1.

    Raises
    ------
    OptionError
        If the file cannot be read or is no price book.
    """
    return capacity_cost(book_of(table.region, path), what, units, table, datetime.now(UTC).date())


def job_cost(
    options: PriceOptions,
    units: Iterable[tuple[Literal["reads", "writes"], float | None, TableDescription]],
    parts: Iterable[Part],
    seconds: float | None,
) -> Cost:
    """Return the cost of a job: its capacity units by table, its other parts, and its cluster for ``seconds``.

    Raises
    ------
    OptionError
        If the file cannot be read or is no price book.
    """
    used = [(what, count, table) for what, count, table in units if count is not None]
    region = used[0][2].region if used else options.region
    others = prices_of(region, options.prices).cost([*parts, *compute_parts(options.compute, seconds)])
    return joined_cost([*(cost_of(what, count, table, options.prices) for what, count, table in used), others])


def prices_of(region: str | None, path: str | None = None) -> Prices:
    """Return the prices of a region as of today; see ``book_of``."""
    return Prices(book_of(region, path), region, datetime.now(UTC).date())


def plan_capture(options: PlanCaptureOptions) -> CapturePlan:
    """Plan the capture of a table's changes for a month, with its cost. No service is called.

    Raises
    ------
    OptionError
        If the file is no price book.
    LimitError
        If the plan is above a limit.
    """
    plan = captured(options, prices_of(options.region, options.prices))
    check_estimate(options, plan.estimate)
    return plan


def refresh_prices(options: PricesRefreshOptions) -> PriceBook:
    """Update the prices of a region from the AWS Price List, store them for plans, and return them.

    Raises
    ------
    AccessDeniedError, EndpointError, ServiceError
        If the Price List does not respond.
    OptionError
        If the prices cannot be stored.
    """
    region = options.region or OWN_REGION
    spec, own_book = price_list_spec(options), _own_book(OWN_REGION)
    offers = [offer for query in price_queries(own_book, region) for offer in read_offers(spec, query)]
    book = refreshed_book(own_book, region, offers)
    write_user_file(_FILE.format(region), [book.to_json()])
    return book


def book_of(region: str | None, path: str | None = None) -> PriceBook:
    """Return the prices of a region: from a file, the last refresh or ddbio, otherwise those of us-east-1.

    Raises
    ------
    OptionError
        If the file cannot be read or is no price book.
    """
    if path is not None:
        try:
            return PriceBook.from_json(local_path(path).read_text(encoding="utf-8"), path)
        except OSError as error:
            raise OptionError(f"prices {path} cannot be read: {error.strerror}") from None
    for candidate in filter(None, (region, OWN_REGION)):
        refreshed = user_file(_FILE.format(candidate))
        with contextlib.suppress(OSError):
            return PriceBook.from_json(refreshed.read_text(encoding="utf-8"), str(refreshed))
        with contextlib.suppress(OSError):
            return _own_book(candidate)
    raise AssertionError("unreachable: there is a book of us-east-1")


def _own_book(region: str) -> PriceBook:
    folder, name = resources.files("ddbio.jobs.prices"), f"{region}.json"
    return PriceBook.from_json(folder.joinpath(name).read_text(encoding="utf-8"), name)
