"""Comparison of the compiled loops with the reference on the same bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.framing import checked_items
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema


def by_reference(body: bytes, schema: pa.Schema, framing: Any, nulls: str = "merge") -> Any:
    """Return the batch and its misfits, or the error, of the reference."""
    log = MisfitLog()
    try:
        items = list(checked_items(body, framing))
        batch = RowBuilder(normalize_schema(schema), keep_nulls=nulls == "keep").batch(items, log)
    except DecodeError as error:
        return error
    return batch, log.misfits(), log.merged_nulls


def by_kernel(decoder: KernelDecoder, body: bytes | memoryview, framing: Any) -> Any:
    """Return the batch and its misfits, or the error, of the compiled loops."""
    decoder.log = MisfitLog()
    try:
        batch = decoder.decode(body, framing)
    except DecodeError as error:
        return error
    return batch, decoder.misfits, decoder.log.merged_nulls


def assert_same(actual: Any, expected: Any, body: bytes) -> None:
    """Compare two outcomes."""
    if isinstance(expected, DecodeError):
        assert isinstance(actual, DecodeError), f"accepted what the reference refuses with {expected}: {body!r}"
        assert actual.args == expected.args, body
        return
    assert not isinstance(actual, DecodeError), f"refused with {actual}: {body!r}"
    assert actual[1:] == expected[1:], (actual[1:], expected[1:], body)
    actual[0].validate(full=True)
    assert actual[0].schema.equals(expected[0].schema, check_metadata=True)
    if not actual[0].equals(expected[0]):
        for name in expected[0].schema.names:
            if not actual[0].column(name).equals(expected[0].column(name)):
                raise AssertionError(
                    (name, actual[0].column(name).to_pylist(), expected[0].column(name).to_pylist(), body)
                )
