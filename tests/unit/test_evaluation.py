"""The episodes of an evaluation."""

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.policies.training import Rows
from arkml.runs.episode_recorder import EpisodeRecorder

INITIAL, RUNNING, TERMINAL = EpisodeState.INITIAL, EpisodeState.RUNNING, EpisodeState.TERMINAL


def submit(episodes, step, state, reward, keep=None):
    """Submit one row of agent 7."""
    keep = None if keep is None else np.array([keep])
    episodes.take(
        Rows(
            np.array([7], "u8"), np.array([step], "u8"), 1, np.array([reward], "f4"),
            np.array([state], "u4"), np.zeros((1, 2), "f4"), np.zeros((1, 1), "f4"), keep,
        )
    )  # fmt: skip


def test_rows_that_do_not_count_are_in_no_return_and_no_length():
    episodes = EpisodeRecorder(10)
    for _ in range(2):
        submit(episodes, 0, INITIAL, 0.0)
        submit(episodes, 1, RUNNING, 2.0)
        submit(episodes, 2, RUNNING, float("nan"), keep=False)
        submit(episodes, 3, TERMINAL, 0.5)

    assert episodes.returns == [2.5, 2.5]
    assert episodes.lengths == [2, 2]


def test_an_episode_ends_with_a_row_that_does_not_count_too():
    episodes = EpisodeRecorder(10)
    submit(episodes, 0, INITIAL, 0.0)
    submit(episodes, 1, RUNNING, 2.0)
    submit(episodes, 2, TERMINAL, float("nan"), keep=False)
    submit(episodes, 0, RUNNING, 4.0, keep=False)
    submit(episodes, 1, TERMINAL, 4.0)

    assert episodes.returns == [2.0]
    assert episodes.lengths == [1]


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
