"""Comparison of the shapes that the walk and the plain inference see in the same bytes."""

from __future__ import annotations

from typing import Any

from ddbio.errors import DecodeError
from ddbio.items.framing import checked_items
from ddbio.items.kernel.decode.inference import shape_of_items
from ddbio.items.schema.shape import Shape, infer_shape


def assert_same_shape(bodies: list[bytes], framing: Any) -> Shape | None:
    """Check that both see the same shape, or that both refuse the bodies. Return the shape."""
    try:
        expected = infer_shape(item for body in bodies for item in checked_items(body, framing))
    except DecodeError:
        expected = None
    actual = shape_of_items([(body, framing) for body in bodies])
    assert actual == expected, (actual, expected, bodies)
    return actual
