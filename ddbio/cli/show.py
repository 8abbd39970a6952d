"""Text for people: sizes, durations, lines of name and value, and the rows that reports share."""

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
# A job may write thousands of files to partitions.
_MAX_FILES = 20
# Maximum number of attributes with merged NULLs in a report.
_MAX_NULLS = 5
# Quantities of at least this value are shown without decimals.
_MIN_WITHOUT_DECIMALS = 10


def lines(rows: Iterable[tuple[str, str | None]], width: int = 10) -> str:
    """Return rows as lines with aligned values. Rows without a value are omitted."""
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows if value is not None)


def format_bytes(count: float) -> str:
    """Return a size with a binary unit and at most three digits."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < _KIB or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    raise AssertionError("unreachable: the last unit returns")


def format_duration(seconds: float) -> str:
    """Return a duration as readable text."""
    if seconds < 100:  # noqa: PLR2004 - up to here seconds read better
        return f"{seconds:.1f} s"
    minutes, rest_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest_seconds:02d} s"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which ends in *s* unless the count is 1."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def cpu_text(report: Any) -> str:
    """Return the duration of a job, and its CPU time."""
    return f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s"


def time_text(report: Any) -> str:
    """Return the duration of a job, its engine and its number of tasks."""
    return f"{cpu_text(report)} ({report.engine}, {counted(report.tasks, 'task')})"


def counts_text(counts: Mapping[str, int], form: str) -> str | None:
    """Return counts by name in a format such as ``{count} × {name}``; None if there are none."""
    return ", ".join(form.format(name=name, count=count) for name, count in counts.items()) or None


def planned_rows(planned: Figures | None, actual: Figures | None) -> Rows:
    """Return a row with the planned and the actual resources of a job, if both are known."""
    return [] if planned is None or actual is None else [("planned", f"{planned}; it took {actual}")]


def file_rows(files: Iterable[FileReport], noun: str = "row") -> Rows:
    """Return rows for the written files: for many files, the first ones and the number of the others."""
    listed = list(files)
    rows = [("file", f"{file.path}  {format_bytes(file.bytes)}  {counted(file.rows, noun)}") for file in listed]
    if len(rows) <= _MAX_FILES:
        return rows
    more, size = len(rows) - _MAX_FILES, format_bytes(sum(file.bytes for file in listed[_MAX_FILES:]))
    return [*rows[:_MAX_FILES], ("files", f"{counted(more, 'more file')} of {size}, which --json lists")]


def layout_rows(layout: LayoutSummary | None) -> Rows:
    """Return a row with the number of files and of small files, if there are any."""
    if layout is None or not layout.files:
        return []
    small = f"{layout.small_file_ratio:.0%} of them below {format_bytes(layout.small_than)}"
    return [("layout", f"{counted(layout.files, 'file')}, {format_bytes(layout.bytes)}, {small}")]


def skipped_rows(paths: Sequence[str]) -> Rows:
    """Return a row with the skipped files, if there are any: for many files, the first ones."""
    if not paths:
        return []
    more = f", and {counted(len(paths) - _MAX_FILES, 'more file')}" if len(paths) > _MAX_FILES else ""
    named = ", ".join(paths[:_MAX_FILES])
    return [("left out", f"{counted(len(paths), 'file')} whose names mark them as no data: {named}{more}")]


def merged_null_rows(merged_nulls: dict[str, int]) -> Rows:
    """Return a row with the NULLs that were merged with missing values, by attribute, if there are any."""
    if not merged_nulls:
        return []
    most = sorted(merged_nulls.items(), key=lambda entry: -entry[1])
    named = ", ".join(f"{count:,} × {path}" for path, count in most[:_MAX_NULLS])
    others = f", and {counted(len(most) - _MAX_NULLS, 'attribute')} more" if len(most) > _MAX_NULLS else ""
    return [("NULLs", f"{named}{others}: now like missing values; --nulls keep distinguishes them")]


def misfit_rows(misfits: Iterable[MisfitReport]) -> Rows:
    """Return a row for each kind of values that do not fit their column."""
    return [("misfit", _misfit_text(misfit)) for misfit in misfits]


def _misfit_text(misfit: MisfitReport) -> str:
    dropped = f", {misfit.dropped} dropped" if misfit.dropped else ""
    return f"{misfit.count} × {misfit.path}: {misfit.kind}{dropped}, e.g. {misfit.example}"


def catalog_rows(registered: CatalogReport | None) -> Rows:
    """Return a row about registrations in the catalog, if there are any."""
    if registered is None:
        return []
    added = f", with {', '.join(registered.columns_added)} added" if registered.columns_added else ""
    counts = f"; partitions: {registered.partitions:,}, {registered.partitions_added:,} of them new"
    return [("catalog", f"{registered.table} {registered.action}{added}{counts if registered.partitions else ''}")]


def written_rows(report: Any) -> Rows:
    """Return the rows about the files of a job: merged NULLs, the catalog, the layout, the files."""
    registered = catalog_rows(report.catalog)
    return [*merged_null_rows(report.merged_nulls), *registered, *layout_rows(report.layout), *file_rows(report.files)]


def format_values(values: dict[str, Any]) -> str:
    """Return names and values as lines, without empty ones."""
    shown = {name: _as_text(value) for name, value in values.items() if value not in (None, "", False, ())}
    width = max(map(len, shown), default=0) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in shown.items())


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_as_text, value))
    return f"{value:,}" if type(value) is int else str(value)


def format_estimate(estimate: Estimate) -> str:
    """Return the resources of a job as one line, and its cost as a table with a line for each part."""
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
            f"  {line.what:<36}{quantity_text(line.quantity):>16} {line.unit:<14}"
            + ("no price" if line.usd is None else f"${usd_text(line.usd)}")
            for line in cost.lines
        ]
    return "\n".join([*shown, *(f"note      {note}" for note in cost.notes)])


def quantity_text(quantity: float) -> str:
    """Return a quantity, with decimals if it is small."""
    return f"{quantity:,.0f}" if quantity >= _MIN_WITHOUT_DECIMALS else f"{quantity:,.4g}"


def usd_text(usd: float) -> str:
    """Return a sum of money, with at least two digits."""
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.2g}"


def limited_time(seconds: float, limited_by: str) -> str:
    """Return a duration, and its bottleneck."""
    return format_duration(seconds) + (f", limited by {limited_by}" if limited_by else "")
