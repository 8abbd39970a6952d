from __future__ import annotations

import pytest

from ddbio.testing.calls.control import delete_table
from ddbio.testing.calls.tags import (
    delete_policy,
    get_policy,
    list_tags,
    put_policy,
    tag_resource,
    untag_resource,
)
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request
from ddbio.testing.validation import validated


def tags(held, table="tab"):
    """Return the tags of a table."""
    arn = held.database.tables[table].arn
    return {tag["Key"]: tag["Value"] for tag in held.call(list_tags, ResourceArn=arn)["Tags"]}


def test_tags_come_and_go_with_the_table(hold):
    """A table has the tags of its creation and later additions and replacements, without the removed ones."""
    held = hold()
    held.create(Tags=[{"Key": "team", "Value": "a"}])
    arn = held.database.tables["tab"].arn
    held.call(tag_resource, ResourceArn=arn, Tags=[{"Key": "env", "Value": "test"}, {"Key": "team", "Value": "b"}])
    assert tags(held) == {"team": "b", "env": "test"}
    held.call(untag_resource, ResourceArn=arn, TagKeys=["team", "absent"])
    assert tags(held) == {"env": "test"}
    held.call(delete_table, TableName="tab")
    held.create()
    assert tags(held) == {}


@pytest.mark.parametrize(
    ("operation", "arn", "kind"),
    [
        (tag_resource, "tab", "ValidationException"),
        (untag_resource, "arn:aws:dynamodb:us-east-1:000000000000:table/absent", "ResourceNotFoundException"),
        (list_tags, "arn:aws:dynamodb:us-east-1:000000000000:table/absent", "AccessDeniedException"),
    ],
)
def test_tags_belong_to_tables(hold, operation, arn, kind):
    """Only the ARN of an existing table has tags."""
    held = hold()
    held.create()
    with pytest.raises(Refusal) as caught:
        held.call(operation, ResourceArn=arn, Tags=[], TagKeys=[])
    assert caught.value.body["__type"].endswith("#" + kind)


def test_a_table_has_at_most_50_tags(hold):
    """The 51st tag is refused, and the others stay unchanged."""
    held = hold()
    held.create(Tags=[{"Key": str(number), "Value": ""} for number in range(50)])
    arn = held.database.tables["tab"].arn
    with pytest.raises(Refusal, match="at most 50"):
        held.call(tag_resource, ResourceArn=arn, Tags=[{"Key": "more", "Value": ""}])
    assert len(tags(held)) == 50


@pytest.mark.parametrize("tags", [[{"Key": "a"}], ["a"], [{"Key": [], "Value": "b"}]])
def test_tags_have_a_key_and_a_value(hold, tags):
    """The key and the value of a tag are text."""
    held = hold()
    held.create()
    with pytest.raises(Refusal):
        held.call(tag_resource, ResourceArn=held.database.tables["tab"].arn, Tags=tags)


def test_the_refusal_of_a_tag_without_value_names_it():
    """The model of the service requires both members."""
    with pytest.raises(Refusal, match=r"tags\.1\.member\.value"):
        validated("TagResource", Request({"ResourceArn": "a", "Tags": [{"Key": "a"}]}))


def test_keys_of_tags_are_text(hold):
    """A key of another type is a client error."""
    held = hold()
    held.create()
    with pytest.raises(Refusal):
        held.call(untag_resource, ResourceArn=held.database.tables["tab"].arn, TagKeys=[[]])


def test_a_table_has_one_resource_policy(hold):
    """The policy is that of the creation or the last put, until it is deleted. It is a JSON object."""
    held = hold()
    held.create(ResourcePolicy='{"Version": "2012-10-17"}')
    arn = held.database.tables["tab"].arn
    assert held.call(get_policy, ResourceArn=arn)["Policy"] == '{"Version": "2012-10-17"}'
    revision = held.call(put_policy, ResourceArn=arn, Policy="{}")["RevisionId"]
    assert held.call(get_policy, ResourceArn=arn) == {"Policy": "{}", "RevisionId": revision}
    for text in ("[]", "no JSON"):
        with pytest.raises(Refusal, match="not a JSON object"):
            held.call(put_policy, ResourceArn=arn, Policy=text)
    held.call(delete_policy, ResourceArn=arn)
    with pytest.raises(Refusal) as caught:
        held.call(get_policy, ResourceArn=arn)
    assert caught.value.body["__type"].endswith("#PolicyNotFoundException")
