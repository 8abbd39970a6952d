"""Words and names that the style guide refuses: ``python -m tests.wording`` lists each use. ``./task lint`` runs it.

It reads the docstrings and comments of all Python files, the messages and help texts of ``ddbio``, the names of
variables and tests, and the prose of Markdown files. Code in Markdown is not read.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Each refused word as a regular expression, and what to write instead. ``^`` is the start of a docstring.
WORDS = {
    r"^(?:return|hold|say|tell|give|yield|print|show)s? (?:what|which|how|where|who)\b": "the noun: 'Return the …'",
    r"^(?:hold|say|tell)s?\b": "the noun: 'Lease of …'",
    r"\b(?:go|goes|went|going|gone) on\b": "resume, continue",
    r"\b(?:anew|begun)\b": "again, restarted, started",
    r"\b(?:tell|tells|told)\b": "report, show, record, distinguish",
    r"\b(?:say|says|said)\b": "report, show, record, state",
    r"\bbesides?\b": "next to, in addition to, except",
    r"\b(?:lie|lies|lay|lain)\b": "is in, is stored in",
    r"\bso (?:many|much|long)\b": "the number",
    r"\blikewise\b|\bas well\b(?! as)": "also",
    r"\bof (?:its|their|his|your|our|one's) own\b": "its own, separate, custom",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\b(?:meets?|met)\b": "reach, match, adjoin",
    r"\broads?\b": "method, option",
    r"\brooms?\b": "space, buffer",
    r"\bwhatever\b": "any, regardless of",
    r"\bbehind\b": "after, later than",
    r"\bstands?\b(?! for)|\bstood\b": "is, is stored",
    r"\bwhat (?:is|was) (?:there|left|here|known|held|kept|told|not)\b": "the noun: 'existing files'",
    r"\bforms?\b": "format, encoding, syntax",
    r"(?<!\bdecimal )(?<!\bin )(?<!\btake )(?<!\btakes )(?<!\btook )\bplaces?\b": "offset, path, location, position",
    r"\bat once\b": "at the same time, immediately",
    r"\bby hand\b": "manually",
}
#: Refused names of variables, parameters and fields, and refused words in names of tests.
NAMES = {"each", "found", "given", "known", "place", "places", "rest", "said", "told", "whole", "met"}

#: Uses that are right, by the start of the path, the word, and the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("ddbio/advice/advice.py", "roads"): "public attribute of Advice",
    ("ddbio/advice/doctor.py", "found"): "public attribute of Finding",
    ("ddbio/cdc/gaps.py", "behind"): "text that logs contain",
    ("ddbio/cdc/gaps.py", "places"): "public attribute of Gap",
    ("ddbio/cdc/loop.py", "behind"): "text that logs contain",
    ("ddbio/cli/commands.py", "place"): "argument that the help of the command shows",
    ("ddbio/export/bulk_reports.py", "place"): "public attribute of BulkSummary",
    ("ddbio/export/bulk_reports.py", "rest"): "public attribute of BulkRecord",
    ("ddbio/export/options.py", "place"): "public parameter",
    ("ddbio/items/schema/shape.py", "place"): "key of the JSON of schemas",
    ("ddbio/load/checkpoint.py", "begun"): "key of checkpoints",
    ("ddbio/load/unit_reader.py", "begun"): "key of checkpoints",
    ("ddbio/testing/tables/definition.py", "of its own"): "text of the service",
}

_PATTERNS = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in WORDS.items()]
_CODE = re.compile(r"``.*?``|`[^`\n]*`|:\w+:`[^`]*`|https?://\S+", re.DOTALL)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Use:
    """One use of a refused word."""

    path: str
    line: int
    word: str
    advice: str

    def __str__(self) -> str:
        """Return the line that lint prints."""
        return f"{self.path}:{self.line}: {self.word!r}: {self.advice}"

    @property
    def is_excepted(self) -> bool:
        """Return whether an exception names this use."""
        return any(self.path.startswith(path) and self.word.lower() == word for path, word in EXCEPTIONS)


def uses(path: Path) -> Iterator[Use]:
    """Return the refused words and names of a file."""
    name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
    if path.suffix == ".md":
        yield from _uses_in(name, 1, _prose_of(text))
        return
    tree = ast.parse(text)
    for line, words in [*_strings_of(tree, messages=name.startswith("ddbio/")), *_comments_of(text)]:
        yield from _uses_in(name, line, _CODE.sub(_blank, words))
    for line, variable in _names_of(tree):
        if variable in NAMES:
            yield Use(name, line, variable, "name the variable after what it holds")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from _uses_in(name, node.lineno, node.name.removeprefix("test_").replace("_", " "))


def _uses_in(name: str, line: int, text: str) -> Iterator[Use]:
    for pattern, advice in _PATTERNS:
        for match in pattern.finditer(text):
            yield Use(name, line + text.count("\n", 0, match.start()), " ".join(match[0].split()), advice)


def _blank(match: re.Match[str]) -> str:
    return "x" + "\n" * match[0].count("\n")


def _prose_of(page: str) -> str:
    """Return a page of Markdown without code, targets of links, and the table of refused words itself."""
    page = re.sub(r"^( *)(`{3,}).*?^ *\2", _blank, page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^\| not \| but \|\n(?:\|.*\n)+", _blank, page, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)|<[^>]*>|\{[^}\n]*\}", _blank, _CODE.sub(_blank, page))


def _strings_of(tree: ast.Module, *, messages: bool) -> Iterator[tuple[int, str]]:
    docstrings = set[ast.Constant]()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            for statement in node.body:
                match statement:
                    case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                        docstrings.add(constant)
                        yield constant.lineno, text
    for node in ast.walk(tree) if messages else ():
        match node:
            case ast.Constant(value=str(text)) if " " in text and node not in docstrings:
                yield node.lineno, text


def _comments_of(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def _names_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def checked_files() -> list[Path]:
    """Return the Python and Markdown files of the repository, except this one."""
    command = ["git", "ls-files", "*.py", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in names if name != "tests/wording.py" and (ROOT / name).exists()]


def main(paths: list[str]) -> int:
    """Print each refused word in the given files, or in all files, and return 1 if one is used."""
    files = [Path(path).resolve() for path in paths] or checked_files()
    refused = [use for path in files for use in uses(path) if not use.is_excepted]
    sys.stdout.writelines(f"{use}\n" for use in refused)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
