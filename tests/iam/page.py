"""Page of IAM policies, generated from the table of calls: ``python -m tests.iam.page``."""

# ruff: noqa: E501, ISC004 - command lines and sentences
from __future__ import annotations

import json
import shlex
from dataclasses import MISSING, fields
from pathlib import Path

import ddbio.options
from ddbio.advice.iam_calls import TABLE
from ddbio.advice.iam_policy import policy_of, policy_request
from ddbio.advice.options import IamOptions
from ddbio.cli.commands import COMMANDS
from ddbio.cli.iam import parsed_command
from ddbio.verbs import VERBS

PAGE = Path(__file__).parents[2] / "docs/how-to/iam-policies.md"

_ACCOUNT, _OTHER_ACCOUNT, _REGION = "111111111111", "222222222222", "eu-west-1"

_HEAD = f"""# IAM policies

`ddbio iam` prints the policy for a command with its arguments and options, and nothing else. It does not call AWS:

```
$ ddbio iam --account {_ACCOUNT} scan orders s3://my-bucket/orders --region {_REGION}
```

[Its options](../iam.md) set the account, KMS keys of buckets and tables, and VPC endpoints. If a customer managed KMS key encrypts a bucket
or table and no option of the command names it, add `--bucket-kms-key` or `--table-kms-key`.

This page has the policies that most people start with, and [the actions of every command](#every-command). Both are generated from the
table that `ddbio iam` uses. Tests run each command under its policy, and again without each of its permissions. An `AccessDeniedError`
names a missing permission.
"""

_EXAMPLES = [
    (
        "Read only",
        "For `read`, `schema`, `digest` and `ddbio.read_table`. With `--keys`, or `--where` with values of the partition key, the policy has "
        "`BatchGetItem` or `Query`.",
        "read orders",
    ),
    (
        "Scan",
        'For `scan`, `ddbio.scan_to_files` and `spark.read.format("dynamodb")`. Before it reads the table, a job tests on small objects whether '
        "it may write, read, delete and abort uploads.",
        "scan orders s3://my-bucket/orders",
    ),
    (
        "Load",
        'For `load`, `ddbio.write_table`, `df.write.format("dynamodb")` and streaming writes.',
        "load s3://my-bucket/rows/ orders --reject-to s3://my-bucket/rejects",
    ),
    ("Capture", "", "capture orders s3://my-bucket/log"),
]
"""Title, text and command line of each policy that the page has."""

OTHERS = [
    (
        "Copy",
        "For a target in another account, print a policy for each identity:",
        [
            "copy orders orders-copy --create-target --verify",
            f"--principal target copy orders orders-copy --target-role-arn arn:aws:iam::{_OTHER_ACCOUNT}:role/writer",
        ],
    ),
    (
        "Doctor",
        "`ddbio doctor` reports missing permissions as findings. `sts:GetCallerIdentity` needs no permission.",
        ["doctor --table orders s3://my-bucket/orders"],
    ),
    (
        "Exports and imports",
        "DynamoDB reads and writes the objects with the caller's permissions, so the caller needs them too.",
        ["export start orders s3://my-bucket/exports --wait", "import start s3://my-bucket/import orders"],
    ),
    (
        "Catalog",
        "`--catalog` adds the Glue actions of `catalog sync`. `glue:CreateDatabase` is needed once. If Lake Formation governs the catalog, the "
        "role also needs grants on the database and the location.",
        ["catalog sync s3://my-bucket/orders glue://shop.orders"],
    ),
    (
        "Options of objects",
        "Tags, an ACL, Object Lock and a KMS key need further permissions wherever a command writes objects.",
        [
            "scan orders s3://my-bucket/orders --s3-tags team=data --s3-acl bucket-owner-full-control --s3-object-lock-legal-hold"
        ],
    ),
    (
        "Roles",
        "`--role-arn` assumes a role before the first call. The role needs the policy of the command, its trust policy must name the caller "
        "([example](migrate-a-table.md#1-who-may-do-what)), and the caller needs `sts:AssumeRole`:",
        [f"--principal caller scan orders s3://my-bucket/orders --role-arn arn:aws:iam::{_ACCOUNT}:role/reader"],
    ),
]
"""Title, text and command lines of the policies that readers print themselves."""


def shown(line):
    """Return the policy that a command line prints, with a few lines per statement."""
    verb, arguments = parsed_command(tuple(shlex.split(line)))
    policy = policy_of(policy_request(verb, {"region": _REGION, **arguments}, IamOptions(account=_ACCOUNT)))
    statements = ",\n".join(_statement_text(statement) for statement in policy["Statement"])
    return f'```json\n{{\n  "Version": "{policy["Version"]}",\n  "Statement": [\n{statements}\n  ]\n}}\n```\n'


def _statement_text(statement):
    lines = [f'      "{name}": {json.dumps(value)}' for name, value in statement.items()]
    return "    {\n" + ",\n".join(lines) + "\n    }"


_DEFAULTS = {"!dry_run", "scans", "writes=batch"}
"""Conditions that hold unless an option changes them."""


def actions_text(verb):
    """Return the actions of a command by service. Actions that only some options or resources need are in parentheses."""
    is_optional, unset = dict[str, bool](), optional_names(verb)
    for row in TABLE[verb]:
        # A KMS key is used only if one encrypts the table or bucket.
        optional = (
            bool(set(row.when.split()) - _DEFAULTS)
            or row.actions.startswith("kms:")
            or row.on.partition(":")[2] in unset
        )
        for action in row.actions.split():
            is_optional[action] = is_optional.get(action, True) and optional
    services = dict[str, tuple[list[str], list[str]]]()
    for action, optional in is_optional.items():
        service, _, name = action.partition(":")
        services.setdefault(service, ([], []))[optional].append(name)
    return "; ".join(f"**{service}** {_names_text(*names)}" for service, names in services.items())


def optional_names(verb):
    """Return the names of the options of a command that may be unset: without them a resource does not exist."""
    command = COMMANDS[verb]
    cls = getattr(ddbio.options, command.options or VERBS[command.verb].options)
    return {field.name for field in fields(cls) if field.default is not MISSING}


def _names_text(always, sometimes):
    return ", ".join(always) + f"{' ' if always else ''}({', '.join(sometimes)})" * bool(sometimes)


def page_text():
    """Return the page."""
    parts = [_HEAD]
    for title, text, line in _EXAMPLES:
        parts += [f"## {title}\n", *([f"{text}\n"] if text else []), f"`ddbio iam {line}`:\n", shown(line)]
    for title, text, lines in OTHERS:
        commands = "\n".join(f"ddbio iam {line}" for line in lines)
        parts += [f"## {title}\n", f"{text}\n", f"```sh\n{commands}\n```\n"]
    parts.append(
        "## Every command\n\n"
        "Actions in parentheses are needed only with certain options or KMS keys. A local folder needs no S3 actions. `ddbio iam COMMAND` "
        "prints the exact policy, with resources and conditions.\n"
    )
    rows = [f"| `{verb}` | {actions_text(verb)} |" for verb in sorted(TABLE) if TABLE[verb]]
    parts.append("\n".join(["| command | actions |", "|---|---|", *rows]) + "\n")
    local = ", ".join(f"`{verb}`" for verb in sorted(TABLE) if not TABLE[verb])
    parts.append(f"{local} do not call AWS. A `plan` command needs the policy of its command with `--dry-run`.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page_text(), "utf-8")
