"""Another policy between two frames: `Host.use` and `Fleet.use`."""

import asyncio
import gc
import logging
import threading
from concurrent.futures import CancelledError
from contextlib import closing

import numpy as np
import pytest
from tests import waiting
from tests.integration.guest_text import (
    ACTIONS,
    ACTOR,
    FEATURES,
    GUESTS,
    HANDLE,
    SUBMIT,
    data,
    function,
    i32,
    module,
)
from tests.integration.test_environment import BY_V1, INITIAL, RUNNING, scripted
from tests.unit import policy_models as build

import arkml
from arkml import GuestEnv
from arkml.abi.codes import SnapshotFormat
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.errors import InvalidArguments, ModelRejected, UsageError
from arkml.guests import policy_changes
from arkml.guests.guest import calls_of
from arkml.policies import onnx_model
from arkml.policies.onnx import OnnxPolicy
from arkml.policies.onnx_model import OnnxModel

FRAMES = 1_000
PUSH = "ark-ml-v1.ml__push_inference_observation_with_metadata"
START = "ark-ml-v1.ml__start_inference"
ROOM = 16 << 10
MASKS = 512
FIRST, SECOND = (1.0, 0.0), (0.25, -2.0)


def player(*models, actions=1):
    """
    A guest of two features whose `openN` opens a session of the Nth model.

    `step` pushes the features at FEATURES for as many agents, and submits. A mask is the metadata
    at MASKS of each row, if there is any. `step_and_open_last` opens a session in the same call.
    """
    places = [ROOM * (1 + number) for number in range(len(models))]
    call = f"(call ${START} {i32(2)} {i32(actions)}"
    return module(
        *map(data, places, models),
        *(
            function(
                f"open{number}",
                f"{call} {i32(place)} {i32(len(model))} {i32(0)} {i32(HANDLE)})",
                result="i32",
            )
            for number, (place, model) in enumerate(zip(places, models, strict=True))
        ),
        function(
            "step",
            f"""(local $code i32) (local $row i32)
            (loop $more
              (local.set $code (i32.or (local.get $code)
                (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.extend_i32_u (local.get $row)) {i32(0)}
                  (f32.const 0) {i32(FEATURES)} {i32(2)} {i32(MASKS)}
                  (i32.ne (i32.load8_u {i32(MASKS)}) {i32(0)}))))
              (local.set $row (i32.add (local.get $row) {i32(1)}))
              (br_if $more (i32.lt_u (local.get $row) (local.get $n))))
            (i32.or (local.get $code)
              (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)}
                (i32.mul (local.get $n) {i32(actions)}) {i32(0x18000)} (local.get $n)))""",
            params="(param $n i32)",
            result="i32",
        ),
        function(
            "step_and_open_last",
            f"(i32.or (call $step {i32(1)}) (call $open{len(models) - 1}))",
            result="i32",
        ),
        uses=(START, PUSH, SUBMIT),
        memory='(memory (export "memory") 4)',
    )


def linear(weights):
    return build.linear(np.reshape(weights, (2, 1)))


def noisy(weights):
    """actions = obs @ weights + epsilon"""
    return build.model(
        [build.node("MatMul", "obs w", "mean"), build.node("Add", "mean epsilon", "actions")],
        [build.port("obs", "N", 2), build.port("epsilon", "N", 1)],
        [build.port("actions", "N", 1)],
        [build.weight("w", np.reshape(weights, (2, 1)))],
    )


def adding(weights, *, width=1, noise=False):
    """memory = memory + obs @ weights, in each of `width` columns; actions = the first (+ noise)"""
    nodes = [
        build.node("MatMul", "obs w", "seen"),
        build.node("Add", "memory_in seen", "memory_out"),
        build.node("MatMul", "memory_out first", "sum"),
        build.node("Add", "sum epsilon", "actions") if noise else
        build.node("Identity", "sum", "actions"),
    ]  # fmt: skip
    inputs = [build.port("obs", "N", 2), build.port("memory_in", "N", width)]
    if noise:
        inputs.append(build.port("epsilon", "N", 1))
    return build.model(
        nodes,
        inputs,
        [build.port("actions", "N", 1), build.port("memory_out", "N", width)],
        [
            build.weight("w", np.repeat(np.reshape(weights, (2, 1)), width, axis=1)),
            build.weight("first", np.eye(width)[:, :1]),
        ],
    )


