"""Rewrites all files that are generated from verbs, commands, options and calls: ``python -m tests.renew``."""

from __future__ import annotations

from tests.api.generated import GENERATED
from tests.iam import page
from tests.surface.__main__ import main as write_surface


def main() -> None:
    """Write the stubs, the page of options, the page of IAM policies, and the snapshots of the public surface."""
    for path, make in {**GENERATED, page.PAGE: page.page_text}.items():
        path.write_text(make(), "utf-8")
    write_surface()


if __name__ == "__main__":
    main()
