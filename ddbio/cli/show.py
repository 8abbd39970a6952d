"""Parts of what is printed for people: sizes, durations, lines of name and value, and the rows that reports share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddbio.catalog.glue import CatalogReport
    from ddbio.formats.layout import LayoutSummary
    from ddbio.jobs.estimate import Estimate, Figures
    from ddbio.jobs.report import FileReport, MisfitReport

Rows = list[tuple[str, str]]
"""Names and values of a report."""

_KIB = 1024.0
# Partitions may make thousands of files.
_MOST_FILES = 20
# Attributes whose merged NULLs a report names.
_MOST_NULLS = 5
# Quantities from here on are shown without decimals.
_WHOLE = 10


def lines(rows: Iterable[tuple[str, str | None]], width: int = 10) -> str:
    """Return rows as lines, values below each other; those without a value are left out."""
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows if value is not None)


def format_bytes(count: float) -> str:
    """Return a size with a binary unit, three digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < _KIB or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    raise AssertionError("unreachable: the last unit returns")


def format_duration(seconds: float) -> str:
    """Return a duration as people read it."""
    if seconds < 100:  # noqa: PLR2004 - up to here seconds read better
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which ends in *s* unless there is one."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def cpu_text(report: Any) -> str:
    """Return how long a job took, and how much of it was time of processors."""
    return f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s"


def time_text(report: Any) -> str:
    """Return how long a job took, and on what."""
    return f"{cpu_text(report)} ({report.engine}, {counted(report.tasks, 'task')})"


def counts_text(counts: Mapping[str, int], form: str) -> str | None:
    """Return counts by name, each in a form such as ``{count} × {name}``; None if there is none."""
    return ", ".join(form.format(name=name, count=count) for name, count in counts.items()) or None


def planned_rows(planned: Figures | None, actual: Figures | None) -> Rows:
    """Return a row of what a job was planned to take beside what it took, if both are known."""
    return [] if planned is None or actual is None else [("planned", f"{planned}; it took {actual}")]


def file_rows(files: Iterable[FileReport], noun: str = "row") -> Rows:
    """Return a name and a value for the files that were written; of many, the first, and how many more there are."""
    known = list(files)
    rows = [("file", f"{file.path}  {format_bytes(file.bytes)}  {counted(file.rows, noun)}") for file in known]
    if len(rows) <= _MOST_FILES:
        return rows
    more, size = len(rows) - _MOST_FILES, format_bytes(sum(file.bytes for file in known[_MOST_FILES:]))
    return [*rows[:_MOST_FILES], ("files", f"{counted(more, 'more file')} of {size}, which --json lists")]


def layout_rows(layout: LayoutSummary | None) -> Rows:
    """Return a row that says how many files there are, and how many of them are small, if there are any."""
    if layout is None or not layout.files:
        return []
    small = f"{layout.small_file_ratio:.0%} of them below {format_bytes(layout.small_than)}"
    return [("layout", f"{counted(layout.files, 'file')}, {format_bytes(layout.bytes)}, {small}")]


def skipped_rows(paths: Sequence[str]) -> Rows:
    """Return a row that names files which were passed over, if any were; of many, the first."""
    if not paths:
        return []
    more = f", and {counted(len(paths) - _MOST_FILES, 'more file')}" if len(paths) > _MOST_FILES else ""
    named = ", ".join(paths[:_MOST_FILES])
    return [("left out", f"{counted(len(paths), 'file')} whose names say that they are no data: {named}{more}")]


def merged_null_rows(merged_nulls: dict[str, int]) -> Rows:
    """Return a row that says how many NULLs of which attributes were merged with missing values, if any were."""
    if not merged_nulls:
        return []
    most = sorted(merged_nulls.items(), key=lambda each: -each[1])
    named = ", ".join(f"{count:,} × {path}" for path, count in most[:_MOST_NULLS])
    others = f", and {counted(len(most) - _MOST_NULLS, 'attribute')} more" if len(most) > _MOST_NULLS else ""
    return [("NULLs", f"{named}{others}: now as missing values are; --nulls keep tells them apart")]


def misfit_rows(misfits: Iterable[MisfitReport]) -> Rows:
    """Return a row for each kind of values that have no place in their column."""
    return [("misfit", _misfit_text(each)) for each in misfits]


def _misfit_text(misfit: MisfitReport) -> str:
    dropped = f", {misfit.dropped} dropped" if misfit.dropped else ""
    return f"{misfit.count} × {misfit.path}: {misfit.kind}{dropped}, e.g. {misfit.example}"


def catalog_rows(registered: CatalogReport | None) -> Rows:
    """Return a row about what was registered in the catalog, if anything was."""
    if registered is None:
        return []
    added = f", with {', '.join(registered.columns_added)} added" if registered.columns_added else ""
    counts = f"; partitions: {registered.partitions:,}, {registered.partitions_added:,} of them new"
    return [("catalog", f"{registered.table} {registered.action}{added}{counts if registered.partitions else ''}")]


def written_rows(report: Any) -> Rows:
    """Return what a report says of the files of a job: NULLs that were merged, the catalog, the layout, the files."""
    registered = catalog_rows(report.catalog)
    return [*merged_null_rows(report.merged_nulls), *registered, *layout_rows(report.layout), *file_rows(report.files)]


def format_values(values: dict[str, Any]) -> str:
    """Return names and values as lines, those that say nothing left out."""
    shown = {name: _as_text(value) for name, value in values.items() if value not in (None, "", False, ())}
    width = max(map(len, shown), default=0) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in shown.items())


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_as_text, value))
    return f"{value:,}" if type(value) is int else str(value)


def format_estimate(estimate: Estimate) -> str:
    """Return what a job takes as one line, and what it costs as a table, a line for each part."""
    taken = [
        f"{estimate.units:,.0f} units" if estimate.units else "",
        counted(estimate.requests, "request") if estimate.requests else "",
        format_bytes(estimate.bytes) if estimate.bytes else "",
        limited_time(estimate.seconds, estimate.limited_by) if estimate.seconds is not None else "",
    ]
    shown = [f"estimate  {', '.join(filter(None, taken))}"]
    cost = estimate.cost
    if cost.lines:
        shown.append(f"cost      ${usd_text(cost.usd)}")
        shown += [
            f"  {each.what:<36}{quantity_text(each.quantity):>16} {each.unit:<14}"
            + ("no price" if each.usd is None else f"${usd_text(each.usd)}")
            for each in cost.lines
        ]
    return "\n".join([*shown, *(f"note      {note}" for note in cost.notes)])


def quantity_text(quantity: float) -> str:
    """Return a quantity, with decimals if it is small."""
    return f"{quantity:,.0f}" if quantity >= _WHOLE else f"{quantity:,.4g}"


def usd_text(usd: float) -> str:
    """Return a sum of money, with two digits at least."""
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.2g}"


def limited_time(seconds: float, limited_by: str) -> str:
    """Return a duration, and what limits it."""
    return format_duration(seconds) + (f", limited by {limited_by}" if limited_by else "")
