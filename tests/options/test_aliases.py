"""Options by the names of other connectors."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ddbio.errors import OptionError
from ddbio.load.options import WriteOptions
from ddbio.options.aliases import ALIASES, known_names
from ddbio.scan.options import ScanOptions

GLUE = {
    "dynamodb.input.tableName": "orders",
    "dynamodb.throughput.read.percent": "0.4",
    "DYNAMODB.SPLITS": "100",
    "dynamodb.sts.rolearn": "arn:aws:iam::123456789012:role/reader",
    "rcuPerSecond": None,
}


def test_names_of_glue_and_emr():
    """They become ddbio's names, in any case. ddbio's own names are accepted."""
    assert known_names(GLUE, "read") == {
        "table": "orders",
        "read_ratio": "0.4",
        "tasks": "100",
        "role_arn": "arn:aws:iam::123456789012:role/reader",
    }
    written = {"dynamodb.output.tableName": "copy", "dynamodb.throughput.write": "50", "dynamodb.deletion.mode": "true"}
    assert known_names(written, "write") == {"table": "copy", "wcu_per_second": "50", "mode": "delete"}
    assert known_names({"tablename": "t", "wcuPerSecond": 3}, "write") == {"table": "t", "wcuPerSecond": 3}


def test_names_of_spark_dynamodb():
    """The same name is a ratio of the read capacity in a read, and of the write capacity in a write."""
    assert known_names({"tableName": "t", "targetCapacity": "0.7", "stronglyConsistentReads": "true"}, "read") == {
        "table": "t",
        "read_ratio": "0.7",
        "consistent": "true",
    }
    assert known_names({"targetcapacity": "0.7", "update": "true", "delete": "false"}, "write") == {
        "write_ratio": "0.7",
        "mode": "update",
    }


def test_every_alias_is_an_option():
    """Every alias is an alias of an existing option, and has one meaning."""
    options = {"tasks", *(field.name for field in fields(ScanOptions)), *(field.name for field in fields(WriteOptions))}
    for names in ALIASES.values():
        assert {*names.values()} <= options
        assert len({name.lower() for name in names}) == len(names)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"dynamodb.imput.tablename": "t"}, "read", "did you mean 'dynamodb.input.tableName'"),
        ({"dynamodb.input.tableName": "t"}, "write", "did you mean 'dynamodb.output.tableName'"),
        ({"quite.another": "t"}, "read", "ddbio knows no connector with this option"),
        ({"dynamodb.awsSecretAccessKey": "secret"}, "read", "leave keys out"),
        ({"dynamodb.output.retry": "3"}, "write", "deadlineSeconds"),
        ({"tableName": "a", "dynamodb.table.name": "b"}, "read", "set twice"),
        ({"update": "yes"}, "write", "give true or false"),
        ({"update": "true", "delete": "true"}, "write", "set twice"),
    ],
    ids=str,
)
def test_names_that_are_refused(values, kind, message):
    """Unknown names are refused with the nearest name, and useless ones with an alternative."""
    with pytest.raises(OptionError, match=message) as caught:
        known_names(values, kind)
    assert "secret" not in str(caught.value)
