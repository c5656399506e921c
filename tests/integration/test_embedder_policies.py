"""Policies that the embedder gives to a host: a function, or an object."""

import signal
import subprocess
import threading
from functools import partial
from pathlib import PurePosixPath

import numpy as np
import pytest
from tests.integration.guest_text import ACTION, ACTOR, GUESTS, POINTMASS, spawn
from tests.integration.test_fleet import SCRIPTED, SKIP, SKIPPED, actions, outcomes, wanted, write

import arkml
from arkml.abi.codes import ErrorCode
from arkml.errors import GuestFailed, ModelRejected, PolicyFailed, Unavailable, UsageError

FEATURES_OF_ACTOR = [0.5, -0.25]


def controller(observations):
    """Answer as the model that the guests bring does."""
    return -observations[:, :1] - 1.5 * observations[:, 1:]


class Recorder:
    """A policy object that answers as `controller` does and keeps what it was asked."""

    num_features, num_actions = 2, 1

    def __init__(self):
        self.rows, self.keys, self.forgotten, self.threads = [], [], [], set()

    def act(self, batch):
        self.rows.append(batch.rows["id"].tolist())
        self.keys.append(np.unique(batch.keys).tolist())
        self.threads.add(threading.get_ident())
        batch.actions[:] = controller(batch.features)
        batch.values[:] = 0.25

    def forget(self, key):
        self.forgotten.append(key)


class FailingFor(Recorder):
    """Fails for rows that have this position."""

    def __init__(self, position):
        super().__init__()
        self.position = position

    def act(self, batch):
        if (batch.features[:, 0] == self.position).any():
            raise ValueError("not that one")
        super().act(batch)


def opened(host, **options):
    guest = host.load(ACTOR, name="actor", **options)
    assert guest.call("open") == 0
    return guest


def scripted(fleet, script):
    for number, guest in enumerate(fleet.guests):
        write(guest, script, 10.0 * number)
    assert set(fleet.call("open").values) == {0}


# One guest.


def test_a_function_answers_in_the_place_of_the_model(make_host):
    shapes = []

    def policy(observations):
        shapes.append((observations.shape, observations.dtype))
        return controller(observations)

    guest = opened(make_host(policy=policy))

    assert guest.call("step", 5) == 0
    assert [guest.call("action", row) for row in range(5)] == [ACTION] * 5
    assert shapes == [((5, 2), np.float32)]


def test_an_object_answers_and_forgets_closed_sessions(make_host):
    policy = Recorder()
    guest = opened(make_host(policy=policy))
    assert guest.call("step", 3) == 0
    assert guest.call("close") == 0

    assert policy.rows == [[2, 1, 0]]
    assert policy.forgotten == policy.keys[0]
    assert [guest.call("action", row) for row in range(3)] == [ACTION] * 3
    assert np.frombuffer(guest.read_memory(0x18000, 12), "<f4").tolist() == [0.25] * 3


def test_values_of_a_function_are_zero(make_host):
    guest = opened(make_host(policy=controller))
    guest.write_memory(0x18000, b"?" * 8)

    assert guest.call("step", 2) == 0
    assert guest.read_memory(0x18000, 8) == bytes(8)


def test_a_submit_without_rows_asks_no_policy(make_host):
    policy = Recorder()
    guest = opened(make_host(policy=policy))

    assert guest.call("step", 0) == 0
    assert policy.rows == []


def test_observations_belong_to_the_function(make_host):
    kept = []

    def policy(observations):
        kept.append(observations)
        return controller(observations)

    guest = opened(make_host(policy=policy))
    guest.call("step", 2)
    guest.write_memory(64, np.array([7, 8], "<f4").tobytes())
    guest.call("step", 2)
    guest.close()

    assert [array.tolist() for array in kept] == [[FEATURES_OF_ACTOR] * 2, [[7, 8]] * 2]


