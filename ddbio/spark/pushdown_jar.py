"""The jar of the data source ``dynamodb-pushdown``, found or compiled."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pyspark

from ddbio.errors import OptionError
from ddbio.private_folder import private_folder
from ddbio.spark import javac

# Tests run on each of them. An interface that is internal to Spark may change in the next version.
_OLDEST, _NEWEST = (4, 0), (4, 3)


def jar() -> str:
    """Return the path of the jar for ``spark.jars`` that makes ``format("dynamodb-pushdown")`` push down.

    A wheel that was built with PySpark and a JDK contains it. Otherwise it is compiled at first use, which takes some
    seconds, and kept in the user's cache folder.

    Raises
    ------
    OptionError
        This Spark has other interfaces, or there is no jar and no JDK to compile one. ``format("dynamodb")``, or on 3.5
        ``ddbio.spark.scan``, reads the same rows without push-down.
    """
    _require_version(pyspark.__version__)
    packaged = javac.FOLDER / javac.JAR_NAME
    return str(packaged if packaged.is_file() else _compiled())


def _require_version(version: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", version)
    numbers = None if match is None else (int(match[1]), int(match[2]))
    if numbers is None or not _OLDEST <= numbers <= _NEWEST:
        # Older versions have no Python data sources either.
        instead = "ddbio.spark.scan" if numbers is not None and numbers < _OLDEST else "format('dynamodb')"
        raise OptionError(
            f"there is no push-down for Spark {version}, only for 4.0 to 4.3: use {instead} with the options columns "
            "and where"
        )


def _compiled() -> Path:
    folder = private_folder("spark")
    if folder is None:
        raise OptionError("the jar of dynamodb-pushdown has no cache folder: set XDG_CACHE_HOME to a private folder")
    digest = hashlib.blake2b(digest_size=8)
    for source in (*javac.SOURCES, Path(javac.__file__)):
        digest.update(source.read_bytes())
    digest.update(pyspark.__version__.encode())
    target = folder / f"pushdown-{digest.hexdigest()}.jar"
    if target.is_file():
        return target
    compiler = javac.find_javac()
    if compiler is None:
        raise OptionError(
            "dynamodb-pushdown needs a jar, and no JDK is here to compile it: install one (on Debian openjdk-17-jdk-"
            "headless; JAVA_HOME or PATH names it), or use a wheel that has it, or format('dynamodb')"
        )
    try:
        javac.compile_jar(compiler, _spark_jars(), target)
    except subprocess.CalledProcessError as error:
        first = next((line for line in error.stderr.splitlines() if "error:" in line), error.stderr.strip())
        raise OptionError(
            f"the jar of dynamodb-pushdown does not compile against Spark {pyspark.__version__}: {first}; use "
            "format('dynamodb')"
        ) from error
    except OSError as error:
        raise OptionError(f"the jar of dynamodb-pushdown cannot be made: {error}; use format('dynamodb')") from error
    return target


def _spark_jars() -> Path:
    home = os.environ.get("SPARK_HOME")
    return (Path(home) if home else Path(pyspark.__file__).parent) / "jars"
