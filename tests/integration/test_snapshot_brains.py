"""States of guests with objects of ark-ml-inference-v0: the same questions get the same answers."""

import hashlib
import random

import numpy as np
import pytest
from tests.integration.guest_text import ACTOR
from tests.integration.snapshot_files import altered
from tests.integration.test_policy_changes import adding, linear

from arkml import FleetSnapshot, GuestSnapshot, Host, Limits
from arkml.abi.codes import SnapshotFormat
from arkml.errors import AbiError, InvalidArguments, NotFound, StateRefused
from arkml.guests.guest import calls_of
from arkml.guests.snapshots import summary_of
from arkml.sessions.futures import Future, FutureChanges
from arkml.sessions.handles import U32_LAYOUT
from arkml.sessions.runtimes import NETWORK, Load

DOUBLE, SUM, NOISY = linear((2, 0)), adding((1, 0)), adding((1, 0), noise=True)
WIDE = adding((1, 0), width=3)
MODELS = (DOUBLE, SUM, NOISY)


def brains_of(guest):
    return calls_of(guest).services.handler("ark-ml-inference-v0")


def submit(calls, runtime, brain, agent, *features):
    calls.begin_infer_submission(runtime, brain, agent)
    calls.submit_inference_item(runtime, brain, "obs", np.float32(features))
    calls.end_infer_submission(runtime, brain)


def answer(calls, runtime, brain, agent):
    found = calls.result_get_brain_agent_output(runtime, brain, agent, 0)
    return np.frombuffer(found[1:], "<f4").tolist()


def asked(calls, runtime, brain, agent=3, features=(2, 1)):
    submit(calls, runtime, brain, agent, *features)
    calls.execute_inference(runtime)
    return answer(calls, runtime, brain, agent)


def loaded(calls, runtime, model=SUM):
    load = calls.load_inference_async(runtime, SnapshotFormat.ONNX, model)
    return calls.poll_load_inference_async(load)


def world(host, model=SUM):
    guest = host.load(ACTOR)
    calls = brains_of(guest)
    runtime = calls.create_runtime()
    return guest, calls, runtime, loaded(calls, runtime, model)


def copies(state, make_host):
    """The guest of a state in another host: from memory, and from a file."""
    for each in (state, GuestSnapshot.load(bytes(state))):
        guest = make_host().load(ACTOR)
        guest.restore(each)
        yield guest


def test_agents_remember_what_they_did_in_the_state(make_host):
    guest, calls, runtime, brain = world(make_host())
    assert asked(calls, runtime, brain) == [2]
    state = guest.snapshot()
    for _ in range(2):
        assert [asked(calls, runtime, brain), asked(calls, runtime, brain, 4)] == [[4], [2]]
        guest.restore(state)
    for copy in copies(state, make_host):
        assert answer(brains_of(copy), runtime, brain, 3) == [2]
        assert asked(brains_of(copy), runtime, brain) == [4]


def test_noise_of_a_guest_is_the_same_again(make_host):
    guest, calls, runtime, brain = world(make_host(), NOISY)
    asked(calls, runtime, brain)
    state = guest.snapshot()
    first = [asked(calls, runtime, brain) for _ in range(3)]
    guest.restore(state)

    assert [asked(calls, runtime, brain) for _ in range(3)] == first
    calls.unload_inference(runtime, brain)
    guest.restore(state)
    assert [asked(calls, runtime, brain) for _ in range(3)] == first
    assert first[1][0] - first[0][0] != 2


def test_observations_wait_and_results_stay(make_host):
    guest, calls, runtime, brain = world(make_host())
    asked(calls, runtime, brain, 1, (5, 0))
    submit(calls, runtime, brain, 2, 7, 0)
    submit(calls, runtime, brain, 1, 1, 0)
    calls.begin_infer_submission(runtime, brain, 9)
    calls.submit_inference_item(runtime, brain, "obs", np.float32((3, 0)))
    state = guest.snapshot()
    for copy in (guest, *copies(state, make_host)):
        again = brains_of(copy)
        again.end_infer_submission(runtime, brain)
        assert answer(again, runtime, brain, 1) == [5]
        assert again.execute_inference(runtime) == bytes([3]) + np.array([2, 1, 9], "<u8").tobytes()
        found = [answer(again, runtime, brain, agent) for agent in (1, 2, 9)]
        assert found == [[6], [7], [3]]
        copy.restore(state)
        assert not again.poll_result(runtime, brain, 2)


