"""Images of changes as items, read by the compiled loops, so that their schema is inferred without Python parsing.

With a schema without attributes, every attribute of every image is a misfit. The misfits are written as items, image
after image, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.items.changes import ChangeLoops
from ddbio.items.kernel import codes
from ddbio.items.kernel.decode.output import RowTexts
from ddbio.items.kernel.decode.rescue import image_items
from ddbio.items.kernel.tape import paths
from ddbio.items.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from ddbio.items.framing import Framing
    from ddbio.items.kernel.tape.fit import Fit
    from ddbio.items.rescue import MisfitLog


class _RefusedError(Exception):
    """Signal that only the reference implementation can read the changes."""


class _ImageLoops(ChangeLoops):
    def __init__(self) -> None:
        super().__init__(pa.schema([]), [], ())

    def _rescued(self, fit: Fit | None, log: MisfitLog) -> list[RowTexts]:
        del log
        counts = self._walker.walk.nodes.reshape(-1, paths.NODE_WIDTH)[:, paths.COUNTS + codes.M]
        n_images, texts = 0, list[RowTexts]()
        if fit is not None:
            # Every attribute is a misfit.
            n_images, written = image_items(fit)
            texts.append(written)
        if n_images != counts[[codes.KEYS, codes.NEW_IMAGE, codes.OLD_IMAGE]].sum():
            # An image without attributes is not counted.
            raise _RefusedError
        return texts

    def _decode_in_python(self, body: bytes, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        del body, framing, log
        raise _RefusedError


def item_texts(body: bytes | memoryview) -> list[memoryview] | None:
    """Return the images of all changes as items, in texts of a few megabytes, or None if the loops refuse a change.

    The images of a change are consecutive: first the keys, then the new image, then the old image, as in the reference
    implementation.
    """
    try:
        batches = _ImageLoops().decode_batches(body, "changes")
    except _RefusedError:
        return None
    buffers = [batch.column(RESCUE_NAME).buffers()[2] for batch in batches]
    return [memoryview(buffer) for buffer in buffers if buffer is not None]
