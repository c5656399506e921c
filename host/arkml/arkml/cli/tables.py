"""Tables that commands print on stdout and stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arkml.base.terminal import harmless
from arkml.cli.units import duration, size, times

if TYPE_CHECKING:
    from arkml.cli.summary import Summary
    from arkml.runtime.account import Usage

_REASONS = 5  # shown of those for which pushes and submits were refused
_WIDE = 160  # columns in files and pipes, unless COLUMNS says otherwise
_GAP, _EDGES = 3, 2  # cells between the columns of a table, and at both of its sides
_WHOLE = 48  # characters of a name that is not broken


_KINDS = {
    "import_seconds": "imports",
    "copy_seconds": "copies",
    "model_seconds": "models of the guest",
    "policy_seconds": "policy of the host (not charged)",
    "wait_seconds": "waits (not charged)",
    "object_bytes": "structs, arrays, exceptions",
    "column_bytes": "columns",
    "session_bytes": "models and brains in use",
    "agent_bytes": "states of agents",
    "request_bytes": "requests to hives",
    "vector_bytes": "return slice and pending vector",
    "work_bytes": "work space of models",
    "run_seconds": "time charged in all",
    "total_bytes": "memory in all",
}


class ListColumn(NamedTuple):
    """
    A column of a list that is fitted into the width of a terminal.

    Attributes:
        name: Header of the column.
        rank: Columns with the highest rank are left out first if there is no room.
        least: Width in characters to which its texts may be cut, None if they are never cut.
        is_number: True aligns the column to the right.

    """

    name: str
    rank: int = 0
    least: int | None = None
    is_number: bool = False


def show(title: str, table: Table, stream: TextIO | None = None) -> None:
    """Print a table under its title."""
    stream = stream or sys.stdout
    console = Console(file=stream, width=_width(stream), highlight=False)
    console.print(Text(harmless(title), style="bold"))
    console.print(table)


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of two columns: a name and a value in each row."""
    table = _table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(harmless(value)))
    return table


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table with a header; texts in its cells are not interpreted as markup."""
    table, rows = _table(show_header=True), list(rows)
    is_short = all(len(row[0]) <= _WHOLE for row in rows)
    for place, name in enumerate(header):
        table.add_column(name, overflow="fold", no_wrap=place == 0 and is_short)
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    return table


def listing(
    columns: Sequence[ListColumn], rows: Iterable[Sequence[str]], stream: TextIO | None = None
) -> tuple[Table, list[str]]:
    """
    Return a table with one line for each row, and the names of the columns that were left out.

    Empty columns are left out. If the table is wider than the stream, by default stdout, texts are
    cut, and then columns are left out by rank.
    """
    shown = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[n]) for row in shown) if shown else 0 for n in range(len(columns))]
    kept = [n for n, width in enumerate(widths) if width or not shown]
    widths = [max(width, len(one.name)) for width, one in zip(widths, columns, strict=True)]
    least = [
        width if one.least is None else min(width, max(one.least, len(one.name)))
        for width, one in zip(widths, columns, strict=True)
    ]
    room = Console(file=stream or sys.stdout, width=_width(stream or sys.stdout)).width - _EDGES
    dropped = []
    while len(kept) > 1 and sum(least[n] + _GAP for n in kept) - _GAP > room:
        dropped.append(max(kept, key=lambda n: (columns[n].rank, n)))
        kept.remove(dropped[-1])
    for _ in range(room + _GAP - sum(least[n] + _GAP for n in kept)):
        if cut := [n for n in kept if least[n] < widths[n]]:
            least[min(cut, key=least.__getitem__)] += 1
    table = _table(show_header=True)
    for n in kept:
        table.add_column(
            columns[n].name,
            width=least[n],
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if columns[n].is_number else "left",
        )
    for row in shown:
        table.add_row(*(Text(row[n]) for n in kept))
    return table, [columns[n].name for n in sorted(dropped)]


def tell_dropped(names: Sequence[str]) -> None:
    """Print the names of the columns that a listing had no room for, and how to see them."""
    if names:
        sys.stdout.write(
            f"no room for {', '.join(names)}: a wider terminal, COLUMNS=200 or --json shows them\n"
        )


def show_run(summary: Summary, stream: TextIO) -> None:
    """Print the figures of a run."""
    show(f"{summary.guest}: {summary.function}", facts(_run_rows(summary)), stream)


def show_account(account: Usage, stream: TextIO) -> None:
    """Print the time and the memory charged to guests, by kind."""
    show("account", grid(("kind", "used"), _account_rows(account)), stream)


def _account_rows(account: Usage) -> Iterable[tuple[str, str]]:
    for name, figure in account.as_dict().items():
        kind, unit = name.rsplit("_", 1) if "_" in name else ("", name)
        text = duration(figure) if unit == "seconds" else size(figure)
        yield _KINDS.get(name, kind), text


def _run_rows(summary: Summary) -> Iterable[tuple[str, str]]:
    counted, frames = summary.statistics, len(summary.timings)
    median, p99 = summary.timings.quantiles(0.5, 0.99)
    if summary.instances > 1:
        failed = f", {summary.failed:,} failed" if summary.failed else ""
        yield "guests", f"{summary.instances:,}{failed}"
    unit = "frame" if summary.is_of_frames else "call"
    yield f"{unit}s", f"{frames:,}"
    yield "submits", f"{counted.submits:,}"
    yield "rows", f"{counted.rows:,}" + _share(counted.rows, frames, unit)
    if counted.rows:
        yield "actions a second", f"{summary.actions_per_second:,.0f}"
    longest = summary.timings.longest
    yield f"{unit} time", times(median, p99, longest) if frames > 1 else duration(longest)
    if summary.late is not None:
        yield "late frames", f"{summary.late:,} at {summary.fps:g} frames a second"
    elif summary.is_of_frames:
        yield "late frames", "none (no --fps)"
    yield "errors", _counts(counted.errors) or "none"
    yield from refusal_rows(counted.refusals)
    if counted.limits:
        yield "limits reached", _counts(counted.limits)
    for name in ("features", "actions"):
        if count := getattr(counted, f"non_finite_{name}"):
            yield f"non-finite {name}", f"{count:,}"
    if summary.result is not None:
        yield "result", value(summary.result)


def refusal_rows(refusals: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """Yield a row for each reason that a push or submit was refused, the most frequent first."""
    most = sorted(refusals.items(), key=lambda item: (-item[1], item[0]))
    for sentence, count in most[:_REASONS]:
        yield "refused", f"{count:,}: {sentence}"
    if rest := sum(count for _, count in most[_REASONS:]):
        yield "refused", f"{rest:,} for other reasons"


def _width(stream: TextIO) -> int | None:
    """Return the width in columns, by default the terminal's."""
    if stream.isatty():
        return None
    wanted = os.environ.get("COLUMNS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else _WIDE


def _counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counter.items()))


def value(result: Any) -> str:
    """Return a wasm result as text for a table."""
    return ", ".join(map(str, result)) if isinstance(result, tuple) else str(result)


def _share(rows: int, frames: int, unit: str) -> str:
    if not rows or frames <= 1:
        return ""
    share = rows / frames
    return f" ({share:,.0f} a {unit})" if share >= 1_000 else f" ({share:.4g} a {unit})"


def _table(*, show_header: bool) -> Table:
    return Table(
        show_header=show_header,
        box=box.SIMPLE_HEAD if show_header else box.SIMPLE,
        pad_edge=False,
        header_style="dim",
    )