def test_a_faulty_observation_is_told_when_it_ends(make_host):
    guest, calls, runtime, brain = world(make_host())
    calls.begin_infer_submission(runtime, brain, 9)
    calls.submit_inference_item(runtime, brain, "odd", np.float32((3, 0)))
    state = guest.snapshot()
    for copy in (guest, *copies(state, make_host)):
        with pytest.raises(InvalidArguments, match="agent 9: the model has no input 'odd'"):
            brains_of(copy).end_infer_submission(runtime, brain)


def test_what_was_dropped_since_is_there_again_and_what_came_since_is_gone(make_host):
    guest, calls, runtime, brain = world(make_host())
    asked(calls, runtime, brain)
    state = guest.snapshot()
    other = loaded(calls, runtime, DOUBLE)
    calls.unload_inference(runtime, brain)
    third = calls.create_runtime()
    guest.restore(state)
    for gone in (other, third):
        with pytest.raises(NotFound):
            calls.execute_inference(gone)
    assert asked(calls, runtime, brain) == [4]
    calls.destroy_runtime(runtime)
    guest.restore(state)
    assert asked(calls, runtime, brain) == [4]
    assert loaded(calls, runtime, DOUBLE) == other  # the next handles are those of then
    before = guest.live_handles
    calls.destroy_runtime(runtime)
    assert before - guest.live_handles == 3
    assert calls_of(guest).services.session_bytes == 0


def test_models_that_were_not_polled_yet_are_polled_after_a_restore(make_host):
    guest, calls, runtime, _ = world(make_host())
    good = calls.load_inference_async(runtime, SnapshotFormat.ONNX, DOUBLE)
    bad = calls.load_inference_async(runtime, SnapshotFormat.ONNX, b"no model")
    state = guest.snapshot()
    shown = []
    for copy in (guest, guest, *copies(state, make_host)):
        again = brains_of(copy)
        brain = again.poll_load_inference_async(good)
        with pytest.raises(AbiError) as refused:
            again.poll_load_inference_async(bad)
        shown.append((brain, asked(again, runtime, brain), type(refused.value), str(refused.value)))
        copy.restore(state)
    assert shown == [shown[0]] * 4
    assert shown[0][1] == [4]


def test_runtimes_execute_the_brain_that_waited_longest_first(make_host):
    guest, calls, runtime, first = world(make_host())
    second = loaded(calls, runtime, DOUBLE)
    asked(calls, runtime, first)
    state = guest.snapshot()
    for copy in (guest, *copies(state, make_host)):
        again = brains_of(copy)
        for brain in (first, second):
            submit(again, runtime, brain, 3, 2, 1)
        again.execute_inference_for(runtime, 0.0)  # one
        assert [again.poll_result(runtime, brain, 3) for brain in (first, second)] == [False, True]


def test_a_fleet_keeps_brains_apart():
    with Host() as host, Host() as other:
        fleet = host.fleet(ACTOR, 3)
        found = []
        for number, guest in enumerate(fleet.guests[:2]):
            calls = brains_of(guest)
            runtime = calls.create_runtime()
            brain = loaded(calls, runtime)
            asked(calls, runtime, brain, 3, (10 * number + 1, 0))
            found.append((runtime, brain))
        state = fleet.snapshot()
        for guest, place in zip(fleet.guests, found, strict=False):
            asked(brains_of(guest), *place)
        fleet.restore(state)
        copy = other.fleet(ACTOR, 3)
        copy.restore(FleetSnapshot.load(bytes(state)))
        for each in (fleet, copy):
            answers = [
                asked(brains_of(guest), *place, 3, (1, 0))
                for guest, place in zip(each.guests, found, strict=False)
            ]
            assert answers == [[2], [12]]


