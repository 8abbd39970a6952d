"""The statements for DuckDB, executed over the files of a scan."""

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def folder(fake, tmp_path_factory):
    """Return a folder with a quote in its name, partitioned by an odd attribute and the year of a time."""
    items = (
        {
            "pk": {"S": f"o{n}"}, "Tenant": {"S": "it's/1" if n % 2 else "b"}, "m": {"M": {"a b": {"N": "1"}}},
            "at": {"S": f"202{n % 3}-05-01T00:00:00Z"},
        }
        for n in range(60)
    )  # fmt: skip
    fake.load("odd", [json.dumps(item).encode() for item in items], "pk:S")
    dest = tmp_path_factory.mktemp("catalog") / "o'rders"
    options = {"partition_by": ["Tenant", "year(at)"], "timestamps": {"at": "iso"}, "engine": "local"}
    ddbio.scan_to_files("odd", dest, endpoint_url=fake.endpoint_url, **options)
    return dest


def test_duckdb_executes_its_view(folder):
    """The view has every row, its partition columns and their types."""
    done = CliRunner().invoke(cli, ["catalog", "ddl", str(folder), "--for", "duckdb", "--name", "shop.orders"])
    with duckdb.connect() as connection:
        connection.execute(done.stdout)
        query = 'SELECT "Tenant", year, count(*) FROM shop.orders GROUP BY ALL ORDER BY ALL'
        counts = connection.execute(query).fetchall()
        assert counts == [("b", y, 10) for y in (2020, 2021, 2022)] + [("it's/1", y, 10) for y in (2020, 2021, 2022)]
        kinds = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE shop.orders)").fetchall())
    assert (kinds["year"], kinds["Tenant"], kinds["at"]) == ("INTEGER", "VARCHAR", "TIMESTAMP WITH TIME ZONE")


def test_the_usual_name_is_that_of_the_folder(folder, tmp_path):
    """A table without a name gets its folder's, with letters that need no quotes; an empty folder is not a table."""
    assert "`default`.`o_rders`" in ddbio.catalog_ddl(folder, "spark")
    with duckdb.connect() as connection:
        connection.execute(ddbio.catalog_ddl(folder, "duckdb"))
        assert connection.execute("SELECT count(*) FROM o_rders").fetchone() == (60,)
    with pytest.raises(ddbio.SchemaError, match=r"m\.a b: a catalog cannot name a member"):
        ddbio.catalog_ddl(folder, "hive")
    with pytest.raises(ddbio.NotFoundError, match="holds no files of rows"):
        ddbio.catalog_ddl(tmp_path, "hive")
