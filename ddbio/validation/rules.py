"""Quality rules from a small YAML file, with line numbers in errors."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator
from pydantic import ValidationError as PydanticError

from ddbio.errors import OptionError
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Value = StrictBool | Annotated[Decimal, Field(strict=False)] | StrictStr


Number = Annotated[Decimal, Field(strict=False)]


_INTEGER = re.compile(r"[+-]?[0-9]+")


_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?[eE][+-]?[0-9]+")


_CONFIG = ConfigDict(frozen=True, extra="forbid")


class ValueRange(BaseModel):
    """Range of values: numbers, or texts in the order of their bytes. Both bounds are inclusive."""

    model_config = _CONFIG

    min: StrictStr | Number | None = None
    max: StrictStr | Number | None = None

    @model_validator(mode="after")
    def _check(self) -> ValueRange:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and type(self.min) is not type(self.max):
            raise ValueError("min and max must both be numbers, or both be text")
        return self


class ColumnRules(BaseModel):
    """Rules for the values of one column. A null breaks ``not_null`` only."""

    model_config = _CONFIG

    not_null: StrictBool = False
    unique: StrictBool = False
    range: ValueRange | None = None
    regex: StrictStr | None = None
    in_set: Annotated[tuple[Value, ...], Field(min_length=1)] | None = None


class RowCount(BaseModel):
    """Range of the number of rows. Both bounds are inclusive."""

    model_config = _CONFIG

    min: StrictInt | None = None
    max: StrictInt | None = None


class QualityRules(BaseModel):
    """Rules of a file: of columns, of attributes that are unique together, and of the number of rows."""

    model_config = _CONFIG

    columns: dict[str, ColumnRules] = {}
    unique: tuple[StrictStr, ...] = ()
    row_count: RowCount | None = None

    @property
    def count(self) -> int:
        """Return the number of rules."""
        of_columns = sum(
            rules.not_null
            + rules.unique
            + (rules.range is not None)
            + (rules.regex is not None)
            + (rules.in_set is not None)
            for rules in self.columns.values()
        )
        return of_columns + bool(self.unique) + (self.row_count is not None)

    @property
    def unique_columns(self) -> tuple[tuple[str, ...], ...]:
        """Return each group of attributes whose values must be unique."""
        alone = [(name,) for name, rules in self.columns.items() if rules.unique]
        return (*alone, self.unique) if self.unique else tuple(alone)


def read_rules(path: str | os.PathLike[str]) -> QualityRules:
    """Return the rules of a YAML file.

    Raises
    ------
    OptionError
        If the file cannot be read or has invalid rules. The message has the line.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError("quality rules need pyyaml: pip install 'ddbio[quality]'") from error
    try:
        text = local_path(os.fspath(path)).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise OptionError(f"file of rules {str(path)!r} cannot be read: {error}") from None
    try:
        # Numbers stay text until a rule sets their type: a double would round them.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = {} if node is None else _plain(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = "" if mark is None else f", line {mark.line + 1}"
        raise OptionError(f"{path}{location}: this is no YAML: {getattr(error, 'problem', error)}") from None
    twice = _duplicate_name(node)
    if twice is not None:
        raise OptionError(f"{path}, line {twice.start_mark.line + 1}: {twice.value} is given twice")
    try:
        return QualityRules.model_validate(values)
    except PydanticError as error:
        first = error.errors(include_url=False)[0]
        line, names = _location_of(node, first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        name = ".".join(names) or "the file"
        raise OptionError(f"{path}, line {line}: {name}: {message[:1].lower()}{message[1:]}") from None


def _plain(node: Any) -> Any:
    """Return the values of a YAML document. Numbers become integers, or decimals with the digits of the text."""
    if node.id == "mapping":
        return {_plain(key): _plain(value) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(value) for value in node.value]
    kind = node.tag.rpartition(":")[2]
    if kind == "bool":
        return node.value.lower() in {"true", "yes", "on"}
    if kind == "null":
        return None
    text = node.value.replace("_", "")
    if kind == "int":
        return int(text) if _INTEGER.fullmatch(text) else node.value
    # YAML reads 1e6 as text, which it is only in quotes. YAML's floats infinity and 1:30.5 are not DynamoDB numbers.
    is_float = kind == "float" and _FLOAT.fullmatch(text)
    is_number = is_float or (kind == "str" and node.style is None and _NUMBER.fullmatch(text))
    return Decimal(text) if is_number else node.value


def _duplicate_name(node: Any) -> Any:
    """Return the second of two equal names of a mapping, or None. YAML would use the last one."""
    if node is None or node.id == "scalar":
        return None
    inner = [value for _, value in node.value] if node.id == "mapping" else node.value
    names = [key for key, _ in node.value] if node.id == "mapping" else []
    seen = set[str]()
    for name in names:
        if name.value in seen:
            return name
        seen.add(name.value)
    return next((name for name in map(_duplicate_name, inner) if name is not None), None)


def _location_of(node: Any, location: Sequence[Any]) -> tuple[int, list[str]]:
    """Return the line of the value at a pydantic location, and the names that lead to it.

    Parts of the location that the document lacks are names of types.
    """
    line, names = 1 if node is None else node.start_mark.line + 1, list[str]()
    for part in location:
        child = _child(node, part)
        if child is not None:
            key, node = child
            line = key.start_mark.line + 1
            names.append(str(part))
    return line, names


def _child(node: Any, part: Any) -> tuple[Any, Any] | None:
    if node is not None and node.id == "mapping":
        pairs: Iterable[tuple[Any, Any]] = node.value
        return next(((key, value) for key, value in pairs if key.value == part), None)
    if node is not None and node.id == "sequence" and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None
