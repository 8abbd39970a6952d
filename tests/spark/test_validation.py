"""A DataFrame of Spark as a side of a validation."""

import json
from decimal import Decimal

import ddbio


def test_a_data_frame_is_compared_with_a_table(spark, fake):
    """Its rows are those of the table, sets included; a changed row and a missing one are named."""
    items = [{"pk": {"S": f"k{n}"}, "n": {"N": f"{n}.5"}, "tags": {"SS": ["a", str(n)]}} for n in range(50)]
    fake.load("compared", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items), "pk:S")
    at = {"endpoint_url": fake.endpoint_url}
    rows = [(f"k{n}", Decimal(f"{n}.5"), ["a", str(n)]) for n in range(50)]
    frame = spark.createDataFrame(rows, "pk string, n decimal(10,1), tags array<string>")
    assert ddbio.validate("compared", frame, **at).equal
    changed = frame.where("pk != 'k7'").selectExpr("pk", "if(pk = 'k9', n + 1, n) as n", "tags")
    report = ddbio.validate("compared", changed, **at)
    assert (report.missing, report.extra, report.different) == (1, 0, 1)
    assert {each.kind: each.key["pk"]["S"] for each in report.examples} == {"missing": "k7", "different": "k9"}
