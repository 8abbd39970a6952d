"""Say which columns an export's lines become, and decode them; read no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from ddbio.core.changes import ChangeDecoder
from ddbio.core.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from ddbio.core.rescue import MisfitLog, OnMisfit


class LineDecoder(Protocol):
    """Decode blocks of an export's lines; keep one per thread."""

    @property
    def log(self) -> MisfitLog:
        """Return the count of what fitted no column so far."""
        ...

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        """Return a row per line."""
        ...


@dataclass(frozen=True)
class Layout:
    """Hold the columns of the items, and the table's keys where each row is a change of an item."""

    items: pa.Schema
    keys: tuple[str, ...] | None = None

    @property
    def rows(self) -> pa.Schema:
        """Return the columns of the rows."""
        if self.keys is None:
            return self.items
        whole = ChangeDecoder(self.items, self.keys).schema
        # No Parquet file holds a struct without fields, as an export without changes would have.
        return pa.schema([field for field in whole if field.type != pa.struct([])])

    def decoder(self, on_misfit: OnMisfit, nulls: Literal["merge", "keep"], drop: Sequence[str] = ()) -> LineDecoder:
        """Return a decoder of this layout's lines."""
        if self.keys is None:
            return _ItemLines(Decoder(self.items, on_misfit=on_misfit, nulls=nulls, drop=drop))
        return _ChangeLines(ChangeDecoder(self.items, self.keys, on_misfit=on_misfit, nulls=nulls, drop=drop))


@dataclass(frozen=True)
class _ItemLines:
    decoder: Decoder

    @property
    def log(self) -> MisfitLog:
        return self.decoder.log

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        return self.decoder.decode_batches(block, "export")


@dataclass(frozen=True)
class _ChangeLines:
    decoder: ChangeDecoder

    @property
    def log(self) -> MisfitLog:
        return self.decoder.log

    def decode_batches(self, block: Buffer) -> list[pa.RecordBatch]:
        return [self.decoder.decode(block)]
