"""The jars of table formats, fetched from Maven Central by Spark's Ivy, and pinned by their SHA-256.

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
        # The version of the Hadoop in Spark 3.5.
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
"""The sets of jars of each version of Spark, by group, artifact, version and optional classifier."""

# Ivy's command line has no option for a classifier.
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
    """Return the folder of jars, which all clones share."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("DDBIO_JARS") or Path(cache) / "ddbio-jars")


def _ivy() -> Path:
    return folder() / "ivy"


@functools.cache
def fetch(name: str) -> tuple[tuple[Path, ...], str]:
    """Return the jars of a set for this Spark, or the reason why they could not be fetched.

    A jar whose SHA-256 differs from the lock is an error, never a reason to skip.
    """
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    paths = list[Path]()
    for coordinate in COORDINATES[version][name]:
        paths_of_set, error = _retrieve(coordinate)
        if error:
            return (), error
        require_locked(paths_of_set)
        paths += paths_of_set
    return tuple({path.name: path for path in paths}.values()), ""


def require_locked(paths: Sequence[Path]) -> None:
    """Refuse a jar whose SHA-256 differs from the lock. The next run fetches its coordinate again."""
    locked = dict(reversed(line.split()) for line in LOCK.read_text("utf-8").splitlines())
    for path in paths:
        if locked.get(path.name) != (sha256 := _sha256(path)):
            # Without its mark the folder is deleted, and Ivy's own cache must not restore it.
            (path.parent / _COMPLETE).unlink(missing_ok=True)
            for copy in [path, *_ivy().rglob(path.name)]:
                copy.unlink()
            raise AssertionError(f"{path.name} has SHA-256 {sha256}, and {LOCK.name} says {locked.get(path.name)}")


def _retrieve(coordinate: str) -> tuple[list[Path], str]:
    """Return the jars of a coordinate and its dependencies, from the cache if possible."""
    destination = folder() / coordinate.replace(" ", "-")
    if not (destination / _COMPLETE).exists():
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir(parents=True)
        home = os.environ.get("JAVA_HOME")
        classes = Path(pyspark.__file__).parent / "jars/*"
        command = [str(Path(home) / "bin/java") if home else "java", "-cp", str(classes), "org.apache.ivy.Main"]
        command += [*_ivy_arguments(coordinate.split(), destination), "-confs", "default", "-cache", str(_ivy())]
        command += ["-retrieve", f"{destination}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return [], f"{coordinate}: no answer within {_SECONDS} seconds"
        if done.returncode or not any(destination.glob("*.jar")):
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            telling = [line for line in lines if "ERROR" in line or "not found" in line or "Exception" in line]
            return [], f"{coordinate}: {(telling or lines or ['nothing was said'])[0].strip()}"
        own = {_artifact(path) for path in Path(classes).parent.glob("*.jar")}
        for path in destination.glob("*.jar"):
            if _artifact(path) in own:
                path.unlink()
        (destination / _COMPLETE).touch()
    return sorted(destination.glob("*.jar")), ""


def _ivy_arguments(parts: list[str], destination: Path) -> list[str]:
    """Return Ivy's arguments for a coordinate."""
    if len(parts) == len(("group", "artifact", "version")):
        return ["-dependency", *parts]
    group, artifact, version, classifier = parts
    ivy_file = destination / "ivy.xml"
    ivy_file.write_text(_CLASSIFIED.format(group, artifact, version, artifact, classifier), "utf-8")
    return ["-ivy", str(ivy_file)]


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
            paths_of_set, error = _retrieve(coordinate)
            if error:
                raise SystemExit(error)
            for path in paths_of_set:
                print(_sha256(path), path.name)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
