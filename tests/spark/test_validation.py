"""A DataFrame of Spark as a side of a validation."""

import json
from decimal import Decimal

import pytest

import ddbio


def test_a_data_frame_is_compared_with_a_table(spark, fake):
    """Its rows equal those of the table, including sets. A changed row and a missing one are named."""
    items = [{"pk": {"S": f"k{n}"}, "n": {"N": f"{n}.5"}, "tags": {"SS": ["a", str(n)]}} for n in range(50)]
    fake.load("compared", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items), "pk:S")
    at = {"endpoint_url": fake.endpoint_url}
    rows = [(f"k{n}", Decimal(f"{n}.5"), ["a", str(n)]) for n in range(50)]
    frame = spark.createDataFrame(rows, "pk string, n decimal(10,1), tags array<string>")
    assert ddbio.validate("compared", frame.repartition(3), **at).equal
    changed = frame.where("pk != 'k7'").selectExpr("pk", "if(pk = 'k9', n + 1, n) as n", "tags")
    report = ddbio.validate("compared", changed, **at)
    assert (report.missing, report.extra, report.different) == (1, 0, 1)
    assert {example.kind: example.key["pk"]["S"] for example in report.examples} == {"missing": "k7", "different": "k9"}


@pytest.fixture
def frames(spark):
    """Return two frames. The second lacks five rows, repeats a key, and has another key twice with different values."""
    rows = [(f"k{n}", n) for n in range(200)]
    other = [*rows[5:], ("k7", 7), ("k9", -1)]
    return [spark.createDataFrame(rows_of_frame, "pk string, n long") for rows_of_frame in (rows, other)]


def test_the_tasks_of_a_data_frame_hash_it_and_check_its_rules(frames, tmp_path):
    """Two frames are compared without moving their rows.

    The report equals that of Arrow rows, with repeated keys and rules.
    """
    one, other = frames
    rules = str(tmp_path / "rules.yaml")
    (tmp_path / "rules.yaml").write_text(_RULES, "utf-8")
    report, wanted = (
        ddbio.validate(source, target, key="pk", examples=20, rules=rules)
        for source, target in ((one.repartition(5), other), (one.toArrow(), other.toArrow()))
    )
    left_out = dict.fromkeys((*_OWN, "rules"))
    assert {**report.to_dict(), **left_out} == {**wanted.to_dict(), **left_out}
    assert (report.missing, report.extra, report.target_repeated) == (5, 2, 2)
    assert [(result.rule, result.failures) for result in report.rules] == [
        (result.rule, result.failures) for result in wanted.rules
    ]
    assert [result.failures for result in report.rules] == [0, 99, 1, 197, 2, 1, 1]
    assert all(len(result.examples) == min(result.failures, 20) for result in report.rules[:4])
    (tmp_path / "rules.yaml").write_text("columns: {n: {range: {max: 'x'}}}", "utf-8")
    with pytest.raises(ddbio.OptionError, match="does not suit"):
        ddbio.validate(one, rules=rules, key="pk")


@pytest.mark.nightly
def test_samples_and_empty_data_frames(spark, frames):
    """A sample has the same rows as for Arrow, a frame may be empty, and rows without a key are an error."""
    one, other = frames
    sampled = ddbio.validate(one, other, key="pk", sample=0.5, examples=0)
    assert sampled.source_rows == ddbio.validate(one.toArrow(), one.toArrow(), key="pk", sample=0.5).source_rows < 200
    empty = ddbio.validate(one.limit(0), one, key="pk", examples=1)
    assert (empty.source_rows, empty.extra) == (0, 200)
    with pytest.raises(ddbio.SchemaError, match="pk"):
        ddbio.validate(one, spark.createDataFrame([(None, 1)], "pk string, n long"), key="pk")


def test_tasks_of_spark_validate_a_table_and_its_files(spark, fake, tmp_path):
    """Tasks read segments and files. The report equals that of this process, including rules and examples."""
    items = [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}} for n in range(300)]
    fake.load("spread", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items), "pk:S")
    at, rules = {"endpoint_url": fake.endpoint_url}, str(tmp_path / "rules.yaml")
    ddbio.scan_to_files("spread", tmp_path / "lake", target_file_bytes="64KiB", engine="local", **at)
    (tmp_path / "rules.yaml").write_text(_RULES, "utf-8")
    changed = [*items[:7], {"pk": {"S": "k7"}, "n": {"N": "8"}}, *items[8:], {"pk": {"S": "new"}, "n": {"N": "-2"}}]
    fake.load("newer", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in changed), "pk:S")
    report, wanted = (
        ddbio.validate("newer", tmp_path / "lake", engine=engine, rules=rules, **at) for engine in ("spark", "local")
    )
    left_out = dict.fromkeys((*_OWN, "rcu_consumed", "rules"))
    assert {**report.to_dict(), **left_out} == {**wanted.to_dict(), **left_out}
    assert [(result.rule, result.failures) for result in report.rules] == [
        (result.rule, result.failures) for result in wanted.rules
    ]
    assert {result.kind: result.key["pk"]["S"] for result in report.examples} == {"missing": "new", "different": "k7"}


def test_rows_of_different_sides_are_joined_by_a_shuffle(spark, fake, tmp_path):
    """Tasks join tables, files and DataFrames. The report equals that of this process, including repeated keys."""
    items = [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}} for n in range(400)]
    fake.load("joined", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items), "pk:S")
    fake.load("other", b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items[:150]), "pk:S")
    at = {"endpoint_url": fake.endpoint_url}
    rows = spark.createDataFrame(
        [(f"k{n}", n + n % 2) for n in range(50, 400)] + [("k60", 60), ("k61", 0)], "pk string, n long"
    )
    rows.write.parquet(str(tmp_path / "lake"))
    named = {"key": "pk", "nulls": "merge", "examples": 200, **at}
    for source, target in ((tmp_path / "lake", rows), ("joined", "other")):
        report = ddbio.validate(source, target, engine="spark", **named)
        wanted = ddbio.validate(source, rows.toArrow() if target is rows else target, engine="local", **named)
        left_out = dict.fromkeys((*_OWN, "rcu_consumed"))
        assert {**report.to_dict(), **left_out} == {**wanted.to_dict(), **left_out}
        assert sorted((example.kind, example.key["pk"]["S"]) for example in report.examples) == sorted(
            (example.kind, example.key["pk"]["S"]) for example in wanted.examples
        )
    no_key = spark.createDataFrame([(None, 1)], "pk string, n long")
    with pytest.raises(ddbio.SchemaError, match="pk"):
        ddbio.validate(tmp_path / "lake", no_key, engine="spark", **named)


_RULES = """
columns:
  pk: {not_null: true, unique: true}
  n:
    range: {max: 100}
    regex: "[0-9]+"
    in_set: [-2]
unique: [pk, n]
row_count: {max: 10}
"""
_OWN = ("source", "target", "seconds", "cpu_seconds", "planned", "actual", "examples")
