"""Maker of the files of ``data/``, which other programs write, as small as possible.

``python tests/foreign/make.py WRITER…`` makes the folders ``data/WRITER`` again. Without a name it makes the folders of
all writers except Spark 3.5, which needs its own environment:
``.venv-spark35/bin/python tests/foreign/make.py spark35``.

To add a file, add it to the function of its writer, or add a function, and describe its contents in ``expected.json``.
A column is named after its contents: the same name has the same values in every file. Rows: usual values, extreme
ones, and none.
"""

# ruff: noqa: DTZ001, PLC0415, T201 - each writer needs its own libraries, and times without a zone
from __future__ import annotations

import datetime as dt
import gzip
import json
import shutil
import sys
import tempfile
import uuid
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

DATA = Path(__file__).with_name("data")
UTC = dt.timezone.utc  # noqa: UP017 - the Python of Spark 3.5
USUAL = dt.datetime(2024, 5, 1, 12, 30, 0, 123456)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
FIRST = dt.datetime(1, 1, 1)
NEAR = dt.datetime(2261, 12, 31, 23, 59, 59, 999999)


def _milliseconds(time: dt.datetime) -> dt.datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _zoned(*times: dt.datetime) -> list:
    return [time.replace(tzinfo=UTC) for time in times]


VALUES = {
    "id": ["a", "b", "c"],
    "text": ["plain", 'ünï "quoted", \nnext', None],
    "whole": [1, -9007199254740993, None],
    "real": [0.5, -1.25e-7, None],
    "half": [0.5, 65504.0, None],
    "flag": [True, False, None],
    "day": [dt.date(2024, 5, 1), dt.date(9999, 12, 31), None],
    "day_old": [dt.date(1582, 10, 15), dt.date(1, 1, 1), None],
    "time_ms": [_milliseconds(USUAL), _milliseconds(LAST), None],
    "time_ms_utc": [*_zoned(_milliseconds(USUAL), _milliseconds(LAST)), None],
    "time_us": [USUAL, LAST, None],
    "time_us_old": [USUAL, FIRST, None],
    "time_us_utc": [*_zoned(USUAL, LAST), None],
    "time_us_old_utc": [*_zoned(USUAL, FIRST), None],
    "time_ns": [USUAL, NEAR, None],
    "time_ns_utc": [*_zoned(USUAL, NEAR), None],
    "clock": [dt.time(12, 30, 0, 123456), dt.time(23, 59, 59, 999999), None],
    "clock_ms": [dt.time(12, 30, 0, 123000), dt.time(23, 59, 59, 999000), None],
    "money": [Decimal("1.25"), Decimal("-99999999.99"), None],
    "wide": [Decimal("1.5"), Decimal("-9999999999999999999999999999999999.5"), None],
    "uuid_bytes": [uuid.UUID(int=5).bytes, uuid.UUID(int=2**128 - 1).bytes, None],
    "uuid_text": [uuid.UUID(int=5), uuid.UUID(int=2**128 - 1), None],
    "document": ['{"a": [1, null]}', "[]", None],
    "numbers": [[1, 2], [], None],
    "record": [{"n": 1, "t": "x"}, {"n": None, "t": "y"}, None],
    "counts": [{"k": 1}, {}, None],
    "blob": [b"\x00\xff", b"x", None],
    "word": ["B", "A", None],
}


def rows(*names: str) -> list[dict]:
    """Return rows with some columns."""
    return [dict(zip(names, values)) for values in zip(*(VALUES[name] for name in names))]  # noqa: B905 - see UTC


def pandas(folder: Path) -> None:
    """Write files by ``to_parquet``, ``to_csv`` and ``to_json``."""
    import pandas as pd

    names = ["id", "text", "real", "flag", "day", "blob", "numbers"]
    frame = pd.DataFrame({name: VALUES[name] for name in names})
    frame["whole"] = pd.array(VALUES["whole"], "Int64")
    frame["word"] = pd.Categorical(VALUES["word"])
    frame["time_us"] = pd.Series(VALUES["time_us"], dtype="datetime64[us]")
    frame["time_ns"] = pd.Series(VALUES["time_ns"], dtype="datetime64[ns]")
    frame["time_ns_utc"] = pd.Series(VALUES["time_ns_utc"], dtype="datetime64[ns, UTC]")
    frame.to_parquet(folder / "frame.parquet")
    times = frame[["id", "time_us"]].copy()
    times["time_us_old"] = pd.Series(VALUES["time_us_old"], dtype="datetime64[us]")
    times.to_parquet(folder / "int96.parquet", use_deprecated_int96_timestamps=True)
    texts = frame[["id", "text", "whole", "flag", "word"]]
    texts.to_csv(folder / "frame.csv", index=False)
    texts.drop(columns="whole").to_json(folder / "frame.json", orient="records", lines=True)


