"""Agents that begin in the submit in which others end, as places of a vector environment."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent_walk import ROWS, following
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted

from arkml.envs.core.agent_tracker import AgentTracker
from arkml.envs.core.decisions import Replaced
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.step_arrays import StepArrays
from arkml.errors import UsageError

SPEC = {"behaviors": {"*": {"actions": {"discrete": [3]}}}}
PUSH = (
    '"ml__push_training_observation"\n    (func $push (param i64 i64 i32 f32 i32 i32 i32 i32 f32)'
)
SAYING = (
    '"ml__push_training_observation_with_metadata"\n'
    "    (func $push (param i64 i64 i32 f32 i32 i32 i32 i32 i32 i32)"
)
ROW = "(f32.const 1))))"
ENDS = (
    "(i32.or (i32.eq (local.get $state) (i32.const 1)) (i32.eq (local.get $state) (i32.const 2)))"
)
# An ended row says two scores; a row of an odd id masks the choice 2 and says how many frames ran.
SAID = f"""
      (select (i32.const 4096) (i32.const 4160) {ENDS})
      (select (i32.const 2)
        (i32.mul (i32.const 2) (i32.wrap_i64 (i64.and (local.get $id) (i64.const 1)))) {ENDS}))))"""
ITEMS = b"".join(
    struct.pack("<28sf", name, value)
    for name, value in ((b"won", 1), (b"length", 7), (b"mask/0/2", 1), (b"frames", 3))
)
FEATURE = "(f32.store (i32.const 128) (f32.convert_i32_u (global.get $turn)))"
OWN = """(f32.store (i32.const 128) (f32.add
      (f32.mul (local.get $reward) (f32.const 64)) (f32.convert_i32_u (global.get $turn))))"""


def saying(*turns):
    """An applet as `scripted` has it, whose rows have features of their own, and say something."""
    text = scripted(*turns).decode()
    for old, new in ((PUSH, SAYING), (ROW, SAID), (FEATURE, OWN)):
        assert text.count(old) == 1
        text = text.replace(old, new)
    items = "".join(f"\\{byte:02x}" for byte in ITEMS)
    return text.replace(
        '(data (i32.const 64) "script")',
        f'(data (i32.const 64) "script") (data (i32.const 4096) "{items}")',
    ).encode()


def plain(value):
    """Arrays and dicts of them as lists, for comparison; a number that is not there is None."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return [str(value.dtype), plain(value.tolist())]
    return None if value != value else value


def played(module, count, steps, mode="SameStep", **options):
    """What a vector environment shows in its steps, and how many submits replaced agents."""
    shown, replaced = [], 0
    with GuestVectorEnv(module, autoreset_mode=mode, num_envs=count, **options) as envs:
        shown.append(plain(envs.reset(seed=1)))
        out = StepArrays.empty(envs)
        shape = envs.action_space.shape
        for number in range(steps):
            given = {"out": out} if number % 2 else {}
            actions = (np.arange(count) // (number + 1) % 2).reshape(shape)
            try:
                shown.append(plain(envs.step(actions, **given)))
            except UsageError as error:
                shown.append(str(error))
                break
            pending = envs._core.instance.pending
            replaced += pending is not None and isinstance(pending.rows, Replaced)
            shown.append(plain(envs.guest_env.guest.read_memory(256, 64)))
    return shown, replaced


def searched(module, count, steps, mode="SameStep", **options):
    """What an environment shows that compares the rows of each submit with all agents."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AgentTracker, "_replace", lambda *_: None)
        return played(module, count, steps, mode, **options)[0]


BEGIN = [(1, INITIAL, 0.5), (2, INITIAL, 0.0), (3, INITIAL, 0.25)]
TURNS = [
    BEGIN,
    [(1, RUNNING, 1), (2, TERMINAL, 5), (4, INITIAL, 0), (3, RUNNING, 2)],
    [(1, RUNNING, 1), (4, RUNNING, 3), (3, RUNNING, 2)],
    [(1, TERMINAL, 8), (5, INITIAL, 0.5), (4, 2, 3), (6, INITIAL, 0), (3, 2, 9), (7, INITIAL, 1)],
    [(5, RUNNING, 1), (6, RUNNING, 3), (7, TERMINAL, 2), (8, INITIAL, 0)],
    [(5, RUNNING, 1), (6, RUNNING, 3), (8, RUNNING, 2)],
]


def test_places_show_the_next_agents_with_the_last_rows_of_those_before():
    shown, replaced = played(saying(*TURNS), 3, len(TURNS) - 1, spec=SPEC)
    observations, rewards, terminated, truncated, info = shown[5]

    assert replaced == 5
    assert observations == ["float32", [[35.0], [3.0], [67.0]]]
    assert rewards == ["float32", [8.0, 3.0, 9.0]]
    assert terminated == ["bool", [True, False, False]]
    assert truncated == ["bool", [False, True, True]]
    assert info["_final_obs"] == ["bool", [True] * 3]
    assert info["final_obs"][1] == [["float32", [last]] for last in (515.0, 195.0, 579.0)]
    assert info["final_info"]["won"] == ["float64", [1.0] * 3]
    assert info["reward"][1][::2] == [0.5, 1.0]
    assert info["_reward"] == ["bool", [True, False, True]]
    assert info["_frames"] == ["bool", [True, False, True]]
    assert info["action_mask"] == ["int8", [[1, 1, 0], [1, 1, 1], [1, 1, 0]]]


@pytest.mark.parametrize("spec", [None, SPEC], ids=["numbers", "choices"])
def test_agents_in_places_are_shown_as_a_search_shows_them(spec):
    module, steps = saying(*TURNS), len(TURNS) - 1

    assert played(module, 3, steps, spec=spec)[0] == searched(module, 3, steps, spec=spec)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@given(st.lists(ROWS, min_size=2, max_size=10), st.integers(0, 2), st.integers(0, 2))
@settings(deadline=None, max_examples=40)
def test_random_histories_are_shown_as_a_search_shows_them(mode, drawn, more, empty):
    before = [(number, INITIAL, 0.0) for number, _ in enumerate(drawn[0], 1)]
    count, turns = len(before) + empty, [before]
    for rows in drawn:
        before = following("replaced", before, [row[:3] for row in rows])
        turns.append(before)
        turns += [[(row[0], RUNNING, 1.0) for row in before if row[1] in (RUNNING, INITIAL)]] * more
        before = turns[-1]
    module = saying(*turns)

    assert played(module, count, len(turns), mode)[0] == searched(module, count, len(turns), mode)


def test_more_places_than_agents_are_shown_by_the_next_step_too():
    turns = [[(1, INITIAL, 0)], [(1, RUNNING, 1)], [(1, TERMINAL, 2), (2, INITIAL, 0)]]
    module = saying(*turns, [(2, RUNNING, 3)], [(2, RUNNING, 4)])

    assert played(module, 2, 5, "NextStep")[0] == searched(module, 2, 5, "NextStep")
