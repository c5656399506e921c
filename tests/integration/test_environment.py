"""Guests stepped from outside: real guests, real wasm."""

import pickle
import struct
import threading
import time

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

from arkml import Host, Limits
from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.envs.core.decisions import Origin
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import (
    EntryPointMissing,
    GuestBusy,
    GuestStalled,
    GuestTimeout,
    GuestTrap,
    InvalidActions,
    UsageError,
)
from arkml.guests.guest import calls_of

PENDULUM, CARTPOLE = GUESTS / "c_pendulum.wasm", GUESTS / "c_cartpole.wasm"
CMDLET, APPLET = (GUESTS / "ark_api" / f"{kind}_train_016.wasm" for kind in ("cmdlet", "applet"))

LAUNCH = """
  (import "ark-ml-v1" "ml__start_training"
    (func $start (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "ark-ml-v1" "ml__take_future_training_handle"
    (func $take (param i64 i32) (result i32)))
  (import "ark-ml-v1" "ml__push_training_observation"
    (func $push (param i64 i64 i32 f32 i32 i32 i32 i32 f32) (result i32)))
  {imports}
  (memory (export "memory") 1)
  (data (i32.const 64) "script")
  (global $turn (mut i32) (i32.const 0))
  (func (export "ark_initialize")
    (drop (call $start (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 6)
      (i32.const 64) (i32.const 6) (i32.const 1) (i32.const 1) (i32.const 0)))
    (drop (call $take (i64.load (i32.const 0)) (i32.const 8))))
  (func $row (param $id i64) (param $state i32) (param $reward f32)
    (f32.store (i32.const 128) (f32.convert_i32_u (global.get $turn)))
    (drop (call $push (i64.load (i32.const 8)) (local.get $id) (local.get $state)
      (local.get $reward) (i32.const 128) (i32.const 1) (i32.const 0) (i32.const 0)
      (f32.const 1))))
  {answer}
"""
LOG = """
  (import "ark-core-v3" "core__log" (func $log (param i32 i32 i32) (result i32)))"""
# The actions of the last submit lie at 256.
BY_V1 = {
    "imports": """
  (import "ark-ml-v1" "ml__submit_training_observations"
    (func $submit (param i64 i32 i32 i32 i32) (result i32)))""",
    "answer": """
  (func $answer (param $rows i32)
    (drop (call $submit (i64.load (i32.const 8)) (i32.const 256) (local.get $rows)
      (i32.const 512) (local.get $rows))))""",
}
# The code of the last submit lies at 640, the number of bytes of its answer at 644, they at 648.
BY_V5 = {
    "imports": """
  (import "ark-ml-v5" "ml__submit_training_observations"
    (func $submit (param i64 i32) (result i32)))
  (import "ark-core-v4" "core__take_host_return_vec"
    (func $vector (param i32 i32) (result i32)))""",
    "answer": """
  (func $answer (param $rows i32)
    (i32.store (i32.const 640) (call $submit (i64.load (i32.const 8)) (i32.const 644)))
    (drop (call $vector (i32.const 648) (i32.load (i32.const 644)))))""",
}
RUNNING, INTERRUPTED, TERMINAL, INITIAL = (
    int(EpisodeState[name]) for name in ("RUNNING", "INTERRUPTED", "TERMINAL", "INITIAL")
)


def scripted(*turns, after="", each="", exports="", by=BY_V1):
    """
    An applet whose nth frame pushes the nth rows, (id, state, reward), and submits them.

    One with None submits nothing.

    `each` runs first in a frame, `after` in frames beyond those.
    """
    launch = LAUNCH.format(**by)
    frames = []
    for number, rows in enumerate(turns):
        if rows is None:
            continue
        pushes = "".join(
            f"(call $row (i64.const {agent}) (i32.const {state}) (f32.const {reward}))"
            for agent, state, reward in rows
        )
        frames.append(
            f"(if (i32.eq (global.get $turn) (i32.const {number})) (then {pushes}"
            f" (call $answer (i32.const {len(rows)}))))"
        )
    late = f"(if (i32.ge_u (global.get $turn) (i32.const {len(turns)})) (then {after}))"
    return f"""(module {launch} {exports}
      (func (export "ark_applet_update") {each} {"".join(frames)} {late}
        (global.set $turn (i32.add (global.get $turn) (i32.const 1))))
      (func (export "answer") (result f32) (f32.load (i32.const 256))))""".encode()


