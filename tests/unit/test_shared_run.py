"""Runs of a model on a large batch, divided among threads."""

import os
import threading
import time
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from tests.unit import policy_models as build

from arkml.base.child_time import take_child_seconds
from arkml.limits import Limits
from arkml.policies import shared_run
from arkml.policies.onnx_model import load_onnx
from arkml.policies.run_limit import RunLimit
from arkml.policies.shared_run import Helpers, SharedRun
from arkml.policies.workspace import PolicyWorkspace


@pytest.fixture
def helpers():
    made = Helpers(3)
    yield made
    made.close()


@pytest.fixture
def eager(monkeypatch):
    """Every run is worth several threads, and they are never found to be slower."""
    monkeypatch.setattr(shared_run, "WORTH", 0.0)
    monkeypatch.setattr(shared_run, "_EACH", 1e-12)
    monkeypatch.setattr(shared_run, "_GAIN", 1e9)
    monkeypatch.setattr(shared_run, "_SLOWER", 1 << 30)


def wide():
    """A network of 8-256-256-3, of which a thousand rows take more than a millisecond."""
    draw, sizes = np.random.default_rng(0), (8, 256, 256, 3)
    nodes, weights, before = [], [], "obs"
    for number, (rows, columns) in enumerate(pairwise(sizes)):
        after = "actions" if columns == sizes[-1] else f"h{number}"
        weights.append(build.weight(f"w{number}", draw.normal(0, rows**-0.5, (rows, columns))))
        nodes.append(build.node("MatMul", f"{before} w{number}", f"m{number}"))
        nodes.append(build.node("Tanh", f"m{number}", after))
        before = after
    ports = [build.port("obs", "N", 8)], [build.port("actions", "N", 3)]
    return load_onnx(build.model(nodes, *ports, weights), Limits(), seconds=60)


def meeting(count):
    """Calls that wait until as many threads are in them."""
    barrier, names = threading.Barrier(count), []

    def meet():
        names.append(threading.current_thread().name)
        barrier.wait(60)

    return [meet] * count, names


def after_trials(run):
    """Have a run over its first ones, which are on one thread."""
    run._turn, run._best = 2 * shared_run._TRIALS, [1.0, 0.1]
    return run


def test_parts_run_at_the_same_time(helpers):
    calls, names = meeting(3)
    after_trials(SharedRun(calls, helpers, 8, None))()

    assert len(set(names)) == 3
    assert threading.current_thread().name in names
    assert all(name.startswith(("arkml-model", "MainThread")) for name in names)


def test_the_first_runs_are_on_one_thread_and_a_short_one_stays_there(helpers, monkeypatch):
    monkeypatch.setattr(shared_run, "WORTH", 3600.0)
    seen = []
    run = SharedRun([lambda: seen.append(threading.current_thread())] * 2, helpers, 8, None)
    for _ in range(2 * shared_run._PERIOD):
        run()

    assert set(seen) == {threading.current_thread()}
    assert len(seen) == 4 * shared_run._PERIOD


def test_threads_that_do_not_help_are_left_and_tried_again(helpers, monkeypatch):
    monkeypatch.setattr(shared_run, "WORTH", 0.0)
    monkeypatch.setattr(shared_run, "_EACH", 1e-12)
    lock, used = threading.Lock(), []

    def one_at_a_time():
        with lock:
            ends = time.perf_counter() + 2e-4
            while time.perf_counter() < ends:
                pass

    run = SharedRun([one_at_a_time] * 2, helpers, 8, None)
    original = run._run_together
    run._run_together = lambda *given: (used.append(run._turn), original(*given))
    for _ in range(shared_run._PERIOD + 2 * shared_run._TRIALS):
        run()

    trials = range(shared_run._TRIALS, 2 * shared_run._TRIALS)
    assert used[:3] == list(trials)
    assert used.count(shared_run._TRIALS) >= 2


def test_a_failure_on_another_thread_is_raised_here_when_all_have_stopped(helpers):
    barrier, running = threading.Barrier(2), []

    def part():
        running.append(None)
        barrier.wait(60)
        try:
            if threading.current_thread() is not threading.main_thread():
                raise ValueError("on the other thread")
        finally:
            running.pop()

    with pytest.raises(ValueError, match="on the other thread"):
        after_trials(SharedRun([part, part], helpers, 8, None))()
    assert not running


def test_a_failure_here_waits_for_the_others(helpers):
    barrier, ended = threading.Barrier(2), []

    def part():
        barrier.wait(60)
        if threading.current_thread() is threading.main_thread():
            raise ValueError("here")
        time.sleep(0.05)
        ended.append(None)

    with pytest.raises(ValueError, match="here"):
        after_trials(SharedRun([part, part], helpers, 8, None))()
    assert ended == [None]


def test_no_more_parts_run_at_the_same_time_than_fit_the_memory(helpers):
    running, most = [], []

    def part():
        running.append(None)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()

    after_trials(SharedRun([part] * 6, helpers, 2, None))()

    assert max(most) <= 2


def test_a_check_that_raises_ends_the_run(helpers):
    made = []

    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SharedRun([lambda: made.append(None)] * 3, helpers, 8, None)(check)
    assert not made


def test_the_time_of_other_threads_is_told(helpers):
    barrier = threading.Barrier(2)

    def part():
        barrier.wait(60)
        ends = time.thread_time() + 0.01
        while time.thread_time() < ends:
            pass

    take_child_seconds()
    after_trials(SharedRun([part, part], helpers, 8, None))()

    assert take_child_seconds() >= 0.01


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_closed_helpers_and_those_of_a_parent_process_do_not_help(helpers):
    seen = []
    calls = [lambda: seen.append(threading.current_thread())] * 3
    after_trials(SharedRun(meeting(3)[0], helpers, 8, None))()
    if (child := os.fork()) == 0:
        after_trials(SharedRun(calls, helpers, 8, None))()
        os._exit(len(seen))
    _, status = os.waitpid(child, 0)
    helpers.close()
    after_trials(SharedRun(calls, helpers, 8, None))()

    assert os.waitstatus_to_exitcode(status) == 3
    assert seen == [threading.main_thread()] * 3


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("count", [1, 2, 1_000, 1_025, 5_000])
def test_results_are_the_same_for_any_number_of_threads(count):
    model = wide()
    features = np.random.default_rng(1).normal(size=(count, 8)).astype(np.float32)
    feeds, found = {model.inputs[0].name: features}, []
    for threads in (1, 2, 3, 8):
        helpers = Helpers(threads)
        into = np.zeros((count, 3), np.float32)
        limit = RunLimit(PolicyWorkspace(helpers=helpers))
        calls = model.prepare(count, feeds, {model.outputs[0].name: into}, limit)
        for _ in range(2 * shared_run._TRIALS + 1):
            into[:] = 0
            for call in calls:
                call()
        found.append(into)
        helpers.close()

    assert found[0].any(axis=1).all()
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.usefixtures("eager")
def test_a_long_run_is_divided_and_stopped_in_time():
    limit = RunLimit(PolicyWorkspace(helpers=Helpers(2)))
    model = wide()
    features, into = np.ones((50_000, 8), np.float32), np.zeros((50_000, 3), np.float32)
    calls = model.prepare(
        len(into), {model.inputs[0].name: features}, {model.outputs[0].name: into}, limit
    )
    shared = calls[0].args[0]
    after_trials(shared)

    assert isinstance(calls[0], partial)
    assert isinstance(shared, SharedRun)
    assert len(shared.calls) > 50
    calls[0]()
    assert into.any(axis=1).all()
