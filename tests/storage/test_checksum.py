"""Checksums are those of S3: published values, and the definition bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.storage.checksums import CRC_POLYNOMIALS, checksum


def by_definition(algorithm, data):
    """Divide bit by bit."""
    polynomial, bits = CRC_POLYNOMIALS[algorithm]
    ones = state = (1 << bits) - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ polynomial * (state & 1)
    return (state ^ ones).to_bytes(bits // 8, "big")


@pytest.mark.parametrize(("algorithm", "check"), [("CRC32C", "e3069283"), ("CRC64NVME", "ae8b14860a799888")])
def test_the_published_check_value(algorithm, check):
    """The nine digits have the checksum of the catalogue of CRCs, and no bytes have none."""
    assert checksum(algorithm, b"123456789").hex() == check
    assert not any(checksum(algorithm, b""))


@given(st.sampled_from(sorted(CRC_POLYNOMIALS)), st.binary(max_size=40))
def test_bytes_of_any_length(algorithm, data):
    """Whole words and the bytes behind them are as the definition says, wherever they lie."""
    assert checksum(algorithm, data) == by_definition(algorithm, data)
    assert checksum(algorithm, memoryview(b"x" + data)[1:]) == by_definition(algorithm, data)
