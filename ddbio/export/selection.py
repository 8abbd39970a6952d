"""Selection of items and attributes when an export is read: lines of its files that match a condition.

With a condition, each line is parsed and written in Python, since the compiled loops do not evaluate conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError, OptionError
from ddbio.items.json_text import compact_json, parse_documents
from ddbio.scan.conditions import parse_condition
from ddbio.scan.matching import predicate_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.formats.export_manifest import ExportSummary
    from ddbio.items.attribute import Item
    from ddbio.scan.matching import Predicate

_IMAGES = ("NewImage", "OldImage")
# Errors of a condition on values that are not DynamoDB JSON.
_INVALID = (ArithmeticError, AttributeError, DecodeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class ExportSelection:
    """Items and attributes to read.

    Attributes
    ----------
    where
        The condition of the items, or None. For a change it tests the new image, or the old image of a deleted item.
    columns
        The attributes, or None. Keys of a change are always read.
    """

    where: str | None = None
    columns: tuple[str, ...] | None = None

    @cached_property
    def _predicate(self) -> Predicate | None:
        return None if self.where is None else predicate_of(parse_condition(self.where))

    @cached_property
    def _names(self) -> frozenset[str] | None:
        return None if self.columns is None else frozenset(self.columns)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the functions, which cannot be pickled."""
        return {"where": self.where, "columns": self.columns}

    def select(self, block: bytes) -> SelectedLines:
        """Return the selected lines of a block. Lines that are no items or changes stay, for the decoder to refuse.

        Of lines that are left out, only the tested values are checked. The MD5 of the file covers the others.

        Raises
        ------
        DecodeError
            If a line is not JSON; the message has the line.
        """
        texts, numbers, count = list[str](), list[int](), 0
        for line, document in parse_documents(block):
            count += 1
            selected = self._selected(document)
            if selected is not None:
                texts.append(compact_json(selected))
                numbers.append(line)
        return SelectedLines("\n".join(texts).encode(), numbers, count)

    def project(self, block: bytes) -> bytes:
        """Return all lines of a block with the selected attributes."""
        return block if self.columns is None else ExportSelection(None, self.columns).select(block).text

    def _selected(self, document: Any) -> Any:
        """Return the document with the selected attributes, or None if the condition is false."""
        if not isinstance(document, dict):
            return document
        members = [name for name in ("Item", *_IMAGES) if isinstance(document.get(name), dict)]
        item = document[members[0]] if members else document.get("Keys")
        if self._predicate is not None and isinstance(item, dict) and not self._matches(item):
            return None
        if self._names is None or not members:
            return document
        return {**document, **{name: self._picked(document[name]) for name in members}}

    def _matches(self, item: Item) -> bool:
        if self._predicate is None:
            return True
        try:
            return self._predicate(item)
        except _INVALID:
            return True

    def _picked(self, item: Item) -> Item:
        names = self._names or frozenset()
        return {name: value for name, value in item.items() if name in names}


@dataclass(frozen=True)
class SelectedLines:
    """Selected lines, the number of each in its block, and the number of all lines of the block."""

    text: bytes
    numbers: list[int]
    count: int

    def located(self, error: DecodeError) -> DecodeError:
        """Return an error of the selected lines with the number of the line in the block."""
        if error.line is None or not 0 < error.line <= len(self.numbers):
            return error
        return DecodeError(str(error), line=self.numbers[error.line - 1])


def export_selection(
    summary: ExportSummary, where: str | None, columns: Sequence[str] | None, keys: Sequence[str] | None
) -> ExportSelection | None:
    """Return the selection of the options, or None if they select everything.

    Parameters
    ----------
    keys
        The key attributes of the table, if the export is incremental.

    Raises
    ------
    OptionError
        If ``where`` is not a condition; if ``columns`` omit a key of changes; or if ``where`` tests attributes that
        deleted items of an export with new images do not have.
    """
    if where is None and columns is None:
        return None
    names = set() if where is None else set(parse_condition(where).names())
    if keys is not None and columns is not None and not set(keys) <= set(columns):
        missing = ", ".join(name for name in keys if name not in columns)
        raise OptionError(f"columns omit {missing} of the key, which each change needs: add it")
    if keys is not None and summary.view == "NEW_IMAGE" and not names <= set(keys):
        other = min(names - set(keys))
        raise OptionError(
            f"where: an export with the view NEW_IMAGE has only the keys of deleted items, so {other!r} cannot be "
            "tested: test only the key, or export with the view new_and_old_images"
        )
    return ExportSelection(where, None if columns is None else tuple(columns))
