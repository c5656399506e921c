"""Guests that play copies of a game: an evaluation plays as many of them as it has episodes."""

import logging

import numpy as np
import pytest
import wasmtime
from tests.integration.command_line import GUESTS
from tests.integration.command_line import arkml as command
from tests.integration.watched_runs import with_section
from tests.unit.policy_models import model, node, port, weight

import arkml
from arkml import Limits
from arkml.errors import GuestTrap, InvalidSpec, NotFound
from arkml.training.evaluations import EpisodePlayer, EvaluationTask

PENDULUM = (GUESTS / "c_pendulum.wasm").read_bytes()  # 16 agents unless it is configured
SEEDED = (GUESTS / "c_reach_seeded.wasm").read_bytes()
WITHOUT = (GUESTS / "c_curriculum.wasm").read_bytes()  # it exports no configure
AGENTS, EACH = 16, 200
STILL = model(
    [node("MatMul", "features none", "actions")],
    [port("features", "N", 3)],
    [port("actions", "N", 1)],
    [weight("none", [[0], [0], [0]])],
)
FAULT = (
    "the custom section arkml.spec declares copies, and the module exports no configure(count,"
    " seed) of the type (i32 i32) -> (i32): export it, or leave out copies"
)


def declaring(copies, module=PENDULUM):
    return with_section(module, {"behaviors": {"*": {"copies": copies}}})


class Counted:
    """A policy that does nothing, and notes how many agents act at once."""

    def __init__(self, actions=1):
        self.agents = set()
        self.actions = actions

    def __call__(self, observations):
        self.agents.add(len(observations))
        return np.zeros((len(observations), self.actions), np.float32)


@pytest.mark.parametrize(
    ("module", "episodes", "agents"),
    [
        (PENDULUM, 3, AGENTS),  # it declares nothing
        (declaring(AGENTS), 3, 3),
        (declaring(AGENTS), AGENTS, AGENTS),  # as many as it plays by itself
        (declaring(2), 3, AGENTS),  # never more than it declares
    ],
)
def test_an_evaluation_plays_one_copy_for_each_episode(module, episodes, agents):
    policy = Counted()
    rated = arkml.evaluate(module, policy, episodes=episodes)

    assert len(rated.returns) == episodes
    assert policy.agents == {agents}


def test_episodes_of_copies_are_those_of_the_guest_that_is_configured():
    rated = arkml.evaluate(declaring(AGENTS), Counted(), episodes=3)
    with arkml.GuestEnv(PENDULUM, configure=(3, 0)) as env:
        env.reset()
        steps = [env.step(np.zeros((3, 1), np.float32)).decisions[0] for _ in range(EACH)]
    rewards = np.sum([step.rewards for step in steps], axis=0)

    assert sorted(rated.returns) == pytest.approx(sorted(rewards), rel=1e-5)


def test_more_episodes_than_copies_are_shared_out_among_them():
    with arkml.Host() as host:
        task = EvaluationTask("pendulum", None, Limits(), False, 2, 10_000)
        player = EpisodePlayer(host, task, declaring(AGENTS))
        played = [player.play("pendulum", 1, episodes, STILL) for episodes in (2, 7)]

    assert [len(one["returns"]) for one in played] == [2, 7]
    assert played[1]["frames"] > 3 * EACH  # four of one agent, three of the other


def test_each_new_guest_plays_the_copies_when_episodes_are_cut_off():
    policy = Counted()
    rated = arkml.evaluate(declaring(AGENTS), policy, episodes=5, max_episode_steps=20)
    more = arkml.evaluate(declaring(AGENTS), policy, episodes=5, max_episode_steps=20, seed=3)

    assert policy.agents == {5}
    assert rated.lengths.tolist() == [20] * 5
    assert sorted(rated.returns) != sorted(more.returns)  # the seed reaches the copies


def test_a_recording_of_episodes_plays_copies_and_one_of_frames_plays_all(tmp_path):
    some, every = Counted(), Counted()
    arkml.record(declaring(AGENTS), some, tmp_path / "some.npz", episodes=2)
    arkml.record(declaring(AGENTS), every, tmp_path / "every.npz", frames=2)

    assert (some.agents, every.agents) == ({2}, {AGENTS})


def test_a_guest_that_cannot_be_told_the_number_is_refused():
    with pytest.raises(InvalidSpec) as refused:
        arkml.evaluate(declaring(9, WITHOUT), Counted(), episodes=3)

    assert str(refused.value) == f"guest: {FAULT}"


def test_it_is_refused_however_many_episodes_there_are_and_by_inspect_and_smoke(tmp_path):
    (tmp_path / "odd.wasm").write_bytes(declaring(9, WITHOUT))
    inspected = command("inspect", "odd.wasm", "--json", cwd=tmp_path)
    smoked = command("smoke", "odd.wasm", "--hive", "embedded", cwd=tmp_path)

    with pytest.raises(InvalidSpec, match="configure"):
        arkml.evaluate(declaring(9, WITHOUT), Counted(), episodes=30)
    assert inspected.json["spec"]["refused"] == FAULT
    assert smoked.status == 1
    assert FAULT in " ".join(smoked.out.split())


def test_a_seed_draws_other_games():
    for module, actions in ((SEEDED, 2), (declaring(AGENTS), 1)):
        first, again, other = (
            arkml.evaluate(module, Counted(actions), episodes=4, seed=seed).returns.tolist()
            for seed in (0, 0, 7)
        )
        assert first == again
        assert first != other


def test_the_evaluations_of_a_training_say_that_the_number_is_refused():
    with arkml.Host() as host:
        task = EvaluationTask("pendulum", None, Limits(), False, 5_000, 30)
        played = EpisodePlayer(host, task, declaring(60_000)).play("pendulum", 1, 5_000, STILL)

    assert "refuses its configuration: its export configure answered" in played["refused"]


def test_guests_that_follow_each_other_are_told_their_copies_and_their_seeds():
    policy = Counted()
    arkml.evaluate(declaring(2), policy, episodes=5, max_episode_steps=20)

    assert policy.agents == {2}


def test_a_guest_that_refuses_the_number_is_told_of_and_plays_as_it_was(caplog):
    policy = Counted()
    with caplog.at_level(logging.WARNING), pytest.raises(NotFound):
        arkml.evaluate(declaring(60_000), policy, episodes=5_000, frames=3)

    assert policy.agents == {AGENTS}
    (line,) = [one for one in caplog.messages if "refuses its configuration" in one]
    assert "to (5000, 0), and it plays as it was" in line


@pytest.mark.parametrize("copies", [0, -1, 65_537, 1.5, "3", True])
def test_a_number_of_copies_that_is_none_is_refused(copies):
    with pytest.raises(InvalidSpec, match="copies"):
        arkml.GuestEnv(declaring(copies))


def test_an_error_of_the_guest_in_its_configuration_is_raised():
    module = b"""(module
        (import "ark-ml-v1" "ml__start_training" (func
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        (func (export "configure") (param i32 i32) (result i32) unreachable)
        (func (export "ark_applet_update")))"""
    with pytest.raises(GuestTrap, match="unreachable"):
        arkml.evaluate(declaring(99, bytes(wasmtime.wat2wasm(module.decode()))), Counted())
