"""Copies after any history: of steps, copies, resets and messages, by their newest state."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.guest_text import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, scripted
from tests.integration.test_game_functions import ASKING

from arkml import Host, Memory
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.errors import GuestError, StateRefused
from arkml.guests.trace_recorder import Trace
from arkml.replays.replay import Replay

CHANNEL = bytes(16)
MODULES = {
    "agents": ("c_chase.wasm", {}),
    "continuous": ("c_pendulum.wasm", {"configure": (2, "{seed}")}),
    "discrete": ("c_corridor.wasm", {"configure": (1, "{seed}")}),
    "listening": ("c_listener.wasm", {}),
    "random": ("as_applet.wasm", {"inference": True}),
    "repeating": (
        "c_pendulum.wasm",
        {"configure": (2, "{seed}"), "spec": {"decision_period": 3}},
    ),
    "walkers": ("c_walkers.wasm", {}),
}
STEPS = st.tuples(st.just("step"), st.integers(1, 40), st.integers(0, 99))
COPY = st.tuples(st.just("copy"), st.integers(0, 3), st.just(0))
RESET = st.tuples(st.just("reset"), st.integers(0, 99), st.just(0))
MESSAGE = st.tuples(st.just("message"), st.integers(0, 99), st.just(0))
PACE = st.tuples(st.just("pace"), st.integers(0, 3), st.just(0))
ACTS = st.one_of(STEPS, STEPS, STEPS, COPY, COPY, COPY, RESET, MESSAGE, PACE)
HISTORIES = st.lists(ACTS, min_size=3, max_size=16)


@pytest.fixture(scope="module")
def host():
    with Host() as made:
        yield made


@pytest.fixture
def often(monkeypatch):
    """Have states of instances that are never copied as well."""
    monkeypatch.setattr("arkml.envs.core.history._MOST_STEPS", 12)


def actions_for(decision, random):
    """Random actions for the agents that decide, float32, [m, num_actions]."""
    count, branches = len(decision.acting_agents), decision.behavior.spec.actions.branches
    if branches:
        drawn = [random.integers(0, choices, count) for choices in branches]
        return np.stack(drawn, 1).astype(np.float32)
    return random.uniform(-1, 1, (count, decision.behavior.num_actions)).astype(np.float32)


def outcome(step):
    rows = [
        (
            one.behavior.name, one.agents.tobytes(), one.observations.tobytes(),
            one.rewards.tobytes(), one.started.tobytes(), one.terminated.tobytes(),
            one.truncated.tobytes(), [mask.tobytes() for mask in one.masks],
        )
        for one in step.decisions
    ]  # fmt: skip
    return rows, step.has_finished, repr(step.error), step.is_cut


def played(env, count, seed):
    """All that an environment returns for random actions, with resets at its ends."""
    random, seen = np.random.default_rng(seed), []
    for _ in range(count):
        step = env.step(actions_for(env.decision, random))
        seen.append(outcome(step))
        if step.has_ended:
            seen.append(outcome(env.reset()))
    return seen


def inside(env):
    """What a guest has: its memory, clock and random numbers, its counts and its experiments."""
    instance = core_of(env).instance
    with env.guest.memory() as view:
        memory = bytes(view)
    runs = [
        (run.id, run.sessions, run.metric_values) for run in instance.experiments.started.values()
    ]
    kept = instance.calls.account.kept_rows.used, instance.calls.account.kept_experiments.used
    return memory, instance.world.save()[:2], env.guest.statistics, runs, kept


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=25, deadline=None)
@given(history=HISTORIES, limit=st.sampled_from([None, 30]))
def test_environments_in_one_state_stay_in_one_state(name, host, history, limit):
    file, options = MODULES[name]
    envs = [GuestEnv(GUESTS / file, host=host, max_episode_steps=limit, **options)]
    envs[0].reset(seed=5)
    try:
        for kind, number, seed in history:
            match kind:
                case "step":
                    seen = [played(env, number, seed) for env in envs]
                case "copy":
                    envs.append(envs[number % len(envs)].clone())
                    if len(envs) > 3:
                        envs.pop(number % len(envs)).close()
                    seen = [None]
                case "reset":
                    seen = [outcome(env.reset(number or None)) for env in envs]
                case "message":
                    seen = [env.send_message(CHANNEL + bytes([65 + number])) for env in envs]
                case "pace":
                    for env in envs:
                        env.pace.time_scale = number
                    seen = [None]
            assert all(one == seen[0] for one in seen)
            found = [inside(env) for env in envs]
            assert all(one == found[0] for one in found)
    finally:
        for env in envs:
            env.close()


@pytest.mark.usefixtures("often")
def test_episodes_that_are_limited_are_cut_in_the_same_step(host):
    file, options = MODULES["continuous"]
    with GuestEnv(GUESTS / file, host=host, max_episode_steps=100, **options) as env:
        env.reset(seed=4)
        played(env, 60, 1)
        with env.clone() as copy:
            seen = played(env, 90, 2)
            assert played(copy, 90, 2) == seen
            assert sum(len(one) == 4 and one[3] for one in seen) == 1


@pytest.mark.parametrize("name", MODULES)
def test_copies_of_copies_go_on_alike_fifty_deep(name, host):
    file, options = MODULES[name]
    with contextlib.ExitStack() as closing:
        env = closing.enter_context(GuestEnv(GUESTS / file, host=host, **options))
        env.reset(seed=2)
        copy = closing.enter_context(env.clone())
        for depth in range(50):
            assert played(copy, 1 + depth % 7, depth) == played(env, 1 + depth % 7, depth)
            deeper = copy.clone()
            copy.close()
            copy = closing.enter_context(deeper)
        assert inside(copy) == inside(env)


@pytest.mark.parametrize("name", ["continuous", "discrete"])
def test_a_copy_of_a_long_episode_repeats_few_steps(name, host):
    file, options = MODULES[name]
    with GuestEnv(GUESTS / file, host=host, **options) as env:
        env.reset(seed=2)
        played(env, 9_000, 1)
        with env.clone() as copy, copy.clone() as deeper:
            instance = core_of(deeper).instance
            before = core_of(env).instance.guest.statistics
            assert instance.guest.statistics == before
            assert len(instance.history) < 40
            assert len(core_of(env).instance.history) < 40
            assert played(deeper, 40, 3) == played(env, 40, 3) == played(copy, 40, 3)


@pytest.mark.timeout(600)
def test_an_environment_is_copied_after_150_000_steps(host):
    file, options = MODULES["continuous"]
    with GuestEnv(GUESTS / file, host=host, **options) as env:
        env.reset(seed=2)
        for _ in range(150_000):
            shape = len(env.decision.acting_agents), 1
            env.step(np.full(shape, 0.25, np.float32))
        with env.clone() as copy:
            assert inside(copy) == inside(env)
            assert played(copy, 100, 3) == played(env, 100, 3)


def test_a_copy_goes_on_once_the_original_is_closed():
    env = GuestEnv(GUESTS / "c_chase.wasm")
    env.reset(seed=4)
    played(env, 300, 1)
    with env.clone() as copy:
        expected = played(env, 50, 2)
        env.close()
        assert played(copy, 50, 2) == expected


@pytest.mark.usefixtures("often")
def test_messages_that_wait_and_that_were_handed_over_come_along(host):
    with GuestEnv(GUESTS / "c_listener.wasm", host=host) as env:
        env.reset(seed=1)
        for number in range(30):
            env.send_message(CHANNEL + b"%d" % number)
            env.step(np.full((len(env.decision.acting_agents), 1), 0.01))
        env.send_message(CHANNEL)
        with env.clone() as copy:
            assert played(copy, 1, 0) == played(env, 1, 0)
            assert played(copy, 1, 0) == played(env, 1, 0)
            assert copy.decision.observations[0, 1] == 31


@pytest.mark.parametrize("steps", [3, 30])
@pytest.mark.parametrize("is_copied_before", [False, True])
def test_a_guest_that_failed_by_a_message_is_copied_as_it_is(host, steps, is_copied_before):
    with GuestEnv(GUESTS / "c_listener.wasm", host=host) as env:
        env.reset(seed=1)
        if is_copied_before:
            env.clone().close()
        played(env, steps, 0)
        env.send_message(CHANNEL + b"!")
        step = env.step(np.zeros((len(env.decision.acting_agents), 1)))
        assert step.error is not None
        with env.clone() as copy:
            assert copy.decision is None
            assert repr(copy.guest.failure) == repr(env.guest.failure)
            assert outcome(copy.reset()) == outcome(env.reset())


def ending(count, after):
    """A guest that does something else in the frame after some submits."""
    turns = [[(1, RUNNING if turn else INITIAL, 0.5)] for turn in range(count)]
    return scripted(*turns, after=after)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("after", ["unreachable", ""], ids=["traps", "goes on"])
def test_a_guest_that_fails_in_a_frame_that_is_repeated(host, after):
    with GuestEnv(ending(40, after), host=host, idle_calls=3) as env:
        env.reset(seed=1)
        zeros = np.zeros((1, env.decision.behavior.num_actions))
        for _ in range(39):
            env.step(zeros)
        with env.clone() as before:
            step = env.step(zeros)
            with env.clone() as behind:
                assert isinstance(step.error, GuestError)
                assert behind.decision is None
                assert type(behind.guest.failure) is type(env.guest.failure)
                again = before.step(zeros)
                assert type(again.error) is type(step.error)
                assert outcome(again)[0] == outcome(step)[0]


class Dice:
    """A game with a state of its own, which counts how often it was asked."""

    def __init__(self):
        self.asked = 0

    def ask(self, memory: Memory, x: float) -> float:
        self.asked += 1
        memory.write(3_000, b"%08d" % self.asked)
        return x + self.asked


def told(env):
    return env.decision.observations[0, 0]


def stepped(env, count):
    for number in range(count):
        env.step(np.full((1, 1), 0.5 * (number % 3)))


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("steps", [0, 5, 100])
def test_a_copy_gets_the_answers_of_the_game_again_without_asking(steps):
    game = Dice()
    with GuestEnv(ASKING, inference=True, imports={"env": game}) as env:
        env.reset(seed=1)
        stepped(env, steps)
        asked = game.asked
        with env.clone() as copy, copy.clone() as deeper:
            assert game.asked == asked
            for each in (copy, deeper):
                assert told(each) == told(env)
                assert each.guest.read_memory(3_000, 8) == b"%08d" % asked
            stepped(deeper, 1)
            stepped(env, 1)
            assert told(env) == told(deeper) + 1  # both ask the one game from here on


@pytest.mark.usefixtures("often")
def test_the_answers_that_are_kept_are_forgotten_with_each_state():
    with GuestEnv(ASKING, inference=True, imports={"env": Dice()}) as env:
        env.reset(seed=1)
        stepped(env, 500)
        history = core_of(env).instance.history
        assert len(history) <= 30
        assert len(history.answers.kept) <= 30


def test_a_guest_whose_game_failed_is_copied_with_its_failure():
    def ask(x: float) -> float:
        if x > 0.75:
            raise ValueError("too much")
        return x

    with GuestEnv(ASKING, inference=True, imports={("env", "ask"): ask}) as env:
        env.reset(seed=1)
        stepped(env, 2)
        step = env.step(np.ones((1, 1)))
        assert "too much" in str(step.error)
        with env.clone() as copy:
            assert copy.decision is None
            assert "too much" in str(copy.guest.failure)


def test_a_guest_that_asks_the_game_something_else_is_refused():
    env = GuestEnv(ASKING, inference=True, imports={("env", "ask"): lambda x: x})
    env.reset(seed=1)
    stepped(env, 3)
    answers = core_of(env).instance.history.answers
    answers.kept = answers.kept[:-1]
    with pytest.raises(StateRefused, match="ask of the game, which it did not ask before"):
        env.clone()
    answers.kept = [*answers.kept, answers.kept[-1], answers.kept[-1]]
    with pytest.raises(StateRefused, match="1 times less than before"):
        env.clone()
    env.close()


@pytest.mark.usefixtures("often")
def test_a_guest_whose_state_cannot_be_saved_is_repeated_as_a_whole():
    content = scripted(
        *[[(1, RUNNING if turn else INITIAL, 0.5)] for turn in range(60)],
        exports='(global (mut funcref) (ref.null func)) (func (export "change"))',
    )
    with GuestEnv(content) as env:
        env.reset(seed=1)
        for _ in range(50):
            env.step(np.zeros((1, env.decision.behavior.num_actions)))
        with env.clone() as copy:
            assert core_of(env).instance.history.state is None
            assert inside(copy) == inside(env)


def test_an_episode_that_was_given_up_leaves_the_numbers_of_agents_as_they_are(host):
    everyone = scripted(*[[(turn, INITIAL, 0.5)] for turn in range(60)])  # a new agent each time
    with GuestEnv(everyone, host=host) as env:
        env.reset(seed=1)
        for number in (5, 10, 5):
            played(env, number, 1)
            core = core_of(env)
            kept = core.set_aside()
            env.reset(seed=3)
            played(env, 7, 1)
            core.take_back(kept)
        played(env, 5, 2)
        with env.clone() as copy:
            assert played(copy, 20, 3) == played(env, 20, 3)


@pytest.mark.usefixtures("often")
def test_a_copy_that_begins_with_a_state_is_traced_from_there_on(tmp_path):
    trace = Trace(tmp_path / "guest.trace", snapshot_seconds=0)
    with GuestEnv(GUESTS / "c_pendulum.wasm", configure=(1, "{seed}"), trace=trace) as env:
        env.reset(seed=1)
        played(env, 40, 1)
        with env.clone() as copy:
            played(copy, 20, 2)
    with Replay(tmp_path / "guest-2.trace", GUESTS / "c_pendulum.wasm") as replay:
        assert sum(len(frame.submits) for frame in replay) >= 20


@pytest.mark.usefixtures("often")
def test_a_guest_that_submits_before_its_first_frame_has_a_state_behind_it_only(host):
    taken = b"(drop (call $take (i64.load (i32.const 0)) (i32.const 8)))"
    submits = f"""(loop $again
      (call $row (i64.const 1) (i32.const {RUNNING}) (f32.const 1)) (call $answer (i32.const 1))
      (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
      (br_if $again (i32.lt_u (global.get $turn) (i32.const 14))))"""
    content = scripted(
        each=f"(call $row (i64.const 1) (i32.const {RUNNING}) (f32.const 1))"
        " (call $answer (i32.const 1))",
        exports='(func (export "configure") (param $by i32)'
        " (global.set $turn (i32.add (global.get $turn) (local.get $by))))",
    ).replace(taken, taken + submits.encode())
    with GuestEnv(content, host=host, configure=(1_000,)) as env:
        env.reset(seed=1)
        played(env, 14, 1)
        with env.clone() as copy:
            assert copy.decision.observations[0, 0] == 1_014
            assert played(copy, 20, 1) == played(env, 20, 1)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("pause", range(1, 6))
def test_a_guest_stalls_after_as_many_frames_as_in_the_original(host, pause):
    turns = [[(1, RUNNING if turn else INITIAL, 0.5)] for turn in range(12)]
    with GuestEnv(scripted(*turns, *[None] * pause, *turns), host=host, idle_calls=3) as env:
        env.reset(seed=1)
        for _ in range(12):
            step = env.step(np.zeros((1, env.decision.behavior.num_actions)))
        with env.clone() as copy:
            assert core_of(env).instance.history.state is not None
            assert (copy.decision is None) == step.has_ended


@pytest.mark.usefixtures("often")
def test_rows_that_a_guest_showed_come_along_once(host):
    def shown(env):
        return [
            (
                one.behavior.name,
                one.rows.tobytes(),
                one.observations.tobytes(),
                one.actions.tobytes(),
            )
            for one in env.take_demonstrations()
        ]

    with GuestEnv(GUESTS / "c_sparse_reach_shown.wasm", host=host) as env:
        env.reset(seed=1)
        played(env, 40, 1)
        with env.clone() as copy:
            found = shown(env)
            assert found
            assert shown(copy) == found
            played(env, 10, 1)
            played(copy, 10, 1)
            with copy.clone() as deeper:
                assert shown(deeper) == shown(copy) == shown(env)


IN_ONE_CALL = scripted(
    exports=f"""
    (func (export "play") (param i32 i32) (result i32)
      (loop $next
        (call $row (i64.const 1) (i32.const {RUNNING}) (f32.load (i32.const 256)))
        (call $answer (i32.const 1))
        (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
        (br $next))
      (i32.const 0))"""
)


def test_a_guest_in_a_single_call_is_repeated_from_its_beginning():
    with GuestEnv(IN_ONE_CALL, entry="play") as env:
        env.reset(seed=1)
        played(env, 30, 1)
        with env.clone() as copy:
            assert core_of(copy).instance.history.state is None
            assert played(copy, 30, 2) == played(env, 30, 2)


def test_a_guest_in_a_single_call_is_refused_after_too_many_steps(monkeypatch):
    monkeypatch.setattr("arkml.envs.core.history.MOST_HISTORY", 5)
    with GuestEnv(IN_ONE_CALL, entry="play") as env:
        env.reset(seed=1)
        played(env, 100, 1)
        with pytest.raises(StateRefused, match="its guest runs in a single call"):
            env.clone()
        env.reset(seed=2)
        env.clone().close()
