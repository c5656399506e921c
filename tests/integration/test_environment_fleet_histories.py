"""Fleets over random histories of one agent: what is stepped together is what a guest is alone."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, INTERRUPTED, RUNNING, TERMINAL, scripted

from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import UsageError

CARTPOLE = GUESTS / "c_cartpole.wasm"
IDS, REWARDS = st.sampled_from([1, 1, 1, 2, 1 << 63]), st.integers(-4, 4)
ANY_ROW = st.tuples(IDS, st.sampled_from([RUNNING, INITIAL, TERMINAL, INTERRUPTED]), REWARDS)
ODD_TURN = st.one_of(
    ANY_ROW.map(lambda row: [row]),
    ANY_ROW.map(lambda row: [(1, TERMINAL, 1), (2, INITIAL, row[2])]),
    st.just([]),
)


@st.composite
def episodes(draw):
    """The turns of an episode: one row each, mostly as guests push them."""
    agent = draw(IDS)
    states = [
        draw(st.sampled_from([INITIAL, INITIAL, RUNNING])),
        *[RUNNING] * draw(st.integers(0, 2)),
        *draw(st.sampled_from([[TERMINAL], [INTERRUPTED], [TERMINAL], []])),
    ]
    odd = [draw(ODD_TURN)] if draw(st.integers(0, 5)) == 0 else []
    return [[(agent, state, draw(REWARDS))] for state in states] + odd


ACTION = np.zeros((1, 1), np.float32)
GUEST_COUNT = 3


def shown(step, guest):
    """What a step of a fleet has of a guest."""
    columns = (
        step.observations, step.rewards, step.started, step.terminated, step.truncated,
        step.present, step.replaced, step.next_observations,
    )  # fmt: skip
    return [column[guest].tolist() for column in columns]


def alone(module, steps):
    """What a guest by itself shows, step by step, until it cannot be in a fleet or is over."""
    with GuestEnv(module) as env:
        step = env.reset(seed=1)
        before = np.zeros(1, np.float32)
        behavior = step.decisions[0].behavior
        for _ in range(steps):
            found = FleetStep.empty(1, 1)
            try:
                found.take(0, step, behavior, before)
            except UsageError:
                found.fail(0, None, before)
                yield shown(found, 0)
                return
            yield shown(found, 0)
            before = found.observations[0]
            if step.is_over:
                return
            step = env.step(np.zeros((len(env.decision.deciding), 1)))


LEFT = [[(1, INITIAL, 0)], [(1, INTERRUPTED, 0)], [(2, RUNNING, 0)]]
"""An agent that is away while another one has an episode, twice."""


@given(st.lists(episodes(), min_size=2, max_size=5))
@example([LEFT, LEFT])
@settings(deadline=None, max_examples=40)
def test_random_histories_are_shown_in_lockstep_as_a_guest_alone_shows_them(histories):
    turns = [[(1, INITIAL, 0)], *(turn for episode in histories for turn in episode)]
    module = scripted(*turns, after="unreachable")
    expected = list(alone(module, len(turns) + 1))
    with FleetEnv(module, GUEST_COUNT) as fleet:
        step = fleet.reset(seed=1)
        found = [step]
        while fleet.alive.any():
            step = fleet.step(np.zeros((GUEST_COUNT, 1), np.float32), step.observations)
            found.append(step)

    for guest in range(GUEST_COUNT):
        assert [shown(step, guest) for step in found] == expected


def test_a_run_has_what_its_guest_said_in_lockstep_once_the_guest_asks_for_more_than_a_submit():
    with FleetEnv(CARTPOLE, 1, configure=(1, "{seed}")) as fleet:
        step = fleet.reset(seed=1)
        (run,) = fleet.instance(0).experiments.started.values()
        while not run.metric_values:  # the room for metadata is made with the first
            step = fleet.step(ACTION, step.observations)
        first, said = dict(run.metric_values), []
        while run.metric_values == first:  # it logs a line after 100 episodes
            step = fleet.step(ACTION, step.observations)
            said += [] if step.events is None else [item.value for item in step.events.metadata]

    assert len(said) >= 90
    assert run.metric_values["angle"] in said[-2:]
