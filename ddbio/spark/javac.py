"""Compilation of the shim ``PushdownSource`` against Spark's own jars, which needs only a JDK.

The build of a wheel uses it too. This module imports only the standard library: hatch_build.py loads its file where the
package cannot be imported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent / "java"
"""Folder of the sources, and in a wheel of the jar."""

SOURCES = tuple(sorted(FOLDER.glob("ddbio/spark/*.java")))
"""The shim ``PushdownSource``, and its metrics in Spark's UI."""

JAR_NAME = "ddbio-pushdown.jar"
"""The jar of a wheel that was built with a JDK and PySpark."""

# The oldest Java that Spark 4 runs on: https://spark.apache.org/docs/4.0.0/#downloading
_RELEASE = "17"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
# Archives of the same classes have the same bytes.
_STAMP = (2020, 1, 1, 0, 0, 0)


def find_javac() -> str | None:
    """Return the compiler of the JDK in JAVA_HOME or PATH, or None."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which("javac", path=str(Path(home) / "bin")) if home else None) or shutil.which("javac")


def compile_jar(javac: str, jars: Path, target: Path) -> None:
    """Compile the shim against Spark's jars into a jar that no other process sees half-written.

    Raises
    ------
    subprocess.CalledProcessError
        If it does not compile; ``stderr`` has the reason.
    OSError
        If the compiler does not run, or the jar cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        classes, made = Path(folder, "classes"), Path(folder, "made.jar")
        words = [javac, "--release", _RELEASE, "-proc:none", "-nowarn", "-classpath", str(jars / "*")]
        subprocess.run(  # noqa: S603 - the compiler that the user has
            [*words, "-d", str(classes), *map(str, SOURCES)], check=True, capture_output=True, text=True
        )
        members = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n\n", _SERVICE: b"ddbio.spark.PushdownSource\n"}
        members |= {
            path.relative_to(classes).as_posix(): path.read_bytes() for path in sorted(classes.rglob("*.class"))
        }
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name, _STAMP), content, zipfile.ZIP_DEFLATED)
        made.replace(target)
