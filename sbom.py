"""Print the SBOM of a wheel, in CycloneDX JSON: the libraries that it needs, as the lock pins them.

``./task wheel`` runs it as ``sbom.py WHEEL LOCK`` in the environment of the lock, whose libraries
state their dependencies. It uses no network, and writes the same SBOM for the same wheel and lock.
"""

from __future__ import annotations

import email.parser
import hashlib
import json
import re
import sys
import uuid
import zipfile
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable

# What users install; the other extras are for development.
EXTRAS = ("avro", "charts", "cli", "delta", "iceberg", "quality", "spark")
_PIN = re.compile(r"^(?P<line>[a-z0-9][^\\\n]*==[^\\\n]*?) *\\\n(?P<hashes>(?: +--hash=.*\n?)+)", re.MULTILINE)


@dataclass(frozen=True)
class Library:
    """A library of the lock, and the SHA-256 of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Return its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def sbom_of(wheel: Path, lock: Path) -> dict[str, Any]:
    """Return the SBOM of a wheel."""
    content = wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(path).decode())
    own = Library(metadata["Name"], metadata["Version"], (hashlib.sha256(content).hexdigest(),))
    locked = _locked(lock.read_text("utf-8"))
    lines = metadata.get_all("Requires-Dist", [])
    required = _closure(_needs(lines, ()), locked)
    closure = _closure(_needs(lines, EXTRAS), locked)
    needs = {own.purl: _needs(lines, EXTRAS), **{locked[name].purl: needed for name, needed in closure.items()}}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, own.hashes[0] + lock.read_text("utf-8")).urn,
        "version": 1,
        "metadata": {"component": {**_component(own), "hashes": _hashes(own)}},
        "components": [
            {
                **_component(locked[name]),
                "scope": "required" if name in required else "optional",
                # The lock has the hashes of all its files, of which a system installs one.
                "externalReferences": [
                    {
                        "type": "distribution",
                        "url": locked[name].purl,
                        "hashes": _hashes(locked[name]),
                    }
                ],
            }
            for name in sorted(closure)
        ],
        "dependencies": [
            {"ref": purl, "dependsOn": sorted(locked[name].purl for name, _ in needed if name in locked)}
            for purl, needed in sorted(needs.items())
        ],
    }


def _component(library: Library) -> dict[str, Any]:
    named = {"name": library.name, "version": library.version, "purl": library.purl}
    return {"type": "library", "bom-ref": library.purl, **named}


def _hashes(library: Library) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest} for digest in library.hashes]


def _locked(text: str) -> dict[str, Library]:
    """Return the libraries of a lock that are for this Python and system, by name."""
    libraries = {}
    for pin in _PIN.finditer(text):
        pinned = Requirement(pin["line"])
        if pinned.marker is None or pinned.marker.evaluate():
            (version,) = (specifier.version for specifier in pinned.specifier)
            hashes = tuple(re.findall(r"sha256:([0-9a-f]{64})", pin["hashes"]))
            libraries[canonicalize_name(pinned.name)] = Library(canonicalize_name(pinned.name), version, hashes)
    return libraries


def _needs(lines: Iterable[str], extras: Iterable[str]) -> set[tuple[str, frozenset[str]]]:
    """Return the names in lines of requirements, each with the extras that are asked for."""
    asked = [Requirement(line) for line in lines]
    return {
        (canonicalize_name(requirement.name), frozenset(requirement.extras))
        for requirement in asked
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    }


def _closure(
    needed: set[tuple[str, frozenset[str]]], locked: dict[str, Library]
) -> dict[str, set[tuple[str, frozenset[str]]]]:
    """Return the direct and indirect dependencies by name, with their own dependencies."""
    closure: dict[str, set[tuple[str, frozenset[str]]]] = {}
    seen, left = set(needed), list(needed)
    while left:
        name, extras = left.pop()
        if name not in locked:
            continue
        more = _needs(requires(name) or (), extras)
        closure.setdefault(name, set()).update(more)
        left += more - seen
        seen |= more
    return closure


if __name__ == "__main__":
    json.dump(sbom_of(*map(Path, sys.argv[1:])), sys.stdout, indent=2)
    print()
