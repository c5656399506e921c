"""Worker programs are started, watched and ended."""

import hashlib
import os
import signal
import subprocess
import sys

import pytest
from tests.integration.command_line import ENVIRONMENT, ROOT
from tests.integration.processes_alive import is_running
from tests.waiting import eventually

import arkml
from arkml.errors import Unavailable, UsageError
from arkml.workers.local import LocalPlacement

PROGRAM = "tests.integration.worker_program"
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGKILL]


@pytest.fixture
def placement(monkeypatch):
    monkeypatch.chdir(ROOT)
    with LocalPlacement() as made:
        yield made


def start(placement, name="worker 0", **job):
    return placement.start(PROGRAM, job, name)


def ready(worker):
    """The first event, once it is there."""
    return events_of(worker, 1)[0]


def events_of(worker, count):
    events = []

    def has_all():
        events.extend(worker.events())
        return len(events) >= count or not worker.is_alive

    eventually(has_all)
    return events + worker.events()


def end_of(worker):
    eventually(lambda: not worker.is_alive)
    return worker.status, worker.reason


def test_a_program_gets_its_job_and_reports_events(placement):
    worker = start(placement, do="echo", text="ä\n", numbers=[1, 2.5, None])
    _, echo = events_of(worker, 2)

    assert echo == {
        "event": "echo", "do": "echo", "text": "ä\n", "numbers": [1, 2.5, None],
        "version": arkml.__version__,
    }  # fmt: skip
    assert worker.is_alive
    assert (worker.status, worker.reason) == (None, "")


def test_a_job_of_many_bytes_arrives(placement):
    worker = start(placement, do="echo", text="x" * 500_000)
    _, echo = events_of(worker, 2)

    assert echo["text"] == "x" * 500_000


def test_a_program_gets_messages_behind_its_job_in_their_order(placement):
    worker = start(placement, do="hear", messages=3)
    for text in ("first", "x" * 500_000, "ä\n"):
        worker.send({"text": text})
    _, *heard = events_of(worker, 4)

    assert [one["text"] for one in heard] == ["first", "x" * 500_000, "ä\n"]
    assert worker.is_alive


def test_a_program_that_has_ended_gets_no_message(placement):
    worker = start(placement, do="end", reason="", status=0)
    end_of(worker)
    worker.send({"text": "too late"})

    assert worker.status == 0


def test_a_program_computes_with_one_thread(placement):
    assert ready(start(placement, do="wait"))["threads"] == "1"


def test_a_program_that_is_asked_to_stop_ends_by_itself(placement):
    worker = start(placement, do="wait")
    ready(worker)
    worker.stop(60.0)

    assert end_of(worker) == (0, "")


def test_a_program_that_does_not_stop_is_killed(placement):
    worker = start(placement, do="hang")
    ready(worker)
    worker.stop(0.2)

    assert end_of(worker) == (-signal.SIGKILL, "")


def test_a_program_that_is_stopped_at_once_ends(placement):
    worker = start(placement, do="wait", text="x" * 500_000)
    worker.stop(60.0)

    assert end_of(worker)[1] == ""


def test_a_kill_ends_what_the_program_has_started(placement):
    worker = start(placement, do="spawn")
    _, child = events_of(worker, 2)
    worker.kill()

    assert end_of(worker) == (-signal.SIGKILL, "")
    eventually(lambda: not is_running(child["pid"]))


def test_a_program_leaves_nothing_that_it_has_started(placement):
    worker = start(placement, do="spawn")
    _, child = events_of(worker, 2)
    worker.stop(60.0)

    assert end_of(worker) == (0, "")
    eventually(lambda: not is_running(child["pid"]))


def test_the_reason_of_an_end_is_the_event_of_it(placement):
    worker = start(placement, do="end", reason="the hive is gone", status=1)

    assert end_of(worker) == (1, "the hive is gone")