@pytest.fixture(scope="module")
def host():
    with Host() as made:
        yield made


@pytest.fixture
def make(host):
    made = []

    def env(module, **options):
        made.append(GuestEnv(module, host=host, **options))
        return made[-1]

    yield env
    for found in made:
        found.close()


def play(env, step, policy):
    """Step to the end; the returns of episodes by agent, and the last step."""
    returns, ended = {}, {}
    while not step.has_ended:
        decision = step.decisions[0]
        for agent, reward, over in zip(
            decision.agents, decision.rewards, decision.ended, strict=True
        ):
            returns[agent] = returns.get(agent, 0.0) + reward
            if over:
                ended[agent] = returns.pop(agent)
        step = env.step(policy(decision.observations[~decision.ended]))
    return ended, step


def test_values_of_a_guest_that_is_stepped_are_zeros(make):
    before = "(if (i32.eq (global.get $turn) (i32.const 1)) (then {}))"
    store = "(f32.store (i32.const 512) (f32.const 7))"  # where the values of a submit go
    env = make(scripted([(1, INITIAL, 0)], *[[(1, RUNNING, 0)]] * 2, each=before.format(store)))
    env.reset()
    found = []
    for _ in range(2):
        env.step(np.zeros((1, 1), "f4"))
        found.append(np.frombuffer(env.guest.read_memory(512, 4), "<f4").item())

    assert found == [7, 0]


def test_a_reset_says_what_it_took(make):
    env = make(PENDULUM, configure=(1, 1))
    before = time.perf_counter()
    env.reset()
    took = time.perf_counter() - before

    assert 0 < env.reset_seconds <= took


def steer(seen):
    return np.clip(-seen[:, :1] - 1.2 * seen[:, 1:2], -1, 1)


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (CMDLET, {"args": "localhost 12356 300 pm"}),
        (APPLET, {"configure": "localhost 12356 300 pm"}),
    ],
    ids=["cmdlet", "applet"],
)
def test_the_training_guests_of_the_published_crates_play_to_their_end(make, module, options):
    env = make(module, **options)
    first = env.reset()
    returns, last = play(env, first, steer)
    alive = last.decisions[0]

    assert first.decisions[0].behavior.name == "pm"
    assert first.decisions[0].started.all()
    assert len(first.decisions[0]) == 16
    assert last.has_finished
    assert last.error is None
    assert alive.truncated.all()
    assert not alive.rewards.any()
    assert np.mean(list(returns.values())) > -6  # nobody steering makes -37
    if module is APPLET:
        env.guest.update()
        assert env.guest.call("status") == 1


def test_a_row_shows_what_its_agent_saw_and_earned_and_how_its_episode_ended(make):
    env = make(scripted(
        [(1, INITIAL, 0.5), (2, INITIAL, 0.0)],
        [(1, RUNNING, 1.0), (2, TERMINAL, 2.0)],
        [(1, INTERRUPTED, 3.0)],
    ))  # fmt: skip
    first = env.reset().decisions[0]
    second = env.step([[0.25], [0.5]]).decisions[0]
    third = env.step([[0.25]]).decisions[0]

    assert first.agents.tolist() == [0, 1]
    assert first.agents.dtype == np.int32
    assert first.rewards.tolist() == [0.5, 0.0]
    assert second.observations.tolist() == [[1.0], [1.0]]
    assert second.rewards.tolist() == [1.0, 2.0]
    assert second.terminated.tolist() == [False, True]
    assert second.acting_agents.tolist() == [0]
    assert third.truncated.tolist() == [True]
    assert not len(third.acting_agents)


def test_actions_reach_the_agents_that_decide_and_the_others_get_zeros(make):
    env = make(
        scripted([(1, INITIAL, 0), (2, INITIAL, 0)], [(1, TERMINAL, 0), (2, RUNNING, 0)], [])
    )
    env.reset()
    env.step([[0.25], [0.5]])
    first = np.frombuffer(env.guest.read_memory(256, 8), "f4").tolist()
    env.step([[0.75]])
    second = np.frombuffer(env.guest.read_memory(256, 8), "f4").tolist()

    assert first == [0.25, 0.5]
    assert second == [0.0, 0.75]


