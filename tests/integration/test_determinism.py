"""Fleets of all fixtures go on from a snapshot to the byte: here, on more threads, elsewhere."""

import pytest
from tests.integration.determinism import FIXTURES, differences

GUESTS_OF_A_FLEET = {"c_gallery": 4}  # whose rows are pictures; of all others a hundred
SOME = [path for path in FIXTURES if path.stem in ("as_applet", "c_coin_seeded", "c_pendulum")]


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.stem)
def test_sixty_frames_after_a_restore_are_those_after_the_snapshot(path, tmp_path):
    assert differences(path, range(4), 60, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_thousand_frames_after_a_restore_are_those_after_the_snapshot(path, tmp_path):
    seeds = range(GUESTS_OF_A_FLEET.get(path.stem, 100))
    assert differences(path, seeds, 1_000, tmp_path) == []


def test_every_kind_of_fixture_is_asked():
    assert len(FIXTURES) > 35
    assert len(SOME) == 3