def test_an_end_with_status_0_has_no_reason(placement):
    worker = start(placement, do="end", reason="the run is over", status=0)

    assert end_of(worker) == (0, "")
    assert worker.events()[-1] == {"event": "ended", "reason": "the run is over"}


def test_the_reason_of_an_exception_is_its_message(placement):
    worker = start(placement, do="raise", message="no such thing")
    status, reason = end_of(worker)

    assert status == 1
    assert reason == "worker 0 ended with status 1: RuntimeError: no such thing"


def test_the_reason_of_a_kill_is_its_signal(placement):
    worker = start(placement, do="wait")
    os.kill(ready(worker)["pid"], signal.SIGKILL)

    assert end_of(worker) == (-signal.SIGKILL, "worker 0 was killed by SIGKILL")


def test_a_module_that_is_not_there_is_the_reason_of_an_end(placement):
    worker = placement.start("tests.integration.no_such_program", {}, "worker 0")

    assert "No module named tests.integration.no_such_program" in end_of(worker)[1]


def test_another_version_of_the_package_is_refused_and_both_are_named(placement):
    worker = start(placement, do="wait", version="0.0.1")
    status, reason = end_of(worker)

    assert status == 2
    assert "arkml 0.0.1" in reason
    assert f"arkml {arkml.__version__}" in reason


def test_a_module_with_another_content_is_refused_and_both_hashes_are_named(placement, tmp_path):
    module = tmp_path / "guest.wasm"
    module.write_bytes(b"one")
    wanted = hashlib.sha256(b"two").hexdigest()
    worker = start(placement, do="wait", module=str(module), module_hash=wanted)
    status, reason = end_of(worker)

    assert status == 2
    assert wanted in reason
    assert hashlib.sha256(b"one").hexdigest() in reason


def test_a_module_with_the_same_content_is_taken(placement, tmp_path):
    module = tmp_path / "guest.wasm"
    module.write_bytes(b"one")
    wanted = hashlib.sha256(b"one").hexdigest()

    assert ready(start(placement, do="wait", module=str(module), module_hash=wanted))


def test_a_module_that_is_not_there_is_refused(placement, tmp_path):
    worker = start(placement, do="wait", module=str(tmp_path / "no.wasm"), module_hash="0" * 64)

    assert "no.wasm cannot be read here: No such file" in end_of(worker)[1]


def test_a_program_without_a_job_says_so():
    run = subprocess.run(
        [sys.executable, "-m", PROGRAM], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, cwd=ROOT, env=ENVIRONMENT,
    )  # fmt: skip

    assert run.returncode == 2
    assert "the standard input has no job" in run.stdout


def test_a_job_that_json_cannot_take_is_refused(placement):
    with pytest.raises(UsageError, match="JSON values"):
        start(placement, thing=object())


def test_closing_ends_all_programs():
    with LocalPlacement() as placement:
        workers = [start(placement, f"worker {n}", do=do) for n, do in enumerate(["wait", "spawn"])]
        pids = [ready(worker)["pid"] for worker in workers]

    assert [worker.is_alive for worker in workers] == [False, False]
    assert not any(map(is_running, pids))
    placement.close()
    with pytest.raises(Unavailable, match="worker 2 cannot be started: the placement is closed"):
        start(placement, "worker 2", do="wait")


def test_closing_ends_a_program_that_does_not_stop():
    placement = LocalPlacement()
    worker = start(placement, do="hang")
    ready(worker)
    placement.close(0.2)

    assert not worker.is_alive


@pytest.mark.workers
@pytest.mark.parametrize("do", ["wait", "hang", "spawn"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_program_ends_with_the_process_that_started_it(number, do):
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.worker_parent", do],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=ENVIRONMENT,
    ) as parent:  # fmt: skip
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(number)

    assert len(pids) == (2 if do == "spawn" else 1)
    eventually(lambda: not any(map(is_running, pids)))
