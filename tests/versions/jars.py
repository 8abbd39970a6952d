"""The jars of table formats, fetched from Maven Central by the Ivy that Spark has, and pinned by their SHA-256.

``python -m tests.versions.jars NAME`` fetches the jars of a set into the cache, and prints their lines of the lock.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

LOCK = Path(__file__).with_name("jars.lock")
COORDINATES = {
    (3, 5): {
        "hudi": ("org.apache.hudi hudi-spark3.5-bundle_2.12 1.2.0",),
        # That of the Hadoop which Spark 3.5 brings.
        "s3a": ("org.apache.hadoop hadoop-aws 3.3.4",),
    },
    (4, 0): {
        "lakes": (
            "io.delta delta-spark_2.13 4.0.1",
            "org.apache.iceberg iceberg-spark-runtime-4.0_2.13 1.11.0",
        ),
        "catalogs": (
            "org.apache.iceberg iceberg-core 1.11.0",
            "org.apache.iceberg iceberg-core 1.11.0 tests",
            "org.xerial sqlite-jdbc 3.50.3.0",
        ),
    },
    (4, 1): {
        "lakes": (
            "io.delta delta-spark_4.1_2.13 4.4.0",
            "org.apache.iceberg iceberg-spark-runtime-4.1_2.13 1.12.0",
        )
    },
}
"""Of each version of Spark the sets of jars, by group, artifact, version and classifier, if there is one."""

# Ivy's command line has no word for a classifier.
_CLASSIFIED = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="ddbio" module="tests"/>
  <dependencies>
    <dependency org="{}" name="{}" rev="{}" conf="default" transitive="false">
      <artifact name="{}" type="jar" ext="jar" m:classifier="{}"/>
    </dependency>
  </dependencies>
</ivy-module>
"""

_SECONDS = 300
# Marks a folder that has all jars of its coordinate.
_COMPLETE = "complete"


def folder() -> Path:
    """Return where jars are kept, over all clones."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("DDBIO_JARS") or Path(cache) / "ddbio-jars")


def _ivy() -> Path:
    return folder() / "ivy"


@functools.cache
def fetch(name: str) -> tuple[tuple[Path, ...], str]:
    """Return the jars of a set for this Spark, or why they could not be fetched.

    A jar whose SHA-256 is not that of the lock is an error, never a reason to skip.
    """
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    paths = list[Path]()
    for coordinate in COORDINATES[version][name]:
        found, error = _retrieve(coordinate)
        if error:
            return (), error
        require_locked(found)
        paths += found
    return tuple({path.name: path for path in paths}.values()), ""


def require_locked(paths: Sequence[Path]) -> None:
    """Refuse a jar whose SHA-256 is not that of the lock; the next run fetches what came with it anew."""
    locked = dict(reversed(line.split()) for line in LOCK.read_text("utf-8").splitlines())
    for path in paths:
        if locked.get(path.name) != (sha256 := _sha256(path)):
            # Without its mark the folder goes, and what Ivy keeps must not come back from there.
            (path.parent / _COMPLETE).unlink(missing_ok=True)
            for copy in [path, *_ivy().rglob(path.name)]:
                copy.unlink()
            raise AssertionError(f"{path.name} has SHA-256 {sha256}, and {LOCK.name} says {locked.get(path.name)}")


def _retrieve(coordinate: str) -> tuple[list[Path], str]:
    """Return the jars of a coordinate and of what it depends on, from the cache if they are there."""
    place = folder() / coordinate.replace(" ", "-")
    if not (place / _COMPLETE).exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        home = os.environ.get("JAVA_HOME")
        classes = Path(pyspark.__file__).parent / "jars/*"
        command = [str(Path(home) / "bin/java") if home else "java", "-cp", str(classes), "org.apache.ivy.Main"]
        command += [*_wanted(coordinate.split(), place), "-confs", "default", "-cache", str(_ivy())]
        command += ["-retrieve", f"{place}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return [], f"{coordinate}: no answer within {_SECONDS} seconds"
        if done.returncode or not any(place.glob("*.jar")):
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            telling = [line for line in lines if "ERROR" in line or "not found" in line or "Exception" in line]
            return [], f"{coordinate}: {(telling or lines or ['nothing was said'])[0].strip()}"
        own = {_artifact(path) for path in Path(classes).parent.glob("*.jar")}
        for path in place.glob("*.jar"):
            if _artifact(path) in own:
                path.unlink()
        (place / _COMPLETE).touch()
    return sorted(place.glob("*.jar")), ""


def _wanted(parts: list[str], place: Path) -> list[str]:
    """Return Ivy's words for a coordinate."""
    if len(parts) == len(("group", "artifact", "version")):
        return ["-dependency", *parts]
    group, artifact, version, classifier = parts
    wanted = place / "ivy.xml"
    wanted.write_text(_CLASSIFIED.format(group, artifact, version, artifact, classifier), "utf-8")
    return ["-ivy", str(wanted)]


def _artifact(path: Path) -> str:
    return re.sub(r"-\d.*", "", path.name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Print the lines of the lock for sets of this Spark."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    for name in sys.argv[1:] or COORDINATES[version]:
        for coordinate in COORDINATES[version][name]:
            found, error = _retrieve(coordinate)
            if error:
                raise SystemExit(error)
            for path in found:
                print(_sha256(path), path.name)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
