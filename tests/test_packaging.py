"""The distribution: its wheel and sdist, its lower bounds, and its README on a package index."""

from __future__ import annotations

import email.parser
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from readme_renderer import markdown

from ddbio.items.kernel.compiler.build import PLATFORMS, host_platform
from ddbio.items.kernel.library import FILE_NAME
from ddbio.spark.javac import find_javac

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Return a folder with a wheel and an sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    """Return the wheel."""
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel):
    """Return the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.parser.Parser().parsestr(archive.read(name).decode())


def test_wheel_holds_the_package_and_what_spark_looks_for(wheel):
    """It has only the package with its type marker, the modules of PySpark's discovery, and the metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    own = {path.name for path in (ROOT / "discovery").glob("*.py")} | {"ddbio"}
    assert {top for top in tops if not top.endswith(".dist-info")} == own
    assert "ddbio/py.typed" in names
    # The jar if a JDK compiled it, and its source for other environments.
    assert ("ddbio/spark/java/ddbio-pushdown.jar" in names) is (find_javac() is not None)
    assert "ddbio/spark/java/ddbio/spark/PushdownSource.java" in names


def test_wheel_has_the_compiled_loops_of_its_platform(wheel):
    """Its tag names the platform, every Python from 3.11 on, and an old C library. The library has all levels."""
    target = PLATFORMS[host_platform()]
    assert wheel.name.endswith(f"-cp311-abi3-{target.wheel_tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(f"ddbio/items/kernel/{FILE_NAME}")
    assert all(level.name.encode() + b"\0" in library for level in target.levels)
    versions = {tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBC_([\d.]+)", library)}
    assert max(versions) <= (2, 17)


def test_a_wheel_for_any_platform_has_no_library(tmp_path):
    """If no library can be built, numba compiles the loops."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=os.environ | {"DDBIO_WHEEL_PLATFORM": "any"})
    (path,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        assert not any(name.endswith(FILE_NAME) for name in archive.namelist())


def test_metadata_has_the_systems_and_addresses(metadata):
    """It has the supported systems, addresses, and only extras that some module imports."""
    systems = {line.split(" :: ", 1)[1] for line in metadata.get_all("Classifier") if line.startswith("Operating")}
    assert systems == {"MacOS", "POSIX :: Linux"}
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL")} >= {"Repository", "Documentation"}
    assert set(metadata.get_all("Provides-Extra")) == {
        *("avro", "bench", "charts", "cli", "delta", "demo", "iceberg", "jit", "lint", "quality", "spark", "test"),
    }


def test_readme_renders_on_a_package_index(metadata):
    """It renders without a warning, and no link is relative, since such a link would be broken there."""
    assert metadata["Description-Content-Type"] == "text/markdown"
    html = markdown.render(metadata.get_payload())
    assert html is not None
    targets = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert len(targets) > 10
    assert [target for target in targets if not re.match(r"https://|#", target)] == []


def environment(folder: Path, *installs: list[object]) -> Path:
    """Return the interpreter of a new virtual environment after these calls of ``pip install``."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    for words in installs:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
        subprocess.run(command, check=True)
    return python


def run_main_job(python: Path) -> None:
    """Run the main job without access to this tree, and compare its report with the expected one."""
    script = python.parent / "main_job.py"
    script.write_bytes((ROOT / "tests/main_job.py").read_bytes())
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, script], cwd=python.parent, env=variables, stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    assert Path(report["ddbio"]).is_relative_to(python.parents[1])
    assert (report["rows"], report["type"]) == (3_000, "decimal128(38, 2)")
    assert len(set(report["digests"])) == 1


def test_sdist_makes_a_wheel_that_works(built, tmp_path):
    """A wheel that is built from the sdist runs the main job, with the versions of the lock."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    # Without its hashes, since pip cannot apply them to a local file.
    lines = re.findall(r"^[a-z][^\\\n]*", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(lines))
    run_main_job(environment(tmp_path / "venv", ["--constraint", constraints, f"{wheel}[cli]"]))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest libraries have no wheels for this Python")
def test_floors_are_enough(wheel, tmp_path):
    """The main job runs with the oldest versions that the metadata allows."""
    lock = ["--require-hashes", "--requirement", ROOT / "requirements-floor.lock"]
    run_main_job(environment(tmp_path / "venv", lock, ["--no-deps", wheel]))


def test_floor_lock_holds_the_floors(metadata):
    """The lock of lower bounds has the lowest version of every requirement of the library."""
    lock = (ROOT / "requirements-floor.lock").read_text("utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", lock, re.MULTILINE))
    own = re.compile(r"([\w-]+).*?>=([\w.]+)(?!.*extra == '(?!cli))")
    wanted = {match[1]: match[2] for line in metadata.get_all("Requires-Dist") if (match := own.match(line))}
    assert {"boto3", "click", "numpy", "pyarrow"} <= wanted.keys()
    for name, floor in wanted.items():
        assert pinned[name] == floor or pinned[name].startswith(f"{floor}."), name
