"""Reads of our files by the Apache project's own Avro library, which every Spark has."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from ddbio.formats.registry import FORMATS
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.items.schema.arrow import normalize_schema
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

SCHEMA = normalize_schema(
    pa.schema(
        [
            pa.field("pk", pa.string()),
            pa.field("n", pa.int64()),
            pa.field("f", pa.float64()),
            pa.field("d", pa.decimal128(38, 4)),
            pa.field("t", pa.bool_()),
            pa.field("ss", pa.list_(pa.string()), metadata={b"ddb:type": b"SS"}),
            pa.field("m", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        ]
    )
)
WIDE = Decimal("1234567890123456789012345678901234.5678")
ROWS = [
    {"pk": 'é\u2028😀 "x"\n', "n": 2**63 - 1, "f": 0.1, "d": WIDE, "t": True, "ss": ["a", ""]},
    {"pk": "", "n": None, "d": -WIDE, "m": {"a": 1, "b": {"c": "x"}}},
    *({"pk": f"k{number}" * 500, "m": {"a": number}} for number in range(300)),
]


@pytest.mark.parametrize("codec", FORMATS["avro"].extensions)
def test_apache_avro_reads_every_codec(spark, tmp_path, codec):
    """All values of all blocks are read, also with zstd, and decimals by their logical type."""
    store = LocalStore(tmp_path)
    writer = RollingWriter(store, FileNaming("job", 0), SCHEMA, FileOptions(format="avro", compression=codec))
    writer.write(pa.RecordBatch.from_pylist(ROWS, SCHEMA))
    [staged] = writer.finish()
    store.complete(staged)
    avro, file = spark._jvm.org.apache.avro, spark._jvm.java.io.File(str(tmp_path / staged.path))
    data = avro.generic.GenericData()
    data.addLogicalTypeConversion(spark._jvm.org.apache.avro.Conversions.DecimalConversion())
    reader = avro.file.DataFileReader(file, avro.generic.GenericDatumReader(None, None, data))
    records = []
    while reader.hasNext():
        records.append(reader.next())
    reader.close()
    names = [name for name in SCHEMA.names if name not in {"d", "_rescue"}]
    shown = [json.loads(record.toString()) for record in records]
    wanted = pa.RecordBatch.from_pylist(ROWS, SCHEMA).to_pylist()
    assert [{name: row[name] for name in names} for row in shown] == [
        {name: row[name] for name in names} for row in wanted
    ]
    assert [record.get("d") and Decimal(str(record.get("d"))) for record in records] == [row["d"] for row in wanted]
