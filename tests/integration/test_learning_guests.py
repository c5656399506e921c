"""The guests that learn: their motion, their episodes, their scores, and how they come to a run."""

import logging
from collections import Counter, defaultdict
from concurrent.futures import Future
from itertools import pairwise

import numpy as np
import pytest
from tests.benchmarks.suite import SUITE
from tests.integration.guest_text import GUESTS
from tests.integration.suite_controllers import approach, balance, swing
from tests.unit.policy_models import linear

from arkml import Host
from arkml.abi.codes import EpisodeState
from arkml.errors import Unavailable
from arkml.guests.guest import calls_of
from arkml.hive.protocol.settings import Settings
from arkml.runs.hive_gateway import settings_of
from arkml.sessions.session import Origin
from arkml.sessions.session_table import TrainingStart
from arkml.testing import ConstantPolicy, RecordingPolicies, RecordingSink, ThreadedHost

GAMES = ("pendulum", "cartpole", "reach")
AGENTS = {"pendulum": 16, "cartpole": 16, "reach": 64}
LENGTHS = {"pendulum": 200, "cartpole": 500, "reach": 50}
WIDTHS = {"pendulum": (3, 1), "cartpole": (4, 1), "reach": (4, 2)}
BY_DEFAULT = {
    game.guest.removeprefix("c_").removesuffix(".wasm"): (game.features, game.actions)
    for game in SUITE.values()
    if not game.has_settings
}
OVER = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)
WIDEST = 12 * 2 * np.pi / 360


class Chosen(ConstantPolicy):
    """Acts as `choose` says of the features, and remembers the actions too."""

    def __init__(self, features, actions, choose):
        super().__init__(features, actions)
        self._choose = choose
        self.chosen = []

    def act(self, batch):
        super().act(batch)
        batch.actions[:] = self._choose(batch.features)
        self.chosen.append(batch.actions.copy())


class Choosing(RecordingPolicies):
    """Answers a guest with a `Chosen`, whatever model it loads."""

    def __init__(self, choose):
        super().__init__()
        self._choose = choose

    def load(self, snapshot, snapshot_format, num_features, num_actions, *declared):  # noqa: ARG002
        self.policy = Chosen(num_features, num_actions, self._choose)
        return self.policy


@pytest.fixture(scope="module")
def threaded():
    host = ThreadedHost()
    yield host
    host.close()


@pytest.fixture
def played(threaded):
    """Play a game for so many frames; returns the guest and the policy that it asked."""
    guests = []

    def play(game, choose, frames, *, agents=20, seed=1):
        policies = Choosing(choose)
        guest = threaded.load(GUESTS / f"c_{game}.wasm", initialize=False, policies=policies)
        guests.append(guest)
        assert guest.call("configure", agents, seed) == 0
        guest.initialize()
        for _ in range(frames):
            guest.update()
        assert guest.call("status") == 0
        return guest, policies.policy

    yield play
    for guest in guests:
        guest.close()


def nothing(features):  # noqa: ARG001
    return 0.0


def random(game):
    generator = np.random.default_rng(7)
    return lambda features: generator.uniform(-1.3, 1.3, (len(features), WIDTHS[game][1]))


HANDS = {"pendulum": swing, "cartpole": balance, "reach": approach}


def steps_of(policy):
    """Each agent's rows, in order: state, reward, features, action."""
    rows = defaultdict(list)
    for batch, actions in zip(policy.batches, policy.chosen, strict=True):
        told = zip(batch.ids, batch.states, batch.rewards, batch.features, actions, strict=True)
        for agent, *row in told:
            rows[agent].append(row)
    return rows


def transitions(policy):
    """Features and actions before a step, reward and features and state after it, as arrays."""
    found = [
        (before[2], before[3], after[1], after[2], after[0])
        for rows in steps_of(policy).values()
        for before, after in pairwise(rows)
    ]
    return [np.array(column, np.float64) for column in zip(*found, strict=True)]


def pendulum(features, actions):
    torque = 2 * np.clip(actions[:, 0], -1, 1)
    angle, speed = np.arctan2(features[:, 1], features[:, 0]), 8 * features[:, 2]
    reward = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)
    angle = angle + 0.05 * speed
    return reward, np.stack([np.cos(angle), np.sin(angle), speed / 8], axis=1)


def cartpole(features, actions):
    scale = np.array([2.4, 3, WIDEST, 3])
    x, velocity, angle, speed = (features * scale).T
    force = 10 * np.clip(actions[:, 0], -1, 1)
    push = (force + 0.05 * speed**2 * np.sin(angle)) / 1.1
    turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (
        0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
    )
    pull = push - 0.05 * turn * np.cos(angle) / 1.1
    moved = [x + 0.02 * velocity, velocity + 0.02 * pull, angle + 0.02 * speed, speed + 0.02 * turn]
    return np.ones(len(x)), np.stack(moved, axis=1) / scale