@pytest.mark.parametrize(
    "convert",
    [np.float64, np.float16, np.ndarray.tolist, np.asfortranarray],
    ids=["float64", "float16", "list", "fortran"],
)
def test_actions_of_other_real_types_are_converted(make_host, convert):
    def policy(observations):
        return convert(controller(observations))

    guest = opened(make_host(policy=policy))

    assert guest.call("step", 2) == 0
    assert guest.call("action", 1) == ACTION


def test_a_path_is_any_path(make_host):
    class Elsewhere:
        def __fspath__(self):
            return str(PurePosixPath(GUESTS / "policies" / "pointmass.onnx"))

    guest = opened(make_host(policy=Elsewhere()))

    assert guest.call("step", 1) == 0
    assert guest.call("action", 0) == ACTION


def test_a_session_that_leaves_its_widths_to_the_model_gets_those_of_the_model(make_host):
    shapes = set()

    def policy(observations):
        shapes.add(observations.shape[1])
        return np.zeros((len(observations), 3))

    guest = make_host(policy=policy).load(GUESTS / "ark_api" / "cmdlet_infer_017.wasm")
    with pytest.raises(arkml.GuestError) as caught:
        guest.run_cmdlet("infer det")

    assert shapes == {8}
    assert not isinstance(caught.value, PolicyFailed)  # the guest finds its own model's actions


def test_a_function_serves_sessions_of_every_shape(make_host):
    shapes = []

    def policy(observations):
        shapes.append(observations.shape[1])
        return np.zeros((len(observations), 3 if observations.shape[1] == 8 else 1))

    host = make_host(policy=policy)
    guest = opened(host)
    guest.call("step", 1)
    with pytest.raises(arkml.GuestError):
        host.load(GUESTS / "ark_api" / "cmdlet_infer_016.wasm").run_cmdlet("infer det")

    assert set(shapes) == {2, 8}


def test_a_session_of_another_shape_than_an_object_has_is_refused(make_host, caplog):
    class Wide(Recorder):
        num_features = 3

    guest = make_host(policy=Wide()).load(ACTOR, name="actor")

    assert guest.call("open") == ErrorCode.INVALID_ARGUMENTS
    assert "Wide of the host takes 3 features and gives 1 actions; the session has 2 and 1" in (
        caplog.text
    )
    assert guest.failure is None


def test_brains_of_ml_inference_are_refused_a_function(make_host, caplog):
    guest = make_host(policy=controller).load(GUESTS / "ark_api" / "cmdlet_infer_017.wasm")

    with pytest.raises(arkml.GuestError):
        guest.run_cmdlet("infer runtime")
    assert "cannot answer brains of ark-ml-inference-v0: give the host a model" in caplog.text


# What is wrong with a policy.


def returning(*shape, dtype=np.float32):
    return lambda observations: np.zeros((len(observations), *shape), dtype)


WRONG_RESULTS = {
    "nothing": (lambda _: None, r"NoneType of dtype object: .* float32, \[n, 1\]"),
    "one dimension": (returning(), r"shape \(2,\) for observations of shape \(2, 2\)"),
    "too wide": (returning(2), r"shape \(2, 2\) .*: return float32 of shape \(2, 1\)"),
    "one row": (lambda _: np.zeros((1, 1), np.float32), r"shape \(1, 1\)"),
    "complex numbers": (returning(1, dtype=complex), "ndarray of dtype complex128"),
    "truths": (returning(1, dtype=bool), "ndarray of dtype bool"),
    "text": (lambda _: [["a"], ["b"]], "list of dtype <U1"),
    "ragged lists": (lambda _: [[1], [1, 2]], "list that is not an array"),
    "no number": (
        lambda _: np.array([[0], [np.nan]], np.float32),
        r"not finite for agent 0 \(row 1 of 2\): \[nan\]",
    ),
    "more than a float32 holds": (
        lambda _: np.full((2, 1), 1e300),
        r"not finite for agent 1 \(row 0 of 2\): \[inf\]",
    ),
}


