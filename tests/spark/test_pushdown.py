"""``format("dynamodb-pushdown")``: the rows of ``dynamodb`` for any query, for fewer units."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ddbio.errors import OptionError
from ddbio.scan.conditions import key_query, parse_condition
from ddbio.scan.describe import describe_scan
from ddbio.spark import pushdown, pushdown_jar, reading, source
from ddbio.spark.javac import find_javac
from ddbio.spark.registration import register
from ddbio.testing.request import stored_item
from tests.scan.test_pushdown import predicate

pytestmark = pytest.mark.skipif(find_javac() is None, reason="no JDK compiles the jar of push-down")

COLLECTIONS, ITEMS_OF_ONE = 40, 50
TEXTS = ["", "a", "ab", "b", "it's", "é", "名前", "\uffff", "\U0001f600", "z\u0301", "\u0627\u0644", "1", "k-3", 'q"q']
WIDE = "12345678901234567890123456789012345678"


def item(number):
    """Return one item of the table ``mixed``. Some attributes are missing, NULL or of another type."""
    chosen = random.Random(number)
    attributes = {
        "pk": {"S": f"k-{number % COLLECTIONS}"},
        "sk": {"N": str(number // COLLECTIONS)},
        "txt": chosen.choice([{"S": chosen.choice(TEXTS)}] * 8 + [{"NULL": True}, {"N": "1"}, {"SS": ["a"]}]),
        "n": chosen.choice([{"N": str(chosen.randint(-3, 3))}] * 8 + [{"S": "odd"}, {"NULL": True}]),
        "amount": chosen.choice([{"N": f"{chosen.randint(-2, 2)}.{chosen.choice(['25', '5'])}"}] * 8 + [{"S": "1.5"}]),
        "wide": chosen.choice([{"N": WIDE}, {"N": "-" + WIDE}, {"N": "1"}]),
        "flag": chosen.choice([{"BOOL": True}, {"BOOL": False}, {"S": "true"}]),
        "raw": {"B": chosen.choice(["AAEC", "", "/w=="])},
        "placed": {"S": f"2024-05-{chosen.randint(1, 5):02}T12:00:00.{chosen.choice(['000', '500'])}Z"},
        "tags": {"SS": ["a", "b"]},
        "sets": {"L": [{"SS": ["x"]}]},
        "st": {"M": {"x": {"N": str(chosen.randint(0, 3))}, "y": {"S": chosen.choice(TEXTS)}}},
        "pad": {"S": "p" * 200},
    }
    return {name: value for name, value in attributes.items() if name in {"pk", "sk", "pad"} or chosen.random() < 0.9}


@pytest.fixture(scope="module")
def mixed(fake):
    """Return the fake with a table of item collections."""
    lines = (json.dumps(item(number)) for number in range(COLLECTIONS * ITEMS_OF_ONE))
    fake.load("mixed", lines, "pk:S,sk:N")
    fake.load("small", (json.dumps({"pk": {"S": f"k-{number}"}, "name": {"S": "n"}}) for number in range(5)), "pk:S")
    return fake


@pytest.fixture
def read(spark, mixed):
    """Return a function that reads a table, by default with push-down."""

    def load(table="mixed", name="dynamodb-pushdown", schema=None, **options):
        reader = spark.read.format(name).option("endpointUrl", mixed.endpoint_url).options(**options)
        return (reader.schema(schema) if schema else reader).load(table)

    return load


@pytest.fixture
def spent(mixed):
    """Return a function that returns the requests and read units since its last call."""
    before = SimpleNamespace(requests=Counter(mixed.requests()), units=len(mixed.consumed()))

    def since():
        requests, consumed = Counter(mixed.requests()), mixed.consumed()
        spent_units = SimpleNamespace(
            requests=requests - before.requests, units=sum(read for _, read, _ in consumed[before.units :])
        )
        before.requests, before.units = requests, len(consumed)
        return spent_units

    return since


def plan_of(frame):
    """Return the physical plan of a frame as text."""
    return frame._jdf.queryExecution().executedPlan().toString()


def rows_of(frame):
    """Return the rows of a frame in any order."""
    return Counter(repr(row) for row in frame.collect())


def test_a_stated_partition_key_reads_its_item_collection(read, spent):
    """A filter on the partition key is one Query, one on both keys reads one item, and a list is one Query per key."""
    frame = read(timestamps="placed=iso")
    spent()
    assert frame.where("pk = 'k-7'").count() == ITEMS_OF_ONE
    used = spent()
    assert (used.requests["Query"], used.requests["Scan"]) == (1, 0)
    assert frame.where("pk = 'k-7' and sk > 3 and sk <= 5").count() == 2
    assert spent().units <= 0.5
    assert frame.where("pk = 'k-7' or pk in ('k-8', 'none') and n is not null").select("pk").distinct().count() == 2
    used = spent()
    assert (used.requests["Query"], used.requests["Scan"]) == (3, 0)
    assert frame.count() == COLLECTIONS * ITEMS_OF_ONE


def test_only_the_columns_of_a_query_are_asked_for_and_decoded(read, mixed):
    """The requests project two attributes, and the tasks decode these two. A count needs one."""
    frame = read()
    assert "columns: [pk, n]" in plan_of(frame.select("n", "pk"))
    assert "columns: [pk]" in plan_of(frame.groupBy().count())
    schema = frame.schema
    pruned = StructType([schema["pk"], schema["n"]])
    message = json.dumps({"schema": schema.jsonValue(), "filters": [], "limit": None})
    values = {"table": "mixed", "endpointurl": mixed.endpoint_url, pushdown.OPTION: message}
    tasks = [group.task for group in pushdown.open_pushed_reader(values, pruned).partitions()]
    assert {request.columns for task in tasks for request in task.requests} == {("pk", "n")}
    assert {tuple(task.schema.names) for task in tasks} == {("pk", "n", "_rescue")}


def test_a_limit_reads_few_items(read, spent):
    """A limit is one page with that many items. Spark alone applies a limit after a filter."""
    frame = read()
    spent()
    assert len(frame.limit(5).collect()) == 5
    assert spent().units <= 2
    assert len(frame.where("n = 1").limit(5).collect()) == 5
    assert len(frame.limit(5).where("n = 1").collect()) <= 5


def test_misfits_are_null_without_the_rescue_column(read):
    """A value of another type is null, and no error, if its column is read without the rescue column."""
    pushed, plain = read(), read(name="dynamodb")
    assert rows_of(pushed.select("pk", "sk", "n")) == rows_of(plain.select("pk", "sk", "n"))
    assert rows_of(pushed.select("_rescue")) == rows_of(plain.select("_rescue"))
    assert rows_of(pushed.where("n is null and _rescue is not null")) == rows_of(
        plain.where("n is null and _rescue is not null")
    )


def test_filters_leak_into_no_other_query(read):
    """Parts of a query that filter the same frame differently each get their own rows."""
    frame = read()
    one, two = frame.where("pk = 'k-1'"), frame.where("pk = 'k-2'")
    assert one.union(two).groupBy("pk").count().collect() == [("k-1", ITEMS_OF_ONE), ("k-2", ITEMS_OF_ONE)]
    assert one.select("sk").join(two.select("sk"), "sk").count() == ITEMS_OF_ONE
    assert one.crossJoin(frame.where("pk = 'k-3' and sk < 2").select("txt")).count() == 2 * ITEMS_OF_ONE
    assert frame.count() == COLLECTIONS * ITEMS_OF_ONE


def test_a_small_table_is_broadcast(read, mixed):
    """Spark gets a table's size from DescribeTable, and sends a small one to all tasks."""
    described = mixed.requests()["DescribeTable"]
    large, small = read(name="dynamodb"), read("small")
    assert "BroadcastHashJoin" in plan_of(large.join(small, "pk"))
    assert "SortMergeJoin" in plan_of(large.join(read("small", name="dynamodb"), "pk"))
    assert mixed.requests()["DescribeTable"] > described


