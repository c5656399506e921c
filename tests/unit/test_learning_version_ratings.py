"""Ratings of versions by episodes of training, with episodes whose truth is known."""

import numpy as np
import pytest

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.rows import Header, Record, RowColumns, RowKind
from arkml.learning.row_statistics import RowStatistics
from arkml.learning.trajectories import FinishedEpisodes
from arkml.learning.version_ratings import LEAST, Candidate, Rating, VersionRatings

INITIAL, TERMINAL = EpisodeState.INITIAL, EpisodeState.TERMINAL
SHORT, LONG = 10, 200
TRUTH = (SHORT + LONG) / 2


class Play:
    """
    Agents that play side by side, frame by frame; each episode is of another agent.

    `version` and `length` give those of an episode that begins, by frame and place, and `total` its
    return by both. `made` is what came of it.
    """

    def __init__(self, places, *, version, length, total, frames=20_000):
        self.ratings = VersionRatings()
        self.made = []
        names, left = list(range(places)), [0] * places
        totals: list[float | None] = [None] * places
        for frame in range(frames):
            over = [place for place in range(places) if not left[place]]
            for place in over:
                if totals[place] is not None:
                    self.ratings.end(names[place], totals[place])
                    names[place] += places
            if over:
                self.ratings.begin([names[place] for place in over], version(frame))
            for place in over:
                left[place] = length(place)
                totals[place] = total(version(frame), left[place])
            left = [steps - 1 for steps in left]
            self.made += self.ratings.take()

    @property
    def rated(self):
        return [one for one in self.made if isinstance(one, Rating)]

    @property
    def mean(self):
        return np.mean([one.score for one in self.rated])


def lengths(seed):
    draw = np.random.default_rng(seed)
    return lambda _: int(draw.choice([SHORT, LONG]))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("places", [1, 3, 16, 64])
@pytest.mark.parametrize("frames_of_a_version", [7, 2_000])
def test_a_rating_prefers_neither_short_nor_long_episodes(places, sign, frames_of_a_version):
    """An episode is worth its length, or costs it: by the first that end, 16 are rated 10."""
    plays = [
        Play(
            places,
            version=lambda frame: 1 + frame // frames_of_a_version,
            length=lengths(seed),
            total=lambda _, steps: sign * steps,
        )
        for seed in range(3)
    ]
    count = sum(len(play.rated) for play in plays)
    error = (LONG - SHORT) / 2 / np.sqrt(count * max(LEAST, places))

    assert count > 10
    assert np.mean([play.mean for play in plays]) == pytest.approx(sign * TRUTH, abs=5 * error)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_version_gets_the_returns_of_its_own_episodes(sign):
    """Episodes that begin under version v are worth v, whatever acts when they end."""
    played = Play(
        16,
        version=lambda frame: 1 + frame // 300,
        length=lengths(0),
        total=lambda version, _: sign * version,
    )

    assert len(played.rated) > 20
    assert all(one.score == sign * one.version for one in played.rated)


@pytest.mark.parametrize("places", [1, 16])
def test_where_versions_are_shorter_than_episodes_the_middle_one_is_rated(places):
    """Episodes are worth their version; of 20 in a row, as of 16 side by side, the mean is half."""
    played = Play(
        places,
        version=lambda frame: 1 + frame // 7,
        length=lengths(0),
        total=lambda version, _: version,
    )
    errors = [one.score - one.version for one in played.rated]

    assert len(errors) > 5
    assert abs(np.mean(errors)) < LONG * max(1, LEAST / places) / 7 / 4


def test_a_version_that_every_agent_has_begun_under_is_rated_by_its_own_episodes_alone():
    ratings = VersionRatings()
    ratings.begin(range(20), 1)
    for agent in range(19):
        ratings.end(agent, 1.0)
    ratings.begin(range(20, 39), 2)
    assert ratings.take() == [Candidate(1)]
    ratings.end(19, 21.0)  # the one that all wait for; version 2 is rated after that
    ratings.begin([39], 2)
    for agent in range(20, 40):
        ratings.end(agent, -5.0)

    assert ratings.take() == [Rating(1, 2.0)]


def test_a_version_is_not_rated_before_every_agent_has_ended_an_episode():
    ratings = VersionRatings()
    ratings.begin(range(20), 1)
    for agent in range(19):
        ratings.end(agent, 1.0)
    for agent in range(100, 150):
        ratings.begin([agent], 1)
        ratings.end(agent, 1.0)

    assert ratings.take() == [Candidate(1)]
    ratings.end(19, 21.0)
    assert ratings.take() == [Rating(1, 2.0)]


def test_agents_that_end_no_episode_are_not_waited_for_for_ever():
    played = Play(
        8,
        version=lambda frame: 1 + frame // 50,
        length=lambda place: 10**9 if place == 3 else 10,
        total=lambda version, _: version,
    )

    assert len(played.rated) > 5


def record(session, *rows):
    """Rows of (agent, state, step, version)."""
    columns = RowColumns.empty(len(rows), 1, 1)
    for row, (agent, state, step, version) in enumerate(rows):
        columns.agent[row], columns.state[row] = agent, state
        columns.step[row], columns.version[row] = step, version
    header = Header(1, len(rows), 1, 1, RowKind.TRAINING, dropped=0)
    return Record(session, 0, header, columns, 0, 0)


def ended(*returns):
    """Episodes that have ended with the rows from 0 on."""
    rows = np.arange(len(returns))
    return FinishedEpisodes(np.array(returns, float), np.full(len(returns), 7), rows)


def test_the_rows_of_a_run_are_rated_by_the_version_of_their_first_rows():
    """Two sessions, whose agents have the same numbers; version 9 acts when they end."""
    made, agents = RowStatistics(), range(LEAST // 2)
    nothing = ended()
    for session in (0, 1):
        made.count(record(session, *((agent, INITIAL, 0, 3) for agent in agents)), nothing)
    for session, total in ((0, 1.0), (1, 5.0)):
        ends = record(session, *((agent, TERMINAL, 7, 9) for agent in agents))
        made.count(ends, ended(*[total] * len(agents)))
    first = made.ratings.take()
    for session in (0, 1):
        made.count(record(session, *((50 + agent, INITIAL, 0, 9) for agent in agents)), nothing)

    assert first == [Candidate(3), Rating(3, 3.0)]
    assert made.ratings.take() == [Candidate(9)]


def test_an_episode_that_was_left_counts_nowhere():
    ratings = VersionRatings()
    ratings.begin(range(20), 1)
    ratings.leave(0)
    for agent in range(1, 20):
        ratings.end(agent, 1.0)
    ratings.begin([20], 1)
    ratings.end(20, 21.0)

    assert ratings.take() == [Candidate(1), Rating(1, 2.0)]
