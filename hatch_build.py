"""Give the distribution a README with absolute links, and a wheel the compiled loops and ``dynamodb-pushdown``'s jar.

A package index shows README and no other file. The loops are compiled for the platform of this machine, or for that of
``DDBIO_WHEEL_PLATFORM``; with ``any`` the wheel has none. The jar is made where PySpark and a JDK are.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_UNSUPPORTED = 3
"""The exit code of the compiler on a platform for which no library can be built."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def absolute(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead into the default branch of a repository, images to their raw files."""

    def link(match: re.Match[str]) -> str:
        bang, words, path = match.groups()
        return f"{bang}[{words}]({repository}/{'raw' if bang else 'blob'}/HEAD/{path})"

    # An image within a link is a match within the words of another one: once for the inner, once for the outer.
    return _LINK.sub(link, _LINK.sub(link, text))


class ReadmeHook(MetadataHookInterface):
    """Fill the field ``readme`` when a wheel or an sdist is built."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Read README and make its links absolute."""
        text = Path(self.root, "README.md").read_text("utf-8")
        repository = metadata["urls"]["Repository"]
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}


class WheelHook(BuildHookInterface):
    """Compile the loops of a wheel. An editable installation gets none."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library of the loops with the tag of its platform, and the jar."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        self._add_library(Path(self._folder.name), build_data)
        self._add_jar(Path(self._folder.name), build_data)

    def _add_library(self, folder: Path, build_data: dict[str, Any]) -> None:
        platform = os.environ.get("DDBIO_WHEEL_PLATFORM", "")
        if platform == "any":
            return
        # In a separate process, because numba reads its target from the environment.
        command = [sys.executable, "-m", "ddbio.items.kernel.compiler", "--level", "all", "--print-tag"]
        command += ["--platform", platform] if platform else []
        command += ["--output", str(folder / "library")]
        done = subprocess.run(command, cwd=self.root, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - ours
        if done.returncode == _UNSUPPORTED and not platform:
            self.app.display_warning("the wheel has no compiled loops: numba compiles them in each process")
            return
        done.check_returncode()
        build_data["force_include"][str(folder / "library")] = "ddbio/items/kernel/_loops.abi3.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{done.stdout.split()[-1]}"

    def _add_jar(self, folder: Path, build_data: dict[str, Any]) -> None:
        """Compile the jar if a JDK and PySpark are here; otherwise users compile it when they first ask for it."""
        pyspark = importlib.util.find_spec("pyspark")
        javac = _load(Path(self.root, "ddbio", "spark", "javac.py"))
        compiler = javac.find_javac()
        if pyspark is None or pyspark.origin is None or compiler is None:
            return
        jar = folder / javac.JAR_NAME
        try:
            javac.compile_jar(compiler, Path(pyspark.origin).parent / "jars", jar)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"the wheel has no jar of dynamodb-pushdown: {error}")
            return
        build_data["force_include"][str(jar)] = f"ddbio/spark/java/{javac.JAR_NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        del version, build_data, artifact_path
        if self._folder is not None:
            self._folder.cleanup()


def _load(path: Path) -> Any:
    """Return a module of the package by its file: the package itself needs what a build does not have."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