@pytest.fixture
def own_catalog(spark):
    """Skip a test if Spark's own catalog contains no tables: another catalog reads none of such a source."""
    if spark.conf.get("spark.sql.catalog.spark_catalog", "builtin") != "builtin":
        pytest.skip("tables are found by another catalog than Spark's own")


@pytest.mark.usefixtures("own_catalog")
def test_tables_of_the_catalog(spark, mixed, read, spent):
    """CREATE TABLE keeps the options and columns, views and inserts use it, and its filters are pushed down."""
    options = f"table 'mixed', endpointUrl '{mixed.endpoint_url}'"
    spark.sql(f"CREATE TABLE catalogued USING `dynamodb-pushdown` OPTIONS ({options})")
    try:
        spark.sql("CREATE TEMPORARY VIEW few AS SELECT pk, sk, n, sets FROM catalogued WHERE pk = 'k-4'")
        spent()
        assert rows_of(spark.sql("SELECT * FROM few")) == rows_of(
            read(name="dynamodb").where("pk = 'k-4'").select("pk", "sk", "n", "sets")
        )
        assert spark.sql("SELECT count(*) FROM few WHERE sk < 10").collect() == [(10,)]
        spark.sql(f"CREATE TEMPORARY VIEW used USING `dynamodb-pushdown` OPTIONS ({options})")
        spent()
        assert spark.sql("SELECT count(*) FROM used WHERE pk = 'k-4'").collect() == [(ITEMS_OF_ONE,)]
        assert spent().requests["Scan"] == 0
    finally:
        spark.sql("DROP VIEW IF EXISTS few")
        spark.sql("DROP VIEW IF EXISTS used")
        spark.sql("DROP TABLE catalogued")