def choosing(scores):
    """A score for each of three choices, the same for all, and an input for masks, not used."""
    return build.model(
        [
            build.node("MatMul", "obs w", "none"),
            build.node("Add", "none scores", "free"),
            build.node("Mul", "action_masks zero", "unused"),
            build.node("Add", "free unused", "logits"),
        ],
        [build.port("obs", "N", 2), build.port("action_masks", "N", 3)],
        [build.port("logits", "N", 3)],
        [
            build.weight("w", np.zeros((2, 3))),
            build.weight("scores", scores),
            build.weight("zero", 0.0),
        ],
    )


def seen(frame, guest=0):
    """The features of a guest in a frame."""
    return np.float32([np.sin(frame + guest), (frame * 7 + guest) % 11 - 5])


def step(fleet, frame, rows=2):
    """One frame; the action of each agent of each guest."""
    for number, guest in enumerate(fleet.guests):
        guest.write_memory(FEATURES, seen(frame, number).tobytes())
    assert set(fleet.call("step", rows).values) == {0}
    return [np.frombuffer(g.read_memory(ACTIONS, 4 * rows), "<f4").tolist() for g in fleet.guests]


def played(fleet, frames, changes=None):
    """The actions of frames, before some of which a function is called."""
    return [((changes or {}).get(frame, lambda: None)(), step(fleet, frame))[1] for frame in frames]


@pytest.fixture
def make_fleet(make_host):
    """A fleet of players with open sessions, and its host."""

    def make(*models, guests=3, **options):
        fleet = make_host(**options).fleet(player(*(models or (linear(FIRST),))), guests)
        assert set(fleet.call("open0").values) == {0}
        return fleet

    return make


@pytest.fixture
def held(monkeypatch):
    """Hold the loading of policies until the event is set; `reached` says that it is held."""
    reached, released = threading.Event(), threading.Event()

    def hold(owner, name):
        original = getattr(owner, name)

        def waits(*args, **options):
            reached.set()
            assert released.wait(60)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, waits)
        return reached, released

    yield hold
    released.set()


class Doubling:
    num_features, num_actions = 2, 1

    def __init__(self, factor=2.0):
        self.factor, self.forgotten, self.scratches = factor, [], []

    def act(self, batch):
        self.scratches.append(batch.scratch)
        batch.actions[:] = self.factor * batch.features[:, :1]

    def forget(self, key):
        self.forgotten.append(key)