@pytest.mark.parametrize(("policy", "message"), WRONG_RESULTS.values(), ids=WRONG_RESULTS)
def test_wrong_actions_of_a_function_fail_the_guest_with_a_sentence(make_host, policy, message):
    host = make_host(policy=policy)
    guest = opened(host)

    with pytest.raises(PolicyFailed, match=message) as caught:
        guest.call("step", 2)
    assert str(caught.value).startswith(f"actor: policy {__name__}.")
    assert guest.failure is caught.value
    with pytest.raises(GuestFailed):
        guest.call("answer")
    assert host.load(ACTOR).call("answer") == 42


def test_what_a_function_raises_is_the_cause(make_host):
    def broken(observations):
        return observations["position"]

    guest = opened(make_host(policy=broken))

    with pytest.raises(
        PolicyFailed, match=r"actor: policy .*broken raised IndexError: only"
    ) as got:
        guest.call("step", 2)
    assert isinstance(got.value.__cause__, IndexError)


def test_what_an_object_raises_is_the_cause(make_host):
    guest = opened(make_host(policy=FailingFor(0.5)))

    with pytest.raises(PolicyFailed, match=r"FailingFor raised ValueError: not that one") as caught:
        guest.call("step", 2)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_an_awaited_call_raises_it_too(make_host):
    guest = opened(make_host(policy=FailingFor(0.5)))

    with pytest.raises(PolicyFailed, match="not that one"):
        await guest.call_async("step", 2)


def test_a_policy_may_be_unavailable(make_host):
    def policy(_):
        raise Unavailable("the model is being changed")

    guest = opened(make_host(policy=policy))

    assert guest.call("step", 2) == ErrorCode.UNAVAILABLE
    assert guest.failure is None


def test_numbers_for_agents_whose_episode_ended_may_be_anything(make_host):
    def policy(observations):
        return np.full((len(observations), 1), np.nan)

    program = ACTOR.replace(
        b"(i64.load (i32.const 8)) (local.get $id) (i32.const 0)",
        b"(i64.load (i32.const 8)) (local.get $id) (i32.const 2)",
    )
    guest = make_host(policy=policy).load(program)
    assert guest.call("open") == 0

    assert guest.call("step", 2) == 0
    assert guest.call("action", 0) == 0


def test_an_object_that_replaces_the_arrays_of_the_batch_is_told_to_write_into_them(make_host):
    class Replacing(Recorder):
        def act(self, batch):
            batch.actions = controller(batch.features)

    guest = opened(make_host(policy=Replacing()))

    with pytest.raises(PolicyFailed, match=r"write into it instead, as batch.actions\[:\]"):
        guest.call("step", 2)


def test_an_object_that_fails_to_forget_is_logged_and_the_guest_is_closed(make_host, caplog):
    class Clinging(Recorder):
        def forget(self, key):
            raise KeyError(key)

    guest = opened(make_host(policy=Clinging()))
    guest.close()

    assert "Clinging failed to forget session" in caplog.text
    assert "KeyError" in caplog.text


def test_a_policy_that_calls_the_guest_it_acts_for_fails_it(make_host):
    def policy(observations):
        guest.call("answer")
        return controller(observations)

    guest = opened(make_host(policy=policy))

    with pytest.raises(PolicyFailed, match="raised GuestBusy"):
        guest.call("step", 1)


