"""Prices from the AWS Price List.

References
----------
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from ddbio.jobs.prices import OWN_REGION, Price, PriceBook

if TYPE_CHECKING:
    from collections.abc import Iterable

_OWN_NAMES = re.compile(r"^(?:[A-Z]{2,4}[0-9]?[0-9A-Z]*-)?")
# Reserved capacity is a purchase term of the provisioned capacity.
_RESERVED = re.compile(r"^reserved_(?P<noun>read|write)_(?P<part>upfront|hours)_(?P<years>[13])y$")
_INSTANCE = re.compile(r"^ec2_(?P<kind>.+)_hours$")


@dataclass(frozen=True)
class PriceQuery:
    """Query for the products of a service with these attributes."""

    service: str
    attributes: tuple[tuple[str, str], ...]


def price_queries(book: PriceBook, region: str) -> tuple[PriceQuery, ...]:
    """Return the queries of the Price List for every price of a book in a region."""
    queries: dict[PriceQuery, None] = {}
    for name, price in book.prices.items():
        instance = _INSTANCE.match(name)
        attributes = {"regionCode": region}
        if instance is not None:
            attributes |= {
                "instanceType": instance["kind"],
                "operatingSystem": "Linux",
                "preInstalledSw": "NA",
                "tenancy": "Shared",
                "capacitystatus": "Used",
            }
        if price.service:
            queries[PriceQuery(price.service, tuple(attributes.items()))] = None
    return tuple(queries)


def refreshed_book(book: PriceBook, region: str, offers: Iterable[str]) -> PriceBook:
    """Return the prices of a region for a book's names, as far as the Price List has them.

    Other prices keep their value and date if the book is of that region, and are omitted otherwise.

    Parameters
    ----------
    offers
        Products of the Price List as JSON, as GetProducts returns them.
    """
    refreshed = {}
    for offer in map(json.loads, offers):
        usage = offer["product"]["attributes"].get("usagetype", "")
        refreshed[offer.get("serviceCode", ""), _OWN_NAMES.sub("", usage, count=1)] = offer
        refreshed.setdefault((offer.get("serviceCode", ""), usage), offer)
    prices: dict[str, Price] = {}
    for name, price in book.prices.items():
        if reserved := _RESERVED.match(name):
            noun = reserved["noun"]
            usages = (price.usage_type, f"{noun.title()}CapacityUnit-Hrs")
            offers_of = [refreshed[price.service, usage] for usage in usages if (price.service, usage) in refreshed]
            hour = prices.get(f"{noun}_capacity_unit_hours")
            new = None if hour is None else _reserved_price(price, reserved, offers_of, hour.of(1))
        else:
            offer = refreshed.get((price.service, price.usage_type))
            new = None if offer is None else _price(price, offer)
        if new is not None:
            prices[name] = new
        elif region == book.region:
            prices[name] = price
    return PriceBook(region, prices)


def _reserved_price(
    price: Price, wanted: re.Match[str], offers: Iterable[dict[str, Any]], hour_usd: float
) -> Price | None:
    """Return the price of reserved capacity in a term of one or three years.

    Parameters
    ----------
    hour_usd
        Hourly price of an unreserved unit, which is higher. It determines whether a term is of a single unit or of 100
        units.
    """
    for offer in offers:
        for term in offer.get("terms", {}).get("Reserved", {}).values():
            if term.get("termAttributes", {}).get("LeaseContractLength", "")[:1] != wanted["years"]:
                continue
            dimensions = term["priceDimensions"].values()
            usd = {dimension["unit"] == "Quantity": float(dimension["pricePerUnit"]["USD"]) for dimension in dimensions}
            if usd.keys() != {True, False}:
                continue
            scale = price.per if usd[False] < hour_usd else 1.0
            return _updated_price(price, offer, usd[wanted["part"] == "upfront"] * scale, ())
    return None


def _price(price: Price, offer: dict[str, Any]) -> Price | None:
    """Return the price of an offer. Free quantities are not charged."""
    ranges = []
    for term in offer.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            end = dimension.get("endRange", "Inf")
            usd = float(dimension["pricePerUnit"]["USD"])
            ranges.append((math.inf if end == "Inf" else float(end), usd * price.per))
    paid = sorted(tier for tier in ranges if tier[1])
    if not paid:
        return None
    return _updated_price(price, offer, paid[0][1], tuple(paid) if len(paid) > 1 else ())


def _updated_price(price: Price, offer: dict[str, Any], usd: float, tiers: tuple[tuple[float, float], ...]) -> Price:
    """Return a price with the values and the date of an offer."""
    return replace(
        price,
        usd=usd,
        tiers=tiers,
        usage_type=offer["product"]["attributes"]["usagetype"],
        source=f"https://pricing.{OWN_REGION}.amazonaws.com/offers/v1.0/aws/{price.service}/index.json",
        date=date.fromisoformat(offer["publicationDate"][:10]),
    )
