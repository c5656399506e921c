"""A policy that remembers plays the same episodes in every place, to the bit of each reward."""

import numpy as np
import onnxruntime
import pytest
from tests.recorded_trial import RecordedTrial, action

import arkml
from arkml.envs.core.guest_env import GuestEnv
from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.guest_trials.stand_ins import StandInFile, StandIns
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.trials.wire.guest_pb2 import Action

ECHO = "fixtures/guests/c_echo.wasm"
AGENTS, FRAMES, MEMORY = 16, 120, 16  # the guest has so many agents by itself


@pytest.fixture(scope="module")
def model():
    """The file of a policy without training, whose choices depend on what it remembers."""
    settings = Settings(4, 1, branches=(3,), memory=MEMORY, hidden=16, seed=3)
    return Ppo(settings, Normalizer(4, active=True)).policy().model


def plain_actions(model):
    """A function of rows, which plain onnxruntime answers without noise."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    states = {}

    def act(keys, observations):
        before = [states.get(key, np.zeros(MEMORY, np.float32)) for key in keys]
        given = {
            "observations": observations,
            "epsilon": np.zeros((len(keys), 1), np.float32),
            "action_masks": np.ones((len(keys), 3), np.float32),
            "h_in": np.array(before),
        }
        actions, after = session.run(["actions", "h_out"], given)
        states.update(zip(keys, after, strict=True))
        return actions

    return act


@pytest.fixture(scope="module")
def episodes(model):
    """The returns of episodes in the order of their ends, and the rewards of each frame."""
    act, totals, returns, rewards = plain_actions(model), {}, [], []
    with GuestEnv(ECHO) as env:
        (decision,) = env.reset().decisions
        for _ in range(FRAMES):
            rewards.append(decision.rewards.tolist())
            for agent, reward, ended in zip(
                decision.agents.tolist(), decision.rewards, decision.ended, strict=True
            ):
                totals[agent] = totals.get(agent, 0.0) + float(reward)
                if ended:
                    returns.append(totals[agent])
            acting = ~decision.ended
            rows = decision.observations[acting]
            actions = act(decision.agents[acting].tolist(), rows) if len(rows) else rows[:, :1]
            (decision,) = env.step(actions).decisions
    assert len(set(returns)) > 3
    return returns, rewards


def test_one_guest_plays_as_plain_onnxruntime_does(model, episodes):
    returns, _ = episodes
    with arkml.Host(policy=model, deterministic=True) as host:
        guest = host.load(ECHO)
        for _ in range(FRAMES):
            guest.update()

        assert guest.call("episodes") == len(returns)
        assert guest.call("mean_return") == np.float32(np.mean(returns))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_fleet_plays_as_one_guest_does(model, threads):
    with arkml.Host(policy=model, deterministic=True) as host:
        one = host.load(ECHO)
        seen = []
        for _ in range(FRAMES):
            one.update()
            seen.append(one.call("mean_return"))
    with (
        arkml.Host(policy=model, threads=threads, deterministic=True) as host,
        host.fleet(ECHO, 7) as fleet,
    ):
        for frame in range(FRAMES):
            fleet.update()
            assert {guest.call("mean_return") for guest in fleet.guests} == {seen[frame]}
    assert len(set(seen)) > 3


def test_an_evaluation_has_the_returns_of_plain_onnxruntime(model, episodes):
    returns, _ = episodes
    found = arkml.evaluate(ECHO, model, episodes=3 * AGENTS)

    assert found.returns.tolist() == returns[: 3 * AGENTS]


async def test_a_trial_plays_as_plain_onnxruntime_does(model, episodes):
    _, rewards = episodes
    hosting = hosting_of(model)
    trial = RecordedTrial(hosting, config={"seed": 0})
    await trial.tick(0)
    await trial.play(20)
    hosting.close()

    assert rewards_of(trial) == rewards[:21]


async def test_what_is_remembered_goes_on_from_the_actions_of_a_person(model):
    """A person acts for one agent in some ticks; the policy answers the next as if it had acted."""
    hosting = hosting_of(model)
    trial = RecordedTrial(hosting, config={"seed": 0})
    act = plain_actions(model)
    await trial.tick(0)
    chosen = []
    for tick in range(20):  # before the first ends
        rows = np.array([list(one.values) for one in trial.ticks[-1].values()], np.float32)
        chosen.append(act(range(AGENTS), rows)[:, 0].tolist())
        assert [choice_of(one) for one in trial.offered] == chosen[-1]
        await trial.act(**({"echo_1": action(choices=[2])} if tick % 3 == 1 else {}))
    hosting.close()

    assert len({tuple(one) for one in chosen}) > 3


def hosting_of(model):
    stand_ins = StandIns([StandInFile("echo.onnx", model)], seed=0, deterministic=True)
    return GuestHosting(GuestTrialsOptions(module=ECHO, environment={}, stand_ins=stand_ins))


def choice_of(stand_in):
    (choice,) = Action.FromString(stand_in.content).choices
    return float(choice)


def rewards_of(trial):
    """The rewards of each tick, of all slots."""
    slots = {name: place for place, (name, _) in enumerate(trial.actors)}
    found = []
    for given in trial.rewards[: len(trial.ticks)]:
        row = [0.0] * AGENTS
        for name, value, _ in given:
            row[slots[name]] = value
        found.append(row)
    return found