@pytest.mark.nightly
@pytest.mark.usefixtures("own_catalog")
def test_rows_are_written_by_either_name(spark, mixed, read):
    """Rows are written like with ``dynamodb``, from frames and by INSERT."""
    mixed.load("written", [], "pk:S")
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "pk string, n long")
    frame.write.format("dynamodb-pushdown").mode("append").option("endpointUrl", mixed.endpoint_url).save("written")
    options = f"table 'written', endpointUrl '{mixed.endpoint_url}'"
    spark.sql(f"CREATE TABLE inserted (pk STRING, n BIGINT) USING `dynamodb-pushdown` OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO inserted VALUES ('c', 3)")
        assert sorted(spark.table("inserted").collect()) == [("a", 1), ("b", 2), ("c", 3)]
        assert spark.table("inserted").where("n > 1 and pk = 'c'").collect() == [("c", 3)]
    finally:
        spark.sql("DROP TABLE inserted")


def test_columns_of_the_user_s(read):
    """The user's columns are read and no others. A misfit of a read column fails without ``_rescue``."""
    frame = read(schema="pk string, sk long, n long, txt string")
    assert frame.select("pk", "sk").where("pk = 'k-1'").count() == ITEMS_OF_ONE
    with pytest.raises(PySparkException, match=r"SchemaError: .*to have that column, add '_rescue string'"):
        frame.select("n").collect()


def test_the_caller_s_own_options_stay(read):
    """``where``, ``columns``, ``limit`` and ``keys`` keep their meaning in addition to any push-down."""
    ones = [item(number).get("n") == {"N": "1"} for number in range(1, COLLECTIONS * ITEMS_OF_ONE, COLLECTIONS)]
    by = {"where": "pk = 'k-1' AND sk < 10"}
    assert read(**by).where("n = 1").count() == sum(ones[:10])
    assert read(**by).where("pk = 'k-2'").count() == 0
    assert read(where="n = 1").where("pk = 'k-1' and sk >= 5").count() == sum(ones[5:])
    assert read(limit="7").count() == 7
    assert read(limit="7").limit(3).count() == 3
    assert read(keys='[["k-1", 3], ["k-2", 4]]').where("pk = 'k-2'").select("sk").collect() == [(4,)]
    assert read(columns="pk,n").where("n = 2").columns == ["pk", "n", "_rescue"]


COLUMNS = {
    "pk": [f"'k-{number}'" for number in (0, 1, 2, 39, 77)],
    "sk": ["0", "3", "10", "49", "-1"],
    "txt": ["'" + text.replace("'", "\\'") + "'" for text in TEXTS],
    "n": ["-1", "0", "1", "2", "1000000000000"],
    "amount": ["1.25BD", "-0.5BD", "0BD", "1.255BD"],
    "wide": [f"{WIDE}BD", "1BD"],
    "placed": ["TIMESTAMP '2024-05-02 12:00:00.5+00:00'", "TIMESTAMP '2024-05-03 12:00:00.25+00:00'"],
    "st.x": ["0", "1", "3"],
    "st.y": ["'a'", "'é'"],
}


