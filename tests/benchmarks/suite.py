"""The games by which the learner's defaults are chosen and measured: guests, goals and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HARD_FORMS = (
    "large_rewards",
    "small_rewards",
    "large_features",
    "shifted_features",
    "constant_feature",
    "nan_features",
    "huge_features",
    "huge_rewards",
)
"""The pendulums whose rows are hard on a learner, by what is wrong with them."""


@dataclass(frozen=True, slots=True)
class SuiteGame:
    """
    A game of the suite.

    `guest` is its file in fixtures/guests, of 16 agents, or `agents`. `goal` is the `statistic` of
    the returns of 100 episodes without noise that counts as learned. `steps` is the length of an
    episode that is cut. `rows` are those within which the defaults reach the goal. `scale` is the
    factor of the rewards beside those of `plain`, the game of which this is another form.
    `learner` is the algorithm that learns it; every other setting is the default.
    `has_settings` is true for a guest that asks for settings of its own, by a ProtocolConfig, over
    which a measurement of the defaults puts them.
    """

    guest: str
    features: int
    actions: int
    steps: int
    goal: float
    rows: int
    learner: Literal["sac", "ppo"] = "sac"
    agents: int = 16
    statistic: Literal["mean", "median"] = "mean"
    plain: str = ""
    scale: float = 1.0
    has_settings: bool = False
    notes: str = ""


def _hard(form: str) -> SuiteGame:
    """Return a form of the pendulum, with one and a half times the rows of the plain one."""
    scale = {"large_rewards": 1e6, "small_rewards": 1e-6}.get(form, 1.0)
    return SuiteGame(
        f"c_pendulum_{form}.wasm",
        features=4 if form == "constant_feature" else 3,
        actions=1,
        steps=200,
        goal=-200.0 * scale,
        rows=7_500,
        statistic="median" if form == "huge_rewards" else "mean",
        plain="pendulum",
        scale=scale,
    )


SUITE: Mapping[str, SuiteGame] = {
    "pendulum": SuiteGame("c_pendulum_plain.wasm", 3, 1, 200, goal=-200.0, rows=5_000),
    "cart-pole": SuiteGame(
        "c_cartpole.wasm", 4, 1, 500, goal=450.0, rows=12_000, has_settings=True
    ),
    "reach": SuiteGame(
        "c_reach.wasm", 4, 2, 50, goal=-13.0, rows=9_000, agents=64, has_settings=True
    ),
    "sparse reach": SuiteGame(
        "c_sparse_reach_shown.wasm", 4, 2, 50, goal=0.9, rows=40_000,
        notes="100 demonstrations; a return is 1 for a success, 0 otherwise",
    ),
    "sparse reach, alone": SuiteGame(
        "c_sparse_reach.wasm", 4, 2, 50, goal=0.9, rows=40_000, plain="sparse reach",
        notes="no demonstrations: a mean return of less than 0.2 is expected",
    ),
    "lander": SuiteGame("c_lander.wasm", 6, 2, 150, goal=150.0, rows=30_000),
    "double pendulum": SuiteGame("c_double_pendulum.wasm", 8, 1, 300, goal=260.0, rows=20_000),
    "chase": SuiteGame(
        "c_chase.wasm", 8, 2, 100, goal=-25.0, rows=20_000,
        notes="16 agents in one world: other numbers of them are other games",
    ),
    "point mass": SuiteGame("c_point_mass.wasm", 4, 2, 50, goal=-6.0, rows=50_000, learner="ppo"),
    "corridor": SuiteGame(
        "c_corridor.wasm", 6, 2, 60, goal=2.5, rows=50_000, learner="ppo",
        notes="branches of 4 and 4 choices, with masks",
    ),
    **{f"pendulum, {form.replace('_', ' ')}": _hard(form) for form in HARD_FORMS},
}  # fmt: skip
