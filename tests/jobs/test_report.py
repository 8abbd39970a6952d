"""Base classes of reports."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ddbio.jobs.estimate import Figures
from ddbio.jobs.report import FileReport, RowsReport


@dataclass(frozen=True, kw_only=True)
class Report(RowsReport):
    """Report of a verb."""

    source: str


REPORT = Report(
    source="in",
    dest="out",
    job_id="j",
    engine="local",
    rows=1,
    seconds=1.0,
    cpu_seconds=0.5,
    files=(FileReport("out/part.parquet", 10, 1),),
    planned=Figures(seconds=2.0),
)


def test_the_fields_of_a_verb_come_first():
    """The fields of a specific report come before those of all reports."""
    names = list(REPORT.to_dict())
    assert names[:2] == ["source", "dest"]
    assert names[-2:] == ["seconds", "cpu_seconds"]
    assert repr(REPORT).splitlines()[1] == "    source='in',"


def test_a_stored_report_is_read_again():
    """The values in a manifest become the same report."""
    assert Report.from_dict(json.loads(REPORT.to_json())) == REPORT
