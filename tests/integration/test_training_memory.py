"""Guests whose rows do not show all, learned by policies that remember."""

import pytest
from tests.integration.command_line import GUESTS

import arkml


@pytest.mark.learns
@pytest.mark.parametrize(
    ("guest", "frames", "goal"),
    [("c_mountain_car_no_velocity", 8_000, 90), ("c_maze_200", 25_000, 0.9)],
)
def test_what_is_not_shown_is_remembered(tmp_path, guest, frames, goal):
    """White noise never gets the car out, and sequences of 64 rows leave the maze at a half."""
    result = arkml.train(
        GUESTS / f"{guest}.wasm", frames=frames, until_return=goal, directory=tmp_path
    )

    assert result.end_reason == "return"
