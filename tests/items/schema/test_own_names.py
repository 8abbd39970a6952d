"""Column names of attributes next to ddbio's own columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.cdc.log_rows import item_schema, log_schema
from ddbio.formats.lake_columns import attribute_columns, lake_fields, lake_schema
from ddbio.formats.log_columns import ARCHIVE_COLUMNS, LOG_COLUMNS, attribute_of_member, line_member
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.schema.arrow import RESCUE_FIELD, name_of_field, normalize_schema
from ddbio.items.schema.folded import MAX_COLUMN_NAME_BYTES, fold
from ddbio.items.schema.own_names import beside, columns_of, is_own
from ddbio.lake.history import history_schema

ODD = [
    *sorted((LOG_COLUMNS | ARCHIVE_COLUMNS) - {"_rescue"}),
    *("_key", "_b", "_ver", "_ts_us", "_deleted", "_is_deleted", "_KEY", "_pos", "_hoodie_commit_time"),
    *("_OP", "_Event_Id", "valid_from", "Operation", "year", "Hour", "bucket", "_op_2ac1b6cb", "_key_c7fbb253"),
    *("é" * 200, "x" * 300, "x" * 300 + "y", "a b", "a\0b", "\x7f", ".", "ß", "SS", "İ", "i̇"),
]  # fmt: skip


def items(*names, kind=None):
    """Return columns of items."""
    return normalize_schema(pa.schema([pa.field(name, kind or pa.string()) for name in names]))


def require_apart(schema, attributes):
    """Check that columns differ by more than case, and that each attribute has its own column."""
    assert len({fold(name) for name in schema.names}) == len(schema.names)
    assert all(len(name.encode()) <= MAX_COLUMN_NAME_BYTES for name in schema.names)
    assert len({*columns_of(schema, attributes)}) == len(attributes)


@pytest.mark.parametrize("first", range(0, len(ODD), 7))
def test_a_log_has_a_column_for_each_attribute(first):
    """Key attributes always have columns. Other attributes with the names of a log's own columns are rescued."""
    names = [*ODD[first:], *ODD[:first]]
    schema = log_schema(item_schema(items(*names), names[:2]), names[:2], old_image=True, event_id=True)
    own = [field for field in schema if is_own(field, LOG_COLUMNS)]
    attributes = pa.schema([field for field in schema if field not in own])
    require_apart(schema, names[:2])
    assert [name_of_field(field) for field in attributes][:2] == names[:2]
    rescued = {"_op", "_sequence", "_event_time", "_expired", "_old_image", "_old_rescue"}.difference(names[:2])
    assert {name_of_field(field) for field in attributes} == {*names} - rescued


def test_a_log_of_an_older_release_keeps_its_columns():
    """Its attribute ``_event_id`` keeps a column of that name.

    Attributes with names of other own columns are rescued.
    """
    old = log_schema(items("pk", "_event_id", "_op", "year"), ["pk"])
    assert [field.name for field in old if not is_own(field, LOG_COLUMNS)] == ["pk", "_event_id", "year"]
    assert [field.name for field in beside(old, LOG_COLUMNS) if field.name.startswith("_event_id")] == [
        "_event_id_5f37adeb"
    ]


@pytest.mark.parametrize("first", range(0, len(ODD), 7))
def test_a_lake_table_has_a_column_for_each_attribute(first):
    """New columns do not conflict with existing ones, and the history of the table has them too."""
    names = [*ODD[first:], *ODD[:first]]
    fields = lake_fields(items(*names[:20]))
    fields += lake_fields(items(*names[20:]), fields)
    schema = lake_schema(pa.schema(fields))
    assert [name_of_field(field) for field in attribute_columns(schema)] == names
    require_apart(schema, names)
    require_apart(history_schema(schema), names)


@pytest.mark.parametrize(
    ("kind", "inner"),
    [
        (pa.struct([("b", pa.string())]), "a.b"),
        (pa.struct([("b", pa.struct([("c", pa.string())]))]), "A.b.C"),
        (pa.list_(pa.string()), "a.element"),
        (pa.map_(pa.string(), pa.string()), "a.value"),
        (pa.map_(pa.string(), pa.string()), "a.key"),
    ],
)
def test_no_column_has_the_path_of_a_member(kind, inner):
    """Iceberg has one namespace for columns and nested fields."""
    for fields in (
        [*items("a", kind=kind), *items(inner)],
        [*items(inner), *items("a", kind=kind)],
    ):
        (one, two) = lake_fields([field for field in fields if field.name != "_rescue"])
        assert one.name in {"a", inner}
        assert two.name not in {"a", inner}


@pytest.mark.parametrize("member", ["a:b", "a<b", "a`b", "a b", "", "a\tb", "a\x01b"])
def test_structs_with_members_that_catalogs_refuse_are_json(member):
    """Then no nested name prevents the registration of a lake table."""
    (field,) = lake_fields(list(items("m", kind=pa.struct([(member, pa.string())])))[:1])
    assert (field.type, field.metadata[b"ddb:type"]) == (pa.string(), b"JSON")


@pytest.mark.parametrize("name", [*ODD, "pk", "_op_", "x_2ac1b6cb"])
def test_a_line_has_each_attribute(name):
    """A member of a line with the name of an own column is read as the attribute."""
    member = line_member(name)
    assert fold(member) not in {"_op", "_sequence", "_event_id", "_event_time", "_expired"}
    assert attribute_of_member(member) == (name if name != "_op_2ac1b6cb" else "_op")


def test_digests_distinguish_own_columns_from_attributes():
    """Rows of a log have a digest regardless of attribute names. A change of either column changes it."""
    schema = pa.schema([pa.field("_op", pa.string()), *item_schema(items("_op", "_rescue"), ["_op"])])
    assert RESCUE_FIELD in schema
    digests = set()
    for values in (("a", "b"), ("b", "a"), ("a", "a")):
        digest = ColumnDigest()
        columns = [pa.array([value], pa.string()) for value in (*values, None)]
        digest.add_batch(pa.RecordBatch.from_arrays(columns, schema=pa.schema([*schema][:3])))
        digests.add(digest.digest.hexdigest())
    assert len(digests) == 3