@pytest.mark.parametrize("by", [BY_V1, BY_V5], ids=["v1", "v5"])
def test_the_versions_that_a_guest_submits_by_show_the_same(make, by):
    env = make(scripted(
        [(1, INITIAL, 0.5), (2, INITIAL, 0.0)],
        [],
        [(2, RUNNING, 1.0), (1, TERMINAL, 2.0)],
        [(2, INTERRUPTED, 3.0)],
        by=by,
    ))  # fmt: skip
    shown = [env.reset(), env.step([[0.25], [0.5]]), env.step([[0.75]])]
    rows = [
        (
            decision.agents.tolist(),
            decision.observations.ravel().tolist(),
            decision.rewards.tolist(),
            decision.ended.tolist(),
        )
        for decision in (step.decisions[0] for step in shown)
    ]

    assert rows == [
        ([0, 1], [0.0, 0.0], [0.5, 0.0], [False, False]),
        ([1, 0], [2.0, 2.0], [1.0, 2.0], [False, True]),
        ([1], [3.0], [3.0], [True]),
    ]


def test_the_fifth_version_brings_the_actions_as_bytes(make):
    env = make(
        scripted([(1, INITIAL, 0), (2, INITIAL, 0)], [(2, RUNNING, 0), (1, TERMINAL, 0)], [],
                 [(2, RUNNING, 0)], by=BY_V5)
    )  # fmt: skip
    env.reset()
    env.step([[0.25], [0.5]])
    code, size = struct.unpack("<II", env.guest.read_memory(640, 8))
    first = env.guest.read_memory(648, size)
    env.step([[0.75]])
    empty = env.guest.read_memory(640, 12)

    assert code == 0
    assert first == struct.pack("<BBHQBfQBf", 0, 2, 1, 1, 1, 0.25, 2, 1, 0.5)
    assert empty == struct.pack("<IIBBH", 0, 4, 0, 0, 1)


def test_rows_that_the_fifth_version_cannot_count_are_refused_and_not_shown(make):
    many = [(agent, INITIAL, 0) for agent in range(256)]
    env = make(scripted(many, [(1, INITIAL, 0)], by=BY_V5))
    first = env.reset().decisions[0]
    code = int.from_bytes(env.guest.read_memory(640, 4), "little")

    assert code == ErrorCode.INVALID_ARGUMENTS
    assert first.observations.tolist() == [[1.0]]
    assert first.agents.tolist() == [0]


def test_numbers_of_agents_come_once_though_the_guest_uses_its_names_again(make):
    low, high = 1 << 63, (1 << 63) | (1 << 32)  # equal in their low halves, and as i64 negative
    names = [low - (1 << 64), high - (1 << 64)]
    env = make(scripted(
        [(name, INITIAL, 0) for name in names],
        [(names[0], TERMINAL, 0), (names[1], RUNNING, 0)],
        [(names[0], INITIAL, 0), (names[1], RUNNING, 0)],
    ))  # fmt: skip
    first = env.reset().decisions[0]
    guest_ids = [env.guest_id(number) for number in first.agents]
    env.step([[0], [0]])
    third = env.step([[0]]).decisions[0]
    env.reset()

    assert guest_ids == [low, high]
    assert third.agents.tolist() == [2, 1]
    assert env.decision.agents.tolist() == [3, 4]


def test_an_episode_that_begins_again_unended_is_truncated_with_its_last_observation(make):
    env = make(scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], [(1, INITIAL, 4)]))
    env.reset()
    env.step([[0]])
    third = env.step([[0]]).decisions[0]

    assert third.agents.tolist() == [0, 1]
    assert third.truncated.tolist() == [True, False]
    assert third.started.tolist() == [False, True]
    assert third.observations.tolist() == [[1.0], [2.0]]
    assert third.rewards.tolist() == [0.0, 4.0]


def test_an_empty_submit_is_answered_and_not_shown(make):
    env = make(scripted([], [(1, INITIAL, 0)], [], [], [(1, RUNNING, 1)]))
    first = env.reset().decisions[0]
    second = env.step([[0]]).decisions[0]

    assert first.observations.tolist() == [[1.0]]
    assert second.observations.tolist() == [[4.0]]


def test_a_guest_that_submits_nothing_has_stalled(make):
    with pytest.raises(GuestStalled, match="nothing in 50 calls"):
        make(scripted([]), idle_calls=50).reset()
    env = make(scripted([(1, INITIAL, 0)]), idle_calls=50)
    env.reset()
    step = env.step([[0]])

    assert isinstance(step.error, GuestStalled)
    assert step.decisions[0].truncated.all()


