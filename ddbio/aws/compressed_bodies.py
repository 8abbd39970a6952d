"""Send large request bodies compressed for as long as the endpoint takes them; refuses to judge any other failure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError
from isal import igzip

from ddbio.aws.failure import is_transient

if TYPE_CHECKING:
    from ddbio.aws.bodies import BodySource

# https://docs.aws.amazon.com/sdkref/latest/guide/feature-compression.html: the least size that SDKs compress.
LEAST_BYTES: Final = 10_240
_LEVEL = 1
_log = logging.getLogger("ddbio.wire")


class CompressedBodies:
    """Compress what goes through another source, until a compressed request first fails as none should."""

    def __init__(self, source: BodySource) -> None:
        self._source = source
        self._compresses = True

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""
        return self._source.endpoint_url

    def call(self, operation: str, table: str, body: bytes, encoding: str = "") -> bytes:
        """Return the verified body that answers an operation on a table; see ``BodySource``."""
        if self._compresses and not encoding and len(body) >= LEAST_BYTES:
            packed: Any = igzip.compress(body, _LEVEL)
            try:
                return self._source.call(operation, table, packed, "gzip")
            except ClientError as error:
                # The service answers 500 to what it cannot inflate, endpoints that know no compression find no JSON.
                if not is_transient(error) and error.response["Error"]["Code"] != "SerializationException":
                    raise
                self._compresses = False
                _log.warning("the endpoint refused a compressed request (%s): sending them as they are", error)
        return self._source.call(operation, table, body, encoding)

    def close(self) -> None:
        """Close the source."""
        self._source.close()
