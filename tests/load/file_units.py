"""Source of a load from the files of a folder, and reading of its units."""

from ddbio.aws.table_description import TableDescription
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.options import LoadOptions
from ddbio.load.plan import plan_write
from ddbio.load.sources import open_source
from ddbio.load.unit_reader import UnitReader
from ddbio.options import parse_options

FACTS = TableDescription("rows", "arn", "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand=True)


def opened(source, keys=None, **options):
    """Return the source with that name."""
    return open_source(parse_options(LoadOptions, {"source": str(source), "table": "rows", **options}), keys or {})


def read(source, units, **options):
    """Return the number of rows of each unit, from the checkpoints between them."""
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    counts = {}
    for batch in UnitReader(source.store, plan).read(units, counts.__setitem__, **options):
        if isinstance(batch, Checkpoint):
            batch.reached()
    return counts
