"""Traces of environments: the guest does again what it did between the learner's steps."""

# ruff: noqa: ARG001  `library` is a way of rounds
import pickle

import gymnasium
import numpy as np
import pytest
from tests.integration.guest_text import GUESTS
from tests.integration.test_environment_bad_input import FIXED, TRAP, WALKERS
from tests.integration.test_replay import often, played
from tests.unit.policy_models import model, node, port, weight

import arkml
from arkml import GuestEnv, Replay
from arkml.abi.codes import EpisodeState
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.errors import UsageError
from arkml.guests import trace_files
from arkml.guests.trace_files import read_trace
from arkml.runtime import native

PENDULUM = GUESTS / "c_pendulum.wasm"
CARTPOLE = GUESTS / "c_cartpole.wasm"


@pytest.fixture(params=["native", "python"])
def library(request, monkeypatch):
    """Rounds are made by the native library, or in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "LIBRARY", None)


@pytest.fixture(autouse=True)
def _no_gaps(monkeypatch):
    """However busy the machine is, no copy is left out because the disk is behind."""
    monkeypatch.setattr(trace_files, "_MOST_WAITING", 1 << 40)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "guest.trace"


def stepped(env, count, seed=1):
    """The observations of all steps, and the actions, of a learner that draws its actions."""
    random = np.random.default_rng(seed)
    step, seen, acted = env.reset(seed=seed), [], []
    for _ in range(count):
        seen += [decision.observations.copy() for decision in step.decisions]
        if step.has_ended:
            break
        (decision,) = step.decisions
        branches = decision.behavior.spec.actions.branches
        size = len(decision.acting_agents), decision.behavior.num_actions
        actions = random.integers(0, branches[0], size) if branches else random.uniform(-1, 1, size)
        acted.append(actions.astype(np.float32))
        step = env.step(actions)
    else:
        seen += [decision.observations.copy() for decision in step.decisions]
    return seen, acted


@pytest.mark.parametrize(
    "name",
    [
        "as_applet",
        "c_applet",
        "c_cartpole",
        "c_chase",
        "c_corridor",
        "c_gallery",
        "c_lander",
        "c_minatar_space_invaders",
        "c_sorter",
    ],
)
def test_the_steps_of_an_environment_replay_equal(path, name):
    source = GUESTS / f"{name}.wasm"
    with GuestEnv(source, trace=often(path)) as env:
        seen, acted = stepped(env, 40)
    with GuestEnv(source) as env:
        untraced, _ = stepped(env, 40)

    with Replay(path, source) as replay:
        frames = list(replay)
    submits = [submit for frame in frames for submit in frame.submits]
    assert [each.observations.tobytes() for each in submits] == [each.tobytes() for each in seen]
    assert [each.tobytes() for each in untraced] == [each.tobytes() for each in seen]
    for submit, actions in zip(submits, acted, strict=False):
        decides = ~np.isin(submit.rows["state"], (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED))
        np.testing.assert_array_equal(submit.actions[decides], actions)


def test_the_last_submit_is_shown_without_an_answer(path):
    with GuestEnv(PENDULUM, configure=(1, "{seed}"), trace=path) as env:
        seen, _ = stepped(env, 5)

    with Replay(path, PENDULUM) as replay:
        *_, last = replay
        (submit,) = last.submits
        assert submit.code is None
        assert submit.actions.shape == (0, 1)
        assert submit.observations.tobytes() == seen[-1].tobytes()
        assert last.stopped == f"the trace ends within frame {replay.last}"
        assert replay.to(replay.last).submits[0].code is None


def test_frames_run_in_calls_of_their_own(path):
    with GuestEnv(PENDULUM, configure=(1, "{seed}"), trace=often(path)) as env:
        stepped(env, 20)

    frames = played(path, PENDULUM)
    assert [frame.function for frame in frames] == ["configure"] + ["ark_applet_update"] * 21
    assert {len(frame.submits) for frame in frames[1:]} == {1}


def test_each_reset_begins_a_file_and_the_oldest_go(path):
    trace = arkml.Trace(path, files=3)
    with GuestEnv(PENDULUM, configure=(1, "{seed}"), trace=trace) as env:
        for seed in range(7):
            stepped(env, 3, seed)

    kept = ["guest-5.trace", "guest-6.trace", "guest-7.trace"]
    assert sorted(file.name for file in path.parent.iterdir()) == kept
    for name in kept:
        played(path.with_name(name), PENDULUM)


def test_the_guests_of_a_fleet_have_a_file_each(path, library):
    options = {"configure": (1, "{seed}")}
    seen = {}
    for trace in (None, often(path, guests=[0, 2])):
        with FleetEnv(PENDULUM, 3, **options, trace=trace) as fleet:
            random = np.random.default_rng(0)
            step = fleet.reset(seed=4)
            rows = [step.observations.copy()]
            for _ in range(250):  # beyond the end of an episode, of 200 steps
                actions = random.uniform(-1, 1, (3, 1)).astype(np.float32)
                step = fleet.step(actions, step.observations)
                rows.append(step.observations.copy())
            seen[trace is not None] = np.array(rows)

    np.testing.assert_array_equal(seen[True], seen[False])
    assert sorted(file.name for file in path.parent.iterdir()) == ["guest.0.trace", "guest.2.trace"]
    for guest in (0, 2):
        frames = played(path.with_name(f"guest.{guest}.trace"), PENDULUM)
        observed = [submit.observations[0] for frame in frames for submit in frame.submits]
        assert len(observed) >= 251
        np.testing.assert_array_equal(observed[:150], seen[True][:150, guest])


def test_make_vec_takes_a_trace(path):
    envs = gymnasium.make_vec(
        "arkml.envs.gym:arkml/Guest-v0", num_envs=2, module=PENDULUM, per="guest",
        configure=(1, "{seed}"), trace=str(path), max_episode_steps=5,
    )  # fmt: skip
    envs.reset(seed=1)
    for _ in range(12):
        envs.step(envs.action_space.sample())
    envs.close()

    names = {file.name for file in path.parent.iterdir()}
    assert {"guest.0.trace", "guest.1.trace"} < names
    for name in names:
        played(path.with_name(name), PENDULUM)


def test_a_large_fleet_needs_a_choice(path):
    with pytest.raises(UsageError, match=r"65 guests .* guests=\[0, 7\]"):
        FleetEnv(PENDULUM, 65, configure=(1, "{seed}"), trace=path)


def test_two_hosts_do_not_write_one_file(path):
    with GuestEnv(PENDULUM, trace=path) as env, GuestEnv(PENDULUM, trace=path) as other:
        env.reset()
        with pytest.raises(UsageError, match="is being written by another host"):
            other.reset()
    with GuestEnv(PENDULUM, trace=path) as again:
        again.reset()


def test_a_trace_is_for_a_host_of_its_own(host, path):
    with pytest.raises(UsageError, match="trace= is for an environment's own host"):
        GuestEnv(PENDULUM, host=host, trace=path)


def test_a_given_host_records_its_environments(make_host, path):
    host = make_host(trace=often(path))
    with GuestEnv(PENDULUM, configure=(1, "{seed}"), host=host) as env:
        seen, _ = stepped(env, 20)
    host.close()

    assert sum(len(frame.submits) for frame in played(path, PENDULUM)) == len(seen) == 21


def test_a_pickle_records_as_well(path):
    with GuestEnv(PENDULUM, configure=(1, "{seed}"), trace=path) as env:
        content = pickle.dumps(env)
    with pickle.loads(content) as again:
        stepped(again, 3)

    played(path, PENDULUM)


def test_a_copy_of_an_environment_has_a_file_of_its_own(path):
    with GuestEnv(PENDULUM, configure=(1, "{seed}"), trace=often(path)) as env:
        stepped(env, 10)
        env.clone().close()

    def observed(file):
        submits = (submit for frame in played(file, PENDULUM) for submit in frame.submits)
        return [submit.observations.tobytes() for submit in submits]

    assert observed(path) == observed(path.with_name("guest-2.trace"))


def test_a_cmdlet_plays_within_one_call(path):
    source = GUESTS / "rust_cmdlet.wasm"
    with GuestEnv(source, trace=path) as env:
        _, acted = stepped(env, 40)

    (frame,) = played(path, source)
    assert frame.function == "ark_cmdlet_run"
    assert len(frame.submits) == len(acted)


def test_a_trap_in_a_step_is_in_the_trace(path):
    with GuestEnv(WALKERS, configure=(2, FIXED, 1, TRAP, 3), trace=often(path)) as env:
        step = env.reset()
        while step.error is None:
            step = env.step(np.zeros((len(step.decisions[0].acting_agents), 1)))
    assert read_trace(path).end == "failed"
    with Replay(path, WALKERS) as replay:
        *_, last = replay
        assert str(last.error) == str(step.error)
        assert replay.failure is last.error


def test_episodes_that_are_cut_off(path):
    with GuestGymEnv(PENDULUM, configure=(1, "{seed}"), max_episode_steps=4, trace=path) as env:
        env.reset(seed=0)
        while not env.step(env.action_space.sample())[3]:
            pass
        env.reset()

    # The first reset is that of the spaces.
    assert [len(frame.submits) for frame in played(path.with_name("guest-2.trace"), PENDULUM)] == [
        0, 1, 1, 1, 1, 1,
    ]  # fmt: skip
    assert path.with_name("guest-3.trace").exists()


def test_an_evaluation_takes_a_trace(path):
    policy = model(
        [node("MatMul", "obs w", "actions")],
        [port("obs", "N", 3)],
        [port("actions", "N", 1)],
        [weight("w", np.array([[0.5], [-0.25], [-1.0]]))],
    )
    rated = arkml.evaluate(PENDULUM, policy, episodes=4, trace=often(path))

    frames = played(path, PENDULUM)
    assert len(frames) == rated.frames