def polars(folder: Path) -> None:
    """Write files by ``write_parquet``, ``write_avro``, ``write_csv`` and ``write_ndjson``."""
    import polars as pl

    names = ["id", "text", "whole", "real", "flag", "day", "day_old", "time_us", "time_us_old", "blob", "numbers"]
    frame = pl.DataFrame({name: VALUES[name] for name in [*names, "record"]}).with_columns(
        pl.Series("word", VALUES["word"], pl.Categorical),
        pl.Series("money", VALUES["money"], pl.Decimal(10, 2)),
        pl.Series("time_us_utc", VALUES["time_us_utc"], pl.Datetime("us", "UTC")),
        pl.Series("time_ms", VALUES["time_ms"], pl.Datetime("ms")),
    )
    frame.write_parquet(folder / "frame.parquet")
    frame.select("id", "text", "whole", "real", "flag", "day").write_avro(folder / "frame.avro")
    frame.select("id", "text", "whole", "flag").write_csv(folder / "frame.csv")
    frame.select("id", "text", "whole", "flag", "record").write_ndjson(folder / "frame.ndjson")


def duckdb(folder: Path) -> None:
    """Write files of ``COPY`` with types that few other programs have."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE rows (id VARCHAR, text VARCHAR, whole BIGINT, real DOUBLE, flag BOOLEAN, day DATE, day_old DATE,"
        " time_ms TIMESTAMP_MS, time_us TIMESTAMP, time_us_old TIMESTAMP, time_us_utc TIMESTAMPTZ,"
        " time_ns TIMESTAMP_NS, clock TIME, money DECIMAL(10, 2), wide DECIMAL(38, 1), uuid_bytes UUID,"
        " document JSON, numbers INTEGER[], record STRUCT(n INTEGER, t VARCHAR), counts MAP(VARCHAR, INTEGER),"
        " blob BLOB, word ENUM ('A', 'B'))"
    )
    names = [name for name, *_ in connection.execute("DESCRIBE rows").fetchall()]
    values = {**VALUES, "uuid_bytes": VALUES["uuid_text"]}
    for row in zip(*(values[name] for name in names), strict=True):
        connection.execute(f"INSERT INTO rows VALUES ({', '.join('?' * len(names))})", row)
    connection.execute(f"COPY rows TO '{folder}/table.parquet'")
    connection.execute(f"COPY (SELECT id, text, whole, flag FROM rows) TO '{folder}/table.csv'")
    connection.execute(f"COPY (SELECT id, text, whole, flag, record FROM rows) TO '{folder}/table.json'")
    clock = "SELECT id, (clock::VARCHAR || '+00')::TIMETZ AS clock FROM rows"
    connection.execute(f"COPY ({clock}) TO '{folder}/timetz.parquet'")
    connection.execute(f"COPY (SELECT id, INTERVAL 1 MONTH AS span FROM rows) TO '{folder}/interval.parquet'")
    connection.execute(f"COPY (SELECT id, 'NaN'::DOUBLE AS real FROM rows) TO '{folder}/nan.parquet'")
    connection.execute(f"COPY (SELECT id, MAP {{1: 2}} AS counts FROM rows) TO '{folder}/map_of_numbers.parquet'")


def arrow(folder: Path) -> None:
    """Write Arrow's own types."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    half = pa.array([None if value is None else np.float16(value) for value in VALUES["half"]], pa.float16())
    table = pa.table(
        {
            "id": pa.array(VALUES["id"], pa.large_string()),
            "half": half,
            "uuid_bytes": pa.array(VALUES["uuid_bytes"], pa.binary(16)).cast(pa.uuid()),
            "document": pa.array(VALUES["document"]).cast(pa.json_()),
            "word": pa.array(VALUES["word"]).dictionary_encode(),
            "wide": pa.array(VALUES["wide"], pa.decimal256(50, 1)),
            "clock": pa.array(VALUES["clock"], pa.time64("us")),
            "numbers": pa.array(VALUES["numbers"], pa.large_list(pa.int32())),
            "counts": pa.array(
                [value and list(value.items()) for value in VALUES["counts"]], pa.map_(pa.string(), "i4")
            ),
        }
    )
    pq.write_table(table, folder / "types.parquet")


