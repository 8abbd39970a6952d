from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from comparison import assert_same, by_kernel, by_reference

from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.schema.arrow import list_of, tagged_field

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"), key=lambda path: path.name)
NAMES = ["a", "back\\slash", 'quote"d']
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in NAMES),
        pa.field("n", pa.int64()),
        pa.field("b", pa.binary()),
        pa.field("t", pa.bool_()),
        tagged_field("l", list_of(tagged_field("element", pa.int64(), "N")), "L"),
    ]
)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
@pytest.mark.parametrize("schema", [SCHEMA, pa.schema([])], ids=["known", "unknown"])
def test_a_document_that_was_once_hard_gets_the_answer_of_the_reference(path, schema):
    """Alone, after valid lines, and within a page, every document of the corpus is decoded as by the reference."""
    body = path.read_bytes()
    wrapped = {"items": [body, b'{"a":{"S":"x"}}\n' + body], "export": [body, b'{"Item":' + body + b"}"]}
    wrapped["page"] = [body, b'{"Items":[{"a":{"S":"x"}},' + body + b"]}"]
    for framing, documents in wrapped.items():
        for document in documents:
            decoder = KernelDecoder(schema)
            assert_same(by_kernel(decoder, document, framing), by_reference(document, schema, framing), document)
