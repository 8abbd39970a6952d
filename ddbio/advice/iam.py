"""Print policies of IAM."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ddbio.advice.iam_policy import Given, assumed, policy_of
from ddbio.errors import OptionError
from ddbio.options import option_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.options import IamOptions


# Arguments and flags that only the command line has.
_OF_COMMANDS = frozenset({
    "as_json", "base", "conf", "create_table", "csv", "days", "diff", "dry_run", "exit_code", "files", "form",
    "from_file", "history", "increments", "like", "master", "out", "paths", "policy", "rollback", "to", "to_version",
    "strict", "waits", "write_to",
})  # fmt: skip


def iam_policy(verb: str, arguments: Mapping[str, Any], options: IamOptions) -> dict[str, Any]:
    """Return the IAM policy that allows what a verb does with these arguments, and nothing else. Nothing is called.

    Parameters
    ----------
    verb
        The words of its command: ``scan``, ``export start``, ``plan copy``.
    arguments
        The verb's arguments and options by name, such as ``{"table": "orders", "dest": "s3://bucket/prefix"}``.

    Returns
    -------
    dict
        The policy as IAM takes it, as JSON.

    Raises
    ------
    OptionError
        If there is no such verb or option.
    """
    known = option_names() | _OF_COMMANDS
    if unknown := sorted(set(arguments) - known):
        raise OptionError(f"unknown option {unknown[0]!r} of {verb}")
    if options.principal == "caller":
        return assumed(arguments)
    return policy_of(given_of(verb, arguments, options))


def given_of(verb: str, arguments: Mapping[str, Any], options: IamOptions) -> Given:
    """Return what the policy of a verb is made for; region and account are those of its options and the environment."""
    role = str(arguments.get("target_role_arn" if options.principal == "target" else "role_arn") or "")
    found = re.fullmatch(r"arn:([^:]+):iam::(\d{12}):.*", role)
    region = arguments.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "*"
    return Given(
        verb=verb,
        options=arguments,
        region=str(region),
        account=options.account or (found[2] if found else "*"),
        partition=found[1] if found else _partition(str(region)),
        vpc_endpoints=options.vpc_endpoint or (),
        bucket_key=options.bucket_kms_key,
        table_key=options.table_kms_key,
        partition_key=options.partition_key,
        target=options.principal == "target",
    )


def _partition(region: str) -> str:
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
