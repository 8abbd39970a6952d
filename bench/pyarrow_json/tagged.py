"""Arrow types of tagged items for ``pyarrow.json``, and the column-wise removal of the tags.

It raises for everything that the reference would read differently.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.pyarrow_json.base64_column import decode_base64_column
from bench.pyarrow_json.number_column import cast_numbers
from ddbio.errors import DecodeError
from ddbio.items.schema.arrow import SETS, tag_of_field


def tagged_type(field: pa.Field[Any], path: str, null_paths: frozenset[str] | None) -> pa.DataType | None:
    """Return ``struct<tag, NULL>`` for a normalised field, or None if no fixed Arrow type parses its JSON.

    Parameters
    ----------
    field
        The column, member or element.
    path
        Its path in ``null_paths``.
    null_paths
        Paths at which NULL is expected, None for everywhere: each path costs parsing time.
    """
    tag = tag_of_field(field)
    null_member = [pa.field("NULL", pa.bool_())]
    if tag == "NULL":
        return pa.struct(null_member)
    content = _content_type(tag, field.type, path, null_paths)
    if content is None:
        return None
    return pa.struct([pa.field(tag, content), *(null_member if null_paths is None or path in null_paths else [])])


def _content_type(tag: str, arrow_type: Any, path: str, null_paths: frozenset[str] | None) -> pa.DataType | None:
    match tag:
        case "S" | "N" | "B":
            return pa.string()
        case "BOOL":
            return pa.bool_()
        case "SS" | "NS" | "BS":
            return pa.list_(pa.string())
        case "L":
            element = tagged_type(arrow_type.field(0), f"{path}[]", null_paths)
            return None if element is None else pa.list_(element)
        case "M" if pa.types.is_struct(arrow_type):
            return tagged_struct(members_of(arrow_type), path, null_paths)
    return None


def tagged_struct(fields: list[pa.Field[Any]], path: str, null_paths: frozenset[str] | None) -> pa.StructType | None:
    """Return the struct of the fields' tagged types, or None if there is none."""
    types = [tagged_type(field, f"{path}.{field.name}", null_paths) for field in fields]
    if not types or None in types:
        return None
    return pa.struct([pa.field(field.name, tagged) for field, tagged in zip(fields, types, strict=True) if tagged])


def members_of(arrow_type: Any) -> list[pa.Field[Any]]:
    """Return the fields of a struct type."""
    return [arrow_type.field(index) for index in range(arrow_type.num_fields)]


def null_flags(tagged: pa.StructArray) -> pa.BooleanArray | None:
    """Return the mask of NULL values, or None if there are none.

    Raises
    ------
    DecodeError
        If a present value has no type, two, or a NULL that is not true.
    """
    index = tagged.type.get_field_index("NULL")
    typed: Any = tagged.field(0) if index != 0 else pa.nulls(len(tagged))
    nulls: Any = tagged.field(index) if index >= 0 else pa.nulls(len(tagged))
    if nulls.null_count == len(nulls):
        if typed.null_count != tagged.null_count:
            raise DecodeError("a value without a type")
        return None
    exactly_one = pc.equal(pc.xor(typed.is_valid(), nulls.is_valid()), tagged.is_valid())
    if not pc.all(nulls).as_py() or not pc.all(exactly_one).as_py():
        raise DecodeError("a value without exactly one type, or a NULL that is not true")
    flags: pa.BooleanArray = nulls.is_valid()
    return flags


def untag(tagged: pa.StructArray, field: pa.Field[Any], *, keep_nulls: bool) -> pa.Array[Any]:
    """Return the column of ``field`` whose values were parsed into ``tagged``; NULL becomes null.

    Raises
    ------
    DecodeError, pyarrow.ArrowException
        If a value must be read by the reference; with ``keep_nulls`` also a NULL inside a map.
    """
    null_flags(tagged)
    tag = tag_of_field(field)
    if tag == "NULL":
        absent: pa.Array[Any] = pa.nulls(len(tagged), field.type)
        return absent
    return _content(tagged.field(0), tag, field.type, keep_nulls=keep_nulls)


def _content(content: Any, tag: str, arrow_type: Any, *, keep_nulls: bool) -> pa.Array[Any]:
    match tag:
        case "N":
            return cast_numbers(content, arrow_type)
        case "B":
            return decode_base64_column(content).cast(arrow_type)
        case "SS" | "NS" | "BS":
            elements = _content(content.values, SETS[tag], arrow_type.value_type, keep_nulls=keep_nulls)
            return _list_of(content, elements, arrow_type)
        case "L":
            elements = untag(content.values, arrow_type.field(0), keep_nulls=keep_nulls)
            return _list_of(content, elements, arrow_type)
        case "M":
            return _struct(content, arrow_type, keep_nulls=keep_nulls)
    same: pa.Array[Any] = content.cast(arrow_type)
    return same


def _list_of(lists: pa.ListArray[Any], elements: pa.Array[Any], arrow_type: Any) -> pa.Array[Any]:
    element = arrow_type.field(0)
    mask = lists.is_null() if lists.null_count else None
    built = pa.ListArray.from_arrays(lists.offsets, elements, type=pa.list_(element), mask=mask)
    same_size: pa.Array[Any] = built.cast(arrow_type)
    return same_size


def _struct(structs: pa.StructArray, arrow_type: Any, *, keep_nulls: bool) -> pa.Array[Any]:
    fields = members_of(arrow_type)
    children = []
    for index, field in enumerate(fields):
        member: Any = structs.field(index)
        if keep_nulls and null_flags(member) is not None:
            raise DecodeError("a NULL inside a map that is to be kept")
        children.append(untag(member, field, keep_nulls=keep_nulls))
    mask = structs.is_null() if structs.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