def test_a_policy_may_call_another_guest(make_host):
    def policy(observations):
        return np.full((len(observations), 1), other.call("answer"), np.float32)

    host = make_host(policy=policy)
    other = host.load(ACTOR)
    guest = opened(host)

    assert guest.call("step", 1) == 0
    assert guest.call("action", 0) == 42


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (object(), "lacks num_features, num_actions, act, forget"),
        (bytearray(b"model"), "not an ONNX model"),
        (Recorder, "policy is the class .*Recorder: give an object of it"),
        (lambda: None, "cannot be called with one argument, the observations"),
        (lambda _, __: None, "cannot be called with one argument"),
        (type("Widthless", (Recorder,), {"num_features": "2"})(), "num_features .* is '2'"),
        (type("Negative", (Recorder,), {"num_actions": -1})(), "num_actions .* is -1"),
    ],
    ids=["an object", "other bytes", "a class", "no argument", "two arguments", "text", "negative"],
)
def test_what_is_not_a_policy_is_refused_with_a_sentence(policy, message):
    with pytest.raises((UsageError, ModelRejected), match=message):
        arkml.Host(policy=policy)


def test_a_coroutine_function_is_refused():
    async def policy(observations):
        return controller(observations)

    with pytest.raises(UsageError, match="coroutine function"):
        arkml.Host(policy=policy)


def test_an_object_without_one_member_is_told_which():
    class Mute:
        num_features, num_actions = 2, 1

        def forget(self, key):
            pass

    with pytest.raises(UsageError, match=r"Mute: .* of which this lacks act$"):
        arkml.Host(policy=Mute())


@pytest.mark.parametrize(
    "policy", [np.negative, partial(np.multiply, -1)], ids=["ufunc", "partial"]
)
def test_functions_of_c_are_functions(make_host, policy):
    program = ACTOR.replace(b"(i32.const 2) (i32.const 1) (i32.const 1024)",
                            b"(i32.const 2) (i32.const 2) (i32.const 1024)")  # fmt: skip
    guest = make_host(policy=policy).load(program)
    assert guest.call("open") == 0
    guest.call("push", 1)

    assert guest.call("submit", 1) == ErrorCode.INVALID_ARGUMENTS  # room for one action alone
    assert guest.failure is None


# Ctrl-C.


def test_an_interrupt_that_a_policy_raises_arrives(make_host):
    def policy(_):
        raise KeyboardInterrupt

    host = make_host(policy=policy)
    guest = opened(host)

    with pytest.raises(KeyboardInterrupt):
        guest.call("step", 1)
    assert isinstance(guest.failure, arkml.GuestError)
    assert host.load(ACTOR).call("answer") == 42


def test_ctrl_c_ends_a_policy_that_never_returns():
    script = """
import arkml
from tests.integration.guest_text import ACTOR

def policy(observations):
    print("running", flush=True)
    while True:
        pass

with arkml.Host(policy=policy) as host:
    guest = host.load(ACTOR)
    guest.call("open")
    try:
        guest.call("step", 1)
    except KeyboardInterrupt:
        print("caught", type(guest.failure).__name__)
    print(host.load(ACTOR).call("answer"))
"""
    process = spawn("-c", script)
    try:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise

    assert (output, errors) == ("caught GuestCancelled\n42\n", "")


# Fleets.


@pytest.mark.parametrize("kind", ["function", "object"])
def test_a_thousand_guests_are_one_call(make_host, kind):
    sizes = []

    class Counting(Recorder):
        def act(self, batch):
            sizes.append(len(batch))
            super().act(batch)

    def policy(observations):
        sizes.append(len(observations))
        return controller(observations)

    host = make_host(policy=policy if kind == "function" else Counting())
    with host.fleet(SCRIPTED, 1000) as fleet:
        scripted(fleet, [1, 2])
        first = outcomes(fleet.call("frame"))
        second = outcomes(fleet.call("frame"))

        assert set(first) | set(second) == {0}
        assert sizes == [1000, 2000]
        for number in range(0, 1000, 97):
            assert actions(fleet.guests[number], 2) == wanted(10.0 * number, 2)


