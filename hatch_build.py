"""Give the distribution a README with absolute links: a package index shows README and no other file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def absolute(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead into the default branch of a repository, images to their raw form."""

    def link(found: re.Match[str]) -> str:
        bang, words, path = found.groups()
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
