"""Pass items on as the text they came as: found, checked, measured and hashed by key, but not decoded.

``RawItemReader`` does this for writes; ``PageSplitter`` cuts pages into export lines. The plain reference reads what
the compiled walk does not take. Text that is not DynamoDB JSON is a DecodeError; an item that breaks a rule of the
table is passed on, marked as doubtful, for the writer to reject.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddbio.errors import DecodeError
from ddbio.items.attribute import TAGS, check_item
from ddbio.items.framing import NOT_ITEMS, check_object, checked_items
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.kernel import codes, memory
from ddbio.items.kernel.encode.rules import key_rules
from ddbio.items.kernel.lines import ROOM_RATIO, split_items
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.tape import paths, raw_items
from ddbio.items.kernel.tape.walker import Walker, first_walk, forget_paths
from ddbio.items.page import ITEMS_MEMBER
from ddbio.items.rescue import MisfitLog

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from ddbio.aws.table_description import IndexKey
    from ddbio.items.framing import Framing
    from ddbio.items.kernel.encode.rules import KeyRule

PIECE_BYTES = 2 << 20
"""Bytes of text to walk at a time, so that it stays in the processor's caches."""

MAX_DOCUMENT_BYTES = 32 << 20
"""The largest item, a list of the longest numbers, is 18.4 MB of text."""

