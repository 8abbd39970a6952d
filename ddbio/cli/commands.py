"""The commands: one row for each, from which :mod:`ddbio.cli.making` makes what ``ddbio`` runs, and its help.

Most rows only name a verb of :mod:`ddbio.verbs`: its options become flags, and its result is printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click


class Command(NamedTuple):
    """A command.

    Attributes
    ----------
    name
        The words by which it is called, after ``ddbio``.
    verb
        The verb that it runs; empty if ``options`` and ``run``, or ``call``, say what it does.
    help
        What it does: a line, which lists of commands show, and more after an empty line.
    arguments
        Its arguments, separated by spaces, if they are not those of the verb: ``name``, with ``=field`` for an option
        of another name, then ``:METAVAR``, then ``...`` if there may be several, then ``?`` if it may be omitted.
    plan
        The verb whose result ``--dry-run`` prints.
    dry_run
        Help of ``--dry-run``, if there is such a flag.
    options
        Its options class in :mod:`ddbio.options`, if it is not that of the verb.
    without
        Options that have no flag, besides those that are arguments.
    parameters
        Its own arguments and flags.
    more
        Keyword parameters of the run that are flags, if they are not those of the verb.
    run
        The function that runs, as ``module:function`` below ``ddbio``, if it is not that of the verb. It gets the
        checked options, and what else was given.
    call
        The function in :mod:`ddbio.cli` that is the whole command: it gets what was given, and prints.
    waits_for
        The kind of job whose status is shown while the run waits for it.
    key
        Key of the list in JSON, where the result is a list.
    passed
        Name of the attribute of the result that is false if the exit code is 1.
    output
        Its flags among ``--json`` and ``--quiet``.
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
    settings: dict[str, Any] = {}  # noqa: RUF012 - a field of a named tuple, which nothing changes


GROUPS = {
    "backup": "Make backups of tables, and new tables of backups or of a table's past.",
    "bulk": "Let the service put files from S3 into a table that is there (new; experimental).",
    "catalog": "Make folders of files tables of a catalog.",
    "changes": "Read and write changes as Firehose delivers them.",
    "export": "Work with DynamoDB's native exports to S3.",
    "import": "Work with DynamoDB's own import of new tables from S3.",
    "plan": "Print what a verb would do and cost, and do none of it.",
    "prices": "Show and refresh the prices that plans use.",
    "simulate": "Find out how long a job of any size would take, without AWS.",
    "table": "Create and describe tables.",
    "view": "Print the SQL of views over a log of changes, for Spark, DuckDB and Athena.",
}
"""The groups of commands, and their help."""

_NOTHING_WRITTEN = "Stop after the plan; write nothing."
_NOTHING_STARTED = "Check everything, print the plan, start nothing."
_NOTHING_DONE = "Check everything, print what would be done, do none of it."


def _switch(names: str, help: str) -> click.Option:  # noqa: A002 - click's name
    return click.Option(names.split(), is_flag=True, help=help)


def _flag(names: str, help: str, **settings: Any) -> click.Option:  # noqa: A002 - click's name
    return click.Option(names.split(), help=help, **settings)


