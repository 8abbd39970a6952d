"""Items that are passed on as text: split, checked, measured and hashed by key, but not decoded.

``RawItemReader`` does this for writes. ``PageSplitter`` splits pages into export lines. The reference implementation
reads text that the compiled loops cannot read. Text that is not DynamoDB JSON is a DecodeError. An item that violates a
rule of the table is passed on and marked as doubtful, for the writer to reject.
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
from ddbio.items.kernel.lines import LINES_RATIO, split_items
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
"""The number of bytes of text per walk, so that it stays in the processor's caches."""

MAX_DOCUMENT_BYTES = 32 << 20
"""The largest item, a list of the longest numbers, is 18.4 MB of text."""

_ALL_ROWS = 1 << 62
_COUNTED_BYTES = 64 * 1024
_SEARCH_BYTES = 64 * 1024
_LINE_END = ord("\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE = re.compile(r"^line [0-9]+")


@dataclass(frozen=True)
class RawItems:
    """Items as text, with the facts that a write needs.

    Attributes
    ----------
    data
        The text. Bytes between the items have no meaning.
    spans
        ``[n_items × 2]``: start and end of each item.
    sizes
        The size of each item in bytes, as DynamoDB counts it.
    hashes
        The hash of each item's key, as ``key_hashes`` returns it.
    values
        ``[n_items × n_values × 2]``: start and end of the values of the key attributes and of the compared attribute.
    doubtful
        Items that only the reference can check. Sizes, hashes and values are valid for the other items only.
    lines
        The line of the text on which each item begins, from 1, if known. Some of the items have none.
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
        """Return the number of items. Record batches have this property too."""
        return len(self.spans)

    @property
    def nbytes(self) -> int:
        """Return the size of the items' texts and of the arrays in bytes."""
        return int(len(self.data) + self.spans.nbytes + self.values.nbytes + 17 * len(self))

    def text(self, row: int) -> bytes:
        """Return the text of an item."""
        start, stop = self.spans[row]
        return self.data[start:stop].tobytes()

    def value(self, row: int, number: int) -> bytes:
        """Return the text of a key attribute's or the compared value. The item must not be doubtful."""
        start, stop = self.values[row, number]
        return self.data[start:stop].tobytes()

    def take(self, rows: npt.NDArray[np.int64]) -> RawItems:
        """Return the given items, with the same text."""
        return RawItems(
            self.data, self.spans[rows], self.sizes[rows], self.hashes[rows], self.values[rows], self.doubtful[rows]
        )

    def item_text(self, row: int) -> str:
        """Return an item as one line of JSON."""
        return compact_json(parse_json(self.text(row)))


class RawItemParts:
    """Several ``RawItems``, to be joined completely or range by range. Items are numbered across the parts."""

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
        """Return the items of ranges without the text around them. No range is empty or spans two parts."""
        positions = np.cumsum(counts) - counts
        rows = np.repeat(firsts - positions, counts) + np.arange(int(counts.sum()))
        spans, values = self._spans[rows], self._values[rows]
        begins = np.minimum.reduceat(spans[:, 0], positions)
        ends = np.maximum.reduceat(spans[:, 1], positions)
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
    """Reader of items for one table, with the interface of a decoder of pages. Use one per thread.

    Parameters
    ----------
    keys
        The table's key attributes and their types, the partition key first.
    index_keys
        Keys of the table's indexes.
    compared
        An attribute to compare, which every item must have in addition to its key.
    takes_illegal
        Whether an object that is not a legal item is doubtful, for a writer to reject, instead of an error.
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
        self._n_marks, room = len(marks), (2 * len(keys) + 1) * raw_items.KEY_CONTENT_BYTES
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
            request=np.array([len(names), len(keys), len(marks), letters, (1 << len(marks)) - 1], np.int64),
            rules=np.array([*sum(rows, ()), 0], np.int64),
            recorded=memory.allocate_words(2 * len(marks) + 1),
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
        """Yield the items of one page or of lines, a few megabytes at a time."""
        return self.read_blocks([data], framing)

    def read_blocks(self, blocks: Iterable[bytes | memoryview], framing: Framing) -> Iterator[RawItems]:
        """Yield the items of text that comes in blocks. Memory use is little more than one block.

        Parameters
        ----------
        blocks
            Each block ends at a line end, and is not used after the next is taken. A page is one block.

        Raises
        ------
        DecodeError
            The text is not DynamoDB JSON in this framing.
        """
        if framing == "changes":
            raise DecodeError(NOT_ITEMS)
        remaining, first_line = b"", 1
        for block in blocks:
            data = memoryview(remaining + block if remaining else block)
            if first_line == 1 and data[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK:
                data = data[len(_BYTE_ORDER_MARK) :]
            walked, next_line = yield from self._read_documents(data, framing, first_line)
            remaining, line, first_line = bytes(data[walked:]), first_line, next_line
            # No item is this large: the text is invalid, and the reference describes the error.
            if len(remaining) > MAX_DOCUMENT_BYTES:
                yield self._read_with_reference(data, walked, framing, line)
                first_line += remaining.count(b"\n")
                remaining = b""
        if remaining:
            yield self._read_with_reference(data, walked, framing, line)

    def _read_documents(
        self, data: memoryview, framing: Framing, line: int
    ) -> Generator[RawItems, None, tuple[int, int]]:
        """Yield the items of documents that the loops can read; return the offset and line of the first other document.

        Parameters
        ----------
        line
            The line number at the start of the data.
        """
        position, piece_bytes = 0, len(data) if framing == "page" else PIECE_BYTES
        while position < len(data):
            piece = data[position : _end_of_piece(data, position, piece_bytes)]
            items, walked = self._walk(piece, framing)
            if not walked and position + len(piece) == len(data):
                return position, line
            # A document of many lines may continue after the piece.
            piece_bytes = 4 * piece_bytes if not walked else max(PIECE_BYTES, piece_bytes // 4)
            begin, position = position, position + walked
            if framing == "page":
                if len(items):
                    yield items
                continue
            n_line_ends = _count_line_ends(np.frombuffer(data[begin:position], np.uint8))
            if len(items):
                yield replace(items, lines=_lines_of(items, self._begin, line, n_line_ends))
            line += n_line_ends
        return position, line

    def _read_with_reference(self, text: memoryview, position: int, framing: Framing, first_line: int) -> RawItems:
        """Return the items of the text after a position, read by the reference and printed again."""
        data = bytes(text)
        try:
            lines = "\n".join(map(compact_json, checked_items(data[position:], framing, self._check))).encode()
        except DecodeError:
            try:
                # Read from the start, to find the line of the error.
                deque(checked_items(data, framing, self._check), 0)
            except DecodeError as error:
                raise shift_line(error, first_line - 1) from None
            raise
        return self._walk(lines, "items")[0]

    def _learn_names(self) -> None:
        """Assign the first nodes of an empty walk to the attributes of interest."""
        walker = self._walker
        forget_paths(walker.walk)
        walker.walk_whole(memoryview(compact_json(self._names).encode()), "items")
        nodes = walker.walk.nodes.reshape(-1, paths.NODE_WIDTH)[1 : len(self._names) + 1]
        nodes[:, [paths.KEEPS_POSITION, paths.KEEPS_TEXT, paths.WHOLE]] = 1, 1, -1

    def _walk(self, piece: bytes | memoryview, framing: Framing) -> tuple[RawItems, int]:
        """Return the items of the complete documents in a piece, and the number of bytes of these documents."""
        walker, status = self._walker, codes.GROW_UNESCAPED
        while status == codes.GROW_UNESCAPED:
            if not walker.load(memoryview(piece), in_new_array=True):
                return self._items(0), 0
            skipped = list[int]()
            status = walker.resume_walk(framing, _ALL_ROWS)
            while status == codes.ERROR and walker.skip_item(framing):
                skipped.append(walker.n_rows - 1)
                status = walker.resume_walk(framing, _ALL_ROWS)
            if status == codes.GROW_UNESCAPED:
                walker.widen()
        if status != codes.DONE and framing == "page":
            return self._items(0), 0
        items, self._begin = self._items(walker.n_rows, skipped), walker.origin
        if walker.has_many_paths:
            self._learn_names()
        if items.doubtful.any() and not self._are_legal(items):
            return self._items(0), 0
        return items, len(piece) if status == codes.DONE else walker.position

    def _are_legal(self, items: RawItems) -> bool:
        """Return whether all doubtful items are DynamoDB JSON, or objects if ``takes_illegal``."""
        try:
            for row in np.flatnonzero(items.doubtful).tolist():
                self._check(parse_json(items.text(row)))
        except (DecodeError, RecursionError):
            return False
        return True

    def _items(self, count: int, skipped: Sequence[int] = ()) -> RawItems:
        """Return the first ``count`` items of the walk, of which some were skipped."""
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
    """Lines of an export, ``{"Item":{…}}``, and their number."""

    text: bytes
    items: int

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return len(self.text)


class PageSplitter:
    """Conversion of pages to export lines, with the interface of a decoder. Use one per thread."""

    def __init__(self) -> None:
        self.log = MisfitLog()
        self._data = self._out = memory.allocate(0)

    def decode_batches(self, data: bytes, framing: Framing) -> list[ExportLines]:
        """Return the lines of a page's items. Every value keeps the bytes in which it was received.

        Raises
        ------
        DecodeError
            The bytes are not a page.
        """
        items_member = ITEMS_MEMBER.search(data) if framing == "page" else None
        if items_member is None:
            raise DecodeError('expected {"Items": …}')
        if len(self._data) < len(data) + PAD:
            self._data = memory.allocate(len(data) + PAD)
            self._out = memory.allocate(LINES_RATIO * len(data) + PAD)
        self._data[: len(data)] = np.frombuffer(data, np.uint8)
        self._data[len(data) : len(data) + PAD] = 0
        count, printed = split_items(self._data, items_member.end(), self._out)
        if count < 0:
            raise DecodeError("the page's items are no list of objects")
        return [ExportLines(self._out[:printed].tobytes(), count)]


def _count_line_ends(data: npt.NDArray[np.uint8]) -> int:
    """Return the number of line ends: several times as fast as counting in bytes."""
    # In small parts, into reused memory: allocating fresh memory takes longer than the count.
    flags, n_line_ends = np.empty(min(len(data), _COUNTED_BYTES), np.bool_), 0
    for first in range(0, len(data), _COUNTED_BYTES):
        part = data[first : first + _COUNTED_BYTES]
        n_line_ends += int(np.count_nonzero(np.equal(part, _LINE_END, out=flags[: len(part)])))
    return n_line_ends


def _lines_of(items: RawItems, begin: int, first_line: int, n_line_ends: int) -> Sequence[int] | npt.NDArray[np.int64]:
    """Return the line of each item.

    ``n_line_ends`` line ends are in the text, which starts at ``begin`` on the first line.
    """
    starts = items.spans[:, 0]
    before = starts - (starts[0] - begin) - 1
    if len(items) - 1 <= n_line_ends <= len(items) and (items.data[before[1:]] == _LINE_END).all():
        # Every item begins a line, and all lines are used.
        return range(first_line, first_line + len(items))
    ends = np.flatnonzero(items.data[begin : int(starts[-1])] == _LINE_END) + begin
    return first_line + np.searchsorted(ends, starts)


def _rule(name: str, rule: KeyRule | None, keys: list[str]) -> tuple[int, int, int]:
    key = keys.index(name) if name in keys else -1
    return (key, -1, 0) if rule is None else (key, TAGS.index(rule.tag), rule.longest)


def _end_of_piece(data: memoryview, position: int, piece_bytes: int) -> int:
    """Return the end of a piece: the first line end after ``piece_bytes`` bytes, or the end of the data."""
    for at in range(position + piece_bytes, len(data), _SEARCH_BYTES):
        line_end = bytes(data[at : at + _SEARCH_BYTES]).find(b"\n")
        if line_end >= 0:
            return at + line_end + 1
    return len(data)


def shift_line(error: DecodeError, lines: int) -> DecodeError:
    """Return the error with its line number increased by ``lines``."""
    if error.line is None or not lines:
        return error
    line = error.line + lines
    return DecodeError(_LINE.sub(f"line {line}", str(error), count=1), line=line)