def random_predicate(chosen, depth=2):
    """Return the SQL of a predicate. About half of its parts set keys."""
    if depth and chosen.random() < 0.6:
        sign = chosen.choice(["AND", "AND", "OR"])
        return f"({random_predicate(chosen, depth - 1)} {sign} {random_predicate(chosen, depth - 1)})"
    name = chosen.choice([*COLUMNS, "pk", "pk", "sk"])
    constants = COLUMNS[name]
    column = name
    match chosen.randrange(8):
        case 0:
            text = f"{column} IN ({', '.join(chosen.sample(constants, min(2, len(constants))))})"
        case 1:
            text = f"{column} BETWEEN {chosen.choice(constants)} AND {chosen.choice(constants)}"
        case 2:
            text = f"{column} IS {chosen.choice(['', 'NOT '])}NULL"
        case 3 if name in {"txt", "pk", "st.y"}:
            text = f"{column} LIKE '{chosen.choice(['a%', 'k-1%', '%b%', '名%', '%'])}'"
        case 4:
            text = "flag" if chosen.random() < 0.5 else "flag = false"
        case _:
            text = f"{column} {chosen.choice(['=', '=', '<>', '<', '<=', '>', '>='])} {chosen.choice(constants)}"
    return f"NOT ({text})" if chosen.random() < 0.2 else text


def random_query(chosen):
    """Return the SQL of a query of the view ``rows``: a filter, a union, a join, an aggregate or a limit."""
    names = chosen.sample(["pk", "sk", "txt", "n", "amount", "wide", "flag"], chosen.randint(1, 4))
    some = f"SELECT {', '.join(names)} FROM rows WHERE {random_predicate(chosen)}"
    other = f"SELECT {', '.join(names)} FROM rows WHERE {random_predicate(chosen)}"
    one, two = random_predicate(chosen, 1), random_predicate(chosen, 1)
    left, right = f"(SELECT * FROM rows WHERE {one}) a", f"(SELECT * FROM rows WHERE {two}) b"
    return chosen.choice(
        [
            some,
            some,
            f"{some} UNION ALL {other}",
            f"{some} INTERSECT {other}",
            f"SELECT a.pk, b.sk, a.n FROM {left} JOIN {right} ON a.pk = b.pk AND a.sk = b.sk",
            f"SELECT pk, sk FROM rows WHERE sk < 5 AND pk IN (SELECT pk FROM rows WHERE {one})",
            f"SELECT pk, count(*) AS items, min(n) AS least FROM rows WHERE {one} GROUP BY pk",
            f"SELECT pk, sk, n FROM rows WHERE {one} ORDER BY pk, sk LIMIT {chosen.randint(1, 9)}",
            f"SELECT count(*) AS items FROM (SELECT pk FROM rows LIMIT {chosen.randint(1, 9)})",
            f"SELECT count(*) AS items FROM rows WHERE {one}",
        ]
    )


