"""Options of the columns that items are decoded into."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG, Names, Pairs


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
