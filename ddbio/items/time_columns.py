"""Convert between time columns and the text or numbers that stand for them in DynamoDB, exactly.

Only a text or number that the column's form has for a value becomes that value; anything else stays what it is, in the
rescue column. Conversions are those of ``pyarrow.compute``, a column at a time.
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
    TimeForm,
    form_of_field,
    is_time_column,
    require_form,
    stored_field,
    timestamp_type,
    with_form,
    without_form,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from ddbio.items.framing import Framing
    from ddbio.items.rescue import MisfitLog

    # The stubs lack what the classes of arrays have of their own.
    Array = Any

# The stubs take no values of Python.
pc: Any = pyarrow.compute

_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
# Days that not every month has.
_DOUBTFUL_DAY = r"^[0-9]{4}-(02-(29|30|31)|(04|06|09|11)-31)"
# Years that 64 bits of nanoseconds hold whole.
_NANOSECOND_YEARS = r"^(1[7-9][0-9]{2}|167[89]|16[89][0-9]|20[0-9]{2}|21[0-9]{2}|22[0-5][0-9]|226[01])-"
# What stands for a digit in the model of a form, and for itself in none of them.
_DIGIT = "9"
_INT64 = np.iinfo(np.int64)
_SAMPLED_BYTES, _SAMPLED_IMAGES = 1 << 20, 1_000
_AS_ISO = SimpleNamespace(timestamps="iso", dates="iso")


class TimeColumns:
    """Hold the time columns of a schema, to be made of a batch's text and numbers.

    Parameters
    ----------
    schema
        A normalised schema of items.
    drop
        Attributes whose misfits are counted but not rescued.
    """

    def __init__(self, schema: pa.Schema, drop: Sequence[str] = ()) -> None:
        self._times = [(field, form) for field in schema if (form := form_of_field(field)) is not None]
        self._drop = frozenset(drop)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._times)

    def convert(self, batch: pa.RecordBatch, log: MisfitLog) -> pa.RecordBatch:
        """Return a batch of ``stored_schema``, with its time columns; what is no time is logged and rescued."""
        rescued: dict[int, dict[str, Any]] = {}
        for field, form in self._times:
            place = batch.schema.get_field_index(field.name)
            times, rows, values = times_of(batch.column(place), field.type, form)
            batch = batch.set_column(place, field, times)
            name = name_of_field(field)
            if values:
                is_dropped = name in self._drop
                log.add_texts(name, DOES_NOT_FIT, compact_json(values[0]), len(values), is_dropped=is_dropped)
                for row, value in () if is_dropped else zip(rows, values, strict=True):
                    rescued.setdefault(row, {})[name] = value
        return _with_rescued(batch, rescued) if rescued else batch


def _with_rescued(batch: pa.RecordBatch, rescued: dict[int, dict[str, Any]]) -> pa.RecordBatch:
    """Return the batch with these attributes added to the rescue column of their rows."""
    place = batch.schema.get_field_index(RESCUE_NAME)
    column: Array = batch.column(place)
    rows = sorted(rescued)
    before = column.take(pa.array(rows, pa.int64())).to_pylist()
    texts = [rescue_text(json.loads(text or "{}") | rescued[row]) for row, text in zip(rows, before, strict=True)]
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    replaced: Array = pc.replace_with_mask(column, pa.array(mask), pa.array(texts, column.type))
    return batch.set_column(place, batch.schema.field(place), replaced)


class _Times(NamedTuple):
    times: Array
    rows: list[int]
    """The rows whose value is no time of the form."""
    values: list[dict[str, str]]
    """Their values, as attribute values."""


def times_of(stored: Array, arrow_type: pa.DataType, form: TimeForm) -> _Times:
    """Return the times that texts or counts stand for, null where one is none, and the values that are none."""
    if form.kind == "epoch":
        times = _times_of_counts(_fitting(stored, _fitting_counts(stored, arrow_type, form)), arrow_type, form)
    else:
        times = _times_of_texts(stored, arrow_type, form)
    if times.null_count == stored.null_count:
        return _Times(times, [], [])
    rows = np.flatnonzero(pc.and_(stored.is_valid(), times.is_null()).to_numpy(zero_copy_only=False))
    texts = stored.take(pa.array(rows)).to_pylist()
    return _Times(times, rows.tolist(), [{form.tag: str(text)} for text in texts])


def _fitting(values: Array, fits: Array | None) -> Array:
    return values if fits is None else pc.if_else(fits, values, None)


def _times_of_texts(texts: Array, arrow_type: Any, form: TimeForm) -> Array:
    if _is_in_form(texts, form):
        with suppress(pa.ArrowInvalid):
            finest = max(arrow_type.unit, form.unit, key=DIGITS.__getitem__) if form.kind == "iso" else ""
            zone = None if form.zone == "_local" else "UTC"
            return texts.cast(timestamp_type(finest, zone) if finest else pa.date32()).cast(arrow_type)
    if pa.types.is_date(arrow_type):
        return _fitting(texts, _fitting_texts(texts, form)).cast(pa.date32()).cast(arrow_type)
    finest = max(arrow_type.unit, form.unit, key=DIGITS.__getitem__)
    fits = _fitting_texts(texts, form, is_short=finest == "ns")
    times = _fitting(texts, fits).cast(timestamp_type(finest, None if form.zone == "_local" else "UTC"))
    if finest == arrow_type.unit:
        return times.cast(arrow_type)
    short = times.cast(arrow_type, safe=False)
    return pc.if_else(pc.equal(short.cast(times.type), times), short, None)


def _is_in_form(texts: Array, form: TimeForm) -> bool:
    """Return whether all texts have the length of the form, and its signs where it has them: only digits are left."""
    model = np.frombuffer(_model(form), np.uint8)
    offsets = offsets_of(texts)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths = lengths[valid_of(texts)]
    n_bytes = int(offsets[-1] - offsets[0])
    if (lengths != len(model)).any() or n_bytes != len(lengths) * len(model):
        return False
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[int(offsets[0]) : int(offsets[-1])]
    signs = np.flatnonzero(model != ord(_DIGIT))
    return bool((data.reshape(-1, len(model))[:, signs] == model[signs]).all())


@functools.cache
def _model(form: TimeForm) -> bytes:
    if form.kind == "date":
        return b"9999-99-99"
    digits = DIGITS[form.unit]
    fraction = f".{_DIGIT * digits}" if digits else ""
    return f"9999-99-99T99:99:99{fraction}{form.ending}".encode()


def _fitting_texts(texts: Array, form: TimeForm, *, is_short: bool = False) -> Array | None:
    """Return which texts are times of the form, within the years of nanoseconds if those are asked; None if all are."""
    fits = pc.match_substring_regex(texts, _pattern(form))
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
def _pattern(form: TimeForm) -> str:
    if form.kind == "date":
        return f"^{_DAY}$"
    digits = DIGITS[form.unit]
    fraction = rf"\.[0-9]{{{digits}}}" if digits else ""
    return f"^{_DAY}{_TIME}{fraction}{form.ending.replace('+', '[+]')}$"


def _is_day(text: str) -> bool:
    # Python has no year 0, which was a leap year.
    try:
        dt.date.fromisoformat(f"2000{text[4:10]}" if text.startswith("0000") else text[:10])
    except ValueError:
        return False
    return True


def _fitting_counts(counts: Array, arrow_type: Any, form: TimeForm) -> Array | None:
    """Return which counts the column holds; None if all."""
    steps = _steps(arrow_type, form)
    most = int(_INT64.max) // max(1, steps)
    if pa.types.is_date(arrow_type):
        # A date has no time of the day.
        day = 86_400 * 10 ** DIGITS[form.unit]
        days = pc.divide(counts, day)
        fits = pc.and_(pc.equal(pc.multiply(days, day), counts), pc.less_equal(pc.abs(days), 100_000_000))
    elif steps >= 1:
        fits = pc.and_(pc.less_equal(counts, most), pc.greater_equal(counts, -most))
    else:
        coarser = 10 ** (DIGITS[form.unit] - DIGITS[arrow_type.unit])
        fits = pc.equal(pc.multiply(pc.divide(counts, coarser), coarser), counts)
    return None if pc.all(fits).as_py() is not False else fits


def _times_of_counts(counts: Array, arrow_type: Any, form: TimeForm) -> Array:
    if pa.types.is_date(arrow_type):
        return pc.divide(counts, 86_400 * 10 ** DIGITS[form.unit]).cast(pa.int32()).cast(pa.date32())
    steps = _steps(arrow_type, form)
    if steps > 1:
        counts = pc.multiply(counts, steps)
    elif steps < 1:
        counts = pc.divide(counts, 10 ** (DIGITS[form.unit] - DIGITS[arrow_type.unit]))
    return counts.cast(arrow_type)


def _steps(arrow_type: Any, form: TimeForm) -> int:
    """Return how many units of the column one of the form has; 0 if the column's are coarser."""
    unit = arrow_type.unit if pa.types.is_timestamp(arrow_type) else form.unit
    return 10 ** (DIGITS[unit] - DIGITS[form.unit]) if DIGITS[unit] >= DIGITS[form.unit] else 0


def stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the text or numbers that its declared time columns stand for; others stay as they are.

    Raises
    ------
    SchemaError
        A column cannot have its declared form.
    EncodeError
        A time cannot be written in its form.
    """
    declared = {place: form for place, field in enumerate(batch.schema) if (form := _converted_form(field)) is not None}
    if not declared:
        return batch
    columns, fields = [*batch.columns], list(batch.schema)
    for place, form in declared.items():
        columns[place] = _stored_array(plain_array(columns[place]), form, fields[place].name)
        fields[place] = stored_field(fields[place], columns[place].type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class StoredRows:
    """Give batches the text or numbers that their time columns stand for; each schema is looked at once.

    Parameters
    ----------
    forms
        The forms of time columns that are declared by name; None is ISO 8601.
    """

    def __init__(self, forms: Mapping[str, TimeForm | None] | None = None) -> None:
        self._forms = forms or {}
        self._schema: pa.Schema | None = None
        self._is_stored = True

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch, or one with text and numbers in the place of its times.

        Raises
        ------
        SchemaError
            A column cannot have its form.
        EncodeError
            A time cannot be written in its form.
        """
        if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
            self._schema = batch.schema
            self._is_stored = not self._forms.keys() & set(batch.schema.names) and not declares_times(batch.schema)
        return batch if self._is_stored else declare_forms(batch, self._forms)


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema that ``stored_batch`` gives to batches of this schema.

    Raises
    ------
    SchemaError
        A column cannot have its declared form.
    """
    if all(_converted_form(field) is None for field in schema):
        return schema
    return pa.schema([_stored_field(field) for field in schema])


def _stored_field(field: pa.Field[Any]) -> pa.Field[Any]:
    form = _converted_form(field)
    if form is None:
        return field
    return stored_field(field, _stored_array(pa.array([], field.type), form, field.name).type)


def declare_forms(batch: pa.RecordBatch, forms: Mapping[str, TimeForm | None]) -> pa.RecordBatch:
    """Return the batch with the text or numbers that its time columns stand for, in these forms or declared ones.

    Raises
    ------
    SchemaError
        A column cannot have its form.
    EncodeError
        A time cannot be written in its form.
    """
    if forms:
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=with_forms(batch.schema, forms))
    return stored_batch(batch)


def with_forms(schema: pa.Schema, forms: Mapping[str, TimeForm | None]) -> pa.Schema:
    """Return the schema with the forms of the time columns that are named; None is ISO 8601 as the column's type is.

    Raises
    ------
    SchemaError
        A column holds no times, or cannot have the form.
    """
    return pa.schema([_formed(field, forms) for field in schema])


def _formed(field: pa.Field[Any], forms: Mapping[str, TimeForm | None]) -> pa.Field[Any]:
    if field.name not in forms:
        return field
    form, given = forms[field.name], field.type
    if not is_time_column(given):
        is_text, is_whole = pa.types.is_string(given) or pa.types.is_large_string(given), pa.types.is_integer(given)
        if pa.types.is_null(given) or (is_whole if form is not None and form.kind == "epoch" else is_text):
            # It holds the attribute itself, or nothing.
            return field
        raise SchemaError(f"{field.name}: an Arrow {given} holds no times to write as {form or ISO}: cast it before")
    if form is None:
        return without_form(field)
    require_form(field.name, given, form)
    return with_form(field, form)


def declares_times(schema: pa.Schema) -> bool:
    """Return whether a column holds times of a declared form."""
    return any(DDB_TIME in (field.metadata or ()) for field in schema)


def _converted_form(field: pa.Field[Any]) -> TimeForm | None:
    """Return the form of a time column, or None if the encoder writes the column in this form by itself."""
    if DDB_TIME not in (field.metadata or ()):
        return None
    form, given = form_of_field(field), field.type
    is_usual = form is None or form.kind == "date" or (
        form.kind == "iso" and form.zone != "+00:00" and form.unit == given.unit
    )  # fmt: skip
    return None if is_usual else form


def _stored_array(times: Array, form: TimeForm, name: str) -> Array:
    """Return texts or numbers that stand for times; a time finer than its form has as many digits as its column."""
    try:
        if form.kind == "epoch":
            return _counts_of(times, form)
        unfit, message = unfit_times(times, _AS_ISO)
        if unfit:
            raise EncodeError(f"{name}: entry {unfit[0]} of the column: {message}", unfit[0], name, "time")
        return _texts_of(times, form)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"{name}: a time cannot be written as {form}: {error}", 0, name, "time") from None


def _counts_of(times: Array, form: TimeForm) -> Array:
    given = times.type
    if pa.types.is_date(given):
        days = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply_checked(days, 86_400 * 10 ** DIGITS[form.unit])
    counts, places = times.cast(pa.int64()), DIGITS[given.unit] - DIGITS[form.unit]
    if places <= 0:
        return pc.multiply_checked(counts, 10**-places)
    return _decimals(counts, places)


def _decimals(counts: Array, places: int) -> Array:
    """Return counts of 10^-``places`` as numbers."""
    words = np.empty((len(counts), 2), np.int64)
    words[:, 0] = counts.fill_null(0).to_numpy()
    words[:, 1] = words[:, 0] >> 63
    valid = pc.is_valid(counts).buffers()[1] if counts.null_count else None
    buffers = [valid, pa.py_buffer(words.data)]
    numbers: Array = pa.Array.from_buffers(pa.decimal128(38, places), len(counts), buffers)
    return numbers


def _texts_of(times: Array, form: TimeForm) -> Array:
    given = times.type
    asked = timestamp_type(form.unit, given.tz)
    if DIGITS[form.unit] >= DIGITS[given.unit]:
        return _printed(times.cast(asked), form)
    short = times.cast(asked, safe=False)
    is_whole = pc.equal(short.cast(given), times)
    texts = _printed(short, form)
    return texts if pc.all(is_whole).as_py() is not False else pc.if_else(is_whole, texts, _printed(times, form))


def _printed(times: Array, form: TimeForm) -> Array:
    texts = time_array(times, _AS_ISO)
    return texts if form.ending in {"Z", ""} else pc.replace_substring(texts, "Z", form.ending)


def common_form(texts: Iterable[str]) -> TimeForm:
    """Return the form that most of some texts have; ``iso_us`` if none has one."""
    counts = Counter(form for text in texts if (form := _form_of_text(text)) is not None)
    return counts.most_common(1)[0][0] if counts else TimeForm("iso", "us")


_TEXT = re.compile(rf"{_DAY}{_TIME}(\.(?P<fraction>[0-9]{{3}}|[0-9]{{6}}|[0-9]{{9}}))?(?P<ending>Z|[+]00:00)?")
_UNITS = {digits: unit for unit, digits in DIGITS.items()}


def _form_of_text(text: str) -> TimeForm | None:
    found = _TEXT.fullmatch(text)
    if found is None:
        return TimeForm("date") if re.fullmatch(_DAY, text) else None
    zone = {"Z": "", None: "_local"}.get(found["ending"], "+00:00")
    return TimeForm("iso", _UNITS[len(found["fraction"] or "")], zone)


def sampled_forms(names: Sequence[str], bodies: Iterable[tuple[Buffer, Framing]]) -> dict[str, TimeForm]:
    """Return the form that most texts of each attribute have in the first items, or images, of some bodies."""
    return {name: common_form(texts) for name, texts in _sampled_texts(bodies, names).items()} if names else {}


def _sampled_texts(bodies: Iterable[tuple[Buffer, Framing]], names: Sequence[str]) -> dict[str, list[str]]:
    decoder = KernelDecoder(pa.schema([tagged_field(f"c{place}", pa.string(), "S", attribute=name)
                                       for place, name in enumerate(names)]))  # fmt: skip
    texts: dict[str, list[str]] = {name: [] for name in names}
    for body, framing in bodies:
        if framing == "changes":
            # The loops of items cannot read them.
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
    whole = memoryview(body)
    if framing != "page" and len(whole) > _SAMPLED_BYTES:
        head = bytes(whole[:_SAMPLED_BYTES])
        # The last line may have been cut. Items over several lines, or all in one, are sampled from the whole body.
        lines = head[: head.rfind(b"\n") + 1]
        with suppress(DecodeError):
            if lines:
                return decoder.decode_batches(lines, framing)
    return decoder.decode_batches(whole, framing)
