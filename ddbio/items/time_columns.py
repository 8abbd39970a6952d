"""Exact conversion between time columns and their texts or numbers in DynamoDB.

A text or number becomes a time only if it is exactly the encoding of that time in the column's format. All other values
stay unchanged in the rescue column. Conversions use ``pyarrow.compute``, a column at a time.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import re
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ddbio.errors import DecodeError, EncodeError, SchemaError
from ddbio.items.change_lines import images_of
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import offsets_of, plain_array, valid_of
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.kernel.encode.fields import time_array, unfit_times
from ddbio.items.rescue import DOES_NOT_FIT, rescue_text
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field, tagged_field
from ddbio.items.schema.times import (
    DDB_TIME,
    DIGITS,
    ISO,
    TimeFormat,
    format_of_field,
    is_time_column,
    require_format,
    stored_field,
    timestamp_type,
    with_format,
    without_format,
)
from ddbio.items.schema.vectors import is_vector
from ddbio.items.vector_columns import vectors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from ddbio.items.framing import Framing
    from ddbio.items.rescue import MisfitLog

    # pyarrow's stubs lack the methods of the array classes.
    Array = Any

# pyarrow's stubs do not accept Python values as arguments.
pc: Any = pyarrow.compute

_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
# Days that not every month has.
_DOUBTFUL_DAY = r"^[0-9]{4}-(02-(29|30|31)|(04|06|09|11)-31)"
# Years of which every time fits in 64 bits of nanoseconds.
_NANOSECOND_YEARS = r"^(1[7-9][0-9]{2}|167[89]|16[89][0-9]|20[0-9]{2}|21[0-9]{2}|22[0-5][0-9]|226[01])-"
# A digit in the template of a format. No format contains it as a literal.
_DIGIT = "9"
_INT64 = np.iinfo(np.int64)
_SAMPLED_BYTES, _SAMPLED_IMAGES = 1 << 20, 1_000
_AS_ISO = SimpleNamespace(timestamps="iso", dates="iso")


class TimeColumns:
    """Time and vector columns of a schema, which are made from the text, numbers and lists of a batch.

    Parameters
    ----------
    schema
        A normalised schema of items.
    drop
        Attributes whose misfits are counted but not rescued.
    """

    def __init__(self, schema: pa.Schema, drop: Sequence[str] = ()) -> None:
        self._times = [(field, time_format) for field in schema if (time_format := format_of_field(field)) is not None]
        self._vectors = [field for field in schema if is_vector(field.type)]
        self._drop = frozenset(drop)

    def __bool__(self) -> bool:
        """Return whether the schema has time or vector columns."""
        return bool(self._times or self._vectors)

    def convert(self, batch: pa.RecordBatch, log: MisfitLog) -> pa.RecordBatch:
        """Convert the time and vector columns of a batch of ``stored_schema``.

        Values that are neither are logged and rescued.
        """
        rescued: dict[int, dict[str, Any]] = {}
        for field, time_format in [*self._times, *((field, None) for field in self._vectors)]:
            index = batch.schema.get_field_index(field.name)
            stored = batch.column(index)
            if time_format is None:
                converted, rows, values = vectors_of(stored, field.type)
            else:
                converted, rows, values = times_of(stored, field.type, time_format)
            batch = batch.set_column(index, field, converted)
            name = name_of_field(field)
            if values:
                is_dropped = name in self._drop
                log.add_texts(name, DOES_NOT_FIT, compact_json(values[0]), len(values), is_dropped=is_dropped)
                for row, value in () if is_dropped else zip(rows, values, strict=True):
                    rescued.setdefault(row, {})[name] = value
        return _with_rescued(batch, rescued) if rescued else batch


def _with_rescued(batch: pa.RecordBatch, rescued: dict[int, dict[str, Any]]) -> pa.RecordBatch:
    """Return the batch with these attributes added to the rescue column of their rows."""
    index = batch.schema.get_field_index(RESCUE_NAME)
    column: Array = batch.column(index)
    rows = sorted(rescued)
    before = column.take(pa.array(rows, pa.int64())).to_pylist()
    texts = [rescue_text(json.loads(text or "{}") | rescued[row]) for row, text in zip(rows, before, strict=True)]
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    replaced: Array = pc.replace_with_mask(column, pa.array(mask), pa.array(texts, column.type))
    return batch.set_column(index, batch.schema.field(index), replaced)


class _Times(NamedTuple):
    times: Array
    rows: list[int]
    """The rows whose value is not a time in this format."""
    values: list[dict[str, str]]
    """Their values, as attribute values."""


def times_of(stored: Array, arrow_type: pa.DataType, time_format: TimeFormat) -> _Times:
    """Return the times of texts or counts, with null for each invalid one, and the invalid values."""
    if time_format.kind == "epoch":
        times = _parse_counts(
            _null_invalid(stored, _valid_counts(stored, arrow_type, time_format)), arrow_type, time_format
        )
    else:
        times = _parse_texts(stored, arrow_type, time_format)
    if times.null_count == stored.null_count:
        return _Times(times, [], [])
    rows = np.flatnonzero(pc.and_(stored.is_valid(), times.is_null()).to_numpy(zero_copy_only=False))
    texts = stored.take(pa.array(rows)).to_pylist()
    return _Times(times, rows.tolist(), [{time_format.tag: str(text)} for text in texts])


def _null_invalid(values: Array, fits: Array | None) -> Array:
    return values if fits is None else pc.if_else(fits, values, None)


def _parse_texts(texts: Array, arrow_type: Any, time_format: TimeFormat) -> Array:
    if _matches_template(texts, time_format):
        with suppress(pa.ArrowInvalid):
            finest = max(arrow_type.unit, time_format.unit, key=DIGITS.__getitem__) if time_format.kind == "iso" else ""
            zone = None if time_format.zone == "_local" else "UTC"
            return texts.cast(timestamp_type(finest, zone) if finest else pa.date32()).cast(arrow_type)
    if pa.types.is_date(arrow_type):
        return _null_invalid(texts, _valid_texts(texts, time_format)).cast(pa.date32()).cast(arrow_type)
    finest = max(arrow_type.unit, time_format.unit, key=DIGITS.__getitem__)
    fits = _valid_texts(texts, time_format, is_short=finest == "ns")
    times = _null_invalid(texts, fits).cast(timestamp_type(finest, None if time_format.zone == "_local" else "UTC"))
    if finest == arrow_type.unit:
        return times.cast(arrow_type)
    coarse = times.cast(arrow_type, safe=False)
    return pc.if_else(pc.equal(coarse.cast(times.type), times), coarse, None)


def _matches_template(texts: Array, time_format: TimeFormat) -> bool:
    """Return whether all texts have the length of the format and its separators in the right columns.

    The digits are not checked.
    """
    template = np.frombuffer(_template(time_format), np.uint8)
    offsets = offsets_of(texts)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths = lengths[valid_of(texts)]
    n_bytes = int(offsets[-1] - offsets[0])
    if (lengths != len(template)).any() or n_bytes != len(lengths) * len(template):
        return False
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[int(offsets[0]) : int(offsets[-1])]
    separators = np.flatnonzero(template != ord(_DIGIT))
    return bool((data.reshape(-1, len(template))[:, separators] == template[separators]).all())


@functools.cache
def _template(time_format: TimeFormat) -> bytes:
    if time_format.kind == "date":
        return b"9999-99-99"
    digits = DIGITS[time_format.unit]
    fraction = f".{_DIGIT * digits}" if digits else ""
    return f"9999-99-99T99:99:99{fraction}{time_format.ending}".encode()


def _valid_texts(texts: Array, time_format: TimeFormat, *, is_short: bool = False) -> Array | None:
    """Return a mask of the texts that are times of the format, or None if all are.

    ``is_short`` also requires years that fit in 64 bits of nanoseconds.
    """
    fits = pc.match_substring_regex(texts, _pattern(time_format))
    if is_short:
        fits = pc.and_(fits, pc.match_substring_regex(texts, _NANOSECOND_YEARS))
    doubtful = pc.fill_null(pc.and_(fits, pc.match_substring_regex(texts, _DOUBTFUL_DAY)), False)  # noqa: FBT003
    if pc.any(doubtful).as_py():
        rows = np.flatnonzero(doubtful.to_numpy(zero_copy_only=False))
        wrong = [
            row for row, text in zip(rows, texts.take(pa.array(rows)).to_pylist(), strict=True) if not _is_day(text)
        ]
        mask = np.ones(len(texts), np.bool_)
        mask[wrong] = False
        fits = pc.and_(fits, pa.array(mask))
    return None if pc.all(fits).as_py() is not False else fits


@functools.cache
def _pattern(time_format: TimeFormat) -> str:
    if time_format.kind == "date":
        return f"^{_DAY}$"
    digits = DIGITS[time_format.unit]
    fraction = rf"\.[0-9]{{{digits}}}" if digits else ""
    return f"^{_DAY}{_TIME}{fraction}{time_format.ending.replace('+', '[+]')}$"


def _is_day(text: str) -> bool:
    # Python has no year 0, which was a leap year.
    try:
        dt.date.fromisoformat(f"2000{text[4:10]}" if text.startswith("0000") else text[:10])
    except ValueError:
        return False
    return True


def _valid_counts(counts: Array, arrow_type: Any, time_format: TimeFormat) -> Array | None:
    """Return a mask of the counts that fit in the column, or None if all do."""
    steps = _steps(arrow_type, time_format)
    max_count = int(_INT64.max) // max(1, steps)
    if pa.types.is_date(arrow_type):
        # A date has no time of day.
        day = 86_400 * 10 ** DIGITS[time_format.unit]
        days = pc.divide(counts, day)
        fits = pc.and_(pc.equal(pc.multiply(days, day), counts), pc.less_equal(pc.abs(days), 100_000_000))
    elif steps >= 1:
        fits = pc.and_(pc.less_equal(counts, max_count), pc.greater_equal(counts, -max_count))
    else:
        ratio = 10 ** (DIGITS[time_format.unit] - DIGITS[arrow_type.unit])
        fits = pc.equal(pc.multiply(pc.divide(counts, ratio), ratio), counts)
    return None if pc.all(fits).as_py() is not False else fits


def _parse_counts(counts: Array, arrow_type: Any, time_format: TimeFormat) -> Array:
    if pa.types.is_date(arrow_type):
        return pc.divide(counts, 86_400 * 10 ** DIGITS[time_format.unit]).cast(pa.int32()).cast(pa.date32())
    steps = _steps(arrow_type, time_format)
    if steps > 1:
        counts = pc.multiply(counts, steps)
    elif steps < 1:
        counts = pc.divide(counts, 10 ** (DIGITS[time_format.unit] - DIGITS[arrow_type.unit]))
    return counts.cast(arrow_type)


def _steps(arrow_type: Any, time_format: TimeFormat) -> int:
    """Return the number of the column's units in one unit of the format, or 0 if the column's unit is coarser."""
    unit = arrow_type.unit if pa.types.is_timestamp(arrow_type) else time_format.unit
    return 10 ** (DIGITS[unit] - DIGITS[time_format.unit]) if DIGITS[unit] >= DIGITS[time_format.unit] else 0


def stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its declared time columns as text or numbers. Other columns stay unchanged.

    Raises
    ------
    SchemaError
        A column cannot have its declared format.
    EncodeError
        A time cannot be written in its format.
    """
    declared = {
        index: time_format
        for index, field in enumerate(batch.schema)
        if (time_format := _converted_format(field)) is not None
    }
    if not declared:
        return batch
    columns, fields = [*batch.columns], list(batch.schema)
    for index, time_format in declared.items():
        columns[index] = _stored_array(plain_array(columns[index]), time_format, fields[index].name)
        fields[index] = stored_field(fields[index], columns[index].type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class StoredRows:
    """Conversion of the time columns of batches to text or numbers. Each schema is examined once.

    Parameters
    ----------
    formats
        The formats of time columns that are declared by name; None is ISO 8601.
    """

    def __init__(self, formats: Mapping[str, TimeFormat | None] | None = None) -> None:
        self._formats = formats or {}
        self._schema: pa.Schema | None = None
        self._is_stored = True

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch, with text and numbers instead of times.

        Raises
        ------
        SchemaError
            A column cannot have its format.
        EncodeError
            A time cannot be written in its format.
        """
        if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
            self._schema = batch.schema
            self._is_stored = not self._formats.keys() & set(batch.schema.names) and not declares_times(batch.schema)
        return batch if self._is_stored else declare_formats(batch, self._formats)


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the batches that ``stored_batch`` returns for batches of this schema.

    Raises
    ------
    SchemaError
        A column cannot have its declared format.
    """
    if all(_converted_format(field) is None for field in schema):
        return schema
    return pa.schema([_stored_field(field) for field in schema])


def _stored_field(field: pa.Field[Any]) -> pa.Field[Any]:
    time_format = _converted_format(field)
    if time_format is None:
        return field
    return stored_field(field, _stored_array(pa.array([], field.type), time_format, field.name).type)


def declare_formats(batch: pa.RecordBatch, formats: Mapping[str, TimeFormat | None]) -> pa.RecordBatch:
    """Return the batch with its time columns as text or numbers, in these formats or in declared ones.

    Raises
    ------
    SchemaError
        A column cannot have its format.
    EncodeError
        A time cannot be written in its format.
    """
    if formats:
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=with_formats(batch.schema, formats))
    return stored_batch(batch)


