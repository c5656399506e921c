"""The guests of the suite: their rows, masks and demonstrations, and goals that can be reached."""

import numpy as np
import pytest
from tests.benchmarks.suite import HARD_FORMS, SUITE
from tests.integration.guest_text import GUESTS
from tests.integration.suite_controllers import CONTROLLERS, corridor, swing

import arkml
from arkml import GuestEnv
from arkml.abi.codes import EpisodeState
from arkml.sessions.session import Origin

NEW = [name for name, game in SUITE.items() if not game.has_settings]
HARD = {form: SUITE[f"pendulum, {form.replace('_', ' ')}"] for form in HARD_FORMS}
FRAMES = 600
LIVE = (EpisodeState.RUNNING, EpisodeState.INITIAL)


@pytest.fixture
def opened():
    """Open an environment of a game of the suite."""
    environments = []

    def make(game, agents=None, seed=1):
        configure = (agents or game.agents, "{seed}")
        environments.append(GuestEnv(GUESTS / game.guest, configure=configure))
        return environments[-1], environments[-1].reset(seed=seed)

    yield make
    for environment in environments:
        environment.close()


def uniform(actions, seed=7):
    generator = np.random.default_rng(seed)
    return lambda features: generator.uniform(-1, 1, (len(features), actions))


def allowed(decision, generator):
    """Choices of each deciding agent, drawn from those that are not masked."""
    rows = ~decision.ended
    return np.stack(
        [
            [generator.choice(np.flatnonzero(~masked)) for masked in branch[rows]]
            for branch in decision.masks
        ],
        axis=1,
    )


def random_actions(game):
    """Random actions for each decision: for branches, of the choices that are allowed."""
    generator = np.random.default_rng(7)

    def choose(decision):
        if decision.masks:
            return allowed(decision, generator)
        return generator.uniform(-1, 1, (len(decision.acting_agents), game.actions))

    return choose


def first_returns(environment, step, choose):
    """The return of the first episode of each agent, and whether it was terminated."""
    (decision,) = step.decisions
    totals, live = np.zeros(len(decision)), np.ones(len(decision), bool)
    terminated = np.zeros(len(decision), bool)
    while live.any():
        (decision,) = environment.step(choose(decision)).decisions
        totals += np.where(live, decision.rewards, 0.0)
        terminated |= live & decision.terminated
        live &= ~decision.ended
    return totals, terminated


def play(environment, step, choose, steps):
    """Decisions of `steps` steps, the first one included."""
    played = [step.decisions[0]]
    for _ in range(steps):
        (decision,) = environment.step(choose(played[-1])).decisions
        played.append(decision)
    return played


@pytest.mark.parametrize("name", NEW)
def test_a_game_plays_without_a_hive(host, name):
    game = SUITE[name]
    guest = host.load(GUESTS / game.guest)
    for _ in range(FRAMES):
        guest.update()

    assert (guest.call("status"), guest.call("mode")) == (0, 2)
    assert guest.call("frames") == FRAMES
    assert guest.call("episodes") >= game.agents
    assert guest.statistics.errors == {"UNAVAILABLE": 1}


@pytest.mark.parametrize("name", NEW)
def test_the_rows_of_a_game_are_those_that_the_suite_declares(opened, name):
    game = SUITE[name]
    environment, step = opened(game)
    played = play(environment, step, random_actions(game), FRAMES)
    behavior = played[0].behavior
    agents, steps = set(), {}
    for decision in played:
        assert len(decision) == game.agents
        assert decision.observations.shape == (game.agents, game.features)
        assert (decision.started == [agent not in agents for agent in decision.agents]).all()
        agents.update(decision.agents.tolist())
        for agent, started in zip(decision.agents.tolist(), decision.started, strict=True):
            steps[agent] = 0 if started else steps[agent] + 1

    assert (behavior.num_features, behavior.num_actions) == (game.features, game.actions)
    assert len(agents) >= 2 * game.agents
    assert max(steps.values()) <= game.steps


@pytest.mark.parametrize("name", NEW)
def test_a_game_follows_from_its_seed(opened, name):
    game = SUITE[name]

    def rows(seed):
        environment, step = opened(game, seed=seed)
        played = play(environment, step, random_actions(game), 30)
        return np.concatenate([decision.observations for decision in played]).tobytes()

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


@pytest.mark.parametrize("name", NEW)
def test_a_controller_reaches_the_goal_of_a_game_and_random_actions_do_not(opened, name):
    game = SUITE[name]
    control = CONTROLLERS[name]
    rate = np.median if game.statistic == "median" else np.mean
    by_hand, _ = first_returns(
        *opened(game), lambda decision: control(decision.observations[~decision.ended])
    )
    random, _ = first_returns(*opened(game), random_actions(game))

    assert rate(by_hand) >= game.goal
    assert rate(random) < game.goal


def test_the_corridor_masks_exactly_what_cannot_be_done(opened):
    environment, step = opened(SUITE["corridor"])
    played = play(environment, step, random_actions(SUITE["corridor"]), FRAMES)
    for decision in played:
        rows = ~decision.ended
        cell, breath, door = (np.rint(decision.observations[rows, :3] * [24, 3, 8])).T
        moves, keys = (branch[rows] for branch in decision.masks)

        assert (moves[:, 0] == (cell == 0)).all()
        assert not moves[:, 1].any()
        assert (moves[:, 2] == (door == 1)).all()
        assert (moves[:, 3] == ((door <= 2) | (breath == 0))).all()
        assert not keys[:, 0].any()
        assert (keys[:, 1:] == (door != 1)[:, None]).all()
        assert (decision.rewards >= -1.11).all()


