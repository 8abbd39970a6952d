"""Start the command line; also what ``python -m ddbio`` and ``spark-submit`` run."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from ddbio.cli.main import run  # noqa: PLC0415 - click and rich are an extra
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich"}:
            raise
        sys.stderr.write(f"ddbio: the command line needs {error.name}: pip install 'ddbio[cli]'\n")
        raise SystemExit(1) from None
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