@pytest.mark.parametrize("endless", [-1, 8], ids=["each frame is short", "one never ends"])
def test_the_time_of_a_call_is_that_of_each_frame_without_a_submit(endless):
    spins = f"""(local $left i32)
      (if (global.get $turn) (then
        (local.set $left (i32.const 50_000_000))
        (loop $on (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br_if $on
            (i32.or (local.get $left) (i32.eq (global.get $turn) (i32.const {endless})))))))"""
    turns = [[(1, INITIAL, 0)], *([None] * 14), [(1, RUNNING, 1)]]
    module = scripted(*turns, each=spins)
    with GuestEnv(module, limits=Limits(run_seconds=0.3)) as env:
        env.reset()
        guest = env.guest
        step = env.step([[0]])
        taken = guest.account.run_seconds

    if endless < 0:
        assert step.decisions[0].rewards.tolist() == [1.0]
    else:
        assert isinstance(step.error, GuestTimeout)
    assert 0.1 < taken < 4


def test_a_guest_that_traps_truncates_its_agents_and_starts_over_when_asked(make):
    env = make(scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], after="unreachable"))
    env.reset()
    env.step([[0]])
    step = env.step([[0]])

    assert isinstance(step.error, GuestTrap)
    assert step.decisions[0].truncated.tolist() == [True]
    assert step.decisions[0].observations.tolist() == [[1.0]]
    with pytest.raises(UsageError, match="reset"):
        env.step([[0]])
    assert env.reset().decisions[0].agents.tolist() == [1]


def test_the_seed_makes_an_instance_what_it_is(make):
    env = make(PENDULUM, configure=(8, "{seed}"))
    first = env.reset(seed=5).decisions[0].observations
    drawn = env.reset().decisions[0].observations
    again = env.reset(seed=5).decisions[0].observations
    drawn_again = env.reset().decisions[0].observations

    assert env.seedable
    assert np.array_equal(first, again)
    assert np.array_equal(drawn, drawn_again)
    assert not np.array_equal(first, drawn)


def test_a_seed_is_given_to_the_export_for_it(make):
    seeded = scripted(
        [(1, INITIAL, 0)],
        exports='(func (export "arkml_seed") (param i64)'
        " (global.set $turn (i32.const 0)) (i64.store (i32.const 600) (local.get 0)))",
    )
    env = make(seeded)
    env.reset(seed=77)

    assert env.seedable
    assert int.from_bytes(env.guest.read_memory(600, 8), "little") == 77


def test_a_guest_that_takes_no_seed_is_told_of_once(make, caplog):
    env = make(PENDULUM)
    env.reset(seed=1)
    env.reset(seed=2)

    assert not env.seedable
    assert sum("takes no seed" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ([[0.0]], r"shape \(1, 1\)"),
        ([[0.0, 0.0]] * 2, r"shape \(2, 2\)"),
        ([[0.0], [np.nan]], "not finite"),
        ([["left"], ["right"]], "numbers"),
    ],
)
def test_wrong_actions_are_refused_and_nothing_has_moved(make, actions, named):
    env = make(PENDULUM, configure=(2, 3))
    before = env.reset().decisions[0]
    with pytest.raises(InvalidActions, match=named):
        env.step(actions)

    assert env.decision is before
    assert calls_of(env.guest).fiber.is_parked
    assert len(env.step([[0.0], [1.0]]).decisions[0]) == 2


def test_a_guest_that_waits_in_a_submit_takes_no_other_call(make):
    env = make(PENDULUM)
    env.reset()
    with pytest.raises(GuestBusy, match="waits in a submit"):
        env.guest.update()

    assert len(env.step(np.zeros((16, 1))).decisions[0]) == 16


def test_environments_take_turns_and_may_be_stepped_by_other_threads(make):
    first, second = make(PENDULUM, configure=(2, 1)), make(CARTPOLE, configure=(3, 1))
    first.reset()
    second.reset()
    seen = []

    def step():
        for _ in range(20):
            seen.append(len(first.step(np.zeros((2, 1))).decisions[0]))
            seen.append(
                len(second.step(np.zeros((len(second.decision.acting_agents), 1))).decisions[0])
            )

    thread = threading.Thread(target=step)
    thread.start()
    thread.join(300)

    assert seen == [2, 3] * 20