def test_guests_with_more_rows_fewer_or_none_are_answered_rightly(make_host):
    host = make_host(policy=controller)
    with host.fleet(SCRIPTED, 4) as fleet:
        scripted(fleet, [1])
        for number, rows in enumerate((3, 1, SKIP, 2)):
            write(fleet.guests[number], [rows], 10.0 * number)
        results = outcomes(fleet.call("frame"))

        assert results == [0, 0, SKIPPED, 0]
        for number, rows in enumerate((3, 1, 0, 2)):
            assert actions(fleet.guests[number], rows) == wanted(10.0 * number, rows)


def not_for(position, result):
    """A function that returns `result` for observations with this position."""

    def policy(observations):
        if (observations[:, 0] == position).any():
            if isinstance(result, Exception):
                raise result
            return np.full((len(observations), 1), result, np.float32)
        return controller(observations)

    return policy


@pytest.mark.parametrize(
    "policy",
    [not_for(20.0, ValueError("not that one")), not_for(20.0, np.nan), FailingFor(20.0)],
    ids=["raises", "not finite", "object"],
)
def test_a_failure_in_a_fleet_is_of_the_guests_whose_rows_it_is(make_host, policy):
    host = make_host(policy=policy)
    with host.fleet(SCRIPTED, 5) as fleet:
        scripted(fleet, [1, 1])
        first = outcomes(fleet.call("frame"))
        second = outcomes(fleet.call("frame"))

        assert [result for result in first if result != 0] == [fleet.guests[2].failure]
        assert isinstance(first[2], PolicyFailed)
        assert f"{fleet.guests[2].name}: policy " in str(first[2])
        assert isinstance(second[2], GuestFailed)
        assert second[:2] + second[3:] == [0] * 4
        for number in (0, 1, 3, 4):
            assert actions(fleet.guests[number], 1) == wanted(10.0 * number, 1)


def test_a_policy_that_fails_for_all_fails_all_and_not_the_host(make_host):
    def policy(observations):
        raise ValueError(len(observations))

    host = make_host(policy=policy)
    with host.fleet(SCRIPTED, 3) as fleet:
        scripted(fleet, [1])
        results = outcomes(fleet.call("frame"))

        assert [str(result.__cause__) for result in results] == ["1"] * 3
    assert host.load(ACTOR).call("answer") == 42


def test_an_interrupt_in_a_fleet_arrives(make_host):
    def policy(_):
        raise KeyboardInterrupt

    host = make_host(policy=policy)
    with host.fleet(SCRIPTED, 3) as fleet:
        scripted(fleet, [1])

        with pytest.raises(KeyboardInterrupt):
            fleet.call("frame")
        assert all(guest.failure is not None for guest in fleet.guests)
    assert host.load(ACTOR).call("answer") == 42


# Threads, training, environments.


def test_it_is_called_on_the_thread_that_calls_the_guest(make_host, on_thread):
    policy = Recorder()
    guest = opened(make_host(policy=policy))

    def work():
        guest.call("step", 1)
        return threading.get_ident()

    assert {on_thread(work).result()} == policy.threads


def test_a_training_session_acts_with_its_run(make_host):
    policy = Recorder()
    host = make_host(policy=policy)
    with arkml.GuestEnv(GUESTS / "c_pendulum.wasm", configure=(2, 1), host=host) as env:
        step = env.reset(seed=1)
        env.step(np.zeros((len(step.decisions[0].acting_agents), 1)))

    assert policy.rows == []


def test_the_reset_of_an_environment_raises_what_a_policy_of_its_host_failed_with(make_host):
    policy = not_for(0.5, ValueError("no more"))
    host = make_host(policy=policy)
    env = arkml.GuestEnv(ACTOR, entry="open_and_submit_for_ever", inference=False, host=host)
    with env, pytest.raises(PolicyFailed, match="ValueError: no more"):
        env.reset(seed=1)


def test_a_host_of_bytes_acts_with_the_model(make_host):
    guest = opened(make_host(policy=POINTMASS))

    assert guest.call("step", 1) == 0
    assert guest.call("action", 0) == ACTION
