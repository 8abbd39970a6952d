"""Say what of a table a read asks for: all segments or some item collections, and which of their items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.errors import OptionError
from ddbio.items.json_text import parse_json
from ddbio.scan.conditions import Query, Test, key_query, parse_condition
from ddbio.scan.lookup import encode_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.aws.table_description import TableDescription
    from ddbio.scan.conditions import Condition
    from ddbio.scan.options import ScanOptions


@dataclass(frozen=True)
class Selection:
    """Hold what is read: the items of ``keys``, the item collections of ``queries``, or everything.

    Of that, what meets ``condition`` is returned.

    The service reads and charges all items of the collections, whether they meet the condition or not.
    """

    queries: tuple[Query, ...] = ()
    condition: Condition | None = None
    warnings: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()


def selection_of(table: TableDescription, options: ScanOptions) -> Selection:
    """Return what a read asks for, by its options ``where`` and ``keys``.

    Raises
    ------
    OptionError
        If ``where`` is no condition, or compares a key with a constant of another type; if ``keys`` are none of the
        table's; or if both do not go together.
    """
    condition = None if options.where is None else parse_condition(options.where)
    index = table.index(options.index) if options.index else None
    if options.keys is not None:
        return _of_keys(table, options, condition)
    if condition is None:
        return Selection()
    types = {**dict(table.key_types), **{key.name: key.tag for key in (index.keys if index else ())}}
    keys = index.key_names if index else tuple(name for name, _ in table.key_types)
    found = key_query(condition, keys)
    if found is None:
        unbound = keys[0] not in condition.names()
        warning = (
            f"the condition names the partition key {keys[0]!r}, but is none that a Query can ask for, which takes one "
            "value or several of it, and one test of the sort key: everything is read, and filtered"
        )
        return Selection((), condition, () if unbound else (warning,))
    _require_types(found.partition, types, found.partition_keys)
    if found.sort is not None:
        _require_sort(found.sort, types)
    queries = tuple(Query(found.partition, key, found.sort) for key in found.partition_keys)
    return Selection(queries, found.rest)


def _of_keys(table: TableDescription, options: ScanOptions, condition: Condition | None) -> Selection:
    index = table.index(options.index) if options.index else None
    types = tuple((key.name, key.tag) for key in index.keys) if index else tuple(table.key_types)
    if options.keys is None:
        return Selection()
    found = encode_keys(options.keys, types)
    if index is None and len(found.names) == len(types):
        if condition is not None:
            raise OptionError(
                "where and keys: BatchGetItem, which reads items by their keys, takes no condition; filter what is read"
            )
        return Selection(keys=found.texts)
    if condition is not None and not {name for name, _ in types}.isdisjoint(condition.names()):
        raise OptionError("where and keys both test the keys: state them in one of the two")
    queries = []
    for text in found.texts:
        partition, *sort = ((name, parse_json(text)[name]) for name in found.names)
        queries.append(Query(*partition, *(Test("=", (name,), (value,)) for name, value in sort)))
    return Selection(tuple(queries), condition)


def _require_sort(test: Test, types: dict[str, str]) -> None:
    name = str(test.path[0])
    _require_types(name, types, test.values)
    if test.operator == "begins_with" and types.get(name) == "N":
        raise OptionError(f"the sort key {name!r} has type N, which begins_with cannot test: use BETWEEN")


def _require_types(name: str, types: dict[str, str], values: Iterable[dict[str, object]]) -> None:
    wanted = types.get(name)
    for value in values:
        if wanted is not None and wanted not in value:
            forms = {"S": "'text'", "N": "a number", "B": "x'00ff'"}
            raise OptionError(
                f"the key {name!r} has type {wanted}, and the condition compares it with type {next(iter(value))}: "
                f"write {forms.get(wanted, wanted)}"
            )