# The frame of the change.


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (linear(FIRST), linear(SECOND)),
        (linear(FIRST), lambda observations: observations[:, 1:] * 3),
        (lambda observations: observations[:, :1], linear(SECOND)),
        (Doubling(), Doubling(-1.0)),
        (noisy(FIRST), noisy(SECOND)),
        (noisy(FIRST), linear(SECOND)),
        (None, linear(SECOND)),
    ],
    ids=["files", "function", "file for function", "objects", "noise", "noise ends", "snapshots"],
)
def test_from_a_change_on_the_actions_are_those_of_the_new_policy(
    make_host, before, after, deterministic
):
    options = {"deterministic": deterministic, "seed": 5}
    host, other = make_host(policy=before, **options), make_host(policy=after, **options)
    changed, whole = (one.fleet(player(linear(FIRST)), 3) for one in (host, other))
    for fleet in (changed, whole):
        assert set(fleet.call("open0").values) == {0}
    changes = {FRAMES // 2: lambda: host.use(after).result()}
    actions = played(changed, range(FRAMES), changes)
    expected = played(whole, range(FRAMES))

    assert actions[FRAMES // 2 :] == expected[FRAMES // 2 :]
    assert all(a != b for a, b in zip(actions[1:500], expected[1:500], strict=True))


@pytest.mark.parametrize("is_fleet", [True, False])
def test_recurrent_states_of_one_shape_go_on(make_host, is_fleet):
    host = make_host(policy=adding(FIRST, width=3))
    fleet = host.fleet(player(linear(FIRST)), 2)
    fleet.call("open0")
    after = adding(SECOND, width=3)
    changes = {400: lambda: (fleet if is_fleet else host).use(after).result()}
    actions = played(fleet, range(FRAMES), changes)

    for guest in range(2):
        features = np.array([seen(frame, guest) for frame in range(FRAMES)])
        weights = np.where(np.arange(FRAMES)[:, None] < 400, FIRST, SECOND)
        sums = np.cumsum((features * weights).sum(axis=1))
        given = np.array([frame[guest] for frame in actions])
        assert np.abs(given - sums[:, None]).max() < 0.05  # of 1,000 sums in float32


def test_states_of_another_shape_begin_as_zeros_and_this_is_told_once(make_host, caplog):
    host = make_host(policy=adding(FIRST))
    fleets = [host.fleet(player(linear(FIRST)), 2) for _ in range(3)]
    for fleet in fleets:
        fleet.call("open0")
        played(fleet, range(10))
    host.use(adding(SECOND, width=2)).result()
    actions = [step(fleet, 10) for fleet in fleets]

    expected = float(seen(10) @ np.float32(SECOND))
    assert [frame[0] for frame in actions] == [[pytest.approx(expected, abs=1e-5)] * 2] * 3
    assert caplog.text.count("they begin as zeros") == 1


def test_noise_goes_on_where_states_do_not(make_host):
    """The steps of agents, which noise is of, are kept beside states of another shape."""
    hosts = [make_host(policy=adding(FIRST, width=w, noise=True), seed=3) for w in (1, 2)]
    fleets = [host.fleet(player(linear(FIRST)), 2) for host in hosts]
    for fleet in fleets:
        fleet.call("open0")
        played(fleet, range(10))
    hosts[0].use(adding(SECOND, width=2, noise=True)).result()
    hosts[1].use(linear(FIRST)).result()
    first = step(fleets[0], 10)
    noise = [[action - float(seen(10, g) @ np.float32(SECOND)) for action in row]
             for g, row in enumerate(first)]  # fmt: skip
    whole = make_host(policy=noisy((0, 0)), seed=3).fleet(player(linear(FIRST)), 2)
    whole.call("open0")
    expected = played(whole, range(11))[-1]

    assert np.abs(np.array(noise) - expected).max() < 1e-4


def test_guests_go_back_to_their_own_snapshots_and_states(make_host):
    """Policies that were one part again, each with the states of its own sessions."""
    host = make_host()
    fleet = host.fleet(player(adding(FIRST), adding(SECOND)), 4)
    for name, only in (("open0", [0, 2]), ("open1", [1, 3])):
        assert fleet.call(name, only=only).values == [0, 0]
    common = (3.0, 3.0)
    changes = {
        20: lambda: host.use(adding(common)).result(),
        30: lambda: host.use(None).result(),
    }
    actions = played(fleet, range(50), changes)

    for guest in range(4):
        own = (FIRST, SECOND)[guest % 2]
        parts = [(own, range(20)), (common, range(20, 30)), (own, range(30, 50))]
        total = sum(float(seen(frame, guest) @ np.float32(w)) for w, of in parts for frame in of)
        assert actions[-1][guest] == [pytest.approx(total, abs=1e-2)] * 2


def test_masks_hold_after_a_change(make_host):
    host = make_host(policy=choosing([1, 2, 3]))
    guest = host.load(player(choosing([0, 0, 0])))
    assert guest.call("open0") == 0
    guest.write_memory(MASKS, b"mask/0/2".ljust(28, b"\0") + np.float32(1).tobytes())
    answers = []
    for scores in ([1, 2, 3], [3, 2, 9], [0, 5, 9]):
        host.use(choosing(scores)).result()
        assert guest.call("step", 2) == 0
        answers.append(np.frombuffer(guest.read_memory(ACTIONS, 8), "<f4").tolist())

    assert answers == [[1, 1], [0, 0], [1, 1]]


def test_outputs_are_named_as_for_a_host(make_fleet):
    two = build.model(
        [build.node("MatMul", f"obs w{n}", f"out{n}") for n in (0, 1)],
        [build.port("obs", "N", 2)],
        [build.port("out0", "N", 1), build.port("out1", "N", 1)],
        [build.weight("w0", [[0], [0]]), build.weight("w1", [[0], [1]])],
    )
    fleet = make_fleet()
    fleet.use(two, outputs="out1").result()

    assert step(fleet, 3) == [[seen(3, guest)[1]] * 2 for guest in range(3)]
    with pytest.raises(ModelRejected, match="other"):
        fleet.use(two, outputs="other").result()


def test_a_guest_that_is_alone_and_guests_to_come_get_the_policy(make_host):
    host = make_host()
    guest = host.load(ACTOR)
    assert guest.call("open") == 0
    host.use(linear((7, 0))).result()
    later = host.load(ACTOR)
    assert later.call("open") == 0
    for one in (guest, later):
        assert one.call("step", 1) == 0

    assert [one.call("action", 0) for one in (guest, later)] == [3.5, 3.5]


def test_a_fleet_with_a_policy_of_its_own_keeps_it(make_host):
    host = make_host()
    fleets = [host.fleet(player(linear(FIRST)), 2) for _ in range(2)]
    for fleet in fleets:
        fleet.call("open0")
    fleets[0].use(linear(SECOND)).result()
    host.use(linear((0, 1))).result()
    fleets[0].join()
    fleets[0].call("open0", only=[2])

    x, y = seen(4)
    assert step(fleets[0], 4)[0] == [pytest.approx(0.25 * x - 2 * y)] * 2
    assert step(fleets[0], 4)[2] == [pytest.approx(float(seen(4, 2) @ np.float32(SECOND)))] * 2
    assert step(fleets[1], 4)[0] == [y] * 2


def test_frames_of_an_applet_change_between_two_of_them(make_host):
    """Guests that are parked in the loop of frames, and driven by nothing but `update`."""
    asked = []

    def recording(observations):
        asked.append(len(observations))
        return observations[:, :1] * 0

    host = make_host(policy=GUESTS / "policies" / "pointmass.onnx")
    fleet = host.fleet(GUESTS / "c_applet.wasm", 10)
    for _ in range(5):
        assert fleet.update() == {}
    host.use(recording).result()
    for _ in range(5):
        assert fleet.update() == {}

    assert asked == [80] * 5


@pytest.mark.parametrize("kind", [GuestGymEnv, GuestFleetVectorEnv])
def test_environments_go_on_when_their_host_gets_another_policy(make_host, kind):
    """Their sessions are answered by the actions of `step`, whatever the policy is."""

    def returns(change):
        host = make_host(policy=GUESTS / "policies" / "pointmass.onnx")
        found = []
        with closing(kind(GUESTS / "c_choosers.wasm", host=host, configure=(1, 1))) as env:
            env.action_space.seed(3)
            env.reset(seed=3)
            for number in range(60):
                if number % 20 == 10:
                    change(host)
                step = env.step(env.action_space.sample())
                found.append([np.asarray(one).tolist() for one in step[:4]])
                if kind is GuestGymEnv and (step[2] or step[3]):
                    env.reset()
        return found

    assert returns(lambda host: host.use(linear(SECOND)).result()) == returns(lambda _: None)


def test_sessions_that_an_environment_does_not_step_change(make_host):
    """A guest that asks the policy of its host in each frame of its training."""
    asked = []

    def policy(factor):
        def act(observations):
            asked.append(factor)
            return observations[:, :1] * factor

        return act

    asking = {
        "imports": BY_V1["imports"]
        + """
        (import "ark-ml-v1" "ml__start_inference"
          (func $open (param i32 i32 i32 i32 i32 i32) (result i32)))
        (import "ark-ml-v1" "ml__push_inference_observation"
          (func $see (param i64 i64 i32 f32 i32 i32 f32) (result i32)))
        (import "ark-ml-v1" "ml__submit_inference_observations"
          (func $ask (param i64 i32 i32 i32 i32) (result i32)))""",
        "answer": BY_V1["answer"]
        + """
        (func $think
          (if (i32.eqz (global.get $turn)) (then (drop (call $open (i32.const 1) (i32.const 1)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1024)))))
          (drop (call $see (i64.load (i32.const 1024)) (i64.const 1) (i32.const 0) (f32.const 0)
            (i32.const 128) (i32.const 1) (f32.const 0)))
          (drop (call $ask (i64.load (i32.const 1024)) (i32.const 1032) (i32.const 1)
            (i32.const 1036) (i32.const 1))))""",
    }
    turns = [[(1, INITIAL, 0)], *[[(1, RUNNING, 0)]] * 5]
    guest = scripted(*turns, each="(call $think)", by=asking)
    host = make_host(policy=policy(1))
    with closing(GuestEnv(guest, host=host)) as env:
        env.reset(seed=1)
        env.step(np.zeros((1, 1), np.float32))
        before = list(asked)
        host.use(policy(2)).result()
        for _ in range(2):
            env.step(np.zeros((1, 1), np.float32))

    assert before == [1, 1]
    assert asked[2:] == [2, 2]


# What the embedder's objects see.


def test_an_object_forgets_the_sessions_that_another_policy_answers(make_host):
    first, second = Doubling(), Doubling(3.0)
    host = make_host(policy=first)
    fleet = host.fleet(player(linear(FIRST)), 2)
    fleet.call("open0")
    step(fleet, 1)
    host.use(first).result()
    step(fleet, 2)
    forgotten_by_itself = list(first.forgotten)
    host.use(second).result()
    step(fleet, 3)

    assert forgotten_by_itself == []
    assert len(first.forgotten) == len(set(first.forgotten)) == 2
    fleet.close()
    assert sorted(second.forgotten) == sorted(first.forgotten)


def test_an_object_finds_nothing_of_another_policy_with_its_batch(make_host):
    policy = Doubling()
    host = make_host(policy=linear(FIRST))
    guest = host.load(ACTOR)
    guest.call("open")
    guest.call("step", 2)
    host.use(policy).result()
    guest.call("step", 2)

    assert policy.scratches == [None]


# Failures.


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (b"no model", ModelRejected),
        (linear(FIRST)[:-9], ModelRejected),
        (build.linear([[1], [2], [3]]), InvalidArguments),
        (build.linear([[1, 2], [3, 4]]), InvalidArguments),
        ("nowhere.onnx", UsageError),
    ],
    ids=["bytes", "half", "features", "actions", "missing"],
)
def test_a_policy_that_is_refused_leaves_the_one_before(make_host, policy, error, caplog):
    host = make_host(policy=adding(FIRST))
    fleet = host.fleet(player(linear(FIRST)), 2)
    fleet.call("open0")
    for frame in range(5):
        step(fleet, frame)
    future = host.use(policy)
    with pytest.raises(error):
        future.result()
    total = sum(seen(frame)[0] for frame in range(6))

    assert step(fleet, 5)[0] == [pytest.approx(total, abs=1e-4)] * 2
    assert caplog.text.count("is not used, the one before stays") == 1


