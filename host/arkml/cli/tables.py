"""Tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from arkml.cli.units import duration, times
from arkml.sessions.text import harmless

if TYPE_CHECKING:
    from arkml.cli.summary import Summary

_WIDE = 160  # columns, where nobody looks: in files and pipes


def show(table: Table, stream: TextIO | None = None) -> None:
    """Print a table."""
    stream = stream or sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else _WIDE, highlight=False)
    console.print(table)


def facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """A name and a value in each row."""
    table = _table(title, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(harmless(value)))
    return table


def grid(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with a header. What stands in it is shown as it is."""
    table = _table(title, show_header=True)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    return table


def run_table(summary: Summary) -> Table:
    """How a run went."""
    return facts(f"{summary.guest}: {summary.function}", _run_rows(summary))


def _run_rows(summary: Summary) -> Iterable[tuple[str, str]]:
    counted, frames = summary.statistics, len(summary.timings)
    median, p99, longest = summary.timings.quantiles(0.5, 0.99, 1.0)
    if summary.instances > 1:
        failed = f", {summary.failed:,} failed" if summary.failed else ""
        yield "guests", f"{summary.instances:,}{failed}"
    yield "frames", f"{frames:,}"
    yield "submits", f"{counted.submits:,}"
    yield "rows", f"{counted.rows:,}" + _share(counted.rows, frames)
    if counted.rows:
        yield "actions a second", f"{summary.actions_per_second:,.0f}"
    yield "frame time", times(median, p99, longest) if frames > 1 else duration(longest)
    if summary.late is not None:
        yield "late frames", f"{summary.late:,} at {summary.fps:g} frames a second"
    errors = ", ".join(f"{name} {count:,}" for name, count in sorted(counted.errors.items()))
    yield "errors", errors or "none"
    for name in ("features", "actions"):
        if count := getattr(counted, f"non_finite_{name}"):
            yield f"non-finite {name}", f"{count:,}"
    if summary.result is not None:
        yield "result", value(summary.result)


def value(result: Any) -> str:
    """A wasm result."""
    return ", ".join(map(str, result)) if isinstance(result, tuple) else str(result)


def _share(rows: int, frames: int) -> str:
    return f" ({rows / frames:,.4g} a frame)" if rows and frames > 1 else ""


def _table(title: str, *, show_header: bool) -> Table:
    from rich import box

    return Table(
        title=Text(harmless(title), style="bold"),
        title_justify="left",
        show_header=show_header,
        box=box.SIMPLE_HEAD if show_header else box.SIMPLE,
        pad_edge=False,
        header_style="dim",
    )
