"""Options of reading: which items of a table or an export are read, how fast, and into which columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, InputFormat, Names, Pairs

AcceptEncoding = Literal["identity", "gzip"]


@plain_dataclass(eq=False, repr=False)
class GivenKeys:
    """Hold the keys that a read was given, and how they were encoded for a table's key attributes."""

    value: Any
    encoded: dict[Any, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a digest of the keys, once they are encoded: the same for the same keys."""
        digest = hashlib.blake2b(digest_size=16)
        for found in self.encoded.values():
            digest.update(b",".join(sorted(found.texts)))
        return f"GivenKeys({digest.hexdigest()})"


def _as_keys(value: Any) -> Any:
    if value is None or isinstance(value, GivenKeys):
        return value
    if isinstance(value, str):
        try:
            return GivenKeys([*json.loads(value, parse_float=Decimal)])
        except (TypeError, ValueError):
            raise ValueError('write keys as a JSON list: ["a"], [["a", 1]] or [{"pk": "a", "sk": 1}]') from None
    if isinstance(value, Mapping) or not (
        isinstance(value, Sequence) or hasattr(value, "__arrow_c_stream__") or hasattr(value, "columns")
    ):
        raise ValueError("give a list of keys, or an Arrow table or data frame with the key columns")
    return GivenKeys(list(value) if isinstance(value, Sequence) else value)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ColumnOptions(ConnectionOptions):
    """Choose the columns that items are decoded into, and what happens to values that do not fit them."""

    CHANGEABLE: ClassVar = frozenset({"sample_items"})

    schema: Any = None
    """``ItemSchema``, ``pyarrow.Schema`` or the JSON text of either (``ddbio schema --json``); default is inferred."""
    on_misfit: Literal["rescue", "fail", "drop"] = "rescue"
    """``rescue``: keep misfits in ``_rescue``; ``fail``: raise; ``drop``: discard those of attributes in ``drop``."""
    drop: Names | None = None
    """Attributes whose misfits are counted and discarded; those of other attributes go to ``_rescue``."""
    timestamps: Pairs | None = None
    """Attributes that are dates and times, and how they are written: ``created_at=iso,ts=epoch_s,day=date``."""
    types: Pairs | None = None
    """Types of columns by attribute, instead of those inferred: ``price=decimal(38, 9),payload=json``."""
    numbers: Literal["exact", "float64", "text"] = "exact"
    """Type of columns of numbers: ``float64`` takes the nearest double unless all are whole; ``text`` is exact too."""
    nulls: Literal["merge", "keep"] = "merge"
    """``merge``: NULL and missing are both null; ``keep``: each NULL is kept in ``_rescue``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items to read, from several segments or files, to infer the schema."""

    @model_validator(mode="after")
    def _check_columns(self) -> ColumnOptions:
        if (self.on_misfit == "drop") != (self.drop is not None):
            raise ValueError("on_misfit=drop and the attributes to drop belong together: give both or neither")
        twice = dict(self.timestamps or ()).keys() & dict(self.types or ()).keys()
        if twice:
            raise ValueError(f"{min(twice)!r} is in timestamps and in types: keep one")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ScanOptions(ColumnOptions, LimitOptions):
    """Choose what of a table is read, how fast, and into which columns."""

    CHANGEABLE: ClassVar = frozenset({"segments", "lanes", "rcu_per_second", "read_ratio", "accept_encoding"})

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    index: str | None = None
    """Secondary index to scan instead of the table."""
    columns: Names | None = None
    """Attributes to read (ProjectionExpression); default is all."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """Items to read, as PartiQL's WHERE: ``id = 'a' AND total > 9``. A partition key with values asks by Query."""
    keys: Annotated[GivenKeys | None, BeforeValidator(_as_keys), Field(repr=False)] = None
    """Keys of the items to read, by BatchGetItem, or partition keys, by Query: a list, an Arrow table or data frame."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments; default follows the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments read at the same time, over all tasks."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the whole job may use."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Stop after this many items; which ones is undefined."""
    accept_encoding: AcceptEncoding = "identity"
    """``gzip`` asks for compressed pages: several times fewer bytes for more CPU, for slow networks."""

    @model_validator(mode="after")
    def _check_scan(self) -> ScanOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns names an attribute twice")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class InspectOptions(ScanOptions):
    """Choose what of a table is read, or which files, to see what the items are."""

    input_format: InputFormat | None = None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DigestOptions(InspectOptions):
    """Choose what is digested; NULL differs from missing, as it does in a table."""

    nulls: Literal["merge", "keep"] = "keep"
    """``merge``: NULL and missing are both null; ``keep``: each NULL is kept in ``_rescue``."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportReadOptions(ColumnOptions):
    """Choose a native export and the columns that its items are decoded into."""

    source: Annotated[str, Field(min_length=1)]
    """The export's folder, which holds manifest-summary.json: ``s3://bucket/…/AWSDynamoDB/ID`` or a local path."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportWindowsOptions(ConnectionOptions):
    """Choose the full export from which, and the time until which, changes are wanted."""

    source: Annotated[str, Field(min_length=1)]
    """The full export's folder, as for reading it."""
    until: AwareDatetime | None = None
    """Time, with its zone, until which changes are wanted; default is now."""
