"""Read quality rules from a small YAML file, and say at which line one is wrong."""

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


_WHOLE = re.compile(r"[+-]?[0-9]+")


_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?[eE][+-]?[0-9]+")


_CONFIG = ConfigDict(frozen=True, extra="forbid")


class ValueRange(BaseModel):
    """Bound values: numbers, or texts in the order of their bytes; both bounds belong to the range."""

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
    """Say what the values of one column must be; a null breaks ``not_null`` only."""

    model_config = _CONFIG

    not_null: StrictBool = False
    unique: StrictBool = False
    range: ValueRange | None = None
    regex: StrictStr | None = None
    in_set: Annotated[tuple[Value, ...], Field(min_length=1)] | None = None


class RowCount(BaseModel):
    """Bound the number of rows; both bounds belong to the range."""

    model_config = _CONFIG

    min: StrictInt | None = None
    max: StrictInt | None = None


class QualityRules(BaseModel):
    """Hold the rules of a file: of columns, of attributes that are unique together, and of the number of rows."""

    model_config = _CONFIG

    columns: dict[str, ColumnRules] = {}
    unique: tuple[StrictStr, ...] = ()
    row_count: RowCount | None = None

    @property
    def count(self) -> int:
        """Return how many rules there are."""
        of_columns = sum(
            each.not_null
            + each.unique
            + (each.range is not None)
            + (each.regex is not None)
            + (each.in_set is not None)
            for each in self.columns.values()
        )
        return of_columns + bool(self.unique) + (self.row_count is not None)

    @property
    def unique_columns(self) -> tuple[tuple[str, ...], ...]:
        """Return each group of attributes that no two rows may have alike."""
        alone = [(name,) for name, each in self.columns.items() if each.unique]
        return (*alone, self.unique) if self.unique else tuple(alone)


def read_rules(path: str | os.PathLike[str]) -> QualityRules:
    """Return the rules of a YAML file.

    Raises
    ------
    OptionError
        If it cannot be read, or is no file of rules; the message has the line.
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
        # Numbers stay text until a rule says what they are: a double would round them.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = {} if node is None else _plain(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}"
        raise OptionError(f"{path}{place}: this is no YAML: {getattr(error, 'problem', error)}") from None
    twice = _name_given_twice(node)
    if twice is not None:
        raise OptionError(f"{path}, line {twice.start_mark.line + 1}: {twice.value} is given twice")
    try:
        return QualityRules.model_validate(values)
    except PydanticError as error:
        first = error.errors(include_url=False)[0]
        found, names = _lie(node, first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        name = ".".join(names) or "the file"
        raise OptionError(f"{path}, line {found}: {name}: {message[:1].lower()}{message[1:]}") from None


def _plain(node: Any) -> Any:
    """Return the values of a YAML document: of numbers integers, and decimals of their own digits."""
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
        return int(text) if _WHOLE.fullmatch(text) else node.value
    # YAML takes 1e6 for text; in quotes it is. Of its floats, infinity and 1:30.5 are no numbers of DynamoDB.
    is_float = kind == "float" and _FLOAT.fullmatch(text)
    is_number = is_float or (kind == "str" and node.style is None and _NUMBER.fullmatch(text))
    return Decimal(text) if is_number else node.value


def _name_given_twice(node: Any) -> Any:
    """Return the second of two alike names of a mapping, of which YAML would take the last; or None."""
    if node is None or node.id == "scalar":
        return None
    inner = [value for _, value in node.value] if node.id == "mapping" else node.value
    names = [key for key, _ in node.value] if node.id == "mapping" else []
    seen = set[str]()
    for name in names:
        if name.value in seen:
            return name
        seen.add(name.value)
    return next((found for found in map(_name_given_twice, inner) if found is not None), None)


def _lie(node: Any, place: Sequence[Any]) -> tuple[int, list[str]]:
    """Return the line at which the value lies that a place of pydantic's names, and the names that lead there.

    Parts of the place that the document does not have are names of types.
    """
    line, names = 1 if node is None else node.start_mark.line + 1, list[str]()
    for part in place:
        found = _child(node, part)
        if found is not None:
            key, node = found
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
