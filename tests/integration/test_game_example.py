"""The game of examples/game, played without a screen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT

GAME = ROOT / "examples" / "game"
SAID = "arkml.guest.floods#0: look at me!"


def played(frames: int, fps: int, saved: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Play frames, at 0 fps as fast as they come, drawn by SDL without a screen."""
    run = subprocess.run(
        [
            sys.executable, "-W", "error", GAME / "game.py", "--frames", str(frames),
            "--fps", str(fps), "--saved", saved,
        ],
        capture_output=True, text=True, timeout=500, check=False,
        env={**ENVIRONMENT, "SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1", **more},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    return run


@pytest.mark.parametrize(
    ("frames", "fps", "more"),
    [
        (1_200, 0, {}),
        # 17 ms a call, since a busy machine takes more than 4 from mods that are well
        (300, 15, {"ARKML_PURE": "1"}),
    ],
)
def test_a_game_goes_on_whatever_its_mods_do(frames, fps, more, tmp_path):
    run = played(frames, fps, tmp_path / "crowd.state", **more)
    drawn, near, count, new = map(int, re.findall(r"\d+", run.stdout.splitlines()[0]))

    assert (drawn, count) == (frames, 200)
    assert near > 100  # the crowd follows the player
    assert new > 0 or frames < 1_000  # who fell was swapped
    assert re.search(r"^mods: circles\b", run.stdout, re.MULTILINE)
    assert "out: traps#0 trapped: integer division by zero\n" in run.stdout
    assert re.search(
        r"^out: spins ran for 0\.0\d+ s .* over its budget of", run.stdout, re.MULTILINE
    )
    assert 0 < run.stderr.count(SAID) < frames  # of ten in each frame
    assert len(re.findall(r"^slowest: npc#\d+ \d+\.\d{3} ms$", run.stdout, re.MULTILINE)) == 3
    saved, *loaded = re.findall(r"^(?:saved|loaded), (crowd \w+)$", run.stdout, re.MULTILINE)
    assert loaded == [saved] * 2


def test_the_page_shows_the_npc_as_it_is():
    page = (ROOT / "docs" / "game.md").read_text()

    assert f"```c\n{(GUESTS / 'c' / 'npc.c').read_text()}```" in page
