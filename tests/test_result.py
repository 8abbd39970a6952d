"""Results: plain values, JSON, and their display in a prompt and a notebook."""

import json
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from ddbio.result import Result


@dataclass(frozen=True)
class Inner(Result):
    """Result with one value."""

    path: str


@dataclass(frozen=True)
class Outer(Result):
    """Result with values of every kind."""

    name: str
    at: datetime | None = None
    files: tuple[Inner, ...] = ()
    counts: dict[str, int] | None = None
    done: bool = False
    schema: pa.Schema | None = None


def test_values_are_plain():
    """Nested results are dictionaries, times are text, and JSON has the same values."""
    outer = Outer("a", datetime(2026, 1, 2, tzinfo=UTC), (Inner("x"),), {"n": 1})
    values = {
        "name": "a",
        "at": "2026-01-02T00:00:00+00:00",
        "files": ({"path": "x"},),
        "counts": {"n": 1},
        "done": False,
        "schema": None,
    }
    assert outer.to_dict() == values
    assert json.loads(outer.to_json()) == json.loads(json.dumps(values))


def test_a_short_result_is_one_line():
    """Empty values are omitted. A false value is shown."""
    assert repr(Outer("a")) == "Outer(name='a', done=False)"


def test_a_long_result_has_a_line_for_each_field():
    """The first values of a long sequence are shown, and the size of a schema."""
    outer = Outer("a" * 60, files=tuple(Inner(f"{n}") for n in range(7)), schema=pa.schema([("n", pa.int8())] * 2))
    shown = ", ".join(f"Inner(path='{n}')" for n in range(5))
    assert repr(outer).splitlines() == [
        "Outer(",
        f"    name='{'a' * 60}',",
        f"    files=({shown}, … 2 more),",
        "    done=False,",
        "    schema=<Schema of 2>,",
        ")",
    ]


def test_a_notebook_shows_a_table():
    """Names and values are cells, and text is escaped."""
    assert "<th style='text-align:left'>name</th><td style='text-align:left'>&#x27;&lt;b&gt;&#x27;</td>" in (
        Outer("<b>")._repr_html_()
    )


def test_results_stay_values():
    """Results can be compared, hashed and pickled."""
    inner = Inner("x")
    assert pickle.loads(pickle.dumps(inner)) == inner
    assert len({inner, Inner("x")}) == 1
