"""The table of figures and README's picture, compared with the rows of ``results/e2e``, and computed figures."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from bench import figures, picture, report
from bench.e2e import budget, emr_scan, emr_write, record, simulate, verbs
from bench.rows import newest


def test_page_shows_the_newest_rows():
    """The page and ``results/e2e`` agree. ``./task docs`` updates the table."""
    text = report.PAGE.read_text("utf-8")
    assert report.replace(text, report.render()) == text


def test_picture_shows_the_newest_rows():
    """README's picture is that of ``results/e2e``, with a bar for every peer. ``./task docs`` updates it."""
    text = picture.PICTURE.read_text("utf-8")
    assert picture.render() == text
    assert text.count('class="bar"') == len(picture.BARS)
    assert f"]({picture.PICTURE.relative_to(record.ROOT)})" in (record.ROOT / "README.md").read_text("utf-8")


def test_check_reports_figures_that_differ_from_the_results(tmp_path, monkeypatch, capsys):
    """``--check`` changes nothing and fails while table or picture differ. Without it both are updated."""
    page, drawn, simulations = (tmp_path / name for name in ("benchmarks.md", "speed.svg", "simulate.md"))
    simulations.write_text("no table", "utf-8")
    page.write_text(f"before\n{report.BEGIN}old\n{report.END}\nafter\n", "utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(picture, "PICTURE", drawn)
    monkeypatch.setattr(report, "SIMULATIONS", simulations)
    assert report.main(["--check"]) == 1
    assert "old" in page.read_text("utf-8")
    assert "./task docs" in capsys.readouterr().err
    assert report.main([]) == 0
    assert report.main(["--check"]) == 0
    assert drawn.exists()
    assert page.read_text("utf-8").startswith(f"before\n{report.BEGIN}")
    assert page.read_text("utf-8").endswith(f"{report.END}\nafter\n")


# A ratio, a speed or a share of a processor, but not a goal, a bound, a factor of a product, or a service limit.
FIGURE = re.compile(
    r"(?<![≥≤<>\d.,] )(?<![≥≤<>\d.,])\d[\d.,]*\s?"
    r"(?:×(?! (?:[\d`$(]|lanes|scale|the))|GB/s|(?:items|rows)/s|[KMG]B a CPU-second"
    r"|CPU-s(?:econds)?\b|ms of CPU|times (?:as much|as fast|as many|the sum|faster))"
)
GENERATED = r"<!-- (\w+):begin -->.*?<!-- \1:end -->"
# Bills are arithmetic. Decisions and release notes have the figures of their time.
OTHER_PAGES = ("docs/adr/", "docs/bills.md", "CHANGELOG.md")
PAGES = [
    path
    for path in [*record.ROOT.glob("*.md"), *(record.ROOT / "docs").rglob("*.md")]
    if not str(path.relative_to(record.ROOT)).startswith(OTHER_PAGES)
]


def measured_in(text):
    """Return the measured figures of a page that are not generated from a row."""
    return FIGURE.findall(re.sub(rf"{GENERATED}|```.*?```", "", text, flags=re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(record.ROOT)))
def test_every_figure_is_generated(page):
    """Ratios and speeds are only in the parts that are generated from ``results/``."""
    assert measured_in(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("it is 22 × at 8,000 rows", 1),
        ("at 1.2 GB/s, for 3 ms of CPU", 2),
        ("takes 1.7 times the sum", 1),
        ("≥ 0.9 × the loops; 2 MB a second of a shard; any 10 s over 10 × the budget; 4 × lanes", 0),
        ("<!-- made:begin -->\n26.4×\n<!-- made:end -->", 0),
        ("```sh\n# 5 CPU-seconds\n```", 0),
    ],
)
def test_figures_are_distinguished_from_goals(text, figures):
    """A measured figure is detected. A goal or a formula is not."""
    assert len(measured_in(text)) == figures


def test_the_page_of_simulations_is_that_of_its_row(tmp_path):
    """Its table is generated from the newest row. ``./task docs`` updates it."""
    assert report.simulations(report.SIMULATIONS.read_text("utf-8")) == report.SIMULATIONS.read_text("utf-8")
    progress = {way: [60.0, 3_600.0, 91_500.0] for way in simulate.WAYS}
    figures = {"ratios": dict.fromkeys(simulate.WAYS, 1.0312), "progress": progress}
    (tmp_path / "simulate.jsonl").write_text(json.dumps({"scale": 1.0, "figures": figures}) + "\n")
    shown = report.simulations("a\n<!-- simulate:begin -->\nold\n<!-- simulate:end -->\nb\n", tmp_path)
    assert "| leases: one budget for all tasks | 0 h 01 min | 1 h 00 min | 25 h 25 min | 1.03 × |" in shown
    assert "old" not in shown
    assert shown.endswith("<!-- simulate:end -->\nb\n")


