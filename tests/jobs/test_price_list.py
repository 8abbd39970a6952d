"""Prices from the Price List: found by usage type, stored for plans, and priced by tiers."""

from __future__ import annotations

import json
import threading
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.jobs.costs import book_of
from ddbio.jobs.price_list import price_queries, refreshed_book


def offer(service, usage_type, *ranges):
    """Return a product as GetProducts returns it. Each range is its start, its end and its price."""
    dimensions = {
        str(number): {"beginRange": begin, "endRange": end, "pricePerUnit": {"USD": usd}, "unit": "x"}
        for number, (begin, end, usd) in enumerate(ranges)
    }
    return json.dumps(
        {
            "product": {"attributes": {"usagetype": usage_type, "regionCode": "eu-west-1"}},
            "serviceCode": service,
            "terms": {"OnDemand": {"term": {"priceDimensions": dimensions}}},
            "publicationDate": "2026-11-02T10:00:00Z",
        }
    )


def reserved(years, upfront, hourly):
    """Return a term of reserved capacity as GetProducts returns it."""
    units = {"Quantity": upfront, "ReadCapacityUnit-Hrs": hourly}
    dimensions = {unit: {"unit": unit, "pricePerUnit": {"USD": usd}} for unit, usd in units.items()}
    return {"termAttributes": {"LeaseContractLength": f"{years}yr"}, "priceDimensions": dimensions}


OFFERS = {
    "AmazonDynamoDB": [
        offer("AmazonDynamoDB", "EU-WriteRequestUnits", ("0", "Inf", "0.0000007050")),
        offer("AmazonDynamoDB", "EU-IA-WriteRequestUnits", ("0", "Inf", "0.0000008850")),
        offer("AmazonDynamoDB", "EU-TimedStorage-ByteHrs", ("0", "25", "0"), ("25", "Inf", "0.283")),
    ],
    "AmazonS3": [
        offer("AmazonS3", "EU-TimedStorage-ByteHrs", ("0", "51200", "0.023"), ("51200", "Inf", "0.022")),
    ],
}


class PriceList(BaseHTTPRequestHandler):
    """GetProducts endpoint with one product per page."""

    def do_POST(self):
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        offers, start = OFFERS.get(asked["ServiceCode"], []), int(asked.get("NextToken", 0))
        reply = {"PriceList": offers[start : start + 1], "FormatVersion": "aws_v1"}
        if start + 1 < len(offers):
            reply["NextToken"] = str(start + 1)
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def price_list(tmp_path, monkeypatch):
    """Serve a Price List of few products, and store prices in a folder of the test."""
    monkeypatch.setenv("DDBIO_CONFIG_DIR", str(tmp_path / "config"))
    with ThreadingHTTPServer(("127.0.0.1", 0), PriceList) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_refresh_stores_a_book_for_plans(price_list):
    """Each price has the date and the usage type of its region. Missing prices are omitted, never invented."""
    words = ["prices", "refresh", "--region", "eu-west-1", "--pricing-endpoint-url", price_list, "--json"]
    made = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)
    assert made["region"] == "eu-west-1"
    assert made["prices"].keys() == {"write_request_units", "ia_write_request_units", "storage", "s3_storage"}
    book = book_of("eu-west-1")
    assert book.usd("write_request_units", 1e6) == pytest.approx(0.705)
    assert book.usd("ia_write_request_units", 1e6) == pytest.approx(0.885)
    assert (book.prices["storage"].usd, book.prices["storage"].tiers) == (0.283, ())
    assert book.usd("s3_storage", 51_201) == pytest.approx(51_200 * 0.023 + 0.022)
    price = book.prices["write_request_units"]
    assert (price.date, price.usage_type) == (date(2026, 11, 2), "EU-WriteRequestUnits")
    assert book.notes("write_request_units", "eu-west-1", date(2026, 11, 22)) == ()
    shown = CliRunner().invoke(cli, ["prices", "show", "--region", "eu-west-1"], catch_exceptions=False).stdout
    assert "EU-WriteRequestUnits" in shown
    plan = ddbio.plan_capture(records_per_second=1, region="eu-west-1")
    assert {line.what: line.usd for line in plan.estimate.cost.lines}["reads of the stream"] is None


def test_the_own_region_keeps_what_the_list_lacks():
    """A missing price is kept with its date, because an old price is better than none."""
    own = book_of("us-east-1")
    new = refreshed_book(own, "us-east-1", [offer("AmazonDynamoDB", "WriteRequestUnits", ("0", "Inf", "0.0000006"))])
    assert new.usd("write_request_units", 1e6) == pytest.approx(0.6)
    assert new.prices["export"] == own.prices["export"]


@pytest.mark.parametrize(("usage", "scale"), [("ReadCapacityUnit-Hrs", 1), ("HeavyUsage:dynamodb.read", 100)])
def test_reserved_capacity_is_found_among_the_terms(usage, scale):
    """Terms of one and of three years are distinguished, and those of one unit from those of 100."""
    own = book_of("us-east-1")
    made = json.loads(offer("AmazonDynamoDB", usage))
    terms = [reserved(3, f"{0.4 * scale}", f"{0.00002 * scale}"), reserved(1, f"{0.5 * scale}", f"{0.00003 * scale}")]
    made["terms"]["Reserved"] = dict(enumerate(terms))
    new = refreshed_book(own, "us-east-1", [json.dumps(made)])
    assert new.usd("reserved_read_upfront_1y", 100) == pytest.approx(50)
    assert new.usd("reserved_read_hours_1y", 100) == pytest.approx(0.003)
    assert new.usd("reserved_read_upfront_3y", 100) == pytest.approx(40)
    assert new.prices["reserved_read_hours_3y"].date == date(2026, 11, 2)
    assert new.prices["reserved_write_hours_3y"] == own.prices["reserved_write_hours_3y"]


def test_one_query_for_each_service_and_instance():
    """Instances are requested by type, because there are thousands."""
    queries = price_queries(book_of("us-east-1"), "us-east-1")
    assert len(queries) == len({query.service for query in queries})
    (instance,) = [query for query in queries if query.service == "AmazonEC2"]
    assert ("instanceType", "m5.xlarge") in instance.attributes
