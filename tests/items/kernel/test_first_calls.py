from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, tables

import ddbio
from ddbio.errors import DecodeError
from ddbio.items import decode, digest_json, encode
from ddbio.items.framing import framed_items
from ddbio.items.kernel.cache import NotCompiledError
from ddbio.items.kernel.first_calls import FirstCalls

SCHEMA = pa.schema([("pk", pa.string()), ("n", pa.int64()), ("a", pa.list_(pa.decimal128(9, 2)))])


def bodies_of(items):
    """Return the items as one page, as export lines and as item lines."""
    texts = [json.dumps(item, ensure_ascii=False) for item in items]
    return [
        f'{{"Items":[{",".join(texts)}],"Count":{len(texts)},"ScannedCount":{len(texts)}}}'.encode(),
        "".join(f'{{"Item":{text}}}\n' for text in texts).encode(),
        "".join(f"{text}\n" for text in texts).encode(),
    ]


def not_compiled():
    """Do as a loop that is not compiled does."""
    raise NotCompiledError("loop")


def outcome(call):
    """Return what a call returns, or its error's arguments."""
    try:
        return call()
    except DecodeError as error:
        return error.args


@given(st.lists(ITEMS, max_size=4))
def test_the_reference_decodes_what_the_loops_decode(items):
    """Rows, schemas and digests of a small first call are those of every later call, in every framing."""
    for body in bodies_of(items):
        if not items and b"Items" not in body:
            continue
        plain, framing = framed_items(body)
        for schema, nulls in ((None, "keep"), (None, "merge"), (SCHEMA, "merge"), (SCHEMA, "keep")):
            found = decode._decode_plainly(bytes(plain), framing, schema, nulls)
            wanted = ddbio.from_dynamodb_json(body, schema, nulls=nulls)
            assert found.equals(wanted)
            assert found.schema.equals(wanted.schema, check_metadata=True)
        assert digest_json._of_body_plainly(bytes(plain), framing).hexdigest() == ddbio.digest(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":{"S":"x"}}\n{"a":{"N":"1_0"}}\n',
        b'{"a":{"S":"x"}}\n{"a":{"S":"\xff"}}\n',
        b'{"a":{"S":"x"}',
        b'{"a":{"S":"x"},"a":{"S":"y"}}',
        b'{"Item":{"a":{"S":"x"}}}\n{"a":{"S":"x"}}\n',
        b'{"Items":[{"a":{"B":"A"}}]}',
    ],
)
def test_the_reference_refuses_what_the_loops_refuse(body):
    """Damaged data is the same error, whoever answers."""
    plain, framing = framed_items(body)
    for schema in (None, SCHEMA):
        found = outcome(lambda schema=schema: decode._decode_plainly(bytes(plain), framing, schema, "keep"))
        assert isinstance(found, tuple)
        assert found == outcome(lambda schema=schema: ddbio.from_dynamodb_json(body, schema, nulls="keep"))


@given(tables())
def test_the_reference_prints_what_the_loops_print(items):
    """Lines of a small first call are those of every later call, if the reference has a form for all types."""
    batch = ddbio.from_dynamodb_json(bodies_of(items)[0])
    found = encode._plain_lines(batch)
    assert found == ddbio.to_dynamodb_json(batch) or (found is None and "map<" in str(batch.schema))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[]], pa.list_(pa.field("element", pa.string()))),
        pa.array([["a", None]]),
        pa.array([["a", "a"]]),
        pa.array(["x" * 400_000 + "y" * 10_000]),
        pa.array([1.5]),
        pa.array([b"\xff"]).view(pa.string()),
    ],
)
def test_the_loops_decide_what_may_be_refused(column):
    """Sets that are none, large items, broken text and types of other forms are left to the loops."""
    is_set = pa.types.is_list(column.type)
    field = pa.field("a", column.type, metadata={"ddb:type": "SS"} if is_set else None)
    assert encode._plain_lines(pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))) is None


def test_a_process_has_so_much_answered_by_the_reference():
    """The loops answer where they are compiled, what is too much, and what only they know."""
    calls = FirstCalls(10)
    assert calls.answer(4, lambda: "loops", lambda: "reference") == "loops"
    with pytest.raises(NotCompiledError):
        calls.answer(11, not_compiled, lambda: "reference")
    with pytest.raises(NotCompiledError):
        calls.answer(4, not_compiled, lambda: None)
    assert calls.answer(6, not_compiled, lambda: "reference") == "reference"
    with pytest.raises(NotCompiledError):
        calls.answer(6, not_compiled, lambda: "reference")
    assert calls.answer(4, not_compiled, lambda: "reference") == "reference"


SMALL_CALLS = """
import ddbio, pyarrow as pa
body = b'{"a":{"S":"x"},"n":{"N":"1"},"z":{"NULL":true}}\\n' * 100
schema = pa.schema([("a", pa.string()), ("n", pa.int64())])
given, unknown = ddbio.from_dynamodb_json(body, schema), ddbio.from_dynamodb_json(body)
print(given.num_rows, unknown.num_rows, ddbio.digest(body), len(ddbio.to_dynamodb_json(unknown)))
print(ddbio.infer_schema(body).to_arrow().names)
"""


def test_small_first_calls_compile_nothing(tmp_path):
    """On a machine without compiled loops small calls are answered, and nobody waits for a compiler."""

    def run(**environment):
        environment = {**os.environ, **environment}
        return subprocess.run(
            [sys.executable, "-c", SMALL_CALLS], env=environment, capture_output=True, text=True, check=True
        )

    cold = run(XDG_CACHE_HOME=str(tmp_path))
    assert cold.stdout == run().stdout
    assert "compiling" not in cold.stderr
    assert not list(tmp_path.rglob("*.nbc"))
