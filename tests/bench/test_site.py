"""The pages of results: generated from rows, and opened from the file system in a headless browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from bench import site
from bench.e2e import record

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def row(verb="scan", speed=1000, **parameters):
    """Return a row of the matrix."""
    figures = {
        "rows_per_second": speed,
        "megabytes_per_second": 1.5,
        "cpu_seconds_per_gigabyte": 20.0,
        "busy_cores": 1.0,
        "busy_cores_with_server": 1.2,
        "read_units": 5.0,
        "write_units": 0.0,
        "file_bytes_histogram": {"≤ 1 MiB": 2},
        "small_file_ratio": 1.0,
        "peak_mebibytes": {"driver": 200.0},
    }
    asked = {"items": 5, "verb": verb, **site.BASE, **parameters}
    return {"case": "matrix", "parameters": asked, "figures": figures, **record.provenance(), "scale": 1.0}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the pages of the stored rows and of some of a matrix."""
    folder = tmp_path_factory.mktemp("site")
    results = shutil.copytree(record.RESULTS, folder / "e2e")
    compared = {"version": "1.2", "settings": "as advised", "items": 5}
    ratio = {"median": 3.5, "least": 3.0, "most": 4.25}
    first = row()
    first["figures"]["peers"] = {
        "pandas read_json": {**compared, "times_as_fast": ratio, "times_as_fast_by_the_clock": ratio},
        "awswrangler": {**compared, "missing": "ValueError: no sets"},
        "EMR connector": {"missing": "mvn is not on PATH"},
    }
    rows = [first, row(speed=800, file_format="avro"), row(cluster="local[1]"), row(cluster="local[2]", speed=1700)]
    (results / "matrix.jsonl").write_text("".join(json.dumps(stored) + "\n" for stored in rows), "utf-8")
    run = {"engine": "local", "lanes": 2, "tasks": 1, "rcu_by_second": [180.0, 201.0, 199.0]}
    run |= {"highest_10s_ratio": 1.0, "lowest_60s_ratio": 1.0}
    budget = {"parameters": {"rcu_per_second": 200.0}, "figures": {"runs": [run]}, **record.provenance(), "scale": 1.0}
    (results / "budget.jsonl").write_text(json.dumps({"case": "budget", **budget}) + "\n", "utf-8")
    write = {
        "units_by_second": [400.0, 390.0],
        "tasks_by_second": [2, 1],
        "highest_10s_ratio": 0.98,
        "mean_ratio": 0.99,
        "tail_ratio": 0.97,
    }
    series = {"parameters": {"units_per_second": 400.0}, "figures": {"runs": {"write": write}}}
    written = {"case": "series", **series, **record.provenance(), "scale": 1.0}
    (results / "series.jsonl").write_text(json.dumps(written) + "\n", "utf-8")
    figures_of_verb = {"rows": 1000, "times_as_fast": 1.93, "limited_by": "answers that come late"}
    figures_of_verb |= {"rows_per_second": [500, 965], "start_seconds": [1.0, 0.9]}
    scaled = {"parameters": {}, "figures": {"scan": figures_of_verb}, **record.provenance(), "scale": 1.0}
    (results / "scaling.jsonl").write_text(json.dumps({"case": "scaling", **scaled}) + "\n", "utf-8")
    asv = folder / "asv"
    (asv / "vm").mkdir(parents=True)
    (asv / "benchmarks.json").write_text(json.dumps({"version": 2, "decode.Decode.time_ddbio": {"unit": "seconds"}}))
    (asv / "vm" / "machine.json").write_text("{}")
    for number, seconds in enumerate([0.5, 0.25]):
        kept = {"commit_hash": f"{number}" * 40, "date": 1_000_000 * number, "env_name": "existing", "version": 2}
        kept |= {"result_columns": ["result", "params"]}
        kept["results"] = {"decode.Decode.time_ddbio": [[seconds, None], [["'export'", "'page'"]]]}
        (asv / "vm" / f"{number}-existing.json").write_text(json.dumps(kept))
    return folder / "pages", site.build(folder / "pages", results, folder / "asv")


def test_every_link_of_the_pages_leads_to_a_file(built):
    """The index links to each page and back. No page refers to a host."""
    folder, names = built
    for name in names:
        text = (folder / name).read_text("utf-8")
        for link in re.findall(r'(?:src|href)="(?!#)([^"]*)"', re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)):
            assert (folder / link).exists(), (name, link)
    assert 'href="asv.html"' in (folder / "index.html").read_text("utf-8")


def test_the_pages_have_the_figures_of_the_rows(built):
    """Speed by format and cluster, the efficiency of two executors, and every figure with its goal."""
    folder, _ = built
    matrix = (folder / "matrix.html").read_text("utf-8")
    assert "scan by format" in matrix
    assert "<td>1.70×</td><td>85%</td>" in matrix
    assert "1.2 of" in matrix
    assert "<td>1.93×</td><td>96%</td><td>answers that come late</td>" in matrix
    assert "<td>3.5× (3 to 4.25)</td>" in matrix
    assert "cannot be had: mvn is not on PATH" in matrix
    capacity = (folder / "capacity.html").read_text("utf-8")
    assert capacity.count("<svg") == 3
    assert "<td>99.0%</td><td>97.0%</td>" in capacity
    asv = (folder / "asv.html").read_text("utf-8")
    assert asv.count("<svg") == 1
    assert "<td>decode.Decode.time_ddbio</td><td>&#x27;export&#x27;, existing</td><td>0.25</td><td>seconds</td>" in asv
    assert "from_dynamodb_json" in (folder / "figures.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("figures", "expected"),
    [({"busy_cores_with_server": 1e9}, "processors of this machine"), ({}, "one task does after the other")],
)
def test_the_limit_is_named(figures, expected):
    """The limit is a busy machine, or otherwise serial work."""
    matrix_row = row()
    matrix_row["figures"].update(figures)
    assert expected in site.limit_of(matrix_row)
    assert site.limit_of(row(latency_ms=20)).startswith("answers")


def browse(page, profile, *words):
    """Open a page in a headless browser, as a user would from a folder."""
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1000,1400"]
    command = [BROWSER, *flags, f"--user-data-dir={profile}", *words, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_pages_load_in_a_browser(built, tmp_path):
    """Each page has its charts, and no message on the console."""
    folder, names = built
    for name in names:
        shown = browse(folder / name, tmp_path, "--dump-dom")
        assert "CONSOLE" not in shown.stderr
        assert shown.stdout.count("<svg") == (folder / name).read_text("utf-8").count("<svg")


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_in_the_readers_scheme(built, scheme, tmp_path):
    """A screenshot of the page has the background of the scheme, and bars in its colour."""
    folder, _ = built
    picture = tmp_path / "picture.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    browse(folder / "matrix.html", tmp_path / "profile", f"--screenshot={picture}", *dark)
    pixels = imread(picture)[:, :, :3]
    paper, bar = {"light": ("#ffffff", "#3f51b5"), "dark": ("#0d1117", "#8c9eff")}[scheme]
    assert np.allclose(pixels[2, 2], to_rgb(paper), atol=0.02)
    assert np.isclose(pixels, to_rgb(bar), atol=0.02).all(axis=2).sum() > 1_000
