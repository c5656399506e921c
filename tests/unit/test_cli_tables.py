"""Figures in the tables that commands print."""

import io

import pytest
from rich.cells import cell_len

from arkml.cli import tables
from arkml.cli.tables import ListColumn


@pytest.mark.parametrize(
    ("rows", "frames", "shown"),
    [
        (24_000, 1_500, " (16 a frame)"),
        (10, 3, " (3.333 a frame)"),
        (6_400_000, 100, " (64,000 a frame)"),
        (7, 1, ""),
        (0, 100, ""),
    ],
)
def test_rows_a_frame_are_shown_without_an_exponent(rows, frames, shown):
    assert tables._share(rows, frames, "frame") == shown


COLUMNS = (
    ListColumn("run"),
    ListColumn("name", 1, 8),
    ListColumn("status", 2),
    ListColumn("rows", 3, is_number=True),
    ListColumn("tags", 4, 6),
    ListColumn("reason", 5),
)
ROWS = [
    ("51fda30fff39a239", "a name that goes on and on", "running", "1,024", "good, [bold]old", ""),
    ("ae1f51df69467f9e", "空手道の学習者", "stopped", "7", "", ""),
]


def listed(monkeypatch, width, rows=ROWS):
    """The lines of a list at a width, and the columns that have no room."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    table, dropped = tables.listing(COLUMNS, rows, stream)
    tables.show("runs", table, stream)
    return stream.getvalue().splitlines()[1:], dropped


@pytest.mark.parametrize(
    ("width", "dropped"),
    [(30, ["status", "rows", "tags"]), (40, ["rows", "tags"]), (50, ["tags"]), (60, []), (120, [])],
)
def test_a_list_has_a_line_for_each_row_at_any_width(monkeypatch, width, dropped):
    lines, left_out = listed(monkeypatch, width)
    shown = [line for line in lines if line.strip()]

    assert left_out == dropped
    assert len(shown) == 2 + len(ROWS)
    assert all(cell_len(line) <= width for line in lines)
    assert [line.split()[0] for line in shown[2:]] == [row[0] for row in ROWS]


def test_a_wide_list_has_whole_texts_and_no_column_that_is_empty(monkeypatch):
    lines, _ = listed(monkeypatch, 120)
    text = "\n".join(lines)

    assert "a name that goes on and on" in text
    assert "good, [bold]old" in text
    assert "reason" not in text
    assert "…" not in text


def test_a_list_without_rows_has_its_header(monkeypatch):
    lines, dropped = listed(monkeypatch, 80, [])

    assert "reason" in "\n".join(lines)
    assert dropped == []