@pytest.mark.parametrize("seed", range(4))
def test_any_history_goes_on_as_it_did(seed, make_host):
    draw = random.Random(seed)
    guest = make_host().load(ACTOR)
    calls = brains_of(guest)

    def act(calls, number, live):
        """Do one thing, which a number chooses, and return what was seen."""
        kind, pick = number % 6, number // 6
        try:
            if kind == 0 or not live:
                runtime = calls.create_runtime()
                live.append((runtime, loaded(calls, runtime, MODELS[pick % 2])))
                return live[-1]
            runtime, brain = live[pick % len(live)]
            if kind == 1:
                live.append((runtime, loaded(calls, runtime, MODELS[pick % 2])))
                return live[-1]
            if kind == 2 and len(live) > 3:
                calls.unload_inference(runtime, brain)
                live.remove((runtime, brain))
            elif kind == 3:
                submit(calls, runtime, brain, pick % 5, pick % 7, 0)
            elif kind == 4:
                return calls.execute_inference(runtime)
            return answer(calls, runtime, brain, pick % 5)
        except AbiError as error:
            return str(error)

    live, kept = [], []
    for _ in range(60):
        if draw.random() < 0.1:
            kept.append((guest.snapshot(), list(live), [draw.randrange(600) for _ in range(20)]))
        act(calls, draw.randrange(600), live)
    for state, then, numbers in kept:
        shown = []
        for copy in (guest, guest, *copies(state, make_host)):
            copy.restore(state)
            again, now = brains_of(copy), list(then)
            shown.append([act(again, number, now) for number in numbers])
        assert shown == [shown[0]] * 4


def test_a_model_of_another_width_is_refused_before_anything_is_touched(make_host):
    host = make_host()
    guest, calls, runtime, brain = world(host)
    asked(calls, runtime, brain)
    state = guest.snapshot()
    host.use(WIDE).result()
    guest.call("close")  # a call takes the policy
    with pytest.raises(StateRefused, match=r"remember 1 numbers, those of the present model .* 3"):
        guest.restore(state)
    assert guest.failure is None
    assert asked(calls, runtime, brain) == [2]  # it began anew with the wide one


def test_a_guest_whose_models_are_over_its_limit_is_refused(make_host):
    guest, calls, runtime, brain = world(make_host())
    asked(calls, runtime, brain)
    state = guest.snapshot()
    small = make_host(limits=Limits(snapshot_bytes=100)).load(ACTOR)
    with pytest.raises(StateRefused, match="a brain cannot be loaded again"):
        small.restore(state)


def test_a_guest_that_fails_in_a_restore_gives_its_models_back(make_host):
    guest, calls, runtime, brain = world(make_host())
    loaded(calls, runtime, DOUBLE)
    asked(calls, runtime, brain)
    odd = of_queue(results={"odd": bytes(4)})
    state = GuestSnapshot.load(altered(guest.snapshot(), odd))
    for each in (guest, make_host().load(ACTOR)):
        with pytest.raises(StateRefused, match="does not fit its model"):
            each.restore(state)

        assert each.failure is not None
        assert calls_of(each).services.session_bytes == 0


def test_a_fault_that_was_raised_keeps_no_guest_beside_its_state(make_host):
    guest, calls, runtime, brain = world(make_host())
    calls.begin_infer_submission(runtime, brain, 9)
    calls.submit_inference_item(runtime, brain, "odd", np.float32((3, 0)))
    state = guest.snapshot()
    copy = make_host().load(ACTOR)
    copy.restore(state)
    seen = []
    for each in (guest, copy):
        with pytest.raises(InvalidArguments) as refused:
            brains_of(each).end_infer_submission(runtime, brain)
        seen.append(refused.value)
    begun = state.state.services.brains.brains[0].queue.begun

    assert [str(error) for error in seen] == [str(begun.fault)] * 2
    assert begun.fault.__traceback__ is None


