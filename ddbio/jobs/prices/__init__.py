"""Price books, and the cost of a job's consumption.

``us-east-1.json`` next to this module is ddbio's own book. Each price has its page, its service and usage type in AWS's
bills, and the date of the price. The free tier of accounts is never deducted.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

from ddbio.errors import OptionError
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.aws.table_description import TableDescription

OWN_REGION = "us-east-1"
"""The region whose prices are used for regions without a book."""

_OLD = timedelta(days=180)


@dataclass(frozen=True)
class Price:
    """A price.

    Attributes
    ----------
    usd, per
        Cost of ``per`` units.
    unit, usage_type
        Name of the unit, and the usage type in bills and in the AWS Price List.
    source, date
        Page with the price, and the date of the price.
    service
        Code of the service in the AWS Price List.
    tiers
        Monthly quantities at which tiers end, the last one infinite, and the price of each tier; empty if there is one
        price.
    """

    usd: float
    per: float
    unit: str
    usage_type: str
    source: str
    date: date
    service: str = ""
    tiers: tuple[tuple[float, float], ...] = ()

    def of(self, quantity: float) -> float:
        """Return the cost of a quantity: each tier's part of it at the price of that tier."""
        if not self.tiers:
            return quantity * self.usd / self.per
        total, begin = 0.0, 0.0
        for end, usd in self.tiers:
            total += max(0.0, min(quantity, end) - begin) * usd / self.per
            begin = end
        return total


@dataclass(frozen=True)
class PriceBook:
    """Prices of a region, by name."""

    region: str
    prices: dict[str, Price] = field(default_factory=dict)

    @staticmethod
    def from_json(text: str, name: str) -> PriceBook:
        """Return the price book in a JSON text.

        Parameters
        ----------
        name
            Name of the text in messages.

        Raises
        ------
        OptionError
            If it is not a price book.
        """
        try:
            book = json.loads(text)
            prices = {
                key: Price(
                    usd=float(price["usd"]),
                    per=float(price["per"]),
                    unit=str(price["unit"]),
                    usage_type=str(price["usage_type"]),
                    source=str(price["source"]),
                    date=date.fromisoformat(price["date"]),
                    service=str(price.get("service", "")),
                    tiers=tuple(
                        (math.inf if end is None else float(end), float(usd)) for end, usd in price.get("tiers", ())
                    ),
                )
                for key, price in book["prices"].items()
            }
            return PriceBook(str(book["region"]), prices)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OptionError(
                f"prices {name} are no book of prices ({type(error).__name__}: {error}): give JSON with region and "
                "prices, each with usd, per, unit, usage_type, source and date"
            ) from None

    def usd(self, name: str, quantity: float) -> float | None:
        """Return the monthly cost of a quantity, or None if the book has no such price."""
        price = self.prices.get(name)
        return None if price is None else price.of(quantity)

    def line(self, what: str, name: str, quantity: float) -> CostLine:
        """Return a line of a bill: a quantity at a price, for a purpose."""
        price = self.prices.get(name)
        return CostLine(what, quantity, "" if price is None else price.unit, self.usd(name, quantity))

    def cost(self, parts: Iterable[tuple[str, str, float]], region: str | None, today: date) -> Cost:
        """Return the total cost of several parts of a job, without parts of quantity 0.

        Parameters
        ----------
        parts
            Purpose, name of the price, and quantity of each part.
        region
            Region of the job, for the notes.
        """
        wanted = [(what, name, quantity) for what, name, quantity in parts if quantity]
        notes = dict.fromkeys(note for _, name, _ in wanted for note in self.notes(name, region, today))
        return Cost(tuple(self.line(*part) for part in wanted), tuple(notes))

    def to_json(self) -> str:
        """Return the book as JSON, as ``from_json`` reads it."""
        prices = {}
        for name, price in self.prices.items():
            values = {key: getattr(price, key) for key in ("usd", "per", "unit", "service", "usage_type", "source")}
            if price.tiers:
                values["tiers"] = [[None if math.isinf(end) else end, usd] for end, usd in price.tiers]
            prices[name] = {**values, "date": price.date.isoformat()}
        return json.dumps({"region": self.region, "currency": "USD", "prices": prices}, indent=2) + "\n"

    def notes(self, name: str, region: str | None, today: date) -> tuple[str, ...]:
        """Return the notes of a price: it is that of another region, or older than 180 days."""
        notes = []
        if region not in {None, self.region}:
            notes.append(f"prices are those of {self.region}: there is no book for {region}")
        price = self.prices.get(name)
        if price is not None and today - price.date > _OLD:
            notes.append(
                f"the price of {price.date} is old: run ddbio prices refresh, or compare it with {price.source}"
            )
        return tuple(notes)


@dataclass(frozen=True)
class CostLine(Result):
    """Cost of a part of a job.

    Attributes
    ----------
    quantity, unit
        Quantity and its unit.
    usd
        Cost, or None if the book has no price.
    """

    what: str
    quantity: float
    unit: str
    usd: float | None


@dataclass(frozen=True)
class Cost(Result):
    """Lines of a job's cost, with notes."""

    lines: tuple[CostLine, ...]
    notes: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Return the sum of all lines that have a price."""
        return sum(line.usd for line in self.lines if line.usd is not None)

    def of_share(self, share: float) -> Cost:
        """Return the cost of a share of the job."""
        lines = (
            replace(line, quantity=line.quantity * share, usd=None if line.usd is None else line.usd * share)
            for line in self.lines
        )
        return replace(self, lines=tuple(lines))


def unit_price(what: Literal["reads", "writes"], *, infrequent_access: bool, on_demand: bool = True) -> str:
    """Return the name of the price of a request unit, or of an hour of a provisioned unit, of a table's class."""
    name = f"{what.removesuffix('s')}_{'request_units' if on_demand else 'capacity_unit_hours'}"
    return f"ia_{name}" if infrequent_access else name


def capacity_cost(
    book: PriceBook, what: Literal["reads", "writes"], units: float, table: TableDescription, today: date
) -> Cost:
    """Return the cost of a table's capacity units; provisioned ones are paid by the hour, used or not."""
    unit = ("RRU" if table.on_demand else "RCU") if what == "reads" else ("WRU" if table.on_demand else "WCU")
    if not table.on_demand:
        return Cost((CostLine(what, units, unit, 0.0),))
    name = unit_price(what, infrequent_access=table.infrequent_access)
    return Cost((CostLine(what, units, unit, book.usd(name, units)),), book.notes(name, table.region, today))


def joined_cost(costs: Iterable[Cost]) -> Cost:
    """Return the cost of several parts of one job."""
    all_costs = tuple(costs)
    notes = dict.fromkeys(note for cost in all_costs for note in cost.notes)
    return Cost(tuple(line for cost in all_costs for line in cost.lines), tuple(notes))


def cost_values(cost: Cost | None) -> dict[str, Any]:
    """Return the cost of a plan in JSON: ``usd``, ``lines`` and ``notes``."""
    if cost is None:
        return {"usd": None, "lines": [], "notes": []}
    return {"usd": cost.usd, "lines": [line.to_dict() for line in cost.lines], "notes": list(cost.notes)}
