"""Make the page of a validation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ddbio.charts.page import Page, Table

if TYPE_CHECKING:
    from ddbio.validation.comparison import ValidationReport


def validation_page(report: ValidationReport) -> Page:
    """Return the page of a validation: what differs, with examples, and what became of each rule."""
    title = f"Validation of {report.source}" + ("" if report.target is None else f" against {report.target}")
    facts = [("result", "passed" if report.passed else "FAILED"), ("key", ", ".join(report.key))]
    if report.target is not None:
        facts += [
            ("rows", f"{report.source_rows:,} in the source, {report.target_rows:,} in the target"),
            ("missing", f"{report.missing:,}"),
            ("extra", f"{report.extra:,}"),
            ("different", f"{report.different:,}"),
            ("repeated keys", f"{report.source_repeated:,} in the source, {report.target_repeated:,} in the target"),
            ("digests", f"{report.source_digest}, {report.target_digest}"),
        ]
    else:
        facts += [("rows", f"{report.source_rows:,}"), ("repeated keys", f"{report.source_repeated:,}")]
    facts += [
        ("NULL and missing", "different" if report.nulls == "keep" else "taken for the same"),
        ("sample", f"{report.sample:.2%} of the keys"),
        ("time", f"{report.seconds:,.1f} s, {report.rcu_consumed:,.1f} RCU"),
    ]
    tables = []
    if report.examples:
        rows = tuple((each.kind, _json(each.key), _json(each.source), _json(each.target)) for each in report.examples)
        tables.append(Table("Keys that differ", ("kind", "key", "source", "target"), rows))
    if report.columns:
        columns = tuple((each.name, each.source or "", each.target or "") for each in report.columns)
        tables.append(Table("Columns that differ", ("attribute", "source", "target"), columns))
    if report.rules:
        rules = tuple(
            (
                each.column or "", each.rule, "holds" if each.passed else f"{each.failures:,} failures",
                "\n".join(map(_json, each.examples)),
            )
            for each in report.rules
        )  # fmt: skip
        tables.append(Table("Rules", ("column", "rule", "result", "examples"), rules))
    return Page(title, tuple(facts), tuple(tables))


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