def with_formats(schema: pa.Schema, formats: Mapping[str, TimeFormat | None]) -> pa.Schema:
    """Return the schema with these formats of time columns, by name. None is ISO 8601 with the column's unit and zone.

    Raises
    ------
    SchemaError
        A column contains no times, or cannot have the format.
    """
    return pa.schema([_with_declared_format(field, formats) for field in schema])


def _with_declared_format(field: pa.Field[Any], formats: Mapping[str, TimeFormat | None]) -> pa.Field[Any]:
    if field.name not in formats:
        return field
    time_format, arrow_type = formats[field.name], field.type
    if not is_time_column(arrow_type):
        is_text, is_exact = (
            pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type),
            pa.types.is_integer(arrow_type),
        )
        if pa.types.is_null(arrow_type) or (
            is_exact if time_format is not None and time_format.kind == "epoch" else is_text
        ):
            # It contains the attribute itself, or nothing.
            return field
        raise SchemaError(
            f"{field.name}: an Arrow {arrow_type} holds no times to write as {time_format or ISO}: cast it before"
        )
    if time_format is None:
        return without_format(field)
    require_format(field.name, arrow_type, time_format)
    return with_format(field, time_format)


def declares_times(schema: pa.Schema) -> bool:
    """Return whether a column contains times with a declared format."""
    return any(DDB_TIME in (field.metadata or ()) for field in schema)


