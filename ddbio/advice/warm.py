"""Compile every loop ahead of its first use, or load it from the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.cdc.plain_lines import plain_lines
from ddbio.items import decode, digest_columns, digest_json, encode, raw_items
from ddbio.items import ion as ion_blocks
from ddbio.items.changes import ChangeDecoder
from ddbio.items.decode import Decoder, infer_schema_of_bodies
from ddbio.items.item_key import key_hashes
from ddbio.items.kernel.column_chunks import chunks_by_loop
from ddbio.items.kernel.members import Openings
from ddbio.items.kernel.typed_items import typed_lines
from ddbio.items.raw_items import PageSplitter
from ddbio.lake_formats import keys as lake_keys
from ddbio.lake_formats import merge as reordering
from ddbio.load.encode import RowEncoder
from ddbio.load.plan import WritePlan
from ddbio.storage import checksums

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WARM_UPS", "warm"]

# A value of every type, and of every column type for numbers.
_ITEM = (
    b'{"s":{"S":"a"},"n":{"N":"1"},"d":{"N":"1.5"},"t":{"N":"1e60"},"b":{"B":"AA=="},"o":{"BOOL":true},'
    b'"z":{"NULL":true},"ss":{"SS":["a"]},"ns":{"NS":["1"]},"bs":{"BS":["AA=="]},"l":{"L":[{"N":"1"}]},'
    b'"m":{"M":{"a":{"S":"a"}}},"p":{"M":{"a":{"S":"a"}}}}\n'
)
_CHANGE = b'{"Metadata":{"WriteTimestampMicros":{"N":"1"}},"Keys":{"a":{"S":"a"}},"NewImage":{"a":{"S":"a"}}}\n'
_RECORD = b'{"eventName":"MODIFY","dynamodb":{"ApproximateCreationDateTime":1,"Keys":{"a":{"S":"a"}}}}'
_WIDE_COLUMNS, _WIDE_ROWS = 200, 300


def _items() -> pa.RecordBatch:
    schema = infer_schema_of_bodies([(_ITEM, "items")]).to_arrow()
    texts = pa.field("p", pa.map_(pa.string(), pa.string()))
    return Decoder(schema.set(schema.get_field_index("p"), texts)).decode(_ITEM, "items")


def _decode_sparsely() -> None:
    # More slots than such small data may have: the decoder keeps its blocks apart.
    columns = [pa.field(f"a{number}", pa.string()) for number in range(_WIDE_COLUMNS)]
    Decoder(pa.schema(columns), item_size=True).decode(b"{}\n" * _WIDE_ROWS, "items")


def _decode_misfits() -> None:
    Decoder(pa.schema([])).decode(b'{"a":{"S":"a"}}', "items")


def _decode_changes() -> None:
    ChangeDecoder(pa.schema([("a", pa.string())]), ["a"]).decode(_CHANGE)


def _print_members() -> None:
    plain_lines(_RECORD)


def _find_members() -> None:
    Openings((b"name",)).find(b"{}")


def _type_items() -> None:
    typed_lines(b'{"a":null}')


def _read_chunks() -> None:
    chunks_by_loop(b"\0", 0, 0)


def _hash_keys() -> None:
    key_hashes(_items(), ["s", "t", "d"])


def _write() -> None:
    batch = _items()
    RowEncoder(batch.schema, WritePlan("table", (("s", "S"),), "upsert", None, None, 1, None)).encode(batch)


def _split_page() -> None:
    PageSplitter().decode_batches(b'{"Items":[{}]}', "page")


WARM_UPS: tuple[Callable[[], object], ...] = (
    _decode_sparsely,
    encode.warm,
    _decode_changes,
    _find_members,
    _print_members,
    _type_items,
    _read_chunks,
    ion_blocks.warm,
    digest_json.warm,
    digest_columns.warm,
    _hash_keys,
    checksums.warm,
    lake_keys.warm,
    reordering.warm,
    raw_items.warm,
    decode.warm,
    _write,
    _split_page,
    _decode_misfits,
)
"""Functions that together call every loop with every type of argument: whoever adds a loop adds a call of it.

Processes that share the work take them in this order; those that need no loop of their own come last.
"""


def warm(part: int | None = None) -> None:
    """Compile all loops, or load them from the cache.

    Parameters
    ----------
    part
        The index of the one of ``WARM_UPS`` to call; all by default.
    """
    for warm_up in WARM_UPS if part is None else WARM_UPS[part : part + 1]:
        warm_up()
