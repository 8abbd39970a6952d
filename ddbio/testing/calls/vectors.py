"""SearchVectors by an exact comparison with every vector of the index. The service's search is approximate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.testing.calls.reads import requested_paths
from ddbio.testing.expressions.conditions import key_conditions
from ddbio.testing.expressions.parsing import Placeholders, pick, tree_of
from ddbio.testing.refusal import invalid
from ddbio.testing.tables.database import consumption_detail
from ddbio.testing.tables.vectors import MAX_FLOAT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ddbio.items.attribute import AttributeValue
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.vectors import VectorIndex

_MAX_RESULTS = 100


def search_vectors(database: Database, request: Request) -> dict[str, Any]:
    """Return the items of a vector index whose vectors are the most similar ones."""
    count = request.integer("TopK") or 0
    if count > _MAX_RESULTS:
        raise invalid(
            f"Provided TopK value '{count}' is out of valid range. The value must be between 1 and {_MAX_RESULTS} "
            "inclusive"
        )
    placeholders = Placeholders.of(request, "ProjectionExpression", "SearchConditionExpression")
    paths = requested_paths(request, placeholders)
    table = database.table(request)
    index = table.vector_indexes.get(request.text("IndexName") or "")
    if index is None:
        raise invalid(f"The table does not have the specified index: {request.text('IndexName')}")
    vector = _vector(request, index)
    wanted = _equalities(request, placeholders, index)
    entries = [(json.loads(stored.json), stored.size_bytes) for _, stored in index.store.snapshot().entries()]
    searched = [(item, size) for item, size in entries if all(item.get(key) == wanted[key] for key in wanted)]
    vectors = [[element["N"] for element in item[index.attribute]["L"]] for item, _ in searched]
    scores = _scores(index.function, vector, np.array(vectors, np.float32).reshape(-1, index.dimensions))
    order = np.argsort(-scores if index.function == "DOT_PRODUCT" else scores, kind="stable")[:count]
    tree = None if paths is None else tree_of(paths)
    results = []
    for number in order:
        item, _ = searched[number]
        shown = pick(item, tree) if tree else {key: item[key] for key in item if key != index.attribute}
        results.append({"Item": shown, "Score": float(scores[number])})
    reply: dict[str, Any] = {"SearchResults": results}
    if consumption_detail(request) != "NONE":
        # AWS publishes no rule. The fake counts the bytes of the compared entries.
        reply["ConsumedCapacity"] = {"VectorSearchRequestBytes": float(sum(size for _, size in searched))}
    return reply


def _vector(request: Request, index: VectorIndex) -> NDArray[np.float32]:
    try:
        numbers = [float(element["N"]) for element in request.required("SearchVector")]
    except (KeyError, TypeError, ValueError):
        numbers = [np.inf]
    if not all(abs(number) <= MAX_FLOAT for number in numbers):
        raise invalid(
            "Search vector contains invalid values. All values in the search vector must be a 32-bit floating-point "
            "number attribute"
        )
    if len(numbers) != index.dimensions:
        raise invalid(
            f"Input search vector dimension {len(numbers)} does not match vector index dimension {index.dimensions}"
        )
    return np.array(numbers, np.float32)


def _equalities(request: Request, placeholders: Placeholders, index: VectorIndex) -> dict[str, AttributeValue]:
    """Return the values of the search condition, which may only compare attributes of the search schema by ``=``."""
    text = request.text("SearchConditionExpression")
    conditions = {} if text is None else key_conditions(text, placeholders)
    if any(condition.operator != "=" for condition in conditions.values()):
        raise invalid("Invalid SearchConditionExpression: Invalid comparator used in SearchConditionExpression")
    for name in conditions:
        if name not in index.search_names:
            raise invalid(
                "SearchConditionExpression must not contain any attributes that is not in SearchSchema. "
                f"Invalid attribute: {name}"
            )
    if index.partition is not None and index.partition.partition.name not in conditions:
        raise invalid("SearchConditionExpression must be provided when SearchSchema has a HASH key")
    placeholders.check_all_used()
    return {name: condition.values[0] for name, condition in conditions.items()}


def _scores(function: str, vector: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[Any]:
    products: NDArray[Any] = others @ vector
    if function != "COSINE":
        return products if function == "DOT_PRODUCT" else np.asarray(np.linalg.norm(others - vector, axis=1))
    lengths = np.linalg.norm(others, axis=1) * np.linalg.norm(vector)
    similarities: NDArray[Any] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return 1 - similarities
