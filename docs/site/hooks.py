"""Put pages into the site that are not in docs/: the reference made from the code, the changes, how to contribute.

Links that leave docs/ are led to those pages, or to the repository, so that one text serves there and on the site.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
FROM_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
FETCHED = ROOT / "build/scripts"
# Name, version, file and SHA-256 of each script of others that pages run.
PINNED = [line.split() for line in (ROOT / "docs/site/scripts.lock").read_text("utf-8").splitlines()]
SCRIPTS = {f"assets/{name}.js": path for name, *_ in PINNED if (path := FETCHED / f"{name}.js").exists()}
# The attribute by which a browser refuses another script, by the address of one that was not fetched.
INTEGRITY = {
    f"https://unpkg.com/{name}@{version}/{file}": base64.b64encode(bytes.fromhex(digest)).decode()
    for name, version, file, digest in PINNED
    if f"assets/{name}.js" not in SCRIPTS
}
_LINK = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Use the scripts that ./task site fetched; without them a page asks for them when it is opened.

    Raises
    ------
    PluginError
        A script is another than the one that is pinned.
    """
    for name, _, _, digest in PINNED:
        path = SCRIPTS.get(f"assets/{name}.js")
        if path is not None and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise PluginError(f"{path} has another hash than docs/site/scripts.lock: delete it, or correct the lock")
    for name in (*SCRIPTS, *INTEGRITY):
        if "iframe-worker" in name:
            # Search runs in a worker, which pages that are opened as files have by this script only, loaded first.
            config.extra["polyfills"] = [name]
        else:
            config.extra_javascript.append(name)
    config.nav = [_with_decisions(entry) for entry in config.nav]
    return config


def _with_decisions(entry: dict[str, Any]) -> dict[str, Any]:
    (title, pages), *_ = entry.items()
    if title != "Development":
        return entry
    decisions = sorted(path.name for path in (ROOT / "docs/adr").glob("*.md") if path.name != "README.md")
    listed = ["adr/README.md", *(f"adr/{name}" for name in decisions)]
    return {title: [{"Decisions": listed} if "Decisions" in page else page for page in pages]}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and the script that are outside docs/."""
    added = {f"reference/{path.name}": path for path in (ROOT / "build/reference").glob("*.md")}
    added |= {page: ROOT / name for name, page in FROM_ROOT.items() if page != "index.md"}
    added |= SCRIPTS
    for name, path in added.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - mkdocs names them
    """Lead links by where they lead to in the repository."""
    here = page.file.src_uri
    own = {site: root for root, site in FROM_ROOT.items()}.get(here) if here != "index.md" else None
    folder = "" if own else posixpath.dirname(f"docs/{here}")

    def lead(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        target = FROM_ROOT.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None:
            return f"{match[1]}{config.extra['repository']}/blob/HEAD/{path}"
        return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}"

    return _LINK.sub(lead, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - mkdocs names them
    """Show the roles of docstrings, such as ``:class:``, as the names that they mark."""
    return re.sub(r":(?:attr|class|data|func|meth|mod):<code>~?", "<code>", html)


def on_post_page(output: str, page: Any, config: Any) -> str:  # noqa: ARG001 - mkdocs names them
    """Let a browser run a script of another host only if it has the hash that is pinned."""
    for url, digest in INTEGRITY.items():
        output = output.replace(f'src="{url}"', f'src="{url}" integrity="sha256-{digest}" crossorigin="anonymous"')
    return output
