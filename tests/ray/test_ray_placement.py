"""Worker programs on a Ray cluster: Ray starts and places them, and no more."""

import os
import signal

import pytest
from tests.integration.processes_alive import is_running
from tests.integration.test_workers import end_of, events_of, ready, start
from tests.waiting import eventually

import arkml
from arkml.errors import Unavailable, UsageError
from arkml.workers.placement_choice import make_placement

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("own_cluster")]


@pytest.fixture
def placement():
    with make_placement("ray") as made:
        yield made


def test_a_program_gets_its_job_and_reports_events(placement):
    worker = start(placement, do="echo", text="ä\n", numbers=[1, 2.5, None])
    first, echo = events_of(worker, 2)

    assert first["threads"] == "1"
    assert echo == {
        "event": "echo", "do": "echo", "text": "ä\n", "numbers": [1, 2.5, None],
        "version": arkml.__version__,
    }  # fmt: skip
    assert worker.is_alive
    assert (worker.status, worker.reason) == (None, "")


def test_a_program_gets_messages_behind_its_job_in_their_order(placement):
    worker = start(placement, do="hear", messages=200)
    for number in range(50):  # some before it has begun
        worker.send({"number": number})
    events = events_of(worker, 1)
    for number in range(50, 200):
        worker.send({"number": number})
    events += events_of(worker, 201 - len(events))

    assert [event["number"] for event in events[1:]] == list(range(200))


def test_a_program_that_is_asked_to_stop_ends_by_itself(placement):
    worker = start(placement, do="wait")
    ready(worker)
    worker.stop(60.0)

    assert end_of(worker) == (0, "")


def test_a_program_that_does_not_stop_is_killed(placement):
    worker = start(placement, do="hang")
    pid = ready(worker)["pid"]
    worker.stop(0.2)

    assert end_of(worker) == (-signal.SIGKILL, "")
    assert not is_running(pid)


def test_a_program_is_killed_with_what_it_has_started(placement):
    worker = start(placement, do="spawn")
    first, child = events_of(worker, 2)
    worker.kill()

    assert end_of(worker)[1] == ""
    eventually(lambda: not is_running(first["pid"]) and not is_running(child["pid"]))


def test_the_reason_of_an_end_is_the_event_of_it(placement):
    worker = start(placement, do="end", reason="the hive is gone", status=1)

    assert end_of(worker) == (1, "the hive is gone")
    assert worker.events()[-1] == {"event": "ended", "reason": "the hive is gone"}


def test_the_reason_of_a_kill_is_its_signal(placement):
    worker = start(placement, do="wait")
    os.kill(ready(worker)["pid"], signal.SIGKILL)

    assert end_of(worker) == (-signal.SIGKILL, "worker 0 was killed by SIGKILL")


def test_another_version_of_the_package_is_refused_and_both_are_named(placement):
    worker = start(placement, do="wait", version="0.0.1")

    status, reason = end_of(worker)
    assert status == 2
    assert "arkml 0.0.1" in reason
    assert f"arkml {arkml.__version__}" in reason


def test_a_program_ends_with_the_process_that_holds_it(placement, own_cluster):
    worker = start(placement, do="wait")
    pid = ready(worker)["pid"]
    relay = own_cluster.ray.get(worker._handle.pid.remote())
    os.kill(relay, signal.SIGKILL)

    status, reason = end_of(worker)
    assert status is None
    assert reason.startswith("worker 0 on the Ray cluster was lost: its process")
    eventually(lambda: not is_running(pid))


def test_closing_ends_all_programs():
    with make_placement("ray") as placement:
        workers = [start(placement, f"worker {n}", do="wait") for n in range(2)]
        pids = [ready(worker)["pid"] for worker in workers]

    assert [worker.is_alive for worker in workers] == [False, False]
    eventually(lambda: not any(map(is_running, pids)))
    placement.close()
    with pytest.raises(Unavailable, match="worker 2 cannot be started: the placement is closed"):
        start(placement, "worker 2", do="wait")


def test_an_address_without_ray_is_refused():
    with pytest.raises(UsageError, match="the runner 'processes' does not use"):
        make_placement("processes", "10.0.0.1:6379")
