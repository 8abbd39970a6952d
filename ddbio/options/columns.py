"""Options of the columns that items are decoded into."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG, Names, Pairs


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ColumnOptions(ConnectionOptions):
    """Columns of decoded items, and the handling of values that do not fit them."""

    CHANGEABLE: ClassVar = frozenset({"sample_items"})

    schema: Any = None
    """``ItemSchema``, ``pyarrow.Schema`` or JSON text (``ddbio schema --json``). Default: inferred."""
    on_misfit: Literal["rescue", "fail", "drop"] = "rescue"
    """Values that do not fit a column: keep in ``_rescue``, fail, or drop those of ``drop``."""
    drop: Names | None = None
    """Attributes whose misfits are counted and discarded. Others are kept in ``_rescue``."""
    timestamps: Pairs | None = None
    """Date and time attributes: ``created_at=iso,ts=epoch_s,day=date``."""
    types: Pairs | None = None
    """Column types by attribute: ``price=decimal(38, 9),payload=json``. Default: inferred."""
    numbers: Literal["exact", "float64", "text"] = "exact"
    """Type of number columns. ``float64`` rounds unless all are whole; ``text`` is exact."""
    nulls: Literal["merge", "keep"] = "merge"
    """``merge``: NULL and missing are both null. ``keep``: NULL is kept in ``_rescue``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items to sample for the schema."""

    @model_validator(mode="after")
    def _check_columns(self) -> ColumnOptions:
        if (self.on_misfit == "drop") != (self.drop is not None):
            raise ValueError("on_misfit=drop and the attributes to drop belong together: give both or neither")
        twice = dict(self.timestamps or ()).keys() & dict(self.types or ()).keys()
        if twice:
            raise ValueError(f"{min(twice)!r} is in timestamps and in types: keep one")
        return self
