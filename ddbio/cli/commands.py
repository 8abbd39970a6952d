"""Table of commands. :mod:`ddbio.cli.making` creates the commands of ``ddbio`` and their help from it.

Most rows only name a verb of :mod:`ddbio.verbs`. Its options become flags, and its result is printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click


class Command(NamedTuple):
    """Command.

    Attributes
    ----------
    name
        Words of the command after ``ddbio``.
    verb
        Verb that it runs. Empty if ``options`` and ``run``, or ``call``, are set instead.
    help
        Help text: a line for lists of commands, then optional text after an empty line.
    arguments
        Arguments, separated by spaces. Default: those of the verb. Syntax: ``name``, ``=field`` for an option of
        another name, ``:METAVAR``, ``...`` if repeatable, ``?`` if optional.
    plan
        Verb whose result ``--dry-run`` prints.
    dry_run
        Help of ``--dry-run``, if the command has this flag.
    options
        Options class in :mod:`ddbio.options`. Default: the class of the verb.
    without
        Options without a flag, in addition to the arguments.
    parameters
        Arguments and flags that are not options.
    more
        Keyword parameters of ``run`` that are flags. Default: those of the verb.
    run
        Function that runs, as ``module:function`` below ``ddbio``. Default: the function of the verb. It receives the
        checked options and the other arguments.
    call
        Function in :mod:`ddbio.cli` that implements the complete command: it receives all arguments, and prints.
    waits_for
        Kind of job whose status is shown during the wait.
    key
        Key of the list in JSON, if the result is a list.
    passed
        Attribute of the result that is false if the exit code is 1.
    output
        Which of the flags ``--json`` and ``--quiet`` it has.
    settings
        Settings of click's context.
    """

    name: str
    verb: str
    help: str
    arguments: str | None = None
    plan: str = ""
    dry_run: str = ""
    options: str = ""
    without: str = ""
    parameters: tuple[click.Parameter, ...] = ()
    more: str | None = None
    run: str = ""
    call: str = ""
    waits_for: str = ""
    key: str = ""
    passed: str = ""
    output: str = "json quiet"
    settings: dict[str, Any] = {}  # noqa: RUF012 - a field of a named tuple, never modified


GROUPS = {
    "backup": "Create backups, and restore tables from backups or points in time.",
    "bulk": "Put files from S3 into an existing table with the service's bulk operation (experimental).",
    "catalog": "Register folders of files as tables of a catalog.",
    "changes": "Read and write changes in the format of Firehose deliveries.",
    "export": "Start, read and combine native exports to S3.",
    "import": "Write files for the service's import from S3, and start imports of new tables.",
    "plan": "Print the plan and cost of a command without running it.",
    "prices": "Show and refresh the prices of plans.",
    "simulate": "Simulate the duration of a job of any size, without AWS.",
    "table": "Create and describe tables.",
    "view": "Print the SQL of views of a log of changes, for Spark, DuckDB and Athena.",
}
"""Groups of commands and their help."""

_NOTHING_WRITTEN = "Print the plan and write nothing."
_NOTHING_STARTED = "Check everything, print the plan, and start nothing."
_NOTHING_DONE = "Check everything, print the plan, and change nothing."


def _switch(names: str, help: str) -> click.Option:  # noqa: A002 - click's name
    return click.Option(names.split(), is_flag=True, help=help)


def _flag(names: str, help: str, **settings: Any) -> click.Option:  # noqa: A002 - click's name
    return click.Option(names.split(), help=help, **settings)


_ROWS = (
    # Read tables.
    Command("scan", "scan_to_files", plan="plan_scan", dry_run=_NOTHING_WRITTEN,
        help="Scan TABLE into files at DEST, s3://bucket/prefix or a local folder."),
    Command("plan scan", "plan_scan", help="Describe and sample TABLE, and print the plan of a scan."),
    Command("read", "scan_batches", arguments="source=table", call="irregular:read", output="quiet",
        help="Print the items of SOURCE, a table or an export, on stdout, one per line.\n\n"
        "Numbers are exact. Missing and NULL values are omitted. Sets are lists, and binary is base64. Values that do "
        "not fit their column are in _rescue, as DynamoDB JSON.",
        parameters=(
            _flag("--format row_format", type=click.Choice(["json", "csv"]), default="json", show_default=True,
                help="JSON Lines, or CSV with maps and lists as JSON."),
        )),
    Command("count", "count_table", plan="plan_count", dry_run="Print the plan, and count nothing.",
        help="Count the items of TABLE, in total and by segment.\n\n"
        "The service reads and charges the items like a scan, but transfers only their number."),
    Command("plan count", "plan_count", help="Describe TABLE, and print the plan and cost of counting its items."),
    Command("schema", "infer_schema", arguments="source=table",
        without="schema limit segments lanes on_misfit drop nulls", call="irregular:schema",
        help="Print the columns inferred from SOURCE: a table, an export, or files of DynamoDB JSON.\n\n"
        "The output of --json is an input of --schema.",
        parameters=(
            _flag("--out", metavar="FILE", help="Also write the schema to this file, for --schema."),
            _flag("--diff", metavar="FILE", help="Print the changes since this schema file was written."),
            _switch("--exit-code", help="With --diff: exit with 1 if the schema changed."),
        )),
    Command("digest", "digest", arguments="source=table", without="on_misfit drop sample_items",
        run="cli.irregular:digest",
        help="Print the digest of SOURCE: a table, an export, or files of Parquet or JSON Lines.\n\n"
        "It depends only on the items, not on their order, files or column types."),
    # Write tables.
    Command("load", "load_files", plan="plan_load", dry_run=_NOTHING_WRITTEN, call="irregular:load",
        help="Load the rows of SOURCE, a local or S3 file, folder or glob, into TABLE.\n\n"
        "A SOURCE of - is stdin, in the format of --format.",
        parameters=(
            _flag("--format row_format", type=click.Choice(["csv", "json", "jsonl", "parquet", "orc", "arrow"]),
                help="Format of stdin (SOURCE is -)."),
        )),
    Command("plan load", "plan_load",
        help="Describe TABLE and SOURCE, sample one file, and print the plan of a load."),
    Command("copy", "copy_table", plan="plan_copy", dry_run="Print the plan, and create and write nothing.",
        call="irregular:copy",
        help="Copy every item of table SOURCE into table TARGET, also across regions and accounts."),
    Command("plan copy", "plan_copy",
        help="Describe tables SOURCE and TARGET, sample SOURCE, and print the plan of a copy."),
    Command("table create", "create_table", help="Create table TABLE with key --key, and wait until it is ACTIVE."),
    Command("table describe", "describe_table", help="Print key, size, billing and indexes of TABLE."),
    Command("table create-like", "create_table_like",
        help="Create table TARGET like table SOURCE, without its items, and wait until it is ACTIVE."),
    # Exports.
    Command("export read", "read_export_to_files", plan="plan_read_export",
        dry_run="Verify the manifests and the existence of all files, and write nothing.",
        help="Convert the export in folder SOURCE to files at DEST, and verify every file.\n\n"
        "Both are s3://bucket/prefix or a local folder. SOURCE contains manifest-summary.json."),
    Command("plan export-read", "plan_read_export",
        help="Verify the export in folder SOURCE, and print the plan of its conversion to DEST."),
    Command("export start", "start_export", plan="plan_export", dry_run=_NOTHING_STARTED,
        run="cli.irregular:start_export", waits_for="export",
        help="Start a native export of TABLE to DEST, s3://bucket/prefix. It uses no read units.\n\n"
        "With --from and --to it is incremental.",
        parameters=(
            _switch("--wait waits", help="Wait until the export has completed, like export wait."),
        )),
    Command("plan export", "plan_export",
        help="Describe TABLE, and print the plan and cost of its export to DEST."),
    Command("export wait", "wait_export", waits_for="export",
        help="Wait until export ARN has completed, and fail if it fails."),
    Command("export list", "list_exports", key="exports",
        help="List the exports of the last 90 days, of TABLE or of all tables."),
    Command("export describe", "describe_export", help="Describe export ARN."),
    Command("export fold", "fold_exports_to_files", arguments="base=source increments... dest",
        without="key buckets where columns",
        help="Write the table's state after the full export BASE and the incremental exports INCREMENTS to DEST.\n\n"
        "Each is the folder of an export. Increments are accepted in any order, and must be contiguous."),
    Command("plan export-fold", "plan_fold_exports", arguments="base=source increments... dest",
        without="key buckets where columns",
        help="Verify the full export BASE and the INCREMENTS, and print the plan of their fold to DEST."),
    Command("export windows", "export_windows", arguments="base=source increments...?",
        run="cli.irregular:export_windows", key="windows",
        help="Print the windows of the incremental exports that are missing after the full export BASE.\n\n"
        "INCREMENTS are the existing ones. Nothing is requested: each line has the flags of ddbio export start."),
    # Imports and bulk puts.
    Command("import files", "write_import_files", plan="check_import_files",
        dry_run="Read and check every row, and write nothing.", run="load.import_files:write_files",
        help="Write the rows of SOURCE, a file, folder or glob, to DEST as files for an import.\n\n"
        "Nothing is written unless every item is valid and every key is unique."),
    Command("plan import-files", "plan_import_files",
        help="List the files of SOURCE, and print the plan and cost of their import files."),
    Command("import start", "start_import", plan="plan_import", dry_run=_NOTHING_STARTED,
        help="Start the service's import of the objects below SOURCE, s3://bucket/prefix, into a new TABLE."),
    Command("plan import", "plan_import",
        help="List the objects below SOURCE, and print the plan and cost of their import into a new TABLE."),
    Command("import wait", "wait_import", waits_for="import",
        help="Wait until import ARN has completed, and fail if it fails or its count of items differs from its files."),
    Command("import list", "list_imports", key="imports",
        help="List the imports of the last 90 days, of TABLE or of all tables."),
    Command("import describe", "describe_import", help="Describe import ARN."),
    Command("bulk start", "start_bulk_put", plan="plan_bulk_put", dry_run=_NOTHING_STARTED,
        help="Start a bulk put of the objects below SOURCE into TABLE, with reports of refused items at REPORTS (S3)."),
    Command("plan bulk", "plan_bulk_put",
        help="List the objects below SOURCE, and print the plan and cost of a bulk put into TABLE."),
    Command("bulk wait", "wait_bulk_put", waits_for="bulk put",
        help="Wait until bulk operation ARN has put every item, and fail if it fails or refuses items."),
    Command("bulk list", "list_bulk_puts", key="bulk_puts", help="List the bulk operations of the last 90 days."),
    Command("bulk describe", "describe_bulk_put", help="Describe bulk operation ARN."),
    Command("bulk cancel", "cancel_bulk_put", help="Cancel bulk operation ARN. Items that it has put stay."),
    Command("bulk report", "read_bulk_report", run="cli.irregular:bulk_summary",
        help="Count the items that a bulk operation did not put, by reason. PLACE is its ARN or the prefix of its "
        "reports."),
    # Backups.
    Command("backup create", "create_backup", plan="plan_backup", dry_run=_NOTHING_DONE, waits_for="backup",
        help="Create a backup of TABLE, and wait until it can be restored."),
    Command("plan backup", "plan_backup", help="Describe TABLE, and print the cost of a backup."),
    Command("backup list", "list_backups", key="backups",
        help="List the backups of TABLE or of all tables, including those of AWS Backup."),
    restore := Command("backup restore", "restore_table", plan="plan_restore", dry_run=_NOTHING_DONE,
        waits_for="restore",
        help="Restore SOURCE as the new table TARGET, and wait until it can be used.\n\n"
        "SOURCE is the ARN of a backup, or a table with point-in-time recovery: as of --at, or of the latest time."),
    # The result is a table.
    restore._replace(name="table restore"),
    Command("plan restore", "plan_restore",
        help="Describe the backup or table SOURCE, and print the cost of its restore as TARGET."),
    # Changes.
    Command("capture", "capture", run="cli.irregular:capture",
        help="Write every change of TABLE once to a log of Parquet files at DEST, s3://bucket/prefix or a folder.\n\n"
        "It resumes where the last run stopped. SIGTERM or Ctrl-C stops it after its batch is written."),
    Command("plan capture", "plan_capture",
        help="Print the cost of capturing the changes of a table for a month. AWS is not called."),
    Command("capture status", "capture_status", key="captures",
        help="Print the status of the captures that write the log at DEST: positions, batches and running processes."),
    Command("capture verify", "verify_capture", passed="is_whole",
        help="Check the log at DEST for missing files, gaps and lost changes. The exit code is 1 if it is incomplete."),
    Command("capture heal", "heal_capture", plan="plan_heal_capture",
        dry_run="Print the gaps and the cost of filling them, and change nothing.",
        help="Fill the gaps of the log at DEST from incremental exports of TABLE."),
    Command("changes read", "read_changes_batches", output="quiet",
        help="Print the changes that Firehose delivered to SOURCE on stdout, as JSON Lines."),
    Command("changes write", "write_changes", arguments="", without="dest", run="cli.irregular:write_changes",
        output="json",
        help="Write the change records in FILES below DEST in the format of a Firehose delivery.",
        parameters=(
            click.Argument(["files"], nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path)),
            click.Argument(["dest"]),
        )),
    Command("replay", "replay", plan="plan_replay", dry_run="Print the objects to read, and replay nothing.",
        help="Replay the changes below SOURCE, delivered or failed, to a log at DEST or to --table.\n\n"
        "Each object is replayed once, even if the command runs again."),
    Command("archive", "archive",
        help="Archive items deleted by TTL from SOURCE, the log of a table's changes, to DEST.\n\n"
        "With --log, SOURCE is the table. Its changes are first captured into that log."),
    Command("archive restore", "restore_archived",
        help="Restore items of the archive SOURCE to TABLE, in their state at the last expiry."),
    Command("archive expired", "read_expired_batches",
        help="Print the expired items of SOURCE, a table or an export, that are not deleted yet. --json counts them."),
    # Lake tables.
    Command("apply", "apply", plan="plan_apply", dry_run=_NOTHING_WRITTEN, without="key stream batch_id",
        run="lake.apply:apply_log", more="master conf",
        help="Merge new changes of LOG into the lake table TABLE. The newest state of each item wins.\n\n"
        "LOG is the folder of a capture or of an incremental export."),
    Command("maintain", "maintain", arguments="table?", plan="plan_maintain",
        dry_run="Print the files to rewrite and delete, and write nothing.", more="master conf",
        call="irregular:maintain",
        help="Rewrite small files of the lake table TABLE, and remove old tombstones and files.",
        parameters=(
            _flag("--policy", metavar="FILE",
                help="TOML or YAML file with the options of several tables, instead of TABLE."),
        )),
    Command("bootstrap", "bootstrap", arguments="table target:LAKE", more="master conf",
        help="Create or update LAKE, a lake table with the items of TABLE: log, base and changes.\n\n"
        "The same command resumes a killed run."),
    Command("reconcile", "reconcile", arguments="table dest:LOG target:LAKE?", plan="plan_reconcile",
        dry_run="Print the windows and the cost of their exports, and change nothing.", more="master conf",
        help="Compare closed windows of LOG with incremental exports of TABLE, and repair lost changes."),
    Command("verify", "verify", passed="passed",
        help="Compare the lake table LAKE with TABLE. The exit code is 1 if they differ.\n\n"
        "TABLE is the name of a table, or the folder of its full export. By default the current states are compared."),
    Command("history", "history", arguments="source key?", run="lake.history:describe_history",
        help="Print the states of the item KEY, or of all items, in SOURCE: a log of changes or a lake table."),
    Command("view latest", "latest_view_sql", run="cli.irregular:latest_view", output="quiet",
        help="Print the view of the newest state of all items: LAKE and the changes of LOG that are not applied yet."),
    Command("view history", "history_view_sql", without="target lake_relation format",
        run="cli.irregular:history_view", output="quiet",
        help="Print the view of the history of all items of LOG: each state with its period of validity."),
    # Folders and catalogs.
    Command("files", "list_files", call="irregular:files", output="json",
        help="Print the live files of folder PATH, one per line, of its newest or another version.",
        parameters=(
            _flag("--as list_format", type=click.Choice(["lines", "symlink", "manifest"]), default="lines",
                show_default=True,
                help="Lines, a symlink manifest for Athena, Hive and Trino, or a JSON manifest with sizes."),
            _switch("--history", help="Print the versions and the jobs that wrote them instead."),
        )),
    Command("compact", "compact", plan="plan_compact", dry_run=_NOTHING_WRITTEN,
        help="Rewrite the small files of folder PATH as few large files, in one commit.\n\n"
        "Rows are counted and digested before and after. Readers see the old or the new files."),
    Command("plan compact", "plan_compact",
        help="Print the files of folder PATH to rewrite, and the number of new files."),
    Command("vacuum", "vacuum", dry_run="Print the files to delete, and delete nothing.",
        help="Delete old versions of folder PATH, and the files that only they contain.\n\n"
        "Staged files of dead jobs are deleted too. Files that ddbio did not write stay."),
    Command("publish", "publish", arguments="", without="source dest", call="irregular:publish",
        help="Publish the live files of STAGING as the next version of folder CURATED; --rollback reverts it.\n\n"
        "Readers that use 'ddbio files' or the symlink manifest of CURATED see the old or the new version.",
        parameters=(
            click.Argument(["paths"], nargs=-1, metavar="[STAGING] CURATED"),
            _switch("--rollback", help="Make an older version of CURATED (the only argument) the newest again."),
            _flag("--to-version", metavar="N",
                help="With --rollback: the version. Default: the one before the newest."),
        )),
    Command("plan publish", "plan_publish",
        help="Print the plan and cost of publishing the live files of folder SOURCE at folder DEST."),
    Command("layout", "layout",
        help="Report the files of a dataset at PATH: sizes, small files, partitions and columns.\n\n"
        "Only the footers of Parquet and ORC files are read."),
    Command("catalog sync", "sync_catalog", arguments="path target:glue://DATABASE.TABLE", output="json",
        help="Create or update the Glue table of the live files of folder PATH, and register its partitions."),
    Command("catalog ddl", "catalog_ddl", arguments="path", output="",
        help="Print the DDL for a table of the live files of folder PATH, or of the lake table in it."),
    # Compare, plan and inspect.
    Command("validate", "validate", plan="plan_validate",
        dry_run="Print the plan and read nothing else.", passed="passed",
        help="Compare the items of SOURCE and TARGET, and evaluate quality rules.\n\n"
        "Each is a table, an export, or files. The exit code is 0 if they are equal and all rules hold, else 1."),
    Command("plan validate", "plan_validate", help="Print the plan and cost of a validation of SOURCE against TARGET."),
    Command("advise", "advise",
        help="Compare the methods of keeping a copy of TABLE in S3: monthly cost, time and limits.\n\n"
        "DescribeTable and CloudWatch are called. No item is read."),
    Command("capacity", "plan_capacity",
        help="Recommend capacity mode, capacity and class of TABLE from its past consumption.\n\n"
        "The figures are from CloudWatch or a file. The table is not read or changed."),
    Command("simulate scan", "simulate_scan", arguments="",
        help="Simulate a scan: duration, idle budget and throttling."),
    Command("simulate load", "simulate_load",
        help="Simulate a load: duration, idle budget and throttling."),
    Command("doctor", "doctor", arguments="location?", call="irregular:doctor",
        help="Check this machine, credentials, endpoints, --table and the bucket of LOCATION, and print fixes.\n\n"
        "Nothing is changed. The exit code is 0 without problems, else 1.",
        parameters=(
            _switch("--strict", help="Also exit with 1 for warnings."),
        )),
    Command("iam", "iam_policy", arguments="", call="iam:iam", output="", settings={"ignore_unknown_options": True},
        help="Print the least-privilege IAM policy for VERB with these arguments and options.\n\n"
        "Example: ddbio iam scan orders s3://my-bucket/orders --mode append. AWS is not called.",
        parameters=(
            click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED,
                metavar="VERB [OPTIONS OF THE VERB]..."),
        )),
    Command("prices show", "", options="PriceOptions", without="max_usd compute", run="cli.irregular:show_prices",
        help="Print the prices of a region, with their source and date."),
    Command("prices refresh", "", options="PricesRefreshOptions", run="jobs.costs:refresh_prices",
        help="Get the prices of --region from the AWS Price List (free of charge), and store them for plans."),
    Command("demo", "", more="master conf", call="demo:demo",
        help="Scan 336,776 real flights from an embedded DynamoDB through Spark into Parquet, and validate them.",
        parameters=(
            _flag("--dest", metavar="PATH", help="Target folder. Default: s3:// on an embedded S3."),
            _flag("--rcu-per-second", type=click.FloatRange(min=1), default=400, show_default=True,
                help="Read budget of the job."),
            _flag("--limit", type=click.IntRange(min=1), help="Number of flights in the table. Default: all."),
            _flag("--engine", type=click.Choice(["spark", "local", "auto"]), default="spark", show_default=True,
                help="Engine of the scan."),
        )),
)  # fmt: skip
COMMANDS = {command.name: command for command in _ROWS}
"""Commands by name, in the order of the lists of groups and parts."""
