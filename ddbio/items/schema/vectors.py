"""Columns of embeddings: lists of N of one length, as Arrow's fixed-size lists of 32-bit floats.

They are declared only, never inferred, and only for attributes of the item itself.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_DDB_TYPE = b"ddb:type"
# See ``ELEMENT`` in ``ddbio.items.schema.arrow``, which imports this module.
_ELEMENT = "element"
_TEXT = re.compile(r"fixed_size_list<(?:\w+: )?float>\[([1-9][0-9]{0,4})\]")


def is_vector(arrow_type: Any) -> bool:
    """Return whether the type is a fixed-size list of 32-bit floats."""
    return pa.types.is_fixed_size_list(arrow_type) and pa.types.is_float32(arrow_type.value_type)


def vector_type(size: int) -> pa.DataType:
    """Return the type of vectors with this number of elements."""
    return pa.list_(_element(pa.float32()), size)


def vector_type_of_text(text: str) -> pa.DataType | None:
    """Return the type that ``vector_text`` or ``str`` writes as this text, or None."""
    match = _TEXT.fullmatch(text)
    return None if match is None else vector_type(int(match[1]))


def vector_text(arrow_type: Any) -> str:
    """Return the text of a type of vectors, without the name of the element."""
    return f"fixed_size_list<float>[{arrow_type.list_size}]"


def normalize_vector(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a column of vectors with its DynamoDB type."""
    metadata = {**(field.metadata or {}), _DDB_TYPE: b"L"}
    return pa.field(field.name, vector_type(field.type.list_size), nullable=True, metadata=metadata)


def stored_vector(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return the column of the attribute itself: a list of exact numbers."""
    return field.with_type(pa.list_(_element(pa.string())))


def listed_vector(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return the column of a file for a column of vectors; any other field unchanged.

    Files have lists, because pyarrow cannot read a null of a fixed-size list from Parquet, and other formats lack them.
    """
    if not is_vector(field.type) or (field.metadata or {}).get(_DDB_TYPE) != b"L":
        return field
    return field.with_type(pa.list_(_element(pa.float32())))


def _element(arrow_type: pa.DataType) -> pa.Field[Any]:
    return pa.field(_ELEMENT, arrow_type, metadata={_DDB_TYPE: b"N"})
