"""Command that builds the library of compiled loops: ``python -m ddbio.items.kernel.compiler``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from ddbio.errors import KernelError

UNSUPPORTED = 3
"""The exit code on a platform for which no library can be built."""


def main() -> None:
    """Build the library and print its path, unless the library is current."""
    # There may be no library yet, or an old one.
    os.environ["DDBIO_KERNEL"] = "jit"
    from ddbio.items.kernel.compiler import build  # noqa: PLC0415 - after the environment

    host = build.host_platform()
    parser = argparse.ArgumentParser(prog="python -m ddbio.items.kernel.compiler", description=__doc__)
    parser.add_argument(
        "--platform", default=host, help=f"one of {', '.join(build.PLATFORMS)}; default is this machine's"
    )
    parser.add_argument("--level", default="host", help="host: this processor's; all; checked, for tests; v2, v3, v4")
    parser.add_argument("--output", type=Path, default=build.own_library(), help="default is where ddbio looks for it")
    parser.add_argument("--print-tag", action="store_true", help="print the tag of the platform's wheel")
    parser.add_argument("--if-changed", action="store_true", help="do nothing if the library is current")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        if arguments.platform == host and host not in build.PLATFORMS:
            sys.stderr.write(f"no library can be built for {host}: numba compiles the loops in each process\n")
            sys.exit(UNSUPPORTED)
        build.check_compilers()
        if arguments.if_changed:
            mark = build.mark_of(arguments.platform, build.levels_of(arguments.platform, arguments.level))
            if build.is_current(arguments.output, mark):
                # The new modification time marks it as current, e.g. after a change of branches.
                arguments.output.touch()
                return
        sys.stderr.write(f"compiling the loops for {arguments.platform}, which takes up to a minute\n")
        build.build(arguments.platform, arguments.output, arguments.level)
    except KernelError as error:
        sys.exit(f"{parser.prog}: {error}")
    sys.stdout.write(f"built {arguments.output} in {time.monotonic() - began:.0f} s\n")
    if arguments.print_tag:
        sys.stdout.write(f"{build.PLATFORMS[arguments.platform].wheel_tag}\n")


if __name__ == "__main__":
    main()