def reach(features, actions):
    way, velocity = features[:, :2], features[:, 2:]
    velocity = 0.9 * velocity + 0.1 * np.clip(actions, -1, 1)
    way = way - 0.1 * velocity
    return -np.hypot(*way.T), np.concatenate([way, velocity], axis=1)


MOTIONS = {"pendulum": pendulum, "cartpole": cartpole, "reach": reach}


@pytest.mark.parametrize("choice", ["nothing", "random", "hand"])
@pytest.mark.parametrize("game", GAMES)
def test_the_motion_is_that_of_a_reference(played, game, choice):
    choose = {"nothing": nothing, "random": random(game), "hand": HANDS[game]}[choice]
    _, policy = played(game, choose, 2 * LENGTHS[game])
    before, actions, rewards, after, _ = transitions(policy)
    expected_rewards, expected = MOTIONS[game](before, actions)

    assert len(before) > 1_000
    np.testing.assert_allclose(after, expected, atol=2e-6)
    np.testing.assert_allclose(rewards, expected_rewards, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("game", GAMES)
def test_every_agent_has_one_episode_with_lawful_states(played, game):
    guest, policy = played(game, random(game), 2 * LENGTHS[game] + 2)
    ended = 0
    for rows in steps_of(policy).values():
        first, *between = [row[0] for row in rows]
        last = between.pop() if between and between[-1] in OVER else None
        ended += last is not None

        assert first is EpisodeState.INITIAL
        assert set(between) <= {EpisodeState.RUNNING}
        assert len(rows) <= LENGTHS[game] + 1
        assert rows[0][1] == 0
        if last is EpisodeState.INTERRUPTED:
            assert len(rows) == LENGTHS[game] + 1
        if last is EpisodeState.TERMINAL:
            assert game == "cartpole"
    assert guest.call("episodes") == ended >= 40


def test_the_pole_ends_an_episode_exactly_when_it_or_the_cart_is_off_too_far(played):
    _, policy = played("cartpole", random("cartpole"), 400)
    *_, after, states = transitions(policy)
    off = np.abs(after[:, [0, 2]]).max(axis=1) > 1

    assert off.any()
    assert (off == (states == EpisodeState.TERMINAL)).all()


def test_the_cart_may_run_off_as_well(played):
    def lean(features):
        return features @ np.array([[0], [0], [0.377], [0.9]]) - 0.1

    _, policy = played("cartpole", lean, 500)
    *_, after, states = transitions(policy)
    ended = np.abs(after[states == EpisodeState.TERMINAL])

    assert ((ended[:, 0] > 1) & (ended[:, 2] < 1)).any()


SCALE = {
    ("pendulum", "random"): (-1_350, -1_000),
    ("pendulum", "nothing"): (-1_350, -950),
    ("pendulum", "hand"): (-200, -80),
    ("cartpole", "random"): (15, 40),
    ("cartpole", "nothing"): (30, 60),
    ("cartpole", "hand"): (475, 500),
    ("reach", "random"): (-58, -42),
    ("reach", "nothing"): (-58, -40),
    ("reach", "hand"): (-13, -8),
}


@pytest.mark.parametrize(("game", "choice"), SCALE)
def test_returns_are_on_the_scale_that_the_readme_tells(played, game, choice):
    choose = {"nothing": nothing, "random": random(game), "hand": HANDS[game]}[choice]
    low, high = SCALE[game, choice]
    guest, policy = played(game, choose, LENGTHS[game] + 1, agents=100)
    totals = [
        sum(row[1] for row in rows) for rows in steps_of(policy).values() if rows[-1][0] in OVER
    ]

    assert guest.call("episodes") == len(totals) >= 100
    assert low <= guest.call("mean_return") <= high
    if len(totals) == 100:
        assert guest.call("mean_return") == pytest.approx(np.mean(totals), rel=1e-5)


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_depends_on_the_seed_and_the_agent_alone(played, game):
    def firsts(**options):
        _, policy = played(game, nothing, 15, **options)
        return {
            agent: np.stack([row[2] for row in rows]) for agent, rows in steps_of(policy).items()
        }

    few, again, many = firsts(agents=3), firsts(agents=3), firsts(agents=10)
    other = firsts(agents=3, seed=2)

    assert len({few[agent].tobytes() for agent in few}) == 3
    for agent in few:
        np.testing.assert_array_equal(few[agent], again[agent])
        np.testing.assert_array_equal(few[agent], many[agent])
        assert (few[agent][0] != other[agent][0]).any()


@pytest.mark.parametrize("game", GAMES)
def test_a_guest_starts_over_with_other_agents_under_new_ids(played, game):
    guest, policy = played(game, nothing, 3, agents=2)

    assert guest.call("configure", 0, 1) == 5
    assert guest.call("configure", 4_097, 1) == 5
    assert guest.call("configure", 5, -1) == 0
    guest.update()
    assert policy.batches[-1].ids == [3, 4, 5, 6, 7]
    assert set(policy.batches[-1].states) == {EpisodeState.INITIAL}
    assert guest.call("frames") == 1


@pytest.mark.parametrize("game", GAMES)
def test_a_guest_plays_where_there_is_no_hive(host, caplog, game):
    caplog.set_level(logging.INFO, "arkml.guest")
    guest = host.load(GUESTS / f"c_{game}.wasm")
    guest.call("configure", 100, 1)
    for _ in range(LENGTHS[game] + 1):
        guest.update()

    said = [record.getMessage() for record in caplog.records]
    assert (guest.call("status"), guest.call("mode")) == (0, 2)
    assert guest.statistics.errors == {"UNAVAILABLE": 1}
    assert any("start_training answered 7: playing" in line for line in said)
    assert any("episodes, mean return" in line for line in said)


def test_a_policy_of_the_host_takes_the_place_of_the_one_that_a_guest_carries(make_host):
    policy = linear([[10.0, 0.0], [0.0, 10.0], [-3.0, 0.0], [0.0, -3.0]])
    guest = make_host(policy=policy).load(GUESTS / "c_reach.wasm")
    for _ in range(2 * 51):
        guest.update()

    assert guest.call("episodes") == 128
    assert guest.call("mean_return") > -13


class Gateway:
    """The way to a hive whose answer to `start` a test gives."""

    def __init__(self):
        self.launches = []
        self.answer = Future()

    def start(self, launch):
        self.launches.append(launch)
        return self.answer


@pytest.fixture
def starting():
    """A guest whose run is being started, its gateway, and the policy and the sink of the run."""
    hosts = []

    def start(game):
        host, gateway = Host(), Gateway()
        hosts.append(host)
        host._gateways.open = lambda module, library: gateway  # noqa: ARG005
        guest = host.load(GUESTS / f"c_{game}.wasm")
        widths = WIDTHS.get(game) or BY_DEFAULT[game]
        policy, sink = ConstantPolicy(*widths), RecordingSink()
        return guest, gateway, TrainingStart(policy, *widths, sink)

    yield start
    for host in hosts:
        host.close()


@pytest.mark.parametrize("game", GAMES)
def test_a_guest_stands_still_until_its_run_is_there_and_then_trains(starting, game):
    guest, gateway, run = starting(game)
    for _ in range(3):
        guest.update()
    frames_before = guest.call("frames")
    gateway.answer.set_result(run)
    for _ in range(LENGTHS[game] + 2):
        guest.update()

    states = Counter(state for batch in run.policy.batches for state in batch.states)
    metrics = {item.name for item in run.sink.noted}
    assert frames_before == 0
    assert (guest.call("status"), guest.call("mode")) == (0, 1)
    assert len(run.policy.batches) == guest.call("frames") == LENGTHS[game] + 2
    assert states[EpisodeState.INITIAL] >= 2 * AGENTS[game] > AGENTS[game]
    assert len(run.sink.noted) == guest.call("episodes") >= AGENTS[game]
    assert metrics == {"distance" if game == "reach" else "angle"}
    assert not guest.statistics.errors


@pytest.mark.parametrize("game", GAMES)
def test_a_guest_plays_when_its_run_does_not_come(starting, game):
    guest, gateway, _ = starting(game)
    guest.update()
    gateway.answer.set_exception(Unavailable("the hive is away"))
    for _ in range(5):
        guest.update()

    assert (guest.call("status"), guest.call("mode")) == (0, 2)
    assert guest.call("frames") == 5
    assert calls_of(guest).services.live_futures == 0


@pytest.mark.parametrize("game", GAMES)
def test_a_guest_asks_for_settings_that_a_learner_takes(starting, game):
    _, gateway, _ = starting(game)
    (launch,) = gateway.launches
    settings = settings_of(launch, None, {})

    assert (settings.features, settings.actions) == WIDTHS[game]
    assert settings.alpha == ("auto" if game != "cartpole" else pytest.approx(0.01))
    assert launch.experiment == launch.namespace == game
    assert launch.workers == 0


@pytest.mark.parametrize("game", BY_DEFAULT)
def test_a_guest_of_the_suite_asks_for_no_settings(starting, game):
    _, gateway, _ = starting(game)
    (launch,) = gateway.launches

    assert settings_of(launch, None, {}) == Settings(*BY_DEFAULT[game])
    assert launch.protocol is None


def test_a_guest_that_shows_how_trains_with_its_demonstrations(starting):
    guest, gateway, run = starting("sparse_reach_shown")
    gateway.answer.set_result(run)
    for _ in range(52):
        guest.update()

    assert (guest.call("status"), guest.call("mode")) == (0, 1)
    assert len(run.policy.batches) == guest.call("frames") == 52
    assert {origin for _, origin in run.sink.accepted} == {Origin.DEMONSTRATION}
    assert not guest.statistics.errors
