"""Price books of ddbio and of users, and the cost of jobs."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from ddbio.aws.table_description import TableDescription
from ddbio.errors import OptionError
from ddbio.jobs import prices
from ddbio.jobs.prices import Cost, CostLine, PriceBook, capacity_cost, joined_cost

OWN = (Path(prices.__file__).parent / "us-east-1.json").read_text("utf-8")


def test_every_price_has_a_source_and_a_date():
    """Each price in ddbio's book has its source and date."""
    book = PriceBook.from_json(OWN, "us-east-1.json")
    assert book.region == "us-east-1"
    for name, price in book.prices.items():
        assert price.source.startswith("https://aws.amazon.com/"), name
        assert price.usage_type, name
        assert price.usd > 0, name
        assert date(2023, 1, 1) <= price.date <= date(2026, 11, 22), name


@pytest.mark.parametrize(
    ("usd", "expected"),
    [
        pytest.param(lambda book: book.usd("read_request_units", 8_000_000), 1.00, id="8 M reads on demand"),
        pytest.param(lambda book: book.usd("write_request_units", 3_000_000), 1.88, id="3 M writes on demand"),
        pytest.param(lambda book: book.usd("export", 1024), 102.40, id="an export of 1 TB"),
        pytest.param(lambda book: book.usd("s3_writes", 100_000), 0.50, id="1 TB as objects of 10 MB"),
        pytest.param(lambda book: book.usd("read_request_units", 1024**4 / 8192), 16.78, id="1 TiB read eventually"),
    ],
)
def test_sums_of_published_bills(usd, expected):
    """The sums equal those published for these quantities."""
    assert usd(PriceBook.from_json(OWN, "us-east-1.json")) == pytest.approx(expected, rel=0.005)


def test_quantities_are_priced_by_tiers():
    """The first 50 TB of S3 have one price, and further ones the next. The last tier has no end."""
    book = PriceBook.from_json(OWN, "us-east-1.json")
    assert book.usd("s3_storage", 51_200) == pytest.approx(1_177.60)
    assert book.usd("s3_storage", 51_200 + 460_800 + 1) == pytest.approx(1_177.60 + 460_800 * 0.022 + 0.021)


def test_a_book_is_read_from_its_json():
    """Tiers, services and dates are preserved by ``to_json``."""
    book = PriceBook.from_json(OWN, "us-east-1.json")
    assert PriceBook.from_json(book.to_json(), "again") == book


def test_a_cost_has_a_line_for_each_part():
    """Parts of quantity 0 are omitted. Each price is noted once."""
    book = PriceBook.from_json(OWN, "us-east-1.json")
    cost = book.cost([("files", "s3_writes", 2000), ("none", "s3_reads", 0)], "us-east-1", date(2024, 7, 2))
    assert cost == Cost((CostLine("files", 2000, "request", 0.01),))


def test_notes_report_foreign_and_old_prices():
    """The notes name the region of a foreign price, and the age of an old one. Unused prices have no notes."""
    book = PriceBook.from_json(OWN, "us-east-1.json")
    assert book.notes("export", "us-east-1", date(2023, 3, 1)) == ()
    foreign, old = book.notes("export", "eu-west-1", date(2026, 11, 22))
    assert "no book for eu-west-1" in foreign
    assert "2023-02-15" in old
    assert "2024-11-15" in book.notes("read_request_units", "us-east-1", date(2026, 11, 22))[0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"region": "r", "prices": {"export": {"usd": "much"}}}'])
def test_another_file_is_refused(text):
    """The error of an unusable price file lists the contents of a price book."""
    with pytest.raises(OptionError, match=r"mine\.json are no book of prices"):
        PriceBook.from_json(text, "mine.json")


def table(*, on_demand: bool, infrequent_access: bool = False) -> TableDescription:
    """Return a table of us-east-1."""
    arn = "arn:aws:dynamodb:us-east-1:1:table/t"
    return TableDescription(
        "t", arn, "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand, infrequent_access=infrequent_access
    )


def test_provisioned_units_are_paid_by_the_hour():
    """A job on provisioned capacity adds nothing to the bill. On demand a unit has the price of the table's class."""
    book, day = PriceBook.from_json(OWN, "us-east-1.json"), date(2024, 12, 1)
    paid = capacity_cost(book, "reads", 1e6, table(on_demand=False), day)
    assert paid.lines == (CostLine("reads", 1e6, "RCU", 0.0),)
    written = capacity_cost(book, "writes", 1e6, table(on_demand=True), day)
    assert written.lines == (CostLine("writes", 1e6, "WRU", 0.625),)
    rarely = capacity_cost(book, "writes", 1e6, table(on_demand=True, infrequent_access=True), day)
    assert rarely.lines == (CostLine("writes", 1e6, "WRU", 0.78),)


def test_a_price_that_a_book_lacks_is_unknown():
    """It is not free: the line has no price, and the sum is that of the others."""
    book = PriceBook.from_json(json.dumps({"region": "r", "prices": {}}), "mine.json")
    unknown = capacity_cost(book, "reads", 5, table(on_demand=True), date(2024, 12, 1))
    assert unknown.lines[0].usd is None
    assert joined_cost([unknown, Cost((CostLine("a", 1, "x", 2.0),))]).usd == 2.0