def _converted_format(field: pa.Field[Any]) -> TimeFormat | None:
    """Return the declared format of a time column, or None if the encoder itself writes the column in this format."""
    if DDB_TIME not in (field.metadata or ()):
        return None
    time_format, arrow_type = format_of_field(field), field.type
    is_encoders = time_format is None or time_format.kind == "date" or (
        time_format.kind == "iso" and time_format.zone != "+00:00" and time_format.unit == arrow_type.unit
    )  # fmt: skip
    return None if is_encoders else time_format


def _stored_array(times: Array, time_format: TimeFormat, name: str) -> Array:
    """Return the texts or numbers of times. A time finer than its format gets as many digits as its column."""
    try:
        if time_format.kind == "epoch":
            return _counts_of(times, time_format)
        unfit, message = unfit_times(times, _AS_ISO)
        if unfit:
            raise EncodeError(f"{name}: entry {unfit[0]} of the column: {message}", unfit[0], name, "time")
        return _format_texts(times, time_format)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"{name}: a time cannot be written as {time_format}: {error}", 0, name, "time") from None


def _counts_of(times: Array, time_format: TimeFormat) -> Array:
    arrow_type = times.type
    if pa.types.is_date(arrow_type):
        days = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply_checked(days, 86_400 * 10 ** DIGITS[time_format.unit])
    counts, decimals = times.cast(pa.int64()), DIGITS[arrow_type.unit] - DIGITS[time_format.unit]
    if decimals <= 0:
        return pc.multiply_checked(counts, 10**-decimals)
    return _decimals(counts, decimals)


