"""Name the members of JSON that are null, so that a write can tell them from those that a row lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.formats.file_format import NO_TYPES
from ddbio.formats.text_rows import null_names
from ddbio.items.json_text import parse_documents
from ddbio.items.schema.arrow import name_of_field, nulls_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def with_named_nulls(
    batches: Iterable[pa.RecordBatch], text: bytes = b"", fields: Mapping[str, pa.Field[Any]] = NO_TYPES
) -> Iterator[pa.RecordBatch]:
    """Yield rows with the column of :func:`nulls_field`.

    Parameters
    ----------
    text
        The plain JSON that the rows were read from. DynamoDB JSON has no nulls but NULL, which is a value.
    fields
        The columns whose names may differ from those of their attributes.
    """
    named = list(_nulls_of(text, fields)) if b"null" in text else None
    first = 0
    for batch in batches:
        field, count = nulls_field(batch.schema), batch.num_rows
        names: Any = (
            pa.nulls(count, field.type) if named is None else pa.array(named[first : first + count], field.type)
        )
        yield batch.append_column(field, names)
        first += count


def _nulls_of(text: bytes, fields: Mapping[str, pa.Field[Any]]) -> Iterator[list[str] | None]:
    """Yield for each document the attributes that are null, or None."""
    for line, row in parse_documents(text, decimals=True):
        names = null_names(row, line)
        yield [name_of_field(fields[each]) if each in fields else each for each in names] or None
