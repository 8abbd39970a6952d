"""Decoding of item changes, from incremental exports and streams, to typed columns: keys, new image, old image.

A line that is not exactly one change is a DecodeError. No value is rounded or silently turned into null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.items.change_lines import Change, checked_changes
from ddbio.items.json_text import compact_json
from ddbio.items.kernel import codes
from ddbio.items.kernel.arrays import texts_array
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.kernel.decode.tables import plan_change_nodes
from ddbio.items.kernel.members import Marks
from ddbio.items.reference import RowBuilder
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, normalize_schema, project_schema
from ddbio.items.schema.times import stored_schema
from ddbio.items.stream_records import once_encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from ddbio.items.framing import Framing
    from ddbio.items.rescue import Misfit, MisfitLog, OnMisfit

__all__ = ["DELETE", "PUT", "ChangeDecoder"]

PUT, DELETE = "put", "delete"
"""The values of the column ``operation``."""

_OPERATIONS = texts_array(PUT, DELETE)
# Exports and responses of DynamoDB Streams start with these bytes, and are never encoded by Kinesis.
_BEGINNINGS = (b'{"Metadata"', b'{"Records"', b'{"NextShardIterator"')
_BINARY = Marks(b'"B"', b'"BS"')
_IMAGES = {codes.KEYS: "keys", codes.NEW_IMAGE: "new_image", codes.OLD_IMAGE: "old_image"}


class ChangeDecoder:
    """Decoder of changes to record batches. Use one per thread.

    A line is a change of an incremental export, a record of DynamoDB Streams or of its copy in Kinesis, or a body
    whose ``Records`` are such records: the answer of ``GetRecords``, or the event of a Lambda function.

    The columns are ``write_time`` (microseconds since 1970), ``operation`` (``put``, or ``delete`` if there is no new
    image or the stream's event is ``REMOVE``), the structs ``keys``, ``new_image`` and ``old_image``, null if a change
    has none, and ``_rescue``: one JSON object, by image and attribute, of the values that fit no column.

    If a record has no unit of time, its time is in the coarsest of seconds, milliseconds and microseconds for which it
    is before the year 10000. Binary values of Kinesis, which encodes them as base64 twice, are decoded twice.

    Parameters
    ----------
    schema
        A schema of items. It is normalised. Its time columns become columns of the attributes' text or numbers.
    keys
        The table's key attributes.
    on_misfit, nulls, drop
        As for items. ``drop`` names attributes of all images.

    Raises
    ------
    SchemaError
        The schema lacks a key, or a column's type has no exact encoding in DynamoDB.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        on_misfit: OnMisfit = "rescue",
        nulls: Literal["merge", "keep"] = "merge",
        drop: Sequence[str] = (),
    ) -> None:
        self._loops = ChangeLoops(schema, keys, drop, on_misfit=on_misfit, nulls=nulls)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return self._loops.schema

    @property
    def log(self) -> MisfitLog:
        """Return the log of misfits so far. Their paths begin with the image's name."""
        return self._loops.log

    @property
    def misfits(self) -> list[Misfit]:
        """Return the misfits so far, by path and kind. Paths begin with the image's name."""
        return self._loops.misfits

    def decode(self, lines: Buffer) -> pa.RecordBatch:
        """Return one row per change, in the order of the changes.

        Raises
        ------
        DecodeError
            A line is not a change. The message names the line.
        SchemaError
            A value fits no column, and ``on_misfit`` is ``fail``.
        """
        return self._loops.decode(plainly_encoded(lines), "changes")


def plainly_encoded(text: Buffer) -> Buffer:
    """Return the result of :func:`once_encoded`, with a quick check for texts without binary values."""
    view = memoryview(text)
    if bytes(view[:32]).startswith(_BEGINNINGS) or not _BINARY.find(view):
        return text
    return once_encoded(bytes(view))


class ChangeLoops(KernelDecoder):
    """Decoder of changes by the compiled loops."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], drop: Sequence[str], **options: Any) -> None:
        super().__init__(pa.schema([]), **options)
        item_schema = stored_schema(normalize_schema(schema))
        schemas = {
            codes.KEYS: project_schema(item_schema, keys),
            codes.NEW_IMAGE: item_schema,
            codes.OLD_IMAGE: item_schema,
        }
        images = [_image_field(_IMAGES[node], image_schema) for node, image_schema in schemas.items()]
        columns: list[pa.Field[Any]] = [
            pa.field("write_time", pa.int64()),
            pa.field("operation", pa.string()),
            *images,
            RESCUE_FIELD,
        ]
        rows = {
            node: RowBuilder(image_schema, keep_nulls=self._keep_nulls, above=f"{_IMAGES[node]}.", drop=drop)
            for node, image_schema in schemas.items()
        }
        self._without_rescue = pa.schema(columns[:-1])
        self._prepare(pa.schema(columns), plan_change_nodes(images), rows)

    def _columns(self, scanned: pa.RecordBatch) -> pa.RecordBatch:
        write_time, keys, new_image, old_image, deleted = scanned.columns
        columns = [write_time, _OPERATIONS.take(deleted.cast(pa.int8())), keys, new_image, old_image]
        return pa.RecordBatch.from_arrays(columns, schema=self._without_rescue)

    def _decode_in_python(self, body: bytes, framing: Framing, log: MisfitLog) -> pa.RecordBatch:
        del framing
        return change_batch(list(checked_changes(body)), self.schema, self._rows, log)


def change_batch(
    changes: Sequence[Change], schema: pa.Schema, rows: dict[int, RowBuilder], log: MisfitLog
) -> pa.RecordBatch:
    """Return one row per change, in plain Python."""
    structs, rescued = list[Any](), [dict[str, str]() for _ in changes]
    for node, name in _IMAGES.items():
        images = [getattr(change, name) for change in changes]
        batch = rows[node].batch([image or {} for image in images], log)
        for row, text in enumerate(batch.column(RESCUE_NAME).to_pylist()):
            if text is not None:
                rescued[row][name] = text
        absent = pa.array([image is None for image in images], pa.bool_())
        arrays = [batch.column(index) for index in range(batch.num_columns - 1)]
        structs.append(_struct(arrays, schema.field(name).type, absent))
    columns = [
        pa.array([change.write_time for change in changes], pa.int64()),
        pa.array([DELETE if change.is_delete else PUT for change in changes], pa.string()),
        *structs,
        pa.array([_rescue_text(texts) for texts in rescued], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _image_field(name: str, schema: pa.Schema) -> pa.Field[Any]:
    return pa.field(name, pa.struct([field for field in schema if field.name != RESCUE_NAME]))


def _struct(arrays: list[Any], arrow_type: Any, absent: Any) -> Any:
    if not arrays:
        return pa.array([None if is_absent else {} for is_absent in absent.to_pylist()], arrow_type)
    return pa.StructArray.from_arrays(arrays, fields=list(arrow_type), mask=absent)


def _rescue_text(texts: dict[str, str]) -> str | None:
    members = ",".join(f"{compact_json(name)}:{text}" for name, text in texts.items())
    return f"{{{members}}}" if texts else None