def fastavro(folder: Path) -> None:
    """Write the logical types of Java, Kafka and Snowflake."""
    import fastavro

    kinds = {
        "text": "string",
        "whole": "long",
        "real": "double",
        "flag": "boolean",
        "day": {"type": "int", "logicalType": "date"},
        "day_old": {"type": "int", "logicalType": "date"},
        "time_ms_utc": {"type": "long", "logicalType": "timestamp-millis"},
        "time_us_utc": {"type": "long", "logicalType": "timestamp-micros"},
        "time_us": {"type": "long", "logicalType": "local-timestamp-micros"},
        "money": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        "numbers": {"type": "array", "items": "int"},
        "counts": {"type": "map", "values": "int"},
        "blob": "bytes",
    }
    others = {
        "uuid_text": {"type": "string", "logicalType": "uuid"},
        "clock": {"type": "long", "logicalType": "time-micros"},
        "clock_ms": {"type": "int", "logicalType": "time-millis"},
        "word": {"type": "enum", "name": "Word", "symbols": ["A", "B"]},
        "wide": {"type": "fixed", "name": "Wide", "size": 16, "logicalType": "decimal", "precision": 35, "scale": 1},
    }

    def write(name: str, kinds: dict, records: list[dict]) -> None:
        fields = [{"name": key, "type": ["null", kind], "default": None} for key, kind in kinds.items()]
        schema = {"type": "record", "name": "org.example.Row", "fields": [{"name": "id", "type": "string"}, *fields]}
        with (folder / name).open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), records, codec="deflate", sync_marker=bytes(range(16)))

    write("types.avro", kinds, rows("id", *kinds))
    write("logical.avro", others, rows("id", *others))
    write("union.avro", {"value": ["int", "string"]}, [{"id": "a", "value": 1}, {"id": "b", "value": "x"}])
    duration = {"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"}
    write("duration.avro", {"span": duration}, [{"id": "a", "span": bytes(12)}])


def pyorc(folder: Path) -> None:
    """Write files as Hive and Java do, in a time zone other than UTC."""
    import pyorc

    kinds = {
        "id": "string",
        "text": "string",
        "whole": "bigint",
        "real": "double",
        "flag": "boolean",
        "day": "date",
        "time_ns": "timestamp",
        "time_ns_utc": "timestamp with local time zone",
        "money": "decimal(10,2)",
        "numbers": "array<int>",
        "record": "struct<n:int,t:string>",
        "counts": "map<string,int>",
        "blob": "binary",
        "word": "string",
    }
    zone = ZoneInfo("America/New_York")

    def write(name: str, kinds: dict[str, str], records: list[dict]) -> None:
        members = ",".join(f"{key}:{kind}" for key, kind in kinds.items())
        with (
            (folder / name).open("wb") as file,
            pyorc.Writer(file, f"struct<{members}>", timezone=zone, struct_repr=pyorc.StructRepr.DICT) as writer,
        ):
            writer.writerows(records)

    records = rows(*kinds)
    for row in records:
        # A timestamp without a zone is the local time of the writer.
        row["time_ns"] = row["time_ns"] and row["time_ns"].replace(tzinfo=zone)
    write("types.orc", kinds, records)
    write("varchar.orc", {"id": "string", "word": "varchar(5)"}, rows("id", "word"))
    far = [{"id": "a", "time_us": LAST.replace(tzinfo=UTC)}]
    write("far.orc", {"id": "string", "time_us": "timestamp"}, far)
    write("union.orc", {"id": "string", "value": "uniontype<int,string>"}, [{"id": "a", "value": 1}])


def spark4(folder: Path) -> None:
    """Write files by Spark 4, with timestamps in microseconds."""
    _spark(folder, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}, [*SPARK, *SPARK_TIMES[2:]])


def spark35(destination: Path) -> None:
    """Write files by Spark up to 3.5 with default settings, and old dates as Spark 2 wrote them."""
    _spark(destination, {}, [*SPARK, *SPARK_TIMES[:2]])
    with tempfile.TemporaryDirectory() as folder:
        _spark(Path(folder), {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}, ["id", "day_old"])
        shutil.copy(Path(folder, "frame.parquet"), destination / "old_calendar.parquet")