def _decimals(counts: Array, decimals: int) -> Array:
    """Return counts of 10^-``decimals`` as decimals."""
    words = np.empty((len(counts), 2), np.int64)
    words[:, 0] = counts.fill_null(0).to_numpy()
    words[:, 1] = words[:, 0] >> 63
    valid = pc.is_valid(counts).buffers()[1] if counts.null_count else None
    buffers = [valid, pa.py_buffer(words.data)]
    numbers: Array = pa.Array.from_buffers(pa.decimal128(38, decimals), len(counts), buffers)
    return numbers


def _format_texts(times: Array, time_format: TimeFormat) -> Array:
    arrow_type = times.type
    target_type = timestamp_type(time_format.unit, arrow_type.tz)
    if DIGITS[time_format.unit] >= DIGITS[arrow_type.unit]:
        return _format_times(times.cast(target_type), time_format)
    coarse = times.cast(target_type, safe=False)
    is_exact = pc.equal(coarse.cast(arrow_type), times)
    texts = _format_times(coarse, time_format)
    return (
        texts
        if pc.all(is_exact).as_py() is not False
        else pc.if_else(is_exact, texts, _format_times(times, time_format))
    )


def _format_times(times: Array, time_format: TimeFormat) -> Array:
    texts = time_array(times, _AS_ISO)
    return texts if time_format.ending in {"Z", ""} else pc.replace_substring(texts, "Z", time_format.ending)