def test_layouts_are_those_of_their_row(tmp_path):
    """The table of formats and tasks is generated from the newest row. ``./task docs`` updates it."""
    page = report.PAGE.read_text("utf-8")
    assert report.layouts(page) == page
    layout = {"files": 1200, "median_bytes": 3 << 19, "small_file_ratio": 0.25, "bytes_near_target_ratio": 0.971}
    figures = {"layout": {"orc": {"1": layout, "4": layout}}}
    (tmp_path / "files.jsonl").write_text(json.dumps({"scale": 1.0, "figures": figures}) + "\n")
    shown = report.layouts("a\n<!-- layouts:begin -->\nold\n<!-- layouts:end -->\nb\n", tmp_path)
    assert "| | 1 task | 4 tasks |\n|---|---|---|\n| orc | 1,200 of 1.50 MiB, 25 % small, 97 % near | 1,200" in shown
    assert "old" not in shown
    assert report.layouts("no marks", tmp_path) == "no marks"


def test_the_variation_of_the_gates_counts_is_shown(tmp_path):
    """The newest baseline shows the coefficient of variation of its counts, and the goal."""
    folder = tmp_path / "e2e"
    folder.mkdir()
    (folder / "plan.jsonl").write_text("", "utf-8")
    assert report.render(folder) == ""
    baseline = {"figures": {"instructions": {}, "variation_percent": 0.02, "runs": 3}, **record.provenance()}
    (tmp_path / "gate.jsonl").write_text(json.dumps({**baseline, "scale": 1.0}) + "\n", "utf-8")
    assert "largest coefficient of variation of 3 counts | 0.020 % | ≤ 1 %" in report.render(folder)


def test_rows_of_another_scale_are_not_shown(tmp_path):
    """The newest row at full scale is used, even if a later one has a smaller scale."""
    path = tmp_path / "decode.jsonl"
    path.write_text(
        "".join(json.dumps({"at": at, "scale": scale}) + "\n" for at, scale in [(1, 1.0), (2, 1.0), (3, 0.1)])
    )
    assert newest(path) == {"at": 2, "scale": 1.0}
    assert newest(tmp_path / "absent.jsonl") is None


@pytest.mark.parametrize(
    ("goal", "shown"),
    [(("≥", 3.0), "2.5× | ≥ 3× **missed**"), (("≤", 3.0), "2.5× | ≤ 3×"), (None, "2.5× | ")],
)
def test_a_missed_goal_is_marked(goal, shown):
    """A figure that misses its goal is marked."""
    assert figures.Line("figure", 2.5, "×", goal, digits=1).cells() == shown


@pytest.mark.parametrize(
    ("case", "measured", "shown"),
    [
        ("emr_scan", {"rows": 600_000, "times_as_fast_as": {emr_scan.CONNECTOR: 12.34}}, "12.3× | ≥ 10×"),
        ("emr_write", {"item_bytes": 600, "times_as_many_as": {emr_write.CONNECTOR: 2.94}}, "2.9× | ≥ 3× **missed**"),
    ],
)
def test_peers_inside_spark_have_their_goals(case, measured, shown):
    """The lines of the EMR cases have the ratio and its goal."""
    assert [line.cells() for line in report.CASES[case]({"figures": measured})] == [shown]


VERB = {"share_of_steps": 0.8, "steps_cpu_seconds": {"decode": 0.5}, "start_cpu_seconds": [1.0, 1.2]}
RUN = {"growth_mebibytes": 90.0, "start_mebibytes": 150.0}


