"""How rows and updates keep together, and what is counted of them."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.rows import GUEST_SHIFT, META, Header, Record, RowColumns, RowKind
from arkml.hive.protocol.runs import LEAST_AHEAD, MOST_AHEAD
from arkml.hive.protocol.settings import Settings
from arkml.learning.policy_lag import STALE, PolicyLag
from arkml.learning.rate_limiter import (
    BACKLOG_SECONDS,
    LEAST_ROWS_PER_SECOND,
    MOST_UPDATES,
    RateLimiter,
)
from arkml.learning.row_statistics import WINDOW, Episode, EpisodesInOrder, RowStatistics
from arkml.learning.trajectories import FinishedEpisodes
from arkml.learning.version_ratings import Rating

SETTINGS = Settings(1, 1, memory_min_size=1_000, updates_per_row=0.5)
SYNC = Settings(1, 1, updates_per_row=0.125, sync=True)
NONE = FinishedEpisodes(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def limiter(settings=SETTINGS, seconds=0.0):
    """Return a rate limiter that has timed updates, unless they take 0 seconds."""
    made = RateLimiter(settings)
    for _ in range(6 if seconds else 0):
        made.record(1, seconds)
    return made


def test_before_any_update_hosts_may_send_the_rows_that_learning_begins_with_and_a_few_more():
    assert limiter().admitted(0) == 1_000 + LEAST_AHEAD


def test_each_update_admits_the_rows_that_ask_for_one():
    pace = limiter(seconds=0.01)
    pace.due(3_000, 1_000)

    assert pace.admitted(1_000) == 3_000 + LEAST_AHEAD
    assert pace.admitted(1_010) == 3_000 + LEAST_AHEAD + 20


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0.00001, MOST_AHEAD), (0.00005, 800), (1.0, LEAST_AHEAD)]
)
def test_rows_of_a_fiftieth_of_a_second_are_admitted_in_advance(seconds, ahead):
    pace = limiter(seconds=seconds)
    pace.due(3_000, 1_000)

    assert pace.admitted(1_000) == 3_000 + ahead


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 0.3, 1.0, 7.0, 1e3])
@pytest.mark.parametrize("seconds", [0.0, 1e-4, 1.0, 60.0])
def test_where_no_update_is_due_more_rows_are_admitted(ratio, seconds):
    pace = limiter(Settings(1, 1, memory_min_size=10, updates_per_row=ratio), seconds)
    rows = updates = 0
    for _ in range(100):
        rows = pace.admitted(updates)
        due = pace.due(rows, updates)
        updates += due

        assert due or pace.admitted(updates) > rows


def test_the_rows_that_learning_begins_with_get_no_updates():
    pace = limiter(replace(SETTINGS, updates_per_row=1.0), 0.001)
    first = pace.due(1_256, 0)

    assert first == 256
    assert pace.admitted(first) == 1_256 + LEAST_AHEAD


def test_updates_are_bounded_by_rows():
    pace = limiter(seconds=0.0001)

    assert pace.due(2_001, 0) == 500
    assert pace.due(2_001, 499) == 1
    assert pace.due(2_001, 2_000) == 0


def test_after_a_pause_a_few_seconds_of_updates_are_due_and_the_rest_is_forgotten():
    pace = limiter(seconds=0.1)
    before = pace.due(2_000, 1_000)
    after = pace.due(1_000_000, 1_000)
    made = [pace.due(1_000_000, 1_000 + updates) for updates in (1, 29, 30, 31)]
    later = pace.due(1_000_010, 1_030)

    assert (before, after) == (0, round(BACKLOG_SECONDS / 0.1))
    assert made == [29, 1, 0, 0]
    assert later == 5


def test_a_few_turns_that_others_held_up_make_nothing_forgotten():
    pace = RateLimiter(SETTINGS)
    for seconds in (30.0, 5.0, 0.001, 0.001, 5.0, 0.001, 0.001, 5.0):
        pace.record(1, seconds)

    assert pace.due(4_000, 0) == 1_500


def test_an_update_that_takes_longer_than_the_backlog_is_still_made():
    pace = limiter(seconds=100.0)

    assert pace.due(5_000, 0) == 1
    assert pace.due(5_000, 1) == 0
    assert pace.due(9_000, 1) == 1


@pytest.mark.parametrize(("seconds", "rows"), [(0.02, 100), (1.0, 100), (20.0, 100), (0.002, 500)])
def test_a_slow_learner_admits_a_hundred_rows_a_second_and_a_fast_one_what_it_learns(seconds, rows):
    pace = limiter(replace(SETTINGS, updates_per_row=1.0), seconds)
    sent, updates, spent, counted = 2_000, 0, 0.0, []
    for _ in range(600):
        turn = pace.turn(pace.due(sent, updates))
        pace.record(turn, turn * seconds)
        updates, spent = updates + turn, spent + turn * seconds
        sent = max(sent, pace.admitted(updates))
        counted.append((spent, sent))
    (middle, before), (end, after) = counted[300], counted[-1]

    assert (after - before) / (end - middle) == pytest.approx(rows, rel=0.05)


def test_rows_that_hosts_do_not_send_are_not_admitted_once_more():
    pace = limiter(seconds=1.0)
    for updates in range(1_000):
        assert pace.due(2_000 + 10 * updates, updates)
        pace.record(1, 1.0)

    assert pace.admitted(1_000) == 11_990 + LEAST_AHEAD + LEAST_ROWS_PER_SECOND


def test_lockstep_has_as_many_updates_as_rows_allow_whatever_they_take():
    pace = limiter(SYNC, 100.0)

    assert pace.due(2_007, 100) == 25
    assert pace.turn(25) == 25
    assert pace.turn(500) == MOST_UPDATES
    assert pace.due(80_000_000, 100) == 10_000_000 - 125 - 100


def test_updates_that_were_lost_with_a_learner_make_no_host_wait():
    pace = limiter()
    pace.begin(50_000, 4_000)

    assert pace.admitted(4_000) == 50_000 + LEAST_AHEAD
    assert pace.due(50_000, 4_000) == MOST_AHEAD / 2


def test_a_run_that_has_no_updates_yet_gets_those_of_its_rows():
    pace = limiter()
    pace.begin(4_000, 0)

    assert pace.due(4_000, 0) == 1_500


def test_a_turn_takes_about_a_tenth_of_a_second_and_is_one_update_while_that_is_not_known():
    pace = RateLimiter(SETTINGS)
    turns = [pace.turn(1_000)]
    for updates, seconds in ((1, 30.0), (10, 0.1), (1, 100.0), (10, 0.1), (1, 1.0), (1, 1.0)):
        pace.record(updates, seconds)
        turns.append(pace.turn(1_000))

    assert turns == [1, 1, 10, 1, 10, 1, 1]
    assert limiter(seconds=1e-4).turn(1_000) == MOST_UPDATES


class Learning(RuleBasedStateMachine):
    """
    A learner and its hosts. Hosts that wait send no more than was admitted; others send at will.

    Updates take between a tenth of a millisecond and some seconds, and the first one longer.
    """

    @initialize(
        ratio=st.sampled_from([1e-6, 0.01, 0.125, 1 / 3, 1.0, 7.0, 1_000.0]),
        least=st.sampled_from([1, 300, 5_000]),
        seconds=st.floats(1e-4, 5.0),
    )
    def open(self, ratio, least, seconds):
        self.ratio, self.least, self.seconds = ratio, least, seconds
        self.settings = Settings(1, 1, memory_min_size=least, updates_per_row=ratio)
        self.pace = RateLimiter(self.settings)
        self.rows = self.updates = self.admitted = 0
        self.turns = 0

    @property
    def due(self):
        return self.pace.due(self.rows, self.updates) if self.rows >= self.least else 0

    @rule(share=st.floats(0.0, 1.0))
    def hosts_that_wait_send(self, share):
        self.rows += round(share * max(0, self.pace.admitted(self.updates) - self.rows))

    @rule(rows=st.integers(1, 100_000))
    def hosts_that_do_not_wait_send(self, rows):
        self.rows += rows

    @rule(turns=st.integers(1, 20), factor=st.floats(0.5, 2.0))
    def learn(self, turns, factor):
        for _ in range(turns):
            if not (due := self.due):
                return
            count = self.pace.turn(due)
            assert 1 <= count <= min(due, MOST_UPDATES)
            self.updates += count
            assert self.pace.admitted(self.updates) >= self.admitted
            self.pace.record(count, count * self.seconds * factor * (1 if self.turns else 1_000))
            self.turns += 1

    @rule(seconds=st.floats(1e-4, 5.0))
    def the_machine_gets_busy_or_idle(self, seconds):
        self.seconds = seconds

    @rule(lost=st.floats(0.0, 1.0))
    def the_learner_is_killed(self, lost):
        self.updates = int(self.updates * (1 - lost))
        self.pace = RateLimiter(self.settings)
        self.pace.begin(self.rows, self.updates)
        self.admitted = self.turns = 0

        assert self.pace.admitted(self.updates) >= max(self.rows, self.least) + LEAST_AHEAD

    @invariant()
    def no_more_updates_are_made_than_rows_ask_for(self):
        assert self.updates + self.due <= max(0, self.rows - self.least) * self.ratio

    @invariant()
    def one_side_may_always_go_on(self):
        assert self.due or self.pace.admitted(self.updates) > self.rows

    @invariant()
    def what_is_admitted_never_falls(self):
        admitted = self.pace.admitted(self.updates)

        assert admitted >= self.admitted
        self.admitted = admitted

    @invariant()
    def hosts_that_wait_are_not_far_ahead(self):
        slowest = 2 * 5.0 * MOST_UPDATES  # seconds of a turn
        most = max(self.rows, self.least) + MOST_AHEAD + LEAST_ROWS_PER_SECOND * slowest

        assert self.pace.admitted(self.updates) <= most

    @invariant()
    def there_is_no_backlog_of_more_than_seconds(self):
        seconds = self.pace.update_seconds
        if self.turns > 5:
            assert self.due <= max(1, BACKLOG_SECONDS / seconds)


TestLearning = Learning.TestCase
TestLearning.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def record(meta=(), *, kind=RowKind.TRAINING, dropped=0, ends=0):
    """One row that begins an episode of agent 0, and the ends of agents from 1 on."""
    rows = RowColumns.empty(1 + ends, 1, 1)
    rows.agent[:] = np.arange(1 + ends)
    rows.step[1:], rows.state[1:] = 7, EpisodeState.TERMINAL
    rows.meta = np.array([(0, *item) for item in meta], META)
    return Record(0, 0, Header(1, 1 + ends, 1, 1, kind, dropped=dropped), rows, 0, 0)


def submits(begin=(), end=()):
    """Rows that begin the episodes of some agents in one submit, and end those of others."""
    rows = RowColumns.empty(len(begin) + len(end), 1, 1)
    rows.agent[:] = [*begin, *end]
    rows.step[len(begin) :], rows.state[len(begin) :] = 7, EpisodeState.TERMINAL
    return Record(0, 0, Header(1, len(rows.agent), 1, 1, RowKind.TRAINING), rows, 0, 0)


def episodes(*returns, first=1):
    """Episodes that have ended with the rows from `first` on."""
    rows = first + np.arange(len(returns))
    return FinishedEpisodes(np.array(returns), np.full(len(returns), 7), rows)


def test_means_are_over_the_last_episodes_of_training():
    made = RowStatistics()
    made.count(record(ends=WINDOW + 50), episodes(*range(WINDOW + 50)))
    made.count(record(kind=RowKind.DEMONSTRATION, ends=1), episodes(1e9))
    points = dict(made.points())

    assert points["rollout/ep_rew_mean"] == np.mean(range(50, WINDOW + 50))
    assert points["rollout/ep_len_mean"] == 7.0
    assert points["time/episodes"] == WINDOW + 50


@pytest.mark.parametrize("agents", [16, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_means_of_training_prefer_neither_short_nor_long_episodes(sign, agents):
    """Half of the episodes take 10 steps and half 200, with a reward a step: 105 is the truth."""
    draw, first, frames = np.random.default_rng(3), [], (210, 260, 400)
    means = {frame: [] for frame in frames}
    for _ in range(200):
        made, left, length, seen = EpisodesInOrder(), [0] * agents, [0] * agents, False
        for frame in range(max(frames) + 1):
            over = [agent for agent in range(agents) if left[agent] == 0]
            for agent in over if frame else ():
                made.end(agent, Episode(sign * length[agent], length[agent]))
            for agent in over:
                left[agent] = length[agent] = int(draw.choice([10, 200]))
            if over:
                made.begin(over)
            left = [steps - 1 for steps in left]
            if made.last and not seen:
                seen = True
                first.append(np.mean([one.total for one in made.last]))
            if frame in means:
                means[frame].append(np.mean([one.total for one in made.last]))

    assert np.mean(first) == pytest.approx(sign * 105, abs=8)
    for frame in frames:
        assert np.mean(means[frame]) == pytest.approx(sign * 105, abs=8)


def test_episodes_that_began_in_one_submit_count_when_all_of_them_have_ended():
    made = RowStatistics()
    made.count(submits(begin=[1, 2, 3]), NONE)
    made.count(submits(end=[1, 3]), episodes(-10.0, -10.0, first=0))
    assert "rollout/ep_rew_mean" not in dict(made.points())

    made.count(submits(end=[2]), episodes(-200.0, first=0))
    assert dict(made.points())["rollout/ep_rew_mean"] == np.mean([-10, -10, -200])


@pytest.mark.parametrize(("most", "truth"), [(50, 30), (100, 55), (200, 105), (300, 105)])
def test_means_of_training_under_a_limit_prefer_neither_short_nor_long_episodes(most, truth):
    """Half of the episodes take 10 steps and half 200; the four guests have 16 agents each."""
    draw, means, ratings = np.random.default_rng(5), [], []
    for _ in range(4):
        made, world = RowStatistics(most), [CoinGuest(guest, draw) for guest in range(4)]
        for _ in range(700):
            for place, guest in enumerate(world):
                made.count(*guest.submit(most))
                if guest.is_cut:
                    world[place] = CoinGuest(guest.number + 4, draw)
            ratings += [one.score for one in made.ratings.take() if isinstance(one, Rating)]
        means.append(dict(made.points())["rollout/ep_rew_mean"])

    deviation = (min(most, 200) - 10) / 2
    assert np.mean(means) == pytest.approx(truth, abs=5 * deviation / 400**0.5)
    assert np.mean(ratings) == pytest.approx(truth, abs=5 * deviation / (20 * len(ratings)) ** 0.5)
    assert len(ratings) > 7


class CoinGuest:
    """A guest whose agents get 1 a step, as `c_coin.wasm`, and its rows."""

    def __init__(self, number, draw):
        self.number, self.is_cut, self._draw = number, False, draw
        self._next, self._left, self._steps = number << GUEST_SHIFT, {}, {}

    def submit(self, most):
        while len(self._left) < 16:
            self._left[self._next] = int(self._draw.choice([10, 200]))
            self._steps[self._next] = 0
            self._next += 1
        agents = list(self._left)
        rows = RowColumns.empty(16, 1, 1)
        rows.agent[:], rows.step[:] = agents, [self._steps[agent] for agent in agents]
        rows.state[:] = np.where(rows.step, EpisodeState.RUNNING, EpisodeState.INITIAL)
        rows.state[rows.step == list(self._left.values())] = EpisodeState.TERMINAL
        running = rows.state == EpisodeState.RUNNING
        self.is_cut = bool((running & (rows.step >= most)).any())
        if self.is_cut:
            rows.state[running] = EpisodeState.INTERRUPTED
        for agent in agents:
            self._steps[agent] += 1
        is_over = np.isin(rows.state, (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED))
        steps, ended = rows.step[is_over], rows.agent[is_over]
        for agent in ended.tolist():
            del self._left[agent], self._steps[agent]
        rows_of = np.flatnonzero(is_over)
        found = FinishedEpisodes(steps.astype(float), steps.astype(int), rows_of)
        return Record(0, 0, Header(1, 16, 1, 1, RowKind.TRAINING), rows, 0, 0), found


def test_an_episode_that_does_not_end_is_waited_for_and_given_up():
    made = EpisodesInOrder()
    made.begin([1])
    for number in range(2 * WINDOW):
        made.begin([2])
        made.end(2, Episode(number, 1))
        if number == WINDOW // 2:
            assert not made.last

    assert made.last[-1].total == 2 * WINDOW - 1
    assert len(made._order) <= 1


def test_an_episode_that_its_agent_leaves_does_not_hold_others_up():
    made = EpisodesInOrder()
    made.begin([1, 2])
    made.end(2, Episode(5.0, 3))
    assert not made.last
    made.begin([1])
    assert list(made.last) == [Episode(5.0, 3)]


def test_metrics_of_the_guest_are_means_under_its_names():
    made = RowStatistics()
    made.name(["speed", "height"])
    made.count(record([(0, 1.0), (1, 5.0), (0, 3.0), (0, np.nan), (9, 1.0)]), NONE)
    first = dict(made.points())
    made.count(record([(0, 8.0)]), NONE)
    second = dict(made.points())

    assert first["guest/speed"] == 2.0
    assert first["guest/height"] == 5.0
    assert second["guest/speed"] == 4.0
    assert "guest/height" not in second


def test_many_values_of_a_metric_are_all_in_its_mean():
    made = RowStatistics()
    made.name(["speed"])
    made.count(record([(0, float(value)) for value in range(1_000)]), NONE)

    assert dict(made.points())["guest/speed"] == 499.5


def test_lost_rows_are_counted_and_survive_a_restart():
    made, again = RowStatistics(), RowStatistics()
    made.count(record(dropped=30, ends=2), episodes(1.0, 2.0))
    made.count(record(dropped=12), NONE)
    again.restore(made.as_json())

    assert dict(again.points())["hive/dropped"] == 42
    assert dict(again.points()) == dict(made.points())


def test_policies_have_an_age_in_versions_and_seconds():
    made = PolicyLag()
    for version in range(1, 11):
        made.publish(version, now=float(version))
    made.count(np.array([10, 10, 9, 0, 10 - STALE - 1], np.uint32), now=12.0)
    ages = made.take()

    assert ages.versions == (0 + 0 + 1 + STALE + 1) / 4
    assert ages.seconds == (2 + 2 + 3 + 2 + STALE + 1) / 4
    assert ages.stale == 0.25
    assert made.take() is None


def test_versions_of_before_a_restart_have_no_known_age():
    made = PolicyLag()
    made.publish(50, now=1.0)
    made.count(np.array([49, 50], np.uint32), now=3.0)

    assert made.take() == pytest.approx((0.5, 2.0, 0.0))