@pytest.fixture
def both(spark, mixed):
    """Return the same rows with push-down, and without it, read once."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    def frame(name):
        reader = spark.read.format(name).option("endpointUrl", mixed.endpoint_url).option("timestamps", "placed=iso")
        return reader.load("mixed")

    plain = frame("dynamodb").cache()
    yield frame("dynamodb-pushdown"), plain
    plain.unpersist()
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.fixture
def three(spark, both):
    """Return functions that run a query with push-down, without it, and in another engine on the same rows."""
    pushed, plain = both
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("rows", plain.toArrow())

    def by_spark(chosen):
        def run(query):
            chosen.createOrReplaceTempView("rows")
            return Counter(tuple(row) for row in spark.sql(query).collect())

        return run

    def by_duckdb(query):
        # Spark parses two adjacent quotes as two adjacent literals.
        return Counter(database.execute(query.replace("BD", "").replace("\\'", "''")).fetchall())

    yield by_spark(pushed), by_spark(plain), by_duckdb
    spark.catalog.dropTempView("rows")
    database.close()


def hints_of(frame):
    """Return the hints that Python gets for the only scan of a frame; None if Spark reads nothing."""
    execution = frame._jdf.queryExecution()
    leaves = execution.optimizedPlan().collectLeaves()
    leaves = map(leaves.apply, range(leaves.length()))
    scans = [leaf.scan() for leaf in leaves if leaf.nodeName().startswith("DataSourceV2ScanRelation")]
    # A JVM that was started without the jar has Python's own scan.
    assert all(scan.getClass().getSimpleName() == "PushingScan" for scan in scans), execution.toString()
    return json.loads(scans[0].pushed()) if scans else None


@pytest.mark.timeout(1800)
def test_every_row_that_a_predicate_keeps_is_asked_for(both, mixed, seeds):
    """For random predicates, as this Spark passes them, each item whose row Spark keeps satisfies the hint."""
    pushed, plain = both
    asked = reading.parse_read_options({"table": "mixed", "endpointUrl": mixed.endpoint_url})
    described, columns = describe_scan(asked), pushdown._arrow_schema(pushed.schema)
    items = {
        (f"k-{n % COLLECTIONS}", n // COLLECTIONS): stored_item(item(n))[0] for n in range(COLLECTIONS * ITEMS_OF_ONE)
    }
    queries, kept, left_out, numbers = 0, 0, 0, seeds(100, 1_000)
    for first in range(0, len(numbers), 50):
        predicates = [random_predicate(random.Random(number)) for number in numbers[first : first + 50]]
        rows = plain.selectExpr("pk", "sk", *(f"({text}) AS p{n}" for n, text in enumerate(predicates))).toArrow()
        keys = list(zip(rows["pk"].to_pylist(), rows["sk"].to_pylist(), strict=True))
        for number, text in enumerate(predicates):
            truths = dict(zip(keys, rows[f"p{number}"].to_pylist(), strict=True))
            hints = hints_of(pushed.where(text))
            if hints is None:
                assert True not in truths.values(), text
                continue
            condition = pushdown._where(asked, described, hints, columns)
            if condition is None:
                continue
            meets = predicate(condition)
            for key, truth in truths.items():
                if truth:
                    kept += 1
                    assert meets(items[key]), (text, condition, key)
            left_out += sum(not meets(items[key]) for key in keys[::20])
            queries += key_query(parse_condition(condition), ("pk", "sk")) is not None
    assert queries > len(numbers) / 50
    assert min(kept, left_out) > 10 * len(numbers)


def check_queries(three, seeds):
    """Raise unless random queries have the same rows in all three ways."""
    with_pushdown, without, elsewhere = three
    for seed in seeds:
        query = random_query(random.Random(seed))
        expected = without(query)
        assert with_pushdown(query) == expected, (seed, query)
        assert elsewhere(query) == expected, (seed, query)


@pytest.mark.timeout(1800)
def test_random_queries(three, seeds):
    """Filters, joins, unions and limits have the same rows with push-down, without it, and in DuckDB."""
    check_queries(three, seeds(5, 100))


def test_without_the_jar_the_same_rows_are_read(mixed, caplog):
    """Without the jar, Spark finds the source in Python under the same name, which warns that the jar is missing."""
    without = source.PushdownSource({"table": "small", "endpointUrl": mixed.endpoint_url})
    with caplog.at_level(logging.WARNING):
        assert without.schema().names == ["pk", "name", "_rescue"]
    assert "nothing is pushed down" in caplog.text


def test_registering_with_the_jar(spark, read):
    """``register`` leaves the name to the jar."""
    register(spark)
    assert "dynamodb-pushdown columns: [pk]" in plan_of(read().select("pk"))


def test_versions_without_push_down():
    """An untested Spark is refused with an alternative."""
    with pytest.raises(OptionError, match=r"no push-down for Spark 3\.5\.6, .*use ddbio\.spark\.scan with"):
        pushdown_jar._require_version("3.5.6")
    with pytest.raises(OptionError, match=r"no push-down for Spark 5\.0\.0, .*use format\('dynamodb'\) with"):
        pushdown_jar._require_version("5.0.0")


def test_no_jdk(tmp_path):
    """Without a JDK, and without an existing jar, the error names the package to install."""
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    code = "import ddbio.spark; ddbio.spark.jar()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "OptionError: dynamodb-pushdown needs a jar, and no JDK is here to compile it" in done.stderr


def test_elements_keep_dynamodbs_types(read):
    """Sets in lists, which Spark's types cannot distinguish from lists, stay the same with push-down."""
    assert rows_of(read().select("pk", "sk", "sets")) == rows_of(read(name="dynamodb").select("pk", "sk", "sets"))