@pytest.mark.parametrize(
    ("case", "row", "goals"),
    [
        (
            "verbs",
            {"figures": {
                name: {**VERB, "times_as_many_as": {verb.peer: 9.0}} for name, verb in verbs.VERBS.items()
            }},
            [18, 15, 6, 20, 0.7, None],
        ),
        ("update", {"figures": {"updates_times_as_many_as_boto3": 7.0, "puts_times_as_many_as_boto3": 7.0}}, [6]),
        (
            "first_use",
            {"figures": {"steps": {name: {"seconds": 0.5} for name in ("import", "small decode", "decode")}}},
            [1, None],
        ),
        (
            "plan",
            {"figures": {"plans": {"of 80 TB": {"seconds": 1.0}}, "sizer_mb_per_cpu_second": 400.0}},
            [2, 300],
        ),
        (
            "scaling",
            {"figures": {"scan": {"times_as_fast": 1.9, "limited_by": "answers that come late"}}},
            [1.8],
        ),
        (
            "real",
            {"figures": {"flights": {"items": 10, **{
                verb: {"times_as_fast": {"median": 9.0}} for verb in ("scan", "export", "load")
            }}}},
            [None],
        ),
        (
            "lambda_start",
            {"figures": {"log_changes": {
                "records": 100, "import_seconds": 0.1, "first_seconds": 1.0, "second_seconds": 0.01,
            }}},
            [None, None],
        ),
        ("series", {"figures": {"runs": {"scan": {"highest_10s_ratio": 1.01, "tail_ratio": 0.95}}}}, [102, 90]),
        (
            "base_load",
            {"figures": {"items": 9, **{
                f"{clock}_{what}_beside_parquet": {"delta": 0.8}
                for clock in ("cpu", "wall") for what in ("rate", "speed")
            }}},
            [0.9, None],
        ),
        (
            "base_load",
            {"figures": {f"{clock}_speed_beside_parquet": {"delta": 0.7} for clock in ("cpu", "wall")}},
            [0.9],
        ),
        ("memory", {"figures": {"runs": [RUN, {**RUN, "growth_mebibytes": 100.0}]}}, [256]),
        (
            "budget",
            {
                "parameters": {"rcu_per_second": 200.0},
                "figures": {"runs": [{"highest_10s_ratio": 1.01, "lowest_60s_ratio": 0.99}]},
            },
            [102, 97],
        ),
    ],
)  # fmt: skip
def test_lines_have_the_goals(case, row, goals):
    """Lines of cases without a row have their goals."""
    assert [line.goal and line.goal[1] for line in report.CASES[case](row)] == goals


def test_every_row_has_its_origin():
    """Each row has its case, code, machine, versions, seed, scale and time, and its parameters."""
    rows = [
        (path, json.loads(line))
        for path in record.RESULTS.glob("*.jsonl")
        for line in path.read_text("utf-8").splitlines()
    ]
    wanted = {"case", "parameters", "figures", *record.provenance()}
    for path, row in rows:
        assert row["case"] == path.stem
        assert wanted <= row.keys()


def git(*words):
    """Return the output of git for this tree, or None without one."""
    done = subprocess.run(["git", *words], cwd=record.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def test_every_row_can_be_taken_again():
    """Each row has a commit of this history, and was measured on a tree without changes."""
    if git("rev-parse", "--show-toplevel") != str(record.ROOT.resolve()):
        pytest.skip("this tree is no clone: it has no history to hold the rows against")
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this clone is shallow: older commits are not there")
    for path in record.RESULTS.glob("*.jsonl"):
        for row in map(json.loads, path.read_text("utf-8").splitlines()):
            assert git("merge-base", "--is-ancestor", row["commit"], "HEAD") is not None, (path.name, row["commit"])
            assert not row["dirty"], (path.name, row["commit"])


def test_a_tree_with_changes_gives_no_row(monkeypatch, capsys):
    """A case is refused before it measures anything. A run that only prints may use any tree."""
    monkeypatch.setattr(record, "is_dirty", lambda: True)
    with pytest.raises(SystemExit):
        record.parser("scan").parse_args([])
    assert "commit them" in capsys.readouterr().err
    assert record.parser("scan").parse_args(["--dry-run"]).dry_run


def test_every_case_of_the_table_exists():
    """A case's name is that of a module, and of a row of the page."""
    page = (record.ROOT / "docs/benchmarks.md").read_text("utf-8")
    for case in report.CASES:
        assert (record.ROOT / "bench/e2e" / f"{case}.py").exists()
        assert f"| `{case}` |" in page


def test_windows_slide_over_every_100_ms():
    """The highest 10 s are found wherever they begin. A window longer than the run has no figure."""
    consumed = [(at / 10, 30.0 if 37 <= at < 137 else 10.0, 0.0) for at in range(5, 205)]
    units = budget.intervals(consumed)
    assert len(units) == 200
    assert budget.window(units, 10, max) == pytest.approx(300.0)
    assert budget.window(units, 60, min) is None


def test_intervals_without_consumption_count():
    """A second without consumption lowers the mean."""
    assert budget.intervals([(1.0, 5.0, 0.0), (1.3, 5.0, 0.0)]) == [5.0, 0.0, 0.0, 5.0]