def firehose(destination: Path) -> None:
    """Write Parquet as Firehose's format conversion does, in Hive's format: INT96, lists of Hive, folders of hours."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"spark.sql.parquet.outputTimestampType": "INT96", "spark.sql.parquet.writeLegacyFormat": "true"}
        _spark(Path(folder), settings, ["id", "text", "whole", "money", "numbers", "time_us", "time_us_old"])
        hour = destination / "2024" / "05" / "01" / "12"
        hour.mkdir(parents=True)
        shutil.copy(
            Path(folder, "frame.parquet"),
            hour / "orders-1-2024-05-01-12-30-00-0f0e0d0c-0b0a-4908-8706-050403020100.parquet",
        )


def athena(folder: Path) -> None:
    """Write Parquet as ``UNLOAD`` does: gzip, no extension, one folder for each value of a partition column."""
    import polars as pl

    for name in ("A", "B"):
        rows_of_word = [row for row in rows("id", "text", "whole", "day", "money", "word") if row["word"] == name]
        frame = pl.DataFrame(rows_of_word).drop("word").with_columns(pl.col("money").cast(pl.Decimal(10, 2)))
        (folder / f"word={name}").mkdir()
        frame.write_parquet(
            folder / f"word={name}" / f"20240501_123000_00001_abcde_{uuid.UUID(int=5)}", compression="gzip"
        )


def athena_text(folder: Path) -> None:
    """Write JSON as ``UNLOAD`` does, gzip without an extension, and CSV as in query results, with quoted values."""
    chosen = ("id", "text", "whole", "flag", "record")
    lines = [{key: value for key, value in row.items() if value is not None} for row in rows(*chosen)]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    unloaded = folder / f"20240501_123000_00002_abcde_{uuid.UUID(int=5)}"
    unloaded.write_bytes(gzip.compress(text.encode(), mtime=0))
    cells = [["id", "text", "whole", "flag", "day"]]
    for row in rows(*cells[0]):
        flag = row["flag"]
        cells.append([*list(row.values())[:3], None if flag is None else str(flag).lower(), row["day"]])
    quoted = [
        ",".join("" if cell is None else '"' + str(cell).replace('"', '""') + '"' for cell in row) for row in cells
    ]
    (folder / f"{uuid.UUID(int=6)}.csv").write_bytes(("\n".join(quoted) + "\n").encode())


def firehose_text(folder: Path) -> None:
    """Write JSON as Firehose delivers it: records without separators, and gzip with or without an extension."""
    hour = folder / "2024" / "05" / "01" / "12"
    hour.mkdir(parents=True)
    text = "".join(json.dumps(row) for row in rows("id", "text", "whole", "flag", "numbers"))
    name = "orders-1-2024-05-01-12-30-00-0f0e0d0c-0b0a-4908-8706-050403020100"
    (hour / name).write_bytes(text.encode())
    (hour / f"{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


SPARK = {
    "id": "string",
    "text": "string",
    "whole": "bigint",
    "real": "double",
    "flag": "boolean",
    "day": "date",
    "day_old": "date",
    "money": "decimal(10,2)",
    "wide": "decimal(36,1)",
    "numbers": "array<int>",
    "record": "struct<n:int,t:string>",
    "counts": "map<string,int>",
    "blob": "binary",
    "word": "string",
}
# INT96 does not state that it is in UTC.
SPARK_TIMES = ("time_us", "time_us_old", "time_us_utc", "time_us_old_utc")


def _spark(destination: Path, settings: dict[str, str], chosen: list[str]) -> None:
    """Write a Parquet file, and a file of each other format if it has all columns."""
    from pyspark.sql import SparkSession

    kinds = {name: SPARK.get(name, "timestamp") for name in chosen}
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    session = builder.getOrCreate()
    calendars = {
        f"spark.sql.parquet.{kind_of_time}RebaseModeInWrite": "CORRECTED" for kind_of_time in ("int96", "datetime")
    }
    for name, value in {**calendars, **settings}.items():
        session.conf.set(name, value)
    # PySpark converts Python times by the zone of this machine. Texts are not converted.
    texts = [
        {key: str(value) if "time" in key and value else value for key, value in row.items()} for row in rows(*kinds)
    ]
    text_types = {name: "string" if kind == "timestamp" else kind for name, kind in kinds.items()}
    frame = (
        session.createDataFrame(texts, ", ".join(f"{name} {kind}" for name, kind in text_types.items()))
        .selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items()))
        .coalesce(1)
    )

    def write(file_format: str, *names: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "out"
            frame.select(*(names or kinds)).write.format(file_format).option("header", "true").save(str(written))
            (part,) = written.glob(f"part-*.{file_format}")
            shutil.copy(part, destination / f"frame.{file_format}")

    write("parquet")
    if len(chosen) > len(SPARK):
        write("orc", *(name for name in kinds if not name.startswith(("time", "day_old"))))
        write("json", "id", "text", "whole", "real", "flag", "numbers", "record")
        write("csv", "id", "whole", "flag", "word")
    session.stop()


WRITERS = {
    writer.__name__: writer
    for writer in (
        *(pandas, polars, duckdb, arrow, fastavro, pyorc, spark35, spark4),
        *(firehose, firehose_text, athena, athena_text),
    )
}


def main(names: list[str]) -> None:
    """Make the folders of some writers."""
    for name in names or [name for name in WRITERS if name != "spark35"]:
        folder = DATA / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        WRITERS[name](folder)
    files = json.loads(Path(__file__).with_name("expected.json").read_text("utf-8"))["files"]
    for path in sorted(DATA.rglob("*")):
        name = path.relative_to(DATA).as_posix()
        if path.is_file() and name not in files:
            print(f"{name} is not in expected.json")


if __name__ == "__main__":
    main(sys.argv[1:])