@pytest.fixture
def corridor_played(make_host):
    """The guest of the corridor after frames in which a function of the features has acted."""

    def run(choose, frames, agents=16):
        guest = make_host(policy=choose).load(GUESTS / "c_corridor.wasm")
        assert guest.call("configure", agents, 1) == 0
        for _ in range(frames):
            guest.update()
        assert guest.call("status") == 0
        return guest

    return run


def test_the_corridor_gets_choices_that_exist_and_are_allowed_whatever_the_policy_gives(
    corridor_played,
):
    given = [[0, 0], [4, 0], [0.5, 0], [1, np.pi], [-1, 1e9], [1, 2]]
    guest = corridor_played(lambda _features: given, 20, agents=6)

    assert guest.call("forbidden") == 0


@pytest.mark.parametrize("choose", [corridor, lambda features: [[3, 1]] * len(features)])
def test_no_policy_makes_a_masked_choice(corridor_played, choose):
    assert corridor_played(choose, 60).call("forbidden") == 0


def test_the_demonstrations_of_sparse_reach_are_100_successes(opened):
    environment, step = opened(SUITE["sparse reach"])
    play(environment, step, lambda decision: np.zeros((len(decision.acting_agents), 2)), 60)
    submits = environment.take_demonstrations()
    rows = np.concatenate([submit.rows for submit in submits])
    given = np.concatenate([submit.actions for submit in submits])
    live = np.concatenate([np.isin(submit.rows["state"], LIVE) for submit in submits])

    assert {submit.origin for submit in submits} == {Origin.DEMONSTRATION}
    assert len(submits[0].rows) == len(set(rows["id"].tolist())) == 100
    assert rows["reward"].sum() == 100
    assert 1_500 < len(rows) < 3_000
    assert (np.abs(given) <= 1).all()
    assert np.abs(given[live]).mean() > 0.3


def test_sparse_reach_alone_shows_nothing(opened):
    environment, step = opened(SUITE["sparse reach, alone"])
    play(environment, step, lambda decision: np.zeros((len(decision.acting_agents), 2)), 60)

    assert environment.take_demonstrations() == []


def test_hunters_are_held_apart_by_their_rewards(opened):
    environment, step = opened(SUITE["chase"])
    played = play(environment, step, random_actions(SUITE["chase"]), FRAMES)
    seen, rewards = [], []
    for decision in played:
        running = ~decision.started & ~decision.ended
        near = np.hypot(*decision.observations[running, 4:6].T)
        distance = np.hypot(*decision.observations[running, :2].T)
        seen.append(near)
        rewards.append(decision.rewards[running] + distance)
    near, rewards = np.concatenate(seen), np.concatenate(rewards)

    assert (near < 0.5).all()
    assert rewards[(near > 0) & (near < 0.02)].mean() < -0.4
    np.testing.assert_allclose(rewards[near > 0.35], 0, atol=1e-6)


def plain_and_hard(opened, form, steps, agents=None):
    """Decisions of the plain pendulum and of a form of it, both left alone."""
    still = lambda decision: np.zeros((len(decision.acting_agents), 1))  # noqa: E731
    return (
        play(*opened(SUITE["pendulum"], agents), still, steps),
        play(*opened(HARD[form], agents), still, steps),
    )


@pytest.mark.parametrize(
    ("form", "factor", "offset"),
    [
        ("large_rewards", 1, 0),
        ("small_rewards", 1, 0),
        ("large_features", 1e4, 0),
        ("shifted_features", 1, 1e3),
        ("constant_feature", 1, 0),
    ],
)
def test_a_form_of_the_pendulum_is_the_plain_one_in_other_numbers(opened, form, factor, offset):
    for plain, hard in zip(*plain_and_hard(opened, form, 250), strict=True):
        observations, rewards = hard.observations.astype(float), hard.rewards.astype(float)

        np.testing.assert_allclose(
            observations[:, :3], plain.observations * factor + offset, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            rewards, plain.rewards.astype(float) * HARD[form].scale, rtol=1e-5, atol=0
        )
        assert (observations[:, 3:] == 3.0).all()


@pytest.mark.parametrize(
    ("form", "is_spoiled", "every"),
    [
        ("nan_features", lambda hard: np.isnan(hard.observations).any(axis=1), 500),
        ("huge_features", lambda hard: (hard.observations == np.float32(1e30)).any(axis=1), 500),
        ("huge_rewards", lambda hard: hard.rewards == np.float32(1e30), 5_000),
    ],
)
def test_a_row_is_spoiled_now_and_then_and_never_the_first(opened, form, is_spoiled, every):
    _, played = plain_and_hard(opened, form, 400, agents=200)
    spoiled = np.concatenate([is_spoiled(hard) for hard in played])
    started = np.concatenate([hard.started for hard in played])
    values = np.concatenate([np.column_stack([h.observations, h.rewards]) for h in played])

    assert 0.5 / every < spoiled.mean() < 1.6 / every
    assert not (spoiled & started).any()
    assert (np.abs(values[~spoiled]) < 20).all()


def test_the_rewards_of_the_pendulum_learned_by_default_are_those_of_the_other_one():
    def rated(guest):
        return arkml.evaluate(GUESTS / guest, swing, episodes=16).returns

    np.testing.assert_array_equal(rated("c_pendulum_plain.wasm"), rated("c_pendulum.wasm"))
