"""The checksums of S3 that Python's own library does not have: CRC32C and CRC64NVME.

References
----------
https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
https://reveng.sourceforge.io/crc-catalogue/all.htm (CRC-32/ISCSI, CRC-64/NVME)
"""

from __future__ import annotations

import functools
from typing import Any

CRC_POLYNOMIALS = {"CRC32C": (0x82F63B78, 32), "CRC64NVME": (0x9A6C9329AC4BC9B5, 64)}
"""The reflected polynomial and the bits of each checksum."""


def checksum(algorithm: str, data: bytes | memoryview) -> bytes:
    """Return the checksum of bytes, its highest byte first."""
    # Whoever has asked for no such checksum does not wait for the compiler.
    import numpy as np  # noqa: PLC0415

    from ddbio.items.kernel.crc import crc  # noqa: PLC0415

    polynomial, bits = CRC_POLYNOMIALS[algorithm]
    ones = (1 << bits) - 1
    found = crc(np.frombuffer(data, np.uint8), _tables(polynomial), np.uint64(ones))
    return (int(found) ^ ones).to_bytes(bits // 8, "big")


@functools.cache
def _tables(polynomial: int) -> Any:
    from ddbio.items.kernel.crc import tables_of  # noqa: PLC0415

    return tables_of(polynomial)


def warm() -> None:
    """Compile the loop."""
    checksum("CRC32C", b"")