def test_a_policy_that_fits_one_guest_and_not_another_changes_neither(make_host):
    host = make_host()
    wide = build.linear([[1, 2], [3, 4]])
    guests = [host.load(player(linear(FIRST))), host.load(player(wide, actions=2))]
    for guest in guests:
        assert guest.call("open0") == 0
        guest.write_memory(FEATURES, np.float32([1, 1]).tobytes())
    with pytest.raises(InvalidArguments, match=r"actions|width"):
        host.use(linear(SECOND)).result()
    for guest in guests:
        assert guest.call("step", 1) == 0
    given = [np.frombuffer(guest.read_memory(ACTIONS, 8), "<f4").tolist() for guest in guests]

    assert given == [[1, 0], [4, 6]]


@pytest.mark.parametrize(
    ("policy", "options", "text"),
    [
        (5, {}, "policy is of type builtins.int"),
        (Doubling, {}, "policy is the class"),
        (None, {"outputs": "a"}, "outputs is"),
        (b"", {"outputs": 3}, "outputs is 3"),
        (b"", {"watch": True}, "watch=True is for a policy file"),
        ("a.onnx", {"watch": 1}, "watch is 1: it takes True or False"),
    ],
)
def test_arguments_are_refused_at_once(host, policy, options, text):
    fleet = host.fleet(ACTOR, 1)
    for one in (host, fleet):
        with pytest.raises(UsageError, match=text):
            one.use(policy, **options)


