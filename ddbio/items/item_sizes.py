"""Size of many items by DynamoDB's rule: of the rows of Arrow data, and of DynamoDB JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import EncodeError, SchemaError
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.capacity import WRITE_UNIT_BYTES, item_size_bytes
from ddbio.items.encode import Encoder, cast_batch, require_all, with_types
from ddbio.items.framing import framed_items
from ddbio.items.json_text import parse_json
from ddbio.items.raw_items import RawItemReader
from ddbio.items.schema.item_schema import arrow_schema_of

if TYPE_CHECKING:
    from ddbio.items.schema.item_schema import ItemSchema


def item_bytes(data: Any, schema: ItemSchema | pa.Schema | str | None = None) -> pa.Int64Array:
    """Return the size of each row in bytes, as DynamoDB counts it: the row as an item, names and values.

    Units, limits and the size in DescribeTable are based on this value. Storage is billed with 100 more bytes per item.
    A row of more than 400 KB, which DynamoDB would refuse, also has its size.

    Parameters
    ----------
    data
        A record batch, a table, a reader of batches, or any other data frame that exports itself as Arrow.
    schema
        DynamoDB's types of the columns, by name, if a file format has lost them.

    Raises
    ------
    SchemaError
        A column's type has no encoding in DynamoDB, or differs from the schema.
    EncodeError
        A row is not a valid item for another reason than its size. The first one is named.
    DecodeError
        An array points outside its memory.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html#ItemSizeCalculations
    """
    reader = record_batch_reader(data)
    target_schema = reader.schema if schema is None else with_types(reader.schema, arrow_schema_of(schema))
    encoder, sizes, row = Encoder(target_schema), [np.empty(0, np.int64)], 0
    for batch in checked_batches(reader):
        encoded = encoder.encode_view(cast_batch(batch, target_schema), first_row=row)
        require_all(refusal for refusal in encoded.refusals if not refusal.item_bytes)
        for refusal in encoded.refusals:
            encoded.sizes[refusal.row - row] = refusal.item_bytes
        sizes.append(encoded.sizes)
        row += batch.num_rows
    return pa.array(np.concatenate(sizes), pa.int64())


def min_write_units(rows: pa.Table) -> float | None:
    """Return the minimum write units of rows without indexes and larger old items, or None if a row is not an item."""
    try:
        sizes = item_bytes(rows).to_numpy()
    except (EncodeError, SchemaError):
        return None
    return float(np.maximum(1, -(-sizes // WRITE_UNIT_BYTES)).sum())


def item_bytes_of_json(text: bytes) -> pa.Int64Array:
    """Return the size of each item of DynamoDB JSON in bytes, as DynamoDB counts it.

    Parameters
    ----------
    text
        Lines of items or of an export, or a page of Scan or Query.

    Raises
    ------
    DecodeError
        The text is not DynamoDB JSON.
    """
    body, framing = framed_items(text)
    sizes = [np.empty(0, np.int64)]
    for items in RawItemReader({}).read(bytes(body), framing):
        # The loops do not compute the sizes of doubtful items.
        for row in np.flatnonzero(items.doubtful).tolist():
            items.sizes[row] = item_size_bytes(parse_json(items.text(row)))
        sizes.append(items.sizes)
    return pa.array(np.concatenate(sizes), pa.int64())
