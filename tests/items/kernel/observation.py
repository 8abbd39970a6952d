"""Compare what the walk and the plain inference see of the same bytes."""

from __future__ import annotations

from typing import Any

from ddbio.errors import DecodeError
from ddbio.items.framing import checked_items
from ddbio.items.kernel.decode.inference import shape_of_items
from ddbio.items.schema.shape import Shape, infer_shape


def assert_same_shape(bodies: list[bytes], framing: Any) -> Shape | None:
    """Require that both see the same, or that both refuse the bodies; return the shape."""
    try:
        wanted = infer_shape(item for body in bodies for item in checked_items(body, framing))
    except DecodeError:
        wanted = None
    found = shape_of_items([(body, framing) for body in bodies])
    assert found == wanted, (found, wanted, bodies)
    return found