def test_what_is_closed_takes_no_policy(host):
    fleet = host.fleet(ACTOR, 1)
    fleet.close()
    with pytest.raises(UsageError, match="is closed"):
        fleet.use(None)
    host.close()
    with pytest.raises(UsageError, match="this host is closed"):
        host.use(None)


def test_a_snapshot_that_cannot_act_keeps_a_guest_from_going_back(make_host):
    """Under a policy of the host the snapshots of guests are not looked at."""
    host = make_host(policy=linear(FIRST))
    guest = host.load(player(b"no model"))
    assert guest.call("open0") == 0
    with pytest.raises(ModelRejected):
        host.use(None).result()

    assert guest.call("step", 1) == 0


# Loading beside frames.


@pytest.mark.parametrize(
    ("owner", "name"),
    [(policy_changes, "require_loadable"), (onnx_model, "open_session")],
    ids=["vetting", "onnxruntime"],
)
def test_frames_go_on_while_a_policy_is_loaded(make_fleet, held, owner, name):
    fleet = make_fleet()
    before = step(fleet, 1)
    reached, released = held(owner, name)
    future = fleet.use(linear((5, 5)))
    assert reached.wait(60)
    frames = [step(fleet, 1) for _ in range(20)]
    fleet.join()
    is_done = future.done()
    released.set()
    future.result()

    assert frames == [before] * 20
    assert not is_done
    assert fleet.call("open0", only=[3]).values == [0]
    assert step(fleet, 1)[0] == [pytest.approx(5 * seen(1).sum(), rel=1e-6)] * 2


