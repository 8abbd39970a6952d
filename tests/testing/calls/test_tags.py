from __future__ import annotations

import pytest

from ddbio.testing.calls.control import delete_table
from ddbio.testing.calls.tags import list_tags, tag_resource, untag_resource
from ddbio.testing.refusal import Refusal


def tags(held, table="tab"):
    """Return the tags of a table."""
    arn = held.database.tables[table].arn
    return {tag["Key"]: tag["Value"] for tag in held.call(list_tags, ResourceArn=arn)["Tags"]}


def test_tags_come_and_go_with_the_table(hold):
    """A table has the tags of its creation, those added and replaced, without those removed."""
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
    """Only the ARN of a table that is there has tags."""
    held = hold()
    held.create()
    with pytest.raises(Refusal) as caught:
        held.call(operation, ResourceArn=arn, Tags=[], TagKeys=[])
    assert caught.value.body["__type"].endswith("#" + kind)


def test_a_table_has_at_most_50_tags(hold):
    """The fifty-first tag is refused, and the others stay as they were."""
    held = hold()
    held.create(Tags=[{"Key": str(number), "Value": ""} for number in range(50)])
    arn = held.database.tables["tab"].arn
    with pytest.raises(Refusal, match="at most 50"):
        held.call(tag_resource, ResourceArn=arn, Tags=[{"Key": "more", "Value": ""}])
    assert len(tags(held)) == 50
