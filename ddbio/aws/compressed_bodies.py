"""Send large request bodies compressed for as long as the endpoint takes them; refuses to judge any other failure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError
from isal import igzip

from ddbio.aws.failure import is_transient

if TYPE_CHECKING:
    from ddbio.aws.bodies import BodySource, Pending

# https://docs.aws.amazon.com/sdkref/latest/guide/feature-compression.html: the least size that SDKs compress.
LEAST_BYTES: Final = 10_240
_LEVEL = 1
_log = logging.getLogger("ddbio.wire")


class CompressedBodies:
    """Compress what goes through another source, until a compressed request first fails as none should.

    Attributes
    ----------
    compresses
        Whether it still does.
    """

    def __init__(self, source: BodySource) -> None:
        self.source = source
        self.compresses = True

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""
        return self.source.endpoint_url

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> Pending:
        """Send a body, compressed where that is worth it; see ``BodySource``."""
        if self.compresses and not encoding and len(body) >= LEAST_BYTES:
            return _Compressed(self, operation, table, body)
        return self.source.begin(operation, table, body, encoding)

    def close(self) -> None:
        """Close the source."""
        self.source.close()


class _Compressed:
    def __init__(self, bodies: CompressedBodies, operation: str, table: str, body: bytes) -> None:
        self._bodies, self._plain = bodies, (operation, table, body)
        packed: Any = igzip.compress(body, _LEVEL)
        self._pending = bodies.source.begin(operation, table, packed, "gzip")
        self.expires_at, self.fileno = self._pending.expires_at, self._pending.fileno

    def result(self) -> bytes:
        try:
            return self._pending.result()
        except ClientError as error:
            # The service answers 500 to what it cannot inflate, endpoints that know no compression find no JSON.
            if not is_transient(error) and error.response["Error"]["Code"] != "SerializationException":
                raise
            if self._bodies.compresses:
                self._bodies.compresses = False
                _log.warning("the endpoint refused a compressed request (%s): sending them as they are", error)
        return self._bodies.source.begin(*self._plain).result()