def test_a_session_that_opens_while_a_policy_is_loaded_gets_it(make_host, held):
    host = make_host()
    guest = host.load(ACTOR)
    reached, released = held(policy_changes, "require_loadable")
    future = host.use(linear((7, 0)))
    assert reached.wait(60)
    assert guest.call("open") == 0
    assert guest.call("step", 1) == 0
    before = guest.call("action", 0)
    released.set()
    future.result()
    assert guest.call("step", 1) == 0

    assert (before, guest.call("action", 0)) == (-0.125, 3.5)


def test_a_session_that_opens_between_the_offer_and_the_next_call_gets_it(make_host):
    """The offer is made by the policy of a frame, which then opens a session with another model."""
    host = make_host()
    guest = host.load(player(linear(FIRST), linear(SECOND)))
    assert guest.call("open0") == 0
    guest.write_memory(FEATURES, np.float32([1, 10]).tobytes())

    def once(observations):
        host.use(linear((7, 0))).result()
        return observations[:, :1]

    host.use(once).result()
    answers = []
    assert guest.call("step_and_open_last") == 0
    answers.append(guest.read_memory(ACTIONS, 4))
    assert guest.call("step", 1) == 0
    answers.append(guest.read_memory(ACTIONS, 4))

    assert answers == [np.float32(1).tobytes(), np.float32(7).tobytes()]


def test_a_host_is_closed_while_a_policy_is_loaded(make_host, held):
    host = make_host(policy=linear(FIRST))
    host.load(ACTOR).call("open")
    reached, released = held(policy_changes, "require_loadable")
    loading, later = host.use(linear(SECOND)), host.use(linear(SECOND))
    assert reached.wait(60)
    host.close()
    with pytest.raises(CancelledError):
        later.result()
    released.set()

    with pytest.raises(UsageError, match="this host is closed"):
        loading.result()


def test_a_change_can_be_cancelled_until_it_is_loaded(make_host, held):
    host = make_host(policy=linear(FIRST))
    guest = host.load(ACTOR)
    guest.call("open")
    reached, released = held(policy_changes, "require_loadable")
    first, second = host.use(linear(SECOND)), host.use(linear((0, 0)))
    assert reached.wait(60)
    assert second.cancel()
    released.set()
    first.result()
    guest.call("step", 1)

    assert guest.call("action", 0) == 0.25 * 0.5 + 2 * 0.25


def test_changes_are_made_in_their_order(make_host):
    host = make_host()
    guest = host.load(ACTOR)
    guest.call("open")
    futures = [host.use(linear((n, 0))) for n in range(20)]
    futures[-1].result()
    guest.call("step", 1)

    assert all(one.done() for one in futures)
    assert guest.call("action", 0) == 9.5


def test_a_coroutine_awaits_a_change(make_host):
    host = make_host()

    async def change():
        await asyncio.wrap_future(host.use(linear(SECOND)))

    asyncio.run(change())


# Threads.


@pytest.mark.parametrize("threads", [1, 2])
def test_all_guests_of_a_fleet_change_together(make_host, threads):
    host = make_host(policy=linear((1, 0)), threads=threads)
    fleets = [host.fleet(ACTOR, 40) for _ in range(2)]
    for fleet in fleets:
        fleet.call("open")
    ended = threading.Event()
    seen_factors = [[], []]

    def change():
        for number in range(60):
            host.use(linear((number % 7, 0))).result()
        host.use(linear((100, 0))).result()
        ended.set()

    def run(fleet, factors):
        is_last = False
        while not is_last:
            is_last = ended.is_set()
            assert set(fleet.call("step", 2).values) == {0}
            factors.append({2 * guest.call("action", 1) for guest in fleet.guests})

    runs = [
        threading.Thread(target=run, args=both)
        for both in zip(fleets, seen_factors, strict=True)
    ]  # fmt: skip
    for thread in (*runs, changer := threading.Thread(target=change)):
        thread.start()
    for thread in (*runs, changer):
        thread.join()

    for factors in seen_factors:
        assert {len(one) for one in factors} == {1}
        assert factors[-1] == {100}


