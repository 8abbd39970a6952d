"""Command line of ``python -m ddbio`` and ``spark-submit``."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import io
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command line, or report how to install its dependencies."""
    signal.signal(signal.SIGTERM, _interrupt)
    # numpy starts threads for linear algebra, which no verb uses; pydantic searches all installed packages for plugins.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Arrow's own pool returns memory within milliseconds and has to clear it again, which takes 10 % of a fold's time.
    if "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {}):
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Almost all objects created by imports are permanent: `ddbio.cli.flags.begin` enables the garbage collector.
    gc.disable()
    # Output is data for other programs: the same bytes in every locale.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"ddbio: the command line needs {missing[0]}: pip install 'ddbio[cli]'\n")
        raise SystemExit(1)
    try:
        from ddbio.cli.main import run  # noqa: PLC0415 - click and rich are an extra
    except KeyboardInterrupt:
        sys.stderr.write("ddbio: interrupted before anything was started\n")
        raise SystemExit(130) from None
    run(sys.argv[1:])
    _end()


def _end() -> None:
    """End a finished process without freeing its memory, which would take longer than leaving that to the system."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if any(not thread.daemon for thread in others) or "pyspark" in sys.modules:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - no other method runs them, and they stop child processes
    try:
        for stream in (sys.stdout, sys.stderr):
            # None if the process was started with the stream closed.
            if stream is not None:
                stream.flush()
    except OSError:
        return
    os._exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C: no files stay staged. A second SIGTERM kills the process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
