"""Write the page of IAM policies from the table of calls: ``python -m tests.iam.page``."""

# ruff: noqa: E501, ISC004 - command lines and sentences
from __future__ import annotations

import json
import shlex
from pathlib import Path

from ddbio.advice.iam_calls import TABLE
from ddbio.advice.iam_policy import assumed, given_of, policy_of
from ddbio.advice.options import IamOptions
from ddbio.cli.iam import parsed_command

PAGE = Path(__file__).parents[2] / "docs/how-to/iam-policies.md"

_ACCOUNT, _REGION = "111111111111", "eu-west-1"

_HEAD = """# IAM policies

`ddbio iam` prints the policy for a command, as it is to run: what it needs with exactly these arguments and options, and nothing else.

```
$ ddbio iam --account 111111111111 scan orders s3://my-bucket/orders --region eu-west-1
```

It calls nothing. [Its options](../iam.md) say what the command does not: the account, KMS keys of buckets and tables, VPC endpoints. This page is
made from the same table; tests compare that with the calls of each command and option, run each behind its policy, and take each permission away
once. `AccessDeniedError` names a permission that is missing.

Where a bucket or a table is encrypted by a KMS key of yours, and no option names it, give `--bucket-kms-key` or `--table-kms-key`.
"""

_EXAMPLES = [
    (
        "Scan",
        '`ddbio scan`, `read`, `schema`, `digest`, `ddbio.read_table`, `spark.read.format("dynamodb")`. A job tries on small objects whether it '
        "may write, read, delete and discard, before it reads the table. By `--keys` items are looked up, and by a condition on the key they are asked for:",
        [
            "scan orders s3://my-bucket/orders",
            "read orders --where \"pk = 'k1'\"",
            "scan orders s3://my-bucket/orders --keys keys.jsonl",
        ],
    ),
    ("Load", '`ddbio load`, `ddbio.write_table`, `df.write.format("dynamodb")`, streams:', [
        "load s3://my-bucket/rows/ orders --reject-to s3://my-bucket/rejects",
        "load s3://my-bucket/rows/ orders --mode create --create-table --key pk:S --state s3://my-bucket/ddbio-state --job-id nightly",
    ]),
    ("Copy", "A target in another account has a policy of its own: `--principal target`.", [
        "copy orders orders-copy --create-target --verify",
        "--principal target copy orders orders-copy --create-target --target-role-arn arn:aws:iam::222222222222:role/writer --target-region us-east-1",
    ]),
    ("Doctor", "What `ddbio doctor` may not look at is a finding. `sts:GetCallerIdentity` needs no permission.", [
        "doctor --table orders s3://my-bucket/orders",
    ]),
    ("Export", "DynamoDB writes the objects in the name of the caller, who needs their permissions as well:", [
        "export start orders s3://my-bucket/exports --wait", "export read s3://my-bucket/exports/AWSDynamoDB/ID s3://my-bucket/orders",
    ]),
    ("Import", "", ["import files s3://my-bucket/rows/ s3://my-bucket/import --key pk:S", "import start s3://my-bucket/import orders"]),
    ("Capture", "", ["capture orders s3://my-bucket/log", "capture orders s3://my-bucket/log --source kinesis --stream changes --fan-out ddbio"]),
    ("Lake tables", "`ddbio apply`, `maintain`, `bootstrap`, `reconcile`, `verify`:", [
        "apply s3://my-bucket/log s3://my-bucket/lake", "maintain s3://my-bucket/lake --vacuum-older-than 7d",
    ]),
    ("Catalog", "`--catalog` of a scan, an export read, a fold, `apply`, `compact` and `publish`, and `ddbio catalog sync`. `glue:CreateDatabase` is "
     "needed once. Where Lake Formation governs the catalog, the role needs its grants on database and location as well.",
     ["catalog sync s3://my-bucket/orders glue://shop.orders"]),
    ("Options of objects", "Tags, an ACL, Object Lock and a KMS key take permissions of their own wherever objects are written:", [
        "scan orders s3://my-bucket/orders --s3-tags team=data --s3-acl bucket-owner-full-control --s3-object-lock-mode GOVERNANCE "
        "--s3-object-lock-until 2030-01-01T00:00:00Z --s3-object-lock-legal-hold "
        f"--s3-sse-kms-key-id arn:aws:kms:{_REGION}:{_ACCOUNT}:key/KEY-ID",
    ]),
    ("Roles", "`--role-arn` assumes a role before the first call: the policy above is the role's, its trust policy must name the caller "
     "([an example](migrate-a-table.md#1-who-may-do-what)), and the caller needs:", [
        f"--principal caller scan orders s3://my-bucket/orders --role-arn arn:aws:iam::{_ACCOUNT}:role/reader",
    ]),
]  # fmt: skip