_ALL_ROWS = 1 << 62
_COUNTED_BYTES = 64 * 1024
_LOOK_BYTES = 64 * 1024
_LINE_END = ord("\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE = re.compile(r"^line [0-9]+")


@dataclass(frozen=True)
class RawItems:
    """Hold items as text, each with what a write needs to know of it.

    Attributes
    ----------
    data
        The text; bytes between the items have no meaning.
    spans
        ``[n_items × 2]``: start and end of each item.
    sizes
        The size of each item in bytes, as DynamoDB counts it.
    hashes
        The hash of each item's key, as ``key_hashes`` returns it.
    values
        ``[n_items × n_values × 2]``: start and end of the values of the key attributes and of the one to compare.
    doubtful
        Items that only the reference can check; sizes, hashes and values are valid for the other items only.
    lines
        The line of the text that each item begins on, from 1, if that is known; some of the items have none.
    """

    data: npt.NDArray[np.uint8]
    spans: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    values: npt.NDArray[np.int64]
    doubtful: npt.NDArray[np.bool_]
    lines: Sequence[int] | npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def num_rows(self) -> int:
        """Return the number of items, under the name that a record batch has for it."""
        return len(self.spans)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the items' texts and of the arrays beside them."""
        return int(len(self.data) + self.spans.nbytes + self.values.nbytes + 17 * len(self))

    def text(self, row: int) -> bytes:
        """Return the text of an item."""
        start, stop = self.spans[row]
        return self.data[start:stop].tobytes()

    def value(self, row: int, number: int) -> bytes:
        """Return the text of a key attribute's or the compared value; the item must not be doubtful."""
        start, stop = self.values[row, number]
        return self.data[start:stop].tobytes()

    def take(self, rows: npt.NDArray[np.int64]) -> RawItems:
        """Return some of the items, on the same text."""
        return RawItems(
            self.data, self.spans[rows], self.sizes[rows], self.hashes[rows], self.values[rows], self.doubtful[rows]
        )

    def item_text(self, row: int) -> str:
        """Return an item as one line of JSON."""
        return compact_json(parse_json(self.text(row)))


class RawItemParts:
    """Hold several ``RawItems``, to be joined as a whole or range by range; items are numbered across the parts."""

    def __init__(self, parts: Sequence[RawItems]) -> None:
        self._parts = [part for part in parts if len(part)] or list(parts[:1])
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._spans = np.concatenate([part.spans for part in self._parts])
        self._sizes = np.concatenate([part.sizes for part in self._parts])
        self._values = np.concatenate([part.values for part in self._parts])
        self.hashes = np.concatenate([part.hashes for part in self._parts])
        self.doubtful = np.concatenate([part.doubtful for part in self._parts])

    def joined(self) -> RawItems:
        """Return all items, without the text around them."""
        if len(self._parts) == 1:
            return self._parts[0]
        counts = np.diff(self._ends, prepend=0)
        return self.joined_ranges(self._ends - counts, counts)

    def joined_ranges(self, firsts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> RawItems:
        """Return some ranges of items, none of them empty or across two parts, without the text around them."""
        places = np.cumsum(counts) - counts
        rows = np.repeat(firsts - places, counts) + np.arange(int(counts.sum()))
        spans, values = self._spans[rows], self._values[rows]
        begins = np.minimum.reduceat(spans[:, 0], places)
        ends = np.maximum.reduceat(spans[:, 1], places)
        numbers = np.searchsorted(self._ends, firsts, "right")
        texts = zip(numbers.tolist(), begins.tolist(), ends.tolist(), strict=True)
        lengths = ends - begins
        moves = np.repeat(np.cumsum(lengths) - lengths - begins, counts)
        return RawItems(
            np.concatenate([self._parts[number].data[begin:end] for number, begin, end in texts]),
            spans + moves[:, None],
            self._sizes[rows],
            self.hashes[rows],
            values + moves[:, None, None],
            self.doubtful[rows],
        )


def joined_items(parts: Sequence[RawItems]) -> RawItems:
    """Return several ``RawItems`` as one, without the text around them."""
    return RawItemParts(parts).joined()


class RawItemReader:
    """Read items for one table, with the interface of a decoder of pages; keep one per thread.

    Parameters
    ----------
    keys
        The table's key attributes and their types, the partition key first.
    index_keys
        Keys of the table's indexes.
    compared
        An attribute to compare, which every item needs besides its key.
    takes_illegal
        Whether an object that is no legal item is doubtful, for a writer to reject, instead of an error.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        index_keys: Iterable[IndexKey] = (),
        compared: str | None = None,
        *,
        takes_illegal: bool = False,
    ) -> None:
        self._check = check_object if takes_illegal else check_item
        self.log = MisfitLog()
        """An empty log: without columns there are no misfits."""
        rules = key_rules(keys, index_keys)
        marks = list(keys) + [name for name in filter(None, [compared]) if name not in keys]
        names = list(rules) + [name for name in marks if name not in rules]
        self._names = {name: {"NULL": True} for name in names}
        rows = [
            (*_rule(name, rules.get(name), list(keys)), marks.index(name) if name in marks else -1) for name in names
        ]
        letters = sum(ord(tag) << 8 * number for number, tag in enumerate(keys.values()))
        self._n_marks, room = len(marks), (2 * len(keys) + 1) * raw_items.KEY_ROOM
        nothing = memory.allocate_words(0)
        self._walker = Walker(first_walk())
        self._check_arrays = raw_items.Check(
            data=self._walker.walk.data,
            tape=self._walker.walk.tape,
            nodes=self._walker.walk.nodes,
            digits=self._walker.walk.digits,
            scratch=memory.allocate_zeros(room),
            lengths=memory.allocate_words(len(keys)),
            elements=memory.allocate_words(raw_items.MAX_ELEMENTS),
            slots=memory.allocate_words(2 * raw_items.MAX_ELEMENTS),
            asked=np.array([len(names), len(keys), len(marks), letters, (1 << len(marks)) - 1], np.int64),
            rules=np.array([*sum(rows, ()), 0], np.int64),
            found=memory.allocate_words(2 * len(marks) + 1),
            spans=nothing,
            values=nothing,
            sizes=nothing,
            hashes=nothing.view(np.uint64),
            doubts=memory.allocate(0),
        )
        self._begin = 0
        self._learn_names()

    def decode_batches(self, data: bytes, framing: Framing) -> list[RawItems]:
        """Return the items of one page or of lines, as ``read`` yields them."""
        return list(self.read(data, framing))

    def read(self, data: bytes, framing: Framing) -> Iterator[RawItems]:
        """Yield the items of one page or of lines, some megabytes at a time."""
        return self.read_blocks([data], framing)

    def read_blocks(self, blocks: Iterable[bytes | memoryview], framing: Framing) -> Iterator[RawItems]:
        """Yield the items of text that comes in blocks, holding little more than one block.

        Parameters
        ----------
        blocks
            Each ends at a line end, and is not used once the next is taken. A page is one block.

        Raises
        ------
        DecodeError
            The text is not DynamoDB JSON in this framing.
        """
        if framing == "changes":
            raise DecodeError(NOT_ITEMS)
        rest, first_line = b"", 1
        for block in blocks:
            data = memoryview(rest + block if rest else block)
            if first_line == 1 and data[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK:
                data = data[len(_BYTE_ORDER_MARK) :]
            walked, next_line = yield from self._read_whole_documents(data, framing, first_line)
            rest, line, first_line = bytes(data[walked:]), first_line, next_line
            # No item is as large: the text is broken, and the reference says how.
            if len(rest) > MAX_DOCUMENT_BYTES:
                yield self._of_reference(data, walked, framing, line)
                first_line += rest.count(b"\n")
                rest = b""
        if rest:
            yield self._of_reference(data, walked, framing, line)

    def _read_whole_documents(
        self, data: memoryview, framing: Framing, line: int
    ) -> Generator[RawItems, None, tuple[int, int]]:
        """Yield the items of documents that the walk takes; return where the first begins that it does not take.

        Parameters
        ----------
        line
            The line with which the data begins; the first one that is not taken is returned likewise.
        """
        place, most = 0, len(data) if framing == "page" else PIECE_BYTES
        while place < len(data):
            piece = data[place : _cut(data, place, most)]
            items, walked = self._walk(piece, framing)
            if not walked and place + len(piece) == len(data):
                return place, line
            # A document of many lines may go on after the piece.
            most = 4 * most if not walked else max(PIECE_BYTES, most // 4)
            begin, place = place, place + walked
            if framing == "page":
                if len(items):
                    yield items
                continue
            ended = _count_line_ends(np.frombuffer(data[begin:place], np.uint8))
            if len(items):
                yield replace(items, lines=_lines_of(items, self._begin, line, ended))
            line += ended
        return place, line

    def _of_reference(self, text: memoryview, place: int, framing: Framing, first_line: int) -> RawItems:
        """Return the items of text after a position, read by the reference and printed anew."""
        data = bytes(text)
        try:
            lines = "\n".join(map(compact_json, checked_items(data[place:], framing, self._check))).encode()
        except DecodeError:
            try:
                # Read from the beginning, to find the line of the error.
                deque(checked_items(data, framing, self._check), 0)
            except DecodeError as error:
                raise shift_line(error, first_line - 1) from None
            raise
        return self._walk(lines, "items")[0]

    def _learn_names(self) -> None:
        """Give the attributes of interest the first nodes of an empty walk."""
        walker = self._walker
        forget_paths(walker.walk)
        walker.walk_whole(memoryview(compact_json(self._names).encode()), "items")
        nodes = walker.walk.nodes.reshape(-1, paths.NODE_WIDTH)[1 : len(self._names) + 1]
        nodes[:, [paths.KEEPS_PLACE, paths.KEEPS_TEXT, paths.WHOLE]] = 1, 1, -1

    def _walk(self, piece: bytes | memoryview, framing: Framing) -> tuple[RawItems, int]:
        """Return the items of whole documents, and the number of bytes these take."""
        walker, status = self._walker, codes.GROW_UNESCAPED
        while status == codes.GROW_UNESCAPED:
            if not walker.load(memoryview(piece), in_new_array=True):
                return self._items(0), 0
            skipped = list[int]()
            status = walker.go_on(framing, _ALL_ROWS)
            while status == codes.ERROR and walker.skip_item(framing):
                skipped.append(walker.n_rows - 1)
                status = walker.go_on(framing, _ALL_ROWS)
            if status == codes.GROW_UNESCAPED:
                walker.widen()
        if status != codes.DONE and framing == "page":
            return self._items(0), 0
        items, self._begin = self._items(walker.n_rows, skipped), walker.origin
        if walker.has_many_paths:
            self._learn_names()
        if items.doubtful.any() and not self._are_legal(items):
            return self._items(0), 0
        return items, len(piece) if status == codes.DONE else walker.place

    def _are_legal(self, items: RawItems) -> bool:
        """Return whether all doubtful items are at least DynamoDB JSON, or objects if those are taken."""
        try:
            for row in np.flatnonzero(items.doubtful).tolist():
                self._check(parse_json(items.text(row)))
        except (DecodeError, RecursionError):
            return False
        return True

    def _items(self, count: int, skipped: Sequence[int] = ()) -> RawItems:
        """Return so many items that were walked, of which some were skipped."""
        walk, marks = self._walker.walk, self._n_marks
        check = self._check_arrays._replace(
            **{name: getattr(walk, name) for name in ("data", "tape", "nodes", "digits")},
            spans=memory.allocate_words(2 * count),
            values=memory.allocate_words(2 * marks * count),
            sizes=memory.allocate_words(count),
            hashes=memory.allocate_words(count).view(np.uint64),
            doubts=memory.allocate_zeros(count),
        )
        check.doubts[list(skipped)] = 1
        if count:
            raw_items.check_items(check, self._walker.n_words)
        return RawItems(
            check.data,
            check.spans.reshape(count, 2),
            check.sizes,
            check.hashes,
            check.values.reshape(count, marks, 2),
            check.doubts.view(np.bool_),
        )


class ExportLines(NamedTuple):
    """Hold lines of an export, ``{"Item":{…}}``, and their number."""

    text: bytes
    items: int

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return len(self.text)


class PageSplitter:
    """Print the items of pages as export lines, with the interface of a decoder; keep one per thread."""

    def __init__(self) -> None:
        self.log = MisfitLog()
        self._data = self._out = memory.allocate(0)

    def decode_batches(self, data: bytes, framing: Framing) -> list[ExportLines]:
        """Return the lines of a page's items, every value in the bytes it was received as.

        Raises
        ------
        DecodeError
            The bytes are no page.
        """
        found = ITEMS_MEMBER.search(data) if framing == "page" else None
        if found is None:
            raise DecodeError('expected {"Items": …}')
        if len(self._data) < len(data) + PAD:
            self._data = memory.allocate(len(data) + PAD)
            self._out = memory.allocate(ROOM_RATIO * len(data) + PAD)
        self._data[: len(data)] = np.frombuffer(data, np.uint8)
        self._data[len(data) : len(data) + PAD] = 0
        count, printed = split_items(self._data, found.end(), self._out)
        if count < 0:
            raise DecodeError("the page's items are no list of objects")
        return [ExportLines(self._out[:printed].tobytes(), count)]


def _count_line_ends(data: npt.NDArray[np.uint8]) -> int:
    """Return how many bytes are line ends: several times as fast as counting in bytes."""
    # A few at a time, into memory that is there already: fresh memory takes longer than the count.
    flags, ended = np.empty(min(len(data), _COUNTED_BYTES), np.bool_), 0
    for first in range(0, len(data), _COUNTED_BYTES):
        part = data[first : first + _COUNTED_BYTES]
        ended += int(np.count_nonzero(np.equal(part, _LINE_END, out=flags[: len(part)])))
    return ended


def _lines_of(items: RawItems, begin: int, first_line: int, ended: int) -> Sequence[int] | npt.NDArray[np.int64]:
    """Return the lines of items whose text begins with a line at a place, and in which so many lines end."""
    starts = items.spans[:, 0]
    before = starts - (starts[0] - begin) - 1
    if len(items) - 1 <= ended <= len(items) and (items.data[before[1:]] == _LINE_END).all():
        # Every item begins a line, and no line is left.
        return range(first_line, first_line + len(items))
    ends = np.flatnonzero(items.data[begin : int(starts[-1])] == _LINE_END) + begin
    return first_line + np.searchsorted(ends, starts)


def _rule(name: str, rule: KeyRule | None, keys: list[str]) -> tuple[int, int, int]:
    key = keys.index(name) if name in keys else -1
    return (key, -1, 0) if rule is None else (key, TAGS.index(rule.tag), rule.longest)


def _cut(data: memoryview, place: int, most: int) -> int:
    """Return the end of a piece: the first line end after ``most`` bytes, or the end of the data."""
    for at in range(place + most, len(data), _LOOK_BYTES):
        found = bytes(data[at : at + _LOOK_BYTES]).find(b"\n")
        if found >= 0:
            return at + found + 1
    return len(data)


def shift_line(error: DecodeError, lines: int) -> DecodeError:
    """Return an error with its line counted from some lines earlier."""
    if error.line is None or not lines:
        return error
    line = error.line + lines
    return DecodeError(_LINE.sub(f"line {line}", str(error), count=1), line=line)