def test_a_policy_changes_the_policy_within_a_frame(make_host):
    """What it offers is taken before the next call, and the frame ends as it began."""
    host = make_host()
    fleet = host.fleet(ACTOR, 3)
    fleet.call("open")

    def once(observations):
        host.use(linear((7, 0))).result()
        return observations[:, :1]

    host.use(once).result()
    answers = []
    for _ in range(2):
        fleet.call("step", 1)
        answers.append([guest.call("action", 0) for guest in fleet.guests])

    assert answers == [[0.5] * 3, [3.5] * 3]


def test_guests_come_and_go_while_policies_change(make_host):
    host = make_host(policy=linear((1, 0)))
    stays = host.fleet(ACTOR, 3)
    stays.call("open")
    ended = threading.Event()

    def change():
        for number in range(100):
            host.use(None if number % 5 == 4 else linear((number % 3, 0))).result()
        host.use(linear((100, 0))).result()
        ended.set()

    changer = threading.Thread(target=change)
    changer.start()
    answers, is_last = [], False
    while not is_last:
        is_last = ended.is_set()
        with host.load(ACTOR) as guest:
            assert guest.call("open") == guest.call("step", 1) == guest.call("close") == 0
            answers.append(guest.call("action", 0))
        stays.join()
        assert stays.call("open", only=[3]).values == [0]
        assert set(stays.call("step", 1).values) == {0}
        assert len({one.call("action", 0) for one in stays.guests}) == 1
        stays.remove(stays.guests[3])
    changer.join()

    assert answers[-1] == 50
    assert stays.guests[0].call("action", 0) == 50


def test_a_change_that_is_cut_off_is_made_by_the_next_call(make_host):
    class Interrupted(Doubling):
        def forget(self, key):
            super().forget(key)
            if len(self.forgotten) == 1:
                raise KeyboardInterrupt

    policy = Interrupted()
    host = make_host(policy=policy)
    fleet = host.fleet(ACTOR, 3)
    fleet.call("open")
    fleet.call("step", 1)
    host.use(linear((7, 0))).result()
    with pytest.raises(KeyboardInterrupt):
        fleet.call("step", 1)
    fleet.call("step", 1)

    assert [guest.call("action", 0) for guest in fleet.guests] == [3.5] * 3
    assert len(policy.forgotten) == len(set(policy.forgotten)) == 3


# What is left behind.


def live(kind):
    gc.collect()
    return sum(type(one) is kind for one in gc.get_objects())


def test_a_thousand_changes_leave_nothing_behind(make_host):
    before = live(OnnxPolicy), live(OnnxModel)
    host = make_host(policy=adding(FIRST))
    fleet = host.fleet(player(adding(FIRST)), 3)
    threads = threading.active_count()
    fleet.call("open0")
    models = [adding((0, n)) for n in range(20)]
    counts = []
    for number in range(1_000):
        host.use(None if number % 10 == 9 else models[number % 7]).result()
        step(fleet, number)
        if number in (100, 999):
            counts.append((live(OnnxPolicy), live(OnnxModel), fleet.account.agent_bytes))
    for model in models:
        host.use(model).result()
    step(fleet, 0)

    assert counts[0] == counts[1]
    assert counts[1][0] - before[0] <= 2
    assert live(OnnxModel) - before[1] <= 17  # those that are kept for who loads them again
    assert threading.active_count() - threads <= 1
    fleet.close()
    del fleet
    assert live(OnnxPolicy) == before[0]


def test_a_guest_is_charged_for_its_snapshot_and_for_the_model_that_acts(make_host):
    model = linear(FIRST)
    host = make_host()
    guest = host.load(player(model))
    guest.call("open0")
    sizes = []
    for policy in (linear(SECOND), None):
        sizes.append(guest.account.session_bytes)
        host.use(policy).result()
        guest.call("step", 1)
    sizes.append(guest.account.session_bytes)

    assert sizes[0] == sizes[2] > 2 * len(model)
    assert sizes[1] == len(model)


def test_work_space_is_charged_for_a_model_of_the_guest_alone(make_host):
    host = make_host()
    guest = host.load(player(adding(FIRST, width=64)))
    guest.call("open0")
    sizes = []
    for policy in (None, adding(SECOND, width=64), None):
        host.use(policy).result()
        guest.call("step", 100)
        sizes.append(guest.account.work_bytes)

    assert sizes[0] == sizes[2] > 100 * 64 * 4
    assert sizes[1] == 0