_ROWS = (
    # Read tables.
    Command("scan", "scan_to_files", plan="plan_scan", dry_run=_NOTHING_WRITTEN,
        help="Scan TABLE into files at DEST: s3://bucket/prefix or a local folder."),
    Command("plan scan", "plan_scan", help="Describe and sample TABLE, and print how it would be scanned."),
    Command("read", "scan_batches", arguments="source=table", call="irregular:read", output="quiet",
        help="Print the items of SOURCE, a table or an export, on stdout, one a line.\n\n"
        "Numbers are exact. What is missing or NULL is left out; sets are lists; binary is base64; values that do "
        "not fit their column are in _rescue, as DynamoDB JSON.",
        parameters=(
            _flag("--format form", type=click.Choice(["json", "csv"]), default="json", show_default=True,
                help="Print lines of JSON, or CSV whose maps and lists are JSON."),
        )),
    Command("schema", "infer_schema", arguments="source=table",
        without="schema limit segments lanes on_misfit drop nulls", call="irregular:schema",
        help="Print the columns inferred from SOURCE: a table, an export, or files of DynamoDB JSON.\n\n"
        "The --json form is what --schema takes.",
        parameters=(
            _flag("--out", metavar="FILE", help="Write the schema to this file as well; --schema takes it."),
            _flag("--diff", metavar="FILE", help="Print what changed since this file was written."),
            _switch("--exit-code", help="With --diff: exit with 1 if the data changed."),
        )),
    Command("digest", "digest", arguments="source=table", without="on_misfit drop sample_items",
        run="cli.irregular:digest",
        help="Print the digest of SOURCE: a table, an export, or files of Parquet or JSON Lines.\n\n"
        "It is the same for the same items, whatever their order, files or column types."),
    # Write tables.
    Command("load", "load_files", plan="plan_load", dry_run=_NOTHING_WRITTEN, call="irregular:load",
        help="Write the rows of SOURCE, a file, folder or glob of any format, here or on S3, into TABLE.\n\n"
        "A SOURCE of - is stdin, whose format --format says.",
        parameters=(
            _flag("--format form", type=click.Choice(["csv", "json", "jsonl", "parquet", "orc", "arrow"]),
                help="Format of stdin, for a SOURCE of -."),
        )),
    Command("plan load", "plan_load",
        help="Describe TABLE and SOURCE, sample one file, and print how it would be loaded."),
    Command("copy", "copy_table", plan="plan_copy", dry_run="Stop after the plan; create and write nothing.",
        call="irregular:copy",
        help="Copy every item of table SOURCE into table TARGET, also of another region or account."),
    Command("plan copy", "plan_copy",
        help="Describe tables SOURCE and TARGET, sample SOURCE, and print how it would be copied."),
    Command("table create", "create_table", help="Create table TABLE with the key --key, and wait until it is ACTIVE."),
    Command("table describe", "describe_table", help="Print key, size, billing and indexes of TABLE."),
    Command("table create-like", "create_table_like",
        help="Create table TARGET like table SOURCE, without its items, and wait until it is ACTIVE."),
    # Exports.
    Command("export read", "read_export_to_files", plan="plan_read_export",
        dry_run="Verify the manifests, see that every file is there, and write nothing.",
        help="Turn the export in folder SOURCE into files at DEST, every file verified.\n\n"
        "Both are s3://bucket/prefix or a local folder; SOURCE holds manifest-summary.json."),
    Command("plan export-read", "plan_read_export",
        help="Verify the export in folder SOURCE, and print how it would be read to DEST."),
    Command("export start", "start_export", plan="plan_export", dry_run=_NOTHING_STARTED,
        run="cli.irregular:start_export", waits_for="export",
        help="Start the service's own export of TABLE to DEST, s3://bucket/prefix; it costs no read units.\n\n"
        "With --from and --to it is incremental.",
        parameters=(
            _switch("--wait waits", help="Wait until the export has completed, as export wait does."),
        )),
    Command("plan export", "plan_export",
        help="Describe TABLE, and print what its export to DEST would take and cost."),
    Command("export wait", "wait_export", waits_for="export",
        help="Wait until the export ARN has completed; fail if it fails."),
    Command("export list", "list_exports", key="exports",
        help="List the exports of the last 90 days, of TABLE or of all."),
    Command("export describe", "describe_export", help="Show what is known of the export ARN."),
    Command("export fold", "fold_exports_to_files", arguments="base=source increments... dest", without="key buckets",
        help="Write at DEST the table's state after the full export BASE and the incremental exports INCREMENTS.\n\n"
        "Each is the folder of one export; increments come in any order, and each begins where what is before it "
        "ends."),
    Command("plan export-fold", "plan_fold_exports", arguments="base=source increments... dest", without="key buckets",
        help="Verify the full export BASE and the INCREMENTS, and print how they would be folded to DEST."),
    Command("export windows", "export_windows", arguments="base=source increments...?",
        run="cli.irregular:export_windows", key="windows",
        help="Tell which incremental exports to request so that they follow the full export BASE without a gap.\n\n"
        "INCREMENTS are those that are there already. Nothing is requested: each line has the flags of ddbio export "
        "start."),
    # Imports and bulk puts.
    Command("import files", "write_import_files", plan="check_import_files",
        dry_run="Read and check every row; write nothing.", run="load.import_files:write_files",
        help="Write the rows of SOURCE, a file, folder or glob, as files for an import, to DEST.\n\n"
        "Every item is checked and every key occurs once, or nothing is written."),
    Command("plan import-files", "plan_import_files",
        help="List the files of SOURCE, and print what writing their rows as files for an import would take and cost."),
    Command("import start", "start_import", plan="plan_import", dry_run=_NOTHING_STARTED,
        help="Start the service's own import of the objects below SOURCE, s3://bucket/prefix, into a new TABLE."),
    Command("plan import", "plan_import",
        help="List the objects below SOURCE, and print what their import into a new TABLE would take and cost."),
    Command("import wait", "wait_import", waits_for="import",
        help="Wait until the import ARN has completed; fail if it fails, or wrote another number of items than its "
        "files."),
    Command("import list", "list_imports", key="imports",
        help="List the imports of the last 90 days, of TABLE or of all."),
    Command("import describe", "describe_import", help="Show what is known of the import ARN."),
    Command("bulk start", "start_bulk_put", plan="plan_bulk_put", dry_run=_NOTHING_STARTED,
        help="Start to put the objects below SOURCE into TABLE; what is refused goes to REPORTS. All on S3."),
    Command("plan bulk", "plan_bulk_put",
        help="List the objects below SOURCE, and print what putting them into TABLE would take and cost."),
    Command("bulk wait", "wait_bulk_put", waits_for="bulk put",
        help="Wait until the bulk operation ARN has put every item; fail if it fails or refuses some."),
    Command("bulk list", "list_bulk_puts", key="bulk_puts", help="List the bulk operations of the last 90 days."),
    Command("bulk describe", "describe_bulk_put", help="Show what is known of the bulk operation ARN."),
    Command("bulk cancel", "cancel_bulk_put", help="Ask that the bulk operation ARN stops; what it has put stays."),
    Command("bulk report", "read_bulk_report", run="cli.irregular:bulk_summary",
        help="Count what the bulk operation PLACE, an ARN, or reports below a prefix, say was not put, by reason."),
    # Backups.
    Command("backup create", "create_backup", plan="plan_backup", dry_run=_NOTHING_DONE, waits_for="backup",
        help="Back TABLE up, and wait until the backup can be restored."),
    Command("plan backup", "plan_backup", help="Describe TABLE, and print what a backup of it would cost."),
    Command("backup list", "list_backups", key="backups",
        help="List the backups of TABLE or of all tables, those of AWS Backup included."),
    restore := Command("backup restore", "restore_table", plan="plan_restore", dry_run=_NOTHING_DONE,
        waits_for="restore",
        help="Make the new table TARGET of SOURCE, and wait until it can be used.\n\n"
        "SOURCE is the ARN of a backup, or a table that has point-in-time recovery: then as of --at, or of the "
        "latest time."),
    # What is made is a table.
    restore._replace(name="table restore"),
    Command("plan restore", "plan_restore",
        help="Describe the backup or table SOURCE, and print what the new table TARGET of it would cost."),
    # Changes.
    Command("capture", "capture", run="cli.irregular:capture",
        help="Write every change of TABLE once into a log of Parquet files at DEST, s3://bucket/prefix or a "
        "folder.\n\n"
        "It goes on where the last run stopped. SIGTERM or Ctrl-C ends it when its batch is written."),
    Command("plan capture", "plan_capture",
        help="Print what capturing the changes of a table for a month would take and cost; nothing is called."),
    Command("capture status", "capture_status", key="captures",
        help="Print how the captures stand that write the log at DEST: positions, batches, what is running."),
    Command("capture verify", "verify_capture", passed="is_whole",
        help="Tell whether the log at DEST is whole: files against records, gaps, lost changes; exit code 1 if it is "
        "not."),
    Command("capture heal", "heal_capture", plan="plan_heal_capture",
        dry_run="Print the gaps, and what healing them takes and costs; change nothing.",
        help="Fill the gaps of the log at DEST from incremental exports of TABLE."),
    Command("changes read", "read_changes_batches", output="quiet",
        help="Print the changes that Firehose delivered under SOURCE on stdout, one a line of JSON."),
    Command("changes write", "write_changes", arguments="", without="dest", run="cli.irregular:write_changes",
        output="json",
        help="Write the change records in FILES below DEST as Firehose would deliver them.",
        parameters=(
            click.Argument(["files"], nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path)),
            click.Argument(["dest"]),
        )),
    Command("replay", "replay", plan="plan_replay", dry_run="Print what would be read, and put nothing through.",
        help="Put the changes under SOURCE, delivered or failed, through again: into a log at DEST, or a --table.\n\n"
        "Each object is put through once, however often the command runs."),
    Command("archive", "archive",
        help="Archive at DEST the items that the time to live has deleted, by SOURCE, the log of a table's "
        "changes.\n\n"
        "With --log, SOURCE is the table, whose changes are captured into that log first."),
    Command("archive restore", "restore_archived",
        help="Put items of the archive SOURCE back into TABLE, each as it was when it last expired."),
    Command("archive expired", "read_expired_batches",
        help="Print the items of SOURCE, a table or an export, that are expired and not deleted yet; --json counts "
        "them."),
    # Lake tables.
    Command("apply", "apply", plan="plan_apply", dry_run=_NOTHING_WRITTEN, without="key stream batch_id",
        run="lake.apply:apply_log", more="master conf",
        help="Merge what is new of LOG into TABLE of a lake: the newest state of each item wins.\n\n"
        "LOG is the folder that capture writes, or that of an incremental export."),
    Command("maintain", "maintain", arguments="table?", plan="plan_maintain",
        dry_run="Print what would be rewritten and deleted; write nothing.", more="master conf",
        call="irregular:maintain",
        help="Rewrite small files of the lake table TABLE; let old tombstones and files go.",
        parameters=(
            _flag("--policy", metavar="FILE",
                help="File of TOML or YAML that says this of several tables; give no TABLE."),
        )),
    Command("bootstrap", "bootstrap", arguments="table target:LAKE", more="master conf",
        help="Make LAKE, a table of a lake, hold what TABLE holds, or bring it up to date: log, base and changes.\n\n"
        "A run that was killed is gone on with by the same command."),
    Command("reconcile", "reconcile", arguments="table dest:LOG target:LAKE?", plan="plan_reconcile",
        dry_run="Print the windows, and what their exports cost; change nothing.", more="master conf",
        help="Compare closed windows of LOG with incremental exports of TABLE; count and repair what was lost."),
    Command("verify", "verify", passed="passed",
        help="Tell whether LAKE, a table of a lake, holds what TABLE holds; exit code 1 if it does not.\n\n"
        "TABLE is the name of a table, or the folder of a full export of it. By default both are compared as they "
        "are now."),
    Command("history", "history", arguments="source key?", run="lake.history:describe_history",
        help="Print the states of the item KEY, or of every item, that SOURCE has, a log of changes or a lake table."),
    Command("view latest", "latest_view_sql", run="cli.irregular:latest_view", output="quiet",
        help="Print the view of the newest state of all items: LAKE, and what LOG has since it was applied."),
    Command("view history", "history_view_sql", without="target lake_relation format",
        run="cli.irregular:history_view", output="quiet",
        help="Print the view of the history of all items of LOG: each state with the times from and to which it was "
        "valid."),
    # Folders and catalogs.
    Command("files", "list_files", call="irregular:files", output="json",
        help="Print the live files of folder PATH, one a line: those that belong to its newest, or another, version.",
        parameters=(
            _flag("--as form", type=click.Choice(["lines", "symlink", "manifest"]), default="lines", show_default=True,
                help="Lines; the same URIs as a symlink manifest of Athena, Hive and Trino; or a JSON manifest with "
                "sizes."),
            _switch("--history", help="Print the versions that are there, and what made each, instead."),
        )),
    Command("compact", "compact", plan="plan_compact", dry_run=_NOTHING_WRITTEN,
        help="Rewrite the small files of folder PATH as few large ones, in one commit.\n\n"
        "Rows are counted and digested before and after. Readers see the old files or the new ones."),
    Command("plan compact", "plan_compact",
        help="Print which files of folder PATH would be rewritten, and as how many."),
    Command("vacuum", "vacuum", dry_run="Delete nothing; say what would be deleted.",
        help="Delete old versions of folder PATH, and the files that only they name.\n\n"
        "What dead jobs have staged goes, too. Files that ddbio did not write stay."),
    Command("publish", "publish", arguments="", without="source dest", call="irregular:publish",
        help="Make the live files of folder STAGING the next version of folder CURATED; --rollback takes it back.\n\n"
        "Readers of CURATED that go by 'ddbio files' or by its symlink manifest see the old version or the new one.",
        parameters=(
            click.Argument(["paths"], nargs=-1, metavar="[STAGING] CURATED"),
            _switch("--rollback", help="Make an older version of CURATED, the only argument, the newest again."),
            _flag("--to-version", metavar="N",
                help="With --rollback: the version; default is the one before the newest."),
        )),
    Command("plan publish", "plan_publish",
        help="Print what making the live files of folder SOURCE the next version of folder DEST would take and cost."),
    Command("layout", "layout",
        help="Report how a dataset at PATH lies in files: sizes, small files, partitions, columns.\n\n"
        "Only the footers of Parquet and ORC are read, and no row."),
    Command("catalog sync", "sync_catalog", arguments="path target:glue://DATABASE.TABLE", output="json",
        help="Make or update the Glue table of the live files of folder PATH, and register its partitions."),
    Command("catalog ddl", "catalog_ddl", arguments="path", output="",
        help="Print the statements that make a table of the live files of folder PATH, or name the lake table there."),
    # Compare, plan, look.
    Command("validate", "validate", plan="plan_validate",
        dry_run="Stop after the plan; read nothing but what it takes.", passed="passed",
        help="Tell whether TARGET holds the same items as SOURCE, which keys differ, and which quality rules "
        "hold.\n\n"
        "Each is a table, an export, or files. The exit code is 0 if they are equal and all rules hold, and 1 if not."),
    Command("plan validate", "plan_validate", help="Print what validating SOURCE against TARGET would read and cost."),
    Command("advise", "advise",
        help="Compare the ways to keep a copy of TABLE in S3: what each costs a month, takes, and cannot do.\n\n"
        "The table is described, and CloudWatch asked how much changes; no item is read."),
    Command("capacity", "plan_capacity",
        help="Recommend mode, capacity and class of TABLE by what it has consumed.\n\n"
        "CloudWatch is asked, or a file; nothing of the table is read or changed."),
    Command("simulate scan", "simulate_scan", arguments="",
        help="Simulate a scan: how long it takes, how much of the budget it leaves idle, how often it is throttled."),
    Command("simulate load", "simulate_load",
        help="Simulate a load: how long it takes, how much of the budget it leaves idle, how often it is throttled."),
    Command("doctor", "doctor", arguments="location?", call="irregular:doctor",
        help="Check this machine, credentials and endpoints, a --table and the bucket of LOCATION, and say what to "
        "do.\n\n"
        "Nothing is changed. The exit code is 0 if there is no problem, and 1 if there is one.",
        parameters=(
            _switch("--strict", help="Exit with 1 also if there are only warnings."),
        )),
    Command("iam", "iam_policy", arguments="", call="iam:iam", output="", settings={"ignore_unknown_options": True},
        help="Print the IAM policy for what VERB does with these arguments and options, and for nothing else.\n\n"
        "Give the command as it is to run: ddbio iam scan orders s3://my-bucket/orders --mode append. Nothing is "
        "called.",
        parameters=(
            click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED,
                metavar="VERB [OPTIONS OF THE VERB]..."),
        )),
    Command("prices show", "", options="PriceOptions", without="max_usd compute", run="cli.irregular:show_prices",
        help="Print the prices of a region, with their source and the day as of which they are known."),
    Command("prices refresh", "", options="PricesRefreshOptions", run="jobs.costs:refresh_prices",
        help="Ask the AWS Price List for the prices of --region, and store them for plans; asking is free."),
    Command("demo", "", more="master conf", call="demo:demo",
        help="Scan 336,776 real flights from an embedded DynamoDB through Spark into Parquet, and validate them.",
        parameters=(
            _flag("--dest", metavar="PATH", help="Write to this folder; default is s3:// on an embedded S3."),
            _flag("--rcu-per-second", type=click.FloatRange(min=1), default=400, show_default=True,
                help="Read budget of the job."),
            _flag("--limit", type=click.IntRange(min=1), help="Put only so many flights into the table."),
            _flag("--engine", type=click.Choice(["spark", "local", "auto"]), default="spark", show_default=True,
                help="Where to run."),
        )),
)  # fmt: skip
COMMANDS = {each.name: each for each in _ROWS}
"""The commands by name, in the order in which groups and parts list them."""