def common_format(texts: Iterable[str]) -> TimeFormat:
    """Return the most frequent format of the texts, or ``iso_us`` if no text has a format."""
    counts = Counter(time_format for text in texts if (time_format := _format_of_text(text)) is not None)
    return counts.most_common(1)[0][0] if counts else TimeFormat("iso", "us")


_TEXT = re.compile(rf"{_DAY}{_TIME}(\.(?P<fraction>[0-9]{{3}}|[0-9]{{6}}|[0-9]{{9}}))?(?P<ending>Z|[+]00:00)?")
_UNITS = {digits: unit for unit, digits in DIGITS.items()}


def _format_of_text(text: str) -> TimeFormat | None:
    match = _TEXT.fullmatch(text)
    if match is None:
        return TimeFormat("date") if re.fullmatch(_DAY, text) else None
    zone = {"Z": "", None: "_local"}.get(match["ending"], "+00:00")
    return TimeFormat("iso", _UNITS[len(match["fraction"] or "")], zone)


def sampled_formats(names: Sequence[str], bodies: Iterable[tuple[Buffer, Framing]]) -> dict[str, TimeFormat]:
    """Return the most frequent format of each attribute's texts in the first items or images of some bodies."""
    return {name: common_format(texts) for name, texts in _sampled_texts(bodies, names).items()} if names else {}


def _sampled_texts(bodies: Iterable[tuple[Buffer, Framing]], names: Sequence[str]) -> dict[str, list[str]]:
    decoder = KernelDecoder(pa.schema([tagged_field(f"c{index}", pa.string(), "S", attribute=name)
                                       for index, name in enumerate(names)]))  # fmt: skip
    texts: dict[str, list[str]] = {name: [] for name in names}
    for body, framing in bodies:
        if framing == "changes":
            # The loops for items cannot read change records.
            for image in itertools.islice(images_of(bytes(body)), _SAMPLED_IMAGES):
                for name in names:
                    texts[name] += [text for tag, text in image.get(name, {}).items() if tag == "S"]
            continue
        for batch in _sampled_batches(decoder, body, framing):
            columns: list[Array] = batch.columns[: len(names)]
            for name, column in zip(names, columns, strict=True):
                texts[name] += column.drop_null().to_pylist()
    return texts


def _sampled_batches(decoder: KernelDecoder, body: Buffer, framing: Framing) -> list[pa.RecordBatch]:
    view = memoryview(body)
    if framing != "page" and len(view) > _SAMPLED_BYTES:
        head = bytes(view[:_SAMPLED_BYTES])
        # The last line may be incomplete. Items over several lines, or all in one, are sampled from the whole body.
        lines = head[: head.rfind(b"\n") + 1]
        with suppress(DecodeError):
            if lines:
                return decoder.decode_batches(lines, framing)
    return decoder.decode_batches(view, framing)