def test_a_guest_that_fails_or_closes_before_it_takes_a_policy_harms_none(make_host):
    host = make_host()
    fleet = host.fleet(ACTOR, 3)
    fleet.call("open")
    host.use(linear((7, 0))).result()
    fleet.guests[0].close()
    with pytest.raises(arkml.GuestTrap):
        fleet.guests[1].call("boom")
    fleet.call("step", 1)

    assert fleet.guests[2].call("action", 0) == 3.5


# Brains of `ark-ml-inference-v0`.


def brain_of(guest, model):
    calls = calls_of(guest).services.handler("ark-ml-inference-v0")
    runtime = calls.create_runtime()
    load = calls.load_inference_async(runtime, SnapshotFormat.ONNX, model)
    return calls, runtime, load


def asked(calls, runtime, brain, features):
    calls.begin_infer_submission(runtime, brain, 3)
    calls.submit_inference_item(runtime, brain, "obs", np.float32(features))
    calls.end_infer_submission(runtime, brain)
    calls.execute_inference(runtime)
    answer = calls.result_get_brain_agent_output(runtime, brain, 3, 0)
    return np.frombuffer(answer[1:], "<f4").tolist()


def test_brains_change_with_their_states(make_host):
    host = make_host()
    guest = host.load(ACTOR)
    calls, runtime, load = brain_of(guest, adding((1, 0)))
    brain = calls.poll_load_inference_async(load)
    answers = [asked(calls, runtime, brain, (2, 1))]
    host.use(adding((0, 10))).result()
    guest.call("answer")
    answers.append(asked(calls, runtime, brain, (2, 1)))
    host.use(None).result()
    guest.call("answer")
    answers.append(asked(calls, runtime, brain, (2, 1)))

    assert answers == [[2], [12], [14]]


def test_a_brain_that_was_not_polled_yet_changes(make_host):
    host = make_host()
    guest = host.load(ACTOR)
    calls, runtime, load = brain_of(guest, linear((1, 0)))
    host.use(linear((0, 10))).result()
    guest.call("answer")
    brain = calls.poll_load_inference_async(load)

    assert asked(calls, runtime, brain, (2, 1)) == [10]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (build.linear([[1], [0]], obs="eyes"), "a guest has a brain with the inputs obs: 2"),
        (lambda observations: observations, "cannot answer brains"),
    ],
    ids=["names", "function"],
)
def test_a_policy_that_a_brain_cannot_have_is_refused(make_host, policy, text):
    host = make_host()
    guest = host.load(ACTOR)
    calls, runtime, load = brain_of(guest, linear((1, 0)))
    brain = calls.poll_load_inference_async(load)
    with pytest.raises(arkml.errors.AbiError, match=text):
        host.use(policy).result()
    guest.call("answer")

    assert asked(calls, runtime, brain, (2, 1)) == [2]


# Files that are watched.


def write(path, content):
    """Replace a file, as exporters that care do."""
    other = path.with_suffix(".part")
    other.write_bytes(content)
    other.replace(path)


def until(fleet, action):
    """Run frames until the first agent gets this action."""
    waiting.eventually(lambda: step(fleet, 0)[0][0] == action)


def test_a_watched_file_is_loaded_again(make_fleet, tmp_path, caplog):
    path = tmp_path / "walk.onnx"
    write(path, linear((0, 1)))
    fleet = make_fleet()
    fleet.use(path, watch=True).result()
    y = seen(0)[1]
    assert step(fleet, 0)[0] == [y] * 2
    write(path, linear((0, 2)))
    until(fleet, 2 * y)
    write(path, linear((0, 3))[:-5])
    waiting.eventually(lambda: "is not used, the one before stays" in caplog.text)
    assert step(fleet, 0)[0] == [2 * y] * 2
    path.write_bytes(linear((0, 4)))
    until(fleet, 4 * y)

    assert caplog.text.count("is not used") == 1


def test_a_watch_ends_with_the_next_use_and_with_the_host(make_host, tmp_path):
    path = tmp_path / "walk.onnx"
    write(path, linear((0, 1)))
    host = make_host()
    host.use(path, watch=True).result()
    (thread,) = (t for t in threading.enumerate() if t.name == "arkml-file-watch")
    host.use(path).result()
    thread.join()
    host.use(path, watch=True).result()
    (thread,) = (t for t in threading.enumerate() if t.name == "arkml-file-watch")
    host.close()
    thread.join()


def test_a_change_of_a_watched_file_is_logged_by_its_name(make_host, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    path = tmp_path / "walk.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelRejected):
        make_host().use(path, watch=True).result()

    assert f"policy {path} is not used" in caplog.text
