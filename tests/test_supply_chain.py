"""Sources of the parts of a wheel, of the environments and of the site: all are pinned by their hashes."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))


@pytest.mark.parametrize("name", LOCKS)
def test_each_library_of_a_lock_has_hashes(name):
    """No line has an address, a path or an index, and every library has its hashes."""
    text = (ROOT / name).read_text("utf-8")
    pins = re.findall(r"^(?=\S)[^\n]*\n(?: +--hash=sha256:[0-9a-f]{64}[ \\]*\n)*", text, re.MULTILINE)
    assert len(pins) > 5
    assert [pin for pin in pins if not re.match(r"[\w.-]+==[^\n]+\\\n +--hash", pin)] == []


def test_the_build_is_by_versions_of_the_lock():
    """Every build of a wheel uses the versions of the lock."""
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert {pin.partition("==")[0] for pin in pins if "==" in pin} == {"hatchling", "numba", "ziglang"}
    assert [pin for pin in pins if "==" in pin and f"\n{pin} \\\n" not in lock] == []


def test_scripts_of_the_site_are_pinned():
    """Each script that pages load has a version and a hash, and no page names another one."""
    pins = [line.split() for line in (ROOT / "docs/site/scripts.lock").read_text("utf-8").splitlines()]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for _, version, _, _ in pins)
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for *_, digest in pins)
    for path in (ROOT / "mkdocs.yml", ROOT / "task", *(ROOT / "docs").rglob("*.md")):
        assert not re.search(r"<script[^>]+src=|extra_javascript:", path.read_text("utf-8")), path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Return a file with the metadata of a wheel of this project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = ["Metadata-Version: 2.4", "Name: ddbio", "Version: 1.2.3"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines += [f"Requires-Dist: {requirement}; extra == '{extra}'" for requirement in needs]
    path = tmp_path_factory.mktemp("wheel") / "ddbio-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ddbio-1.2.3.dist-info/METADATA", "\n".join(lines) + "\n\nDescription\n")
    return path


def sbom_of(wheel: Path) -> str:
    """Return the SBOM that ./task wheel writes."""
    command = [sys.executable, ROOT / "sbom.py", wheel, ROOT / "requirements.lock"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_an_sbom_names_the_dependencies_of_the_wheel(wheel):
    """It has all direct and indirect libraries, with version and hashes of the lock, and nothing for development."""
    text = sbom_of(wheel)
    bom = json.loads(text)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    own = bom["metadata"]["component"]
    assert own["purl"] == "pkg:pypi/ddbio@1.2.3"
    assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    scopes = {component["name"]: component["scope"] for component in bom["components"]}
    required = {"boto3", "botocore", "jmespath", "numpy", "pyarrow", "pydantic-core", "urllib3"}
    optional = {
        "click",
        "rich",
        "markdown-it-py",
        "deltalake",
        "pyiceberg",
        "pyspark",
        "py4j",
        "zstandard",
        "matplotlib",
    }
    assert {name for name in required | optional if scopes[name] == "required"} == required
    assert not scopes.keys() & {"pytest", "ruff", "mypy", "moto", "hatchling", "ddbio", "asv"}
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    for component in bom["components"]:
        assert re.search(rf"^{component['name']}=={re.escape(component['version'])}(?= )", lock, re.MULTILINE), (
            component["name"]
        )
        (files,) = component["externalReferences"]
        assert files["hashes"]
        assert all(f"sha256:{digest['content']}" in lock for digest in files["hashes"])
    refs = {own["bom-ref"], *(component["bom-ref"] for component in bom["components"])}
    links = {dependency["ref"]: dependency["dependsOn"] for dependency in bom["dependencies"]}
    assert links.keys() == refs
    assert {ref for references in links.values() for ref in references} == refs - {own["bom-ref"]}
    assert text == sbom_of(wheel)
