"""Start the command line; also what ``python -m ddbio`` and ``spark-submit`` run."""

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
    """Run the command line, or say how to install what it needs."""
    signal.signal(signal.SIGTERM, _interrupt)
    # numpy starts threads for linear algebra, which no verb does; pydantic looks for plugins in all that is installed.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Arrow's own pool gives memory back within milliseconds, to be cleared again: a tenth of what a fold takes.
    if "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {}):
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Nearly all that is made while modules are imported stays: `ddbio.cli.flags.begin` lets the collector work.
    gc.disable()
    # What is printed is data for other programs: the same bytes in every locale.
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
        sys.stderr.write("ddbio: interrupted before anything was begun\n")
        raise SystemExit(130) from None
    run(sys.argv[1:])
    _end()


def _end() -> None:
    """End a process that did what it was to do, and leave its memory to the system: to free it takes longer."""
    others = (each for each in threading.enumerate() if each is not threading.main_thread())
    if any(not each.daemon for each in others) or "pyspark" in sys.modules:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - nothing else runs them, and children are stopped there
    try:
        for stream in (sys.stdout, sys.stderr):
            # None where the process was started with it closed.
            if stream is not None:
                stream.flush()
    except OSError:
        return
    os._exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Let SIGTERM, by which machines stop a job, do what Ctrl-C does: nothing stays staged. A second one kills."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
