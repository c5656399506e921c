"""RecurrentPPO of sb3-contrib learns from guests that show what matters once only."""

import pytest
import torch
from tests.benchmarks.remembering import envs, rate, recurrent_ppo

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("guest", "rows", "chance", "enough"),
    [("c_echo", 64_000, 0.34, 0.7), ("c_maze", 48_000, 0.5, 0.9)],
)
def test_recurrent_ppo_learns_to_remember(guest, rows, chance, enough):
    """Without memory nothing is better than chance."""
    torch.set_num_threads(1)
    with envs(guest) as guests:
        model = recurrent_ppo(guest, guests, seed=1)
        before = rate(model, guest)
        model.learn(rows)
    after = rate(model, guest)
    print(f"{guest}: {before:.2f} before, {after:.2f} after {model.num_timesteps:,} rows")

    assert before < chance + 0.2
    assert after > enough