def test_a_brain_takes_no_more_observations_than_a_guest_may_give(make_host):
    guest, calls, runtime, brain = world(make_host())
    for agent in range(3):
        submit(calls, runtime, brain, agent, 1, 0)
    few = make_host(limits=Limits(rows=2)).load(ACTOR)
    with pytest.raises(StateRefused, match="3 agents are queued for one brain"):
        few.restore(GuestSnapshot.load(bytes(guest.snapshot())))


def test_handles_that_were_used_up_do_not_count(make_host):
    guest = make_host(limits=Limits(handles=1)).load(ACTOR)
    calls = brains_of(guest)
    for _ in range(2 * U32_LAYOUT.generations + 1):
        calls.destroy_runtime(calls.create_runtime())
    state = guest.snapshot()
    upcoming = calls.create_runtime()
    guest.restore(state)

    assert calls.create_runtime() == upcoming
    with pytest.raises(StateRefused, match="a handle is used up"):
        GuestSnapshot.load(
            altered(state, lambda guest: guest["brains"].update(free=bytes(4)))  # the first one
        )


def test_a_model_counts_as_loaded_once_its_guest_can_poll_it(make_host):
    guest, calls, runtime, _ = world(make_host())
    load = calls.load_inference_async(runtime, SnapshotFormat.ONNX, DOUBLE)
    state = guest.snapshot()
    item = calls_of(guest).services.handler("ark-ml-inference-v0")._table.get(load, Load)
    loading, item.future = item.future, Future(NETWORK, FutureChanges())
    with pytest.raises(StateRefused, match="a brain that is being loaded: try again later"):
        guest.snapshot()
    guest.restore(state)  # it is loaded again
    loading.result()

    assert asked(calls, runtime, calls.poll_load_inference_async(load)) == [4]


def test_a_state_says_which_models_it_has(make_host):
    guest, *_ = world(make_host())
    digest = hashlib.sha256(SUM).hexdigest()[:12]
    assert summary_of(guest.snapshot())["brains"] == {f"{digest} (ONNX)": 1}


def of_brain(**fields):
    return lambda guest: guest["models"][0].update(fields)


def of_queue(**fields):
    return lambda guest: guest["models"][0]["queue"].update(fields)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (of_brain(runtime=77), "a brain belongs to no runtime"),
        (of_brain(model=9), "damaged"),
        (of_brain(key=1 << 20), "a key is still to come"),
        (of_brain(index=0), "two objects have one handle"),
        (of_brain(queue=None), "a runtime has brains that the state has not"),
        (of_queue(queued=bytes(16), rows=bytes(16)), "a brain has an agent twice"),
        (of_queue(rows=bytes(8)), "damaged"),
        (of_queue(width=3, rows=bytes(12), queued=bytes(8)), "does not fit its model"),
        (of_queue(results={}), "does not fit its model"),
        (of_queue(results={"actions": bytes(8)}), "does not fit its model"),
        (of_queue(results={"odd": bytes(4)}), "does not fit its model"),
        (of_queue(results={"actions": bytes(7)}), "damaged"),
        (
            of_queue(begun={"agent": 1, "row": bytes(12), "given": [], "fault": None}),
            "does not fit its model",
        ),
        (
            of_queue(begun={"agent": 1, "row": bytes(8), "given": ["x"], "fault": None}),
            "does not fit its model",
        ),
        (
            of_queue(
                begun={
                    "agent": 1, "row": None, "given": [],
                    "fault": {"name": "SystemExit", "text": ""},
                }
            ),
            "'SystemExit' is not an error of an import",
        ),
        (lambda guest: guest["runtimes"].clear(), "a brain belongs to no runtime"),
        (lambda guest: guest["runtimes"][0].update(brains=[]), "a runtime has brains that"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(change, sentence, make_host):
    guest, calls, runtime, brain = world(make_host())
    asked(calls, runtime, brain)
    state = guest.snapshot()
    with pytest.raises(StateRefused, match=sentence):
        make_host().load(ACTOR).restore(GuestSnapshot.load(altered(state, change)))