_RESOURCES = {
    "all": "all", "allstreams": "streams", "alltables": "tables", "backedup": "the backed up table", "backups": "backups of `{}`",
    "bucket": "bucket of `{}`", "consumer": "consumer `{}`", "exportkey": "KMS key", "exports": "exports of `{}`", "glue": "catalog, database, table of `{}`",
    "imported": "the new table", "importlogs": "log groups of imports", "items": "`{}`, or its index", "keys": "objects of `{}`", "kinesis": "Kinesis stream",
    "newkey": "KMS key of the new table", "readkey": "KMS key of the bucket", "reportkey": "KMS key", "stream": "streams of `{}`", "table": "`{}`", "tablekey": "KMS key of the table",
    "uploads": "bucket of `{}`", "writekey": "KMS key of objects", "arn": "`{}`",
}  # fmt: skip
_DERIVED = {
    "queries": "a condition on the key", "scans": "neither `--keys` nor such a condition", "writes": "", "registers": "`--fan-out` by its name",
    "from_backup": "a backup", "compares": "`--verify` or `--expect-digest`", "deletes": "`--vacuum-older-than` or `--expire-snapshots-older-than`",
}  # fmt: skip
_WRITES = {
    "batch": "`--mode upsert` or `delete`", "put": "`--mode create`, or `--newer-by`", "update": "`--mode update`",
    "delete": "`--mode delete` with `--newer-by`",
}  # fmt: skip
_NAMES = {"waits": "--wait", "source!": "--source"}
_ARGUMENTS = {"table", "source", "export_to"}


def shown(line):
    """Return the policy that a command line prints, a statement a few lines long."""
    words = shlex.split(line)
    own = {}
    if words[0] == "--principal":
        own, words = {"principal": words[1]}, words[2:]
    verb, arguments = parsed_command(tuple(words))
    if own.get("principal") == "caller":
        policy = assumed(arguments)
    else:
        options = IamOptions(account="222222222222" if own else _ACCOUNT, **own)
        policy = policy_of(given_of(verb, {"region": _REGION, **arguments}, options))
    statements = ",\n".join(_statement(each) for each in policy["Statement"])
    return f'```json\n{{\n  "Version": "{policy["Version"]}",\n  "Statement": [\n{statements}\n  ]\n}}\n```\n'


def _statement(statement):
    lines = [f'      "{name}": {json.dumps(value)}' for name, value in statement.items()]
    return "    {\n" + ",\n".join(lines) + "\n    }"


def condition(when):
    """Return in words when a row is needed."""
    parts = []
    for term in when.split():
        name, mark, wanted = term.partition("=")
        plain = name.strip("!")
        flag = _NAMES.get(plain) or ("--" + plain.replace("_", "-"))
        if plain == "writes":
            parts.append(_WRITES[wanted])
        elif plain in _DERIVED:
            parts.append(("no " if name.startswith("!") else "") + _DERIVED[plain])
        elif mark:
            text = " or ".join(f"`{each}`" for each in wanted.split("|"))
            parts.append(f"{flag and f'`{flag}`'} {'other than ' if name.endswith('!') else ''}{text}")
        else:
            parts.append(f"{'no ' if name.startswith('!') else ''}`{flag}`")
    return ", ".join(dict.fromkeys(parts))


def page_text():
    """Return the page."""
    parts = [_HEAD]
    for title, text, lines in _EXAMPLES:
        parts.append(f"## {title}\n")
        if text:
            parts.append(f"{text}\n")
        for line in lines:
            parts += [f"`ddbio iam {line}`:\n", shown(line)]
    parts.append(
        "## Every command\n\nWhat each row needs, and with which options; always if none is named. A row of a place that is not on S3 is left out.\n"
    )
    for verb in sorted(TABLE):
        rows = list(dict.fromkeys(_row(each) for each in TABLE[verb]))
        if rows:
            parts.append(
                "\n".join([f"### `ddbio {verb}`\n", "| permissions | of | with |", "|---|---|---|", *rows]) + "\n"
            )
    none = ", ".join(f"`{verb}`" for verb in sorted(TABLE) if not TABLE[verb])
    parts.append(f"{none} call no service of AWS. A `plan` needs what its verb needs with `--dry-run`.\n")
    return "\n".join(parts)


def _row(row):
    kind, _, name = row.on.partition(":")
    of = _RESOURCES[kind].format(name)
    return f"| {', '.join(f'`{each}`' for each in row.actions.split())} | {of} | {condition(row.when)} |"


if __name__ == "__main__":
    PAGE.write_text(page_text(), "utf-8")
