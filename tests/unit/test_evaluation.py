"""The episodes of an evaluation."""

import numpy as np
import pytest

from arkml.abi.codes import EpisodeState
from arkml.policies.training import Rows
from arkml.runs.episode_recorder import EpisodeRecorder
from arkml.training.results import EvaluationResult

INITIAL, RUNNING, TERMINAL = EpisodeState.INITIAL, EpisodeState.RUNNING, EpisodeState.TERMINAL


def submit(episodes, step, state, reward, keep=None, feature=0.0):
    """Submit one row of agent 7; `keep` may be "lost", of a row that is not finite."""
    lost = np.array([True]) if keep == "lost" else None
    keep = None if keep is None else np.array([keep is True])
    episodes.take(
        Rows(
            np.array([7], "u8"), np.array([step], "u8"), 1, np.array([reward], "f4"),
            np.array([state], "u4"), np.full((1, 2), feature, "f4"), np.zeros((1, 1), "f4"), keep,
            None, lost,
        )
    )  # fmt: skip


def test_irregular_rows_are_in_no_return_and_no_length():
    episodes = EpisodeRecorder(10)
    for _ in range(2):
        submit(episodes, 0, INITIAL, 0.0)
        submit(episodes, 1, RUNNING, 2.0)
        submit(episodes, 2, INITIAL, 8.0, keep=False)
        submit(episodes, 3, TERMINAL, 0.5)
    submit(episodes, 0, RUNNING, 4.0, keep=False)
    submit(episodes, 1, TERMINAL, 4.0)

    assert episodes.returns == [2.5, 2.5]
    assert episodes.lengths == [2, 2]


@pytest.mark.parametrize("lost", ["first", "middle", "last", "all"])
def test_rows_whose_features_are_not_finite_count(lost):
    episodes = EpisodeRecorder(10)
    for step, (state, place) in enumerate(
        [(INITIAL, "first"), (RUNNING, "middle"), (TERMINAL, "last")]
    ):
        is_lost = lost in (place, "all")
        feature = np.nan if is_lost else 0.0
        submit(episodes, step, state, 2.0, keep="lost" if is_lost else None, feature=feature)

    assert (episodes.returns, episodes.lengths) == ([4.0], [2])


def test_a_row_of_a_guest_that_was_cut_off_begins_no_episode_whatever_its_numbers():
    episodes = EpisodeRecorder(10)
    submit(episodes, 0, INITIAL, 0.0, keep=False, feature=np.nan)
    submit(episodes, 1, TERMINAL, 1.0)

    assert episodes.returns == []


@pytest.mark.parametrize("state", [RUNNING, TERMINAL])
@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_makes_a_return_that_is_not(state, reward):
    episodes = EpisodeRecorder(2)
    submit(episodes, 0, INITIAL, reward, keep="lost")  # no action led to it
    submit(episodes, 1, TERMINAL, 3.0)
    submit(episodes, 0, INITIAL, 0.0)
    submit(episodes, 1, state, reward, keep="lost")
    if state == RUNNING:
        submit(episodes, 2, TERMINAL, 1.0)
    played = episodes.played(1, 5)

    assert repr(played.returns) == repr([3.0, float(reward)])
    assert played.lengths == [1, 1 + (state == RUNNING)]
    assert played.shortfall == (
        "1 of 2 episodes have a return that is not finite, because the guest gave such rewards"
    )


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("error")
def test_figures_of_returns_that_are_not_finite_are_not_finite_either(lost):
    returns = np.array([1.0, lost, -lost])
    rated = EvaluationResult(returns, np.ones(3, np.int64), None, 9, 0.1)

    assert np.isnan([rated.mean_return, rated.standard_deviation, rated.standard_error]).all()


def test_an_episode_is_a_success_if_the_guest_has_said_so_in_it():
    episodes = EpisodeRecorder(10)
    knew = episodes.knows_success
    for marked in ("in the middle", "at the end", "with 0", "never"):
        submit(episodes, 0, INITIAL, 0.0)
        submit(episodes, 1, RUNNING, 1.0)
        if marked == "in the middle":
            episodes.mark([7], [0.5])
        submit(episodes, 2, TERMINAL, 1.0)
        if marked == "at the end":
            episodes.mark([7], [1.0])
        if marked == "with 0":
            episodes.mark([7], [0.0])

    assert not knew
    assert episodes.knows_success
    assert episodes.successes == [True, True, False, False]


def test_what_was_said_of_an_episode_that_was_left_is_forgotten():
    episodes = EpisodeRecorder(10)
    submit(episodes, 0, INITIAL, 0.0)
    episodes.mark([7], [1.0])
    submit(episodes, 0, INITIAL, 0.0)
    submit(episodes, 1, TERMINAL, 1.0)
    submit(episodes, 0, INITIAL, 0.0)
    episodes.mark([7], [1.0])
    episodes.restart(10)
    submit(episodes, 0, INITIAL, 0.0)
    submit(episodes, 1, TERMINAL, 1.0)

    assert episodes.successes == [False]
