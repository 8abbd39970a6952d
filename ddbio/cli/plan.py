"""The group of the commands that print a plan: what ``--dry-run`` of the command of that name prints.

Each is loaded from its module when it is called, so that a plan starts as fast as its own verb.
"""

from __future__ import annotations

import click

from ddbio.cli.main import LazyGroup, Verbs

PLANS = Verbs(
    {
        "backup": ("plan_jobs:plan_backup", "Describe TABLE, and print what a backup of it would cost."),
        "bulk": (
            "plan_jobs:plan_bulk",
            "List the objects below SOURCE, and print what putting them into TABLE would take and cost.",
        ),
        "capture": (
            "plan_jobs:plan_capture",
            "Print what capturing the changes of a table for a month would take and cost; nothing is called.",
        ),
        "compact": ("folders:plan_compact", "Print which files of folder PATH would be rewritten, and as how many."),
        "copy": (
            "writing:plan_copy",
            "Describe tables SOURCE and TARGET, sample SOURCE, and print how it would be copied.",
        ),
        "export": ("plan_jobs:plan_export", "Describe TABLE, and print what its export to DEST would take and cost."),
        "export-fold": (
            "exports:plan_export_fold",
            "Verify the full export BASE and the INCREMENTS, and print how they would be folded to DEST.",
        ),
        "export-read": (
            "exports:plan_export_read",
            "Verify the export in folder SOURCE, and print how it would be read to DEST.",
        ),
        "import": (
            "plan_jobs:plan_import",
            "List the objects below SOURCE, and print what their import into a new TABLE would take and cost.",
        ),
        "import-files": (
            "plan_jobs:plan_import_files",
            "List the files of SOURCE, and print what writing their rows as files for an import would take and cost.",
        ),
        "load": ("writing:plan_load", "Describe TABLE and SOURCE, sample one file, and print how it would be loaded."),
        "publish": (
            "folders:plan_publish",
            "Print what making the live files of folder SOURCE the next version of folder DEST would take and cost.",
        ),
        "restore": (
            "plan_jobs:plan_restore",
            "Describe the backup or table SOURCE, and print what the new table TARGET of it would cost.",
        ),
        "scan": ("reading:plan_scan", "Describe and sample TABLE, and print how it would be scanned."),
        "validate": ("inspection:plan_validate", "Print what validating SOURCE against TARGET would read and cost."),
    }
)


@click.group(cls=LazyGroup, commands=PLANS)
def plan() -> None:
    """Print what a verb would do and cost, and do none of it."""
