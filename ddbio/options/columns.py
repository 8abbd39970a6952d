"""Say into which columns items are decoded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG, Names


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ColumnOptions(ConnectionOptions):
    """Say into which columns items are decoded, and what becomes of values that do not fit."""

    schema: Any = None
    """``ItemSchema``, ``pyarrow.Schema`` or the JSON text of either (``ddbio schema --json``); default is inferred."""
    on_misfit: Literal["rescue", "fail", "drop"] = "rescue"
    """Put values that do not fit their column into ``_rescue``, or fail, or drop those of attributes in ``drop``."""
    drop: Names | None = None
    """Attributes whose values are counted but not kept where they do not fit; others are kept in ``_rescue``."""
    nulls: Literal["merge", "keep"] = "merge"
    """Let NULL and missing both be null, or keep each NULL in ``_rescue``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items read, over several segments or files, to infer the schema."""

    @model_validator(mode="after")
    def _check_columns(self) -> ColumnOptions:
        if (self.on_misfit == "drop") != (self.drop is not None):
            raise ValueError("on_misfit=drop and the attributes to drop belong together: give both or neither")
        return self
