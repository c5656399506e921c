"""Figures in the tables that commands print."""

import pytest

from arkml.cli import tables


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