def test_what_it_shows_is_not_overwritten_by_the_next_step(make):
    env = make(PENDULUM, configure=(2, 1))
    before = env.reset().decisions[0].observations
    kept = before.copy()
    env.step(np.ones((2, 1)))
    between = env.decision.observations.copy()
    second = env.decision.observations
    env.step(np.ones((2, 1)))

    assert np.array_equal(before, kept)
    assert np.array_equal(second, between)


GIVING = {
    "imports": BY_V1["imports"]
    + """
  (import "ark-ml-v1" "ml__submit_training_augmented_observations"
    (func $augment (param i64) (result i32)))
  (import "ark-ml-v1" "ml__submit_training_demonstration_observations"
    (func $demonstrate (param i64) (result i32)))""",
    "answer": BY_V1["answer"]
    + """
  (func $give (param $id i64) (param $action f32)
    (f32.store (i32.const 128) (f32.const 7))
    (f32.store (i32.const 132) (local.get $action))
    (drop (call $push (i64.load (i32.const 8)) (local.get $id) (i32.const 3) (f32.const 0)
      (i32.const 128) (i32.const 1) (i32.const 132) (i32.const 1) (f32.const 1))))""",
}


def test_rows_with_actions_of_their_own_say_where_these_came_from(make):
    each = """
      (call $give (i64.const 8) (f32.const 0.25)) (call $give (i64.const 9) (f32.const 0.5))
      (drop (call $augment (i64.load (i32.const 8))))
      (call $give (i64.const 9) (f32.const 0.75))
      (drop (call $demonstrate (i64.load (i32.const 8))))"""
    env = make(scripted([(1, INITIAL, 0)], [(1, RUNNING, 0)], each=each, by=GIVING))
    decision = env.reset().decisions[0]
    augmented, demonstrated = env.take_demonstrations()
    taken = env.take_demonstrations()

    assert decision.agents.tolist() == [0]
    assert augmented.origin is Origin.AUGMENTED
    assert (augmented.rows["id"].tolist(), augmented.actions.tolist()) == ([8, 9], [[0.25], [0.5]])
    assert demonstrated.origin is Origin.DEMONSTRATION
    assert demonstrated.actions.tolist() == [[0.75]]
    assert demonstrated.observations.tolist() == [[7.0]]
    assert taken == []


def test_an_inference_guest_is_driven_where_it_trains_nothing(make):
    env = make(GUESTS / "c_applet.wasm")
    step = env.reset()

    assert step.decisions[0].behavior.name == "inference"
    assert len(step.decisions[0]) > 0


def test_it_pickles_by_path_digest_and_settings(make, tmp_path):
    copy = tmp_path / "pendulum.wasm"
    copy.write_bytes(PENDULUM.read_bytes())
    env = make(copy, configure=(4, "{seed}"))
    expected = env.reset(seed=9).decisions[0].observations
    data = pickle.dumps(env)
    with pickle.loads(data) as again:
        found = again.reset(seed=9).decisions[0].observations
    copy.write_bytes(CARTPOLE.read_bytes())

    assert np.array_equal(found, expected)
    with pytest.raises(UsageError, match="another module"):
        pickle.loads(data)


def test_what_it_was_made_with_is_its_own(make):
    numbers, spec = [1, "{seed}"], {"decision_period": 2}
    env = make(PENDULUM, configure=numbers, spec=spec)
    first = env.reset(seed=1).decisions[0]
    numbers[0] = 4
    spec["decision_period"] = 9
    again = env.reset(seed=1).decisions[0]
    with pickle.loads(pickle.dumps(env)) as copied:
        other = copied.reset(seed=1).decisions[0]

    assert np.array_equal(first.observations, again.observations)
    assert np.array_equal(first.observations, other.observations)
    assert other.behavior.spec.decision_period == 2


def test_what_makes_no_sense_is_refused_when_it_is_made(make):
    with pytest.raises(EntryPointMissing, match="'jump'"):
        make(PENDULUM, entry="jump")
    with pytest.raises(EntryPointMissing, match="configure"):
        make(scripted([]), configure="x")
    with pytest.raises(UsageError, match=r"configure holds 1\.5"):
        make(PENDULUM, configure=(1.5, 2))
    for calls in (0, 1.0, "many"):
        with pytest.raises(UsageError, match=f"idle_calls is {calls!r}"):
            make(PENDULUM, idle_calls=calls)
    for seconds in (0, "0", float("nan")):
        with pytest.raises(UsageError, match=f"seconds is {seconds!r}: a number above 0, or None"):
            make(PENDULUM, seconds=seconds)
