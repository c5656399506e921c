"""ml-inference-v0 through wasm: executions and their results."""

from itertools import chain

import pytest
from tests.conformance import models as build
from tests.conformance.brains import V0, Guest, wide

from arkml.abi.codes import ErrorCode

WRONG, MISSING = ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND
FEW = 0.000_001


@pytest.fixture
def guest(run):
    return Guest(run)


def test_an_execution_answers_everything_and_results_are_those_of_the_last_one(guest):
    brain = guest.brain()
    for agent in (5, 3, (1 << 64) - 1):
        guest.submit(brain, agent, ("obs", [agent % 100, 0, 1]))
    before = guest.has_result(brain, 5)
    first = guest.execute()
    outputs = [guest.output(brain, agent) for agent in first]
    found = guest.agents(brain), guest.has_result(brain, 5), guest.has_result(brain, 6)
    guest.submit(brain, 8, ("obs", [8, 8, 8]))
    second = guest.execute()

    assert before is False
    assert sorted(first) == [3, 5, (1 << 64) - 1]
    assert outputs == [[agent % 100 + 1, 1] for agent in first]
    assert found == (first, True, False)
    assert (second, guest.agents(brain)) == ([8], [8])
    assert guest.output(brain, 5) == MISSING
    assert guest.has_result(brain, 5) is False


def test_nothing_queued_is_a_single_zero_byte(guest):
    brain = guest.brain()

    assert guest.run.vector(V0 + "execute_inference", guest.runtime) == (0, b"\0")
    assert guest.run.vector(V0 + "execute_inference_for", guest.runtime, 1.0) == (0, b"\0")
    assert guest.run.vector(V0 + "result_get_brain_agents", guest.runtime, brain) == (0, b"\0")


def test_more_than_255_agents_take_more_than_one_execution(guest):
    brain = guest.brain()
    for agent in range(600):
        assert guest.submit(brain, agent, ("obs", [agent, 0, 0])) == [0, 0, 0]
    rounds = [guest.execute() for _ in range(4)]
    last = guest.submit(brain, 0, ("obs", [1, 0, 0])), guest.execute()

    assert [len(found) for found in rounds] == [255, 255, 90, 0]
    assert sorted(chain(*rounds)) == list(range(600))
    assert last == ([0, 0, 0], [0])


def test_255_agents_of_several_brains_are_one_execution(guest):
    first, second = guest.brain(), guest.brain(wide(2))
    for agent in range(200):
        guest.submit(first, agent, ("obs", [0, 0, 0]))
        guest.submit(second, 1000 + agent, ("obs", [0, 0]))
    rounds = [guest.execute() for _ in range(3)]

    assert [len(found) for found in rounds] == [255, 145, 0]
    assert len(set(chain(*rounds))) == 400


@pytest.mark.parametrize("seconds", [0.0, -0.0, -1.0, float("nan"), float("-inf"), FEW])
def test_too_little_time_runs_one_whole_model(guest, seconds):
    brains = [guest.brain(), guest.brain(), guest.brain()]
    for place, brain in enumerate(brains):
        for agent in range(10):
            guest.submit(brain, 100 * place + agent, ("obs", [0, 0, 0]))
    ticks = iter(range(1000))
    guest.services.stopwatch = lambda: float(next(ticks))
    rounds = [sorted(guest.execute(seconds)) for _ in range(4)]

    assert sorted(rounds) == [[], *[[100 * place + k for k in range(10)] for place in range(3)]]
    assert rounds[3] == []


@pytest.mark.parametrize("seconds", [10.0, 1e30, float("inf")])
def test_enough_time_runs_every_model(guest, seconds):
    for place in range(3):
        guest.submit(guest.brain(), place, ("obs", [0, 0, 0]))

    assert sorted(guest.execute(seconds)) == [0, 1, 2]


def test_models_take_turns_when_time_is_short(guest):
    brains = [guest.brain(), guest.brain()]
    seen = []
    for _ in range(4):
        for place, brain in enumerate(brains):
            guest.submit(brain, place, ("obs", [0, 0, 0]))
        seen += guest.execute(0.0)

    assert sorted(set(seen)) == [0, 1]


def test_a_runtime_executes_only_its_own(guest):
    other = guest.create()
    mine, theirs = guest.brain(), guest.brain(runtime=other)
    guest.submit(mine, 1, ("obs", [0, 0, 0]))
    guest.submit(theirs, 2, ("obs", [0, 0, 0]), runtime=other)

    assert guest.execute(runtime=other) == [2]
    assert guest.execute() == [1]


def test_a_brain_with_queued_agents_is_not_unloaded(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1, 2, 3]))
    refused = guest.unload(brain)

    assert refused == WRONG
    assert guest.execute() == [1]
    assert guest.output(brain, 1) == [4, 5]
    assert (guest.unload(brain), guest.unload(brain)) == (0, MISSING)
    assert guest.output(brain, 1) == MISSING


def test_a_brain_with_a_discarded_submission_is_unloaded(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1]))

    assert guest.unload(brain) == 0


def test_agents_keep_their_state_from_execution_to_execution(guest):
    brain = guest.brain(build.adding(2))
    outputs = []
    for frame in range(1, 4):
        for agent in (7, 8):
            guest.submit(brain, agent, ("obs", [frame, agent]))
        guest.execute()
        outputs.append([guest.output(brain, agent) for agent in (7, 8)])

    assert outputs == [
        [[1, 7], [1, 8]],
        [[3, 14], [3, 16]],
        [[6, 21], [6, 24]],
    ]


def test_a_slot_that_does_not_exist_has_no_output(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1, 2, 3]))
    guest.execute()

    assert guest.output(brain, 1, 1) in (WRONG, MISSING)
    assert guest.output(brain, 2, 0) == MISSING
