"""Policies are sufficient for every verb, and minimal: a proxy enforces them, and each permission is removed once."""

from __future__ import annotations

import copy
import json

import pytest

from ddbio.advice.iam_calls import TABLE
from ddbio.cli.commands import COMMANDS
from ddbio.errors import AccessDeniedError, DdbioError
from ddbio.testing.policy import PolicyProxy
from tests.iam.cases import CASES
from tests.iam.world import ACCOUNT, KEY, World

# The commit tier tries one of each kind of calls.
QUICK = {"scan", "load", "copy", "export start", "capture", "apply", "compact", "publish", "changes write", "plan scan"}
FIRST = list({case.verb: case for case in reversed(CASES)}.values())[::-1]

SOMETIMES = {
    "glue:CreateDatabase": "the database is new",
    "glue:CreateTable": "the table is new",
    "glue:GetDatabase": "the table is new",
    "glue:UpdateTable": "the columns have changed",
    "glue:GetPartitions": "there are partitions",
    "glue:BatchCreatePartition": "there are new partitions",
    "glue:BatchUpdatePartition": "partitions lie elsewhere",
    "glue:BatchDeletePartition": "partitions are gone",
}
"""Permissions that depend on existing resources, and not only on options."""

UNTRIED = {
    ("bootstrap", "dynamodb:BatchGetItem"): "the log has a gap",
    ("capture heal", "*"): "the log has a gap",
    ("doctor", "*"): "what it may not look at is a finding",
    ("reconcile", "*"): "the log lacks changes",
    ("bulk report", "*"): "the reports are of the real service",
}
"""Permissions that need a state that does not exist here, or whose absence is no error."""


AROUND = {"bucket_key": KEY, "table_key": KEY, "vpc_endpoint": "vpce-1"}
"""Resources of a job whose policy is generated."""


def flag_of(name):
    """Return the flag that describes a resource of the job to the policy."""
    return {"bucket_key": "--bucket-kms-key", "table_key": "--table-kms-key"}.get(name, "--vpc-endpoint")


@pytest.fixture(scope="module")
def world(tmp_path_factory, module_environment):
    """Serve everything once."""
    with World(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(scope="module")
def module_environment():
    """Set the region of all requests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            patch.setenv(name, "us-east-1")
        yield


def named(case):
    """Return the name of a case."""
    return f"{case.line} {case.options}".strip()


def policy_for(world, case, line):
    """Return the policy that the command prints."""
    return json.loads(world.run(f"iam --account {ACCOUNT} {case.options} {line}", world.open.endpoint_url))


def run(world, case, line, policy):
    """Run a case with a policy. Return the permissions that it used."""
    own = {name: value for name, value in AROUND.items() if flag_of(name) in case.options}
    with PolicyProxy(world.upstreams, policy, **own) as proxy:
        try:
            world.run(line, proxy.endpoint_url)
        except DdbioError as error:
            if case.fails is None or isinstance(error, AccessDeniedError) or case.fails not in str(error):
                raise
        return {request.action for request in proxy.asked}


def actions_of(policy):
    """Return all actions of a policy."""
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def test_every_command_is_in_the_table():
    """Each command has its calls in the table, and a command line here; a plan has that of its verb."""
    commands = COMMANDS.keys() - {"iam"}
    without_calls = {verb for verb, rows in TABLE.items() if not rows}
    assert {command for command in commands if not command.startswith("plan ")} == set(TABLE)
    assert commands - {case.verb for case in CASES} - without_calls == {"prices refresh"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.verb in QUICK else pytest.mark.nightly) for case in FIRST], ids=named
)
def test_a_policy_is_enough(world, case):
    """With its printed policy each verb works, and uses all permissions of the policy."""
    line = world.prepared(case)
    policy = policy_for(world, case, line)
    assert policy["Version"] == "2012-10-17"
    names = [statement["Sid"] for statement in policy["Statement"]]
    assert len(set(names)) == len(names)
    assert all(name.isalnum() for name in names)
    left = actions_of(policy) - run(world, case, line, policy)
    assert {action for action in left if action not in SOMETIMES and not is_untried(case.verb, action)} == set()


def is_untried(verb, action):
    """Return whether a permission of a verb needs a state that does not exist here."""
    return (verb, action) in UNTRIED or (verb, "*") in UNTRIED


@pytest.mark.nightly
@pytest.mark.parametrize("verb", sorted({case.verb for case in CASES}))
def test_policies_are_compared_with_recorded_calls(world, verb):
    """For every option that changes the calls of a verb: each permission of the policy is used in some state."""
    allowed, asked = set(), set()
    for case in CASES:
        if case.verb == verb:
            line = world.prepared(case)
            policy = policy_for(world, case, line)
            allowed |= actions_of(policy)
            asked |= run(world, case, line, policy)
    left = {action for action in allowed - asked if not is_untried(verb, action)}
    assert left - set(SOMETIMES) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=named)
def test_no_permission_can_be_left_out(world, case):
    """Without any one of its permissions the verb fails, and the error names the permission."""
    line = world.prepared(case)
    policy = policy_for(world, case, line)
    asked = run(world, case, line, policy)
    for number, statement in enumerate(policy["Statement"]):
        for action in sorted(set(statement["Action"]) & asked):
            if (case.verb, "*") in UNTRIED:
                continue
            smaller = copy.deepcopy(policy_for(world, case, again := world.prepared(case)))
            smaller["Statement"][number]["Action"].remove(action)
            with pytest.raises(AccessDeniedError) as caught:
                run(world, case, again, smaller)
            assert action in (caught.value.action, *str(caught.value).replace(";", " ").replace(")", " ").split())
