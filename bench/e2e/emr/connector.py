"""The EMR DynamoDB connector in a separate JVM, built by Maven and javac into the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

HERE = Path(__file__).parent

# https://maven.apache.org/plugins/maven-dependency-plugin/copy-dependencies-mojo.html
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_ANSWER = "cpu_seconds "
# https://github.com/apache/spark/blob/v4.0.1/launcher/src/main/java/org/apache/spark/launcher/JavaModuleOptions.java
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
    "sun.util.calendar",
)  # fmt: skip
# More memory than it ever needs, and the collector with the least CPU time.
_JVM = ("-Xmx4g", "-XX:+UseParallelGC")


class MissingConnectorError(Exception):
    """A dependency of the connector is missing."""


class Connector:
    """JVM with the connector and a local Spark. Each job returns its CPU seconds in the JVM."""

    def __init__(self, endpoint_url: str, cores: int) -> None:
        class_path = os.pathsep.join(_build())
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        command = [_tool("java"), *_JVM, *opened, "-cp", class_path, "Driver", endpoint_url, str(cores)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def scan(self, table: str, folder: Path, segments: int, spark_schema: str) -> float:
        """Write a table to Parquet files with the schema."""
        return self._run("scan", table, str(folder), str(segments), spark_schema)

    def load(self, table: str, folder: Path) -> float:
        """Write the rows of Parquet files into a table. Sets become lists, because Spark has no sets."""
        return self._run("load", table, str(folder))

    def write(self, table: str, count: int, text_bytes: int) -> float:
        """Write ``count`` of the items of ``bench.e2e.write`` into a table."""
        return self._run("write", table, str(count), str(text_bytes))

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the JVM."""
        with self._process as process:
            if kind is not None:
                process.terminate()

    def _run(self, *words: str) -> float:
        jobs, answers = self._process.stdin, self._process.stdout
        assert jobs is not None
        assert answers is not None
        jobs.write("\t".join(words) + "\n")
        jobs.flush()
        for line in answers:
            if line.startswith(_ANSWER):
                return float(line.removeprefix(_ANSWER))
        raise RuntimeError(f"the connector's JVM ended in {words[:2]}")


def is_downloaded() -> bool:
    """Return whether the connector and its dependencies are in the cache. Download nothing."""
    return (_cache() / "jars.complete").exists()


def _build() -> list[str]:
    """Return the class path. Missing parts are downloaded and compiled.

    Raises
    ------
    MissingConnectorError
        If Java, its compiler, Maven or PySpark is missing, or Maven cannot download.
    """
    spark = _spark_jars()
    if not is_downloaded():
        _download()
    # Spark's versions of shared dependencies come first.
    path = [f"{spark}/*", f"{_cache() / 'jars'}/*"]
    source = HERE / "Driver.java"
    classes = _cache() / f"classes-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not classes.exists():
        made = classes.with_suffix(f".{os.getpid()}")
        _call(_tool("javac"), "-proc:none", "-cp", os.pathsep.join(path), "-d", str(made), str(source))
        made.rename(classes)
    return [*path, str(classes), str(HERE)]


def _download() -> None:
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    pom = shutil.copy(HERE / "pom.xml", folder)
    options = [f"-DoutputDirectory={folder / 'jars'}", f"-Dmaven.repo.local={folder / 'repository'}"]
    _call(_tool("mvn"), "--quiet", "--batch-mode", "--file", str(pom), _COPY, "-DincludeScope=runtime", *options)
    (folder / "jars.complete").touch()


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "ddbio" / "bench" / "emr-5.0.0"


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingConnectorError("PySpark is not installed: its jars run the connector")
    return Path(spec.origin).parent / "jars"


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(name, path=f"{home}/bin" if home else None) or shutil.which(name)
    if path is None:
        raise MissingConnectorError(f"{name} is not on PATH: the connector is built by Maven and a Java 17 compiler")
    return path


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-2000:]
        raise MissingConnectorError(f"{Path(command[0]).name} failed: {output}")
