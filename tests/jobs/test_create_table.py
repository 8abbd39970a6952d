"""Requests for tables like others: the copied settings, and the refused ones."""

import json

import pytest

from ddbio.errors import OptionError
from ddbio.jobs.create_table import (
    NewTable,
    create_table_request,
    hidden_attributes,
    index_keys,
    new_table_request,
    policy_for,
)
from ddbio.load.options import CreateLikeOptions

MODEL = {
    "TableName": "model",
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
    "ProvisionedThroughput": {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0},
}
KEY = "arn:aws:kms:us-east-1:1:key/k"


def like(described=None, **options):
    """Return the request for a table like the model with some additional members."""
    return create_table_request(
        {**MODEL, **(described or {})}, CreateLikeOptions(source="model", target="made", **options)
    )


def test_a_plain_table_is_a_plain_request():
    """Settings that the model does not have are not in the request."""
    assert like() == {
        "TableName": "made",
        "AttributeDefinitions": MODEL["AttributeDefinitions"],
        "KeySchema": MODEL["KeySchema"],
        "BillingMode": "PAY_PER_REQUEST",
    }


def test_settings_are_copied():
    """On-demand maxima, table class and deletion protection are those of the model."""
    maxima = {"MaxReadRequestUnits": 10, "MaxWriteRequestUnits": 20}
    made = like(
        {
            "OnDemandThroughput": maxima,
            "TableClassSummary": {"TableClass": "STANDARD_INFREQUENT_ACCESS"},
            "DeletionProtectionEnabled": True,
        }
    )
    assert made["OnDemandThroughput"] == maxima
    assert made["TableClass"] == "STANDARD_INFREQUENT_ACCESS"
    assert made["DeletionProtectionEnabled"] is True


def test_warm_throughput_is_stated_for_the_table_and_its_indexes():
    """A new table can start with a higher warm throughput."""
    index = {"IndexName": "i", "KeySchema": MODEL["KeySchema"], "Projection": {"ProjectionType": "ALL"}}
    made = like({"GlobalSecondaryIndexes": [index]}, warm_write_units=40_000)
    assert made["WarmThroughput"] == {"WriteUnitsPerSecond": 40_000}
    assert made["GlobalSecondaryIndexes"][0]["WarmThroughput"] == {"WriteUnitsPerSecond": 40_000}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}),
        ({"kms_key": "aws/dynamodb", "target_region": "eu-west-1"}, {"Enabled": True, "SSEType": "KMS"}),
        ({"kms_key": "none", "target_region": "eu-west-1"}, None),
        ({"kms_key": "k2"}, {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": "k2"}),
    ],
)
def test_encryption_is_the_models_or_the_named_one(options, expected):
    """The model's key is used where it exists. Another key can be set anywhere."""
    assert like({"SSEDescription": {"KMSMasterKeyArn": KEY}}, **options).get("SSESpecification") == expected


def test_a_key_of_another_region_is_refused():
    """A KMS key is never used silently in another region or account."""
    with pytest.raises(OptionError, match="give kms_key"):
        like({"SSEDescription": {"KMSMasterKeyArn": KEY}}, target_region="eu-west-1")


def test_index_keys_can_have_several_attributes():
    """An index joins up to four attributes of its partition key and of its sort key with +."""
    plan = NewTable("orders", "id", ("by_place=country:S+year:N,month:N+city:S/KEYS_ONLY",))
    (index,) = new_table_request(plan)["GlobalSecondaryIndexes"]
    assert [(part["AttributeName"], part["KeyType"]) for part in index["KeySchema"]] == [
        ("country", "HASH"),
        ("year", "HASH"),
        ("month", "RANGE"),
        ("city", "RANGE"),
    ]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert [(key.name, key.tag, key.longest_bytes) for key in index_keys(plan.indexes)] == [
        ("country", "S", 2048),
        ("year", "N", 2048),
        ("month", "N", 1024),
        ("city", "S", 1024),
    ]


@pytest.mark.parametrize("text", ["i=a+b+c+d+e", "i=a,b+c+d+e+f", "i=a+a", "i=a,b,c", "i=a+,b", "i=a:X"])
def test_malformed_index_keys_are_refused(text):
    """An index with too many, repeated, empty or untyped attributes is refused with the syntax."""
    with pytest.raises(OptionError, match="is no index: write"):
        index_keys([text])


VECTOR_INDEX = {
    "IndexName": "by_meaning",
    "VectorAttribute": {"AttributeName": "embedding"},
    "SearchSchema": [{"AttributeName": "tenant", "SearchSchemaElementType": "HASH"}],
    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]},
    "Dimensions": 384,
    "DistanceFunction": "COSINE",
}


def test_vector_indexes_are_taken_over():
    """The request has their definitions, without the description's status, sizes and ARN."""
    described = {**VECTOR_INDEX, "IndexStatus": "ACTIVE", "IndexSizeBytes": 9, "ItemCount": 1, "IndexArn": "arn"}
    assert like({"VectorIndexes": [described]})["VectorIndexes"] == [VECTOR_INDEX]


def test_a_provisioned_table_has_no_vector_indexes():
    """The error names the option that solves it, and the option does."""
    provisioned = {
        "BillingModeSummary": {"BillingMode": "PROVISIONED"},
        "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
        "VectorIndexes": [VECTOR_INDEX],
    }
    with pytest.raises(OptionError, match=r"'model' has vector indexes.*billing on_demand"):
        like(provisioned)
    assert like(provisioned, billing="on_demand")["VectorIndexes"] == [VECTOR_INDEX]


def test_attributes_of_hidden_search_schemas():
    """An attribute that no key and no visible search schema uses belongs to a hidden index."""
    tenant = {"AttributeName": "tenant", "AttributeType": "S"}
    described = {**MODEL, "AttributeDefinitions": [*MODEL["AttributeDefinitions"], tenant]}
    assert hidden_attributes(described) == ["tenant"]
    assert hidden_attributes({**described, "VectorIndexes": [VECTOR_INDEX]}) == []
    key = [{"AttributeName": "tenant", "KeyType": "HASH"}]
    assert hidden_attributes({**described, "GlobalSecondaryIndexes": [{"KeySchema": key}]}) == []


def test_a_policy_names_the_new_table():
    """The ARN of the source and of its indexes is replaced, that of other resources is not."""
    source, target = "arn:aws:dynamodb:us-east-1:1:table/model", "arn:aws:dynamodb:eu-west-1:2:table/made"
    statement = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::1:root"}, "Action": "dynamodb:*"}
    policy = {"Statement": [{**statement, "Resource": [source, f"{source}/index/i", f"{source}2"]}]}
    moved = json.loads(policy_for(json.dumps(policy), source, target))
    assert moved == {"Statement": [{**statement, "Resource": [target, f"{target}/index/i", f"{source}2"]}]}
