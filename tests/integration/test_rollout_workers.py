"""Rollout workers of a training: the program, the run that it joins, its seeds, its ends."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.children import children_of
from tests.integration.command_line import ENVIRONMENT, GUESTS, arkml
from tests.integration.guest_text import function, module
from tests.integration.stored_rows import stored_records
from tests.integration.test_embedded_hive import is_alive
from tests.integration.test_train_ending import Training, descendants_of
from tests.integration.training_guest import LOCAL, V2, TrainingGuest
from tests.waiting import eventually

from arkml import Host, train
from arkml.abi.codes import ErrorCode
from arkml.errors import HiveRefused, UsageError
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.hive.protocol.worker_jobs import WorkerJob, environment_seed
from arkml.runs.hive_access import HiveGrant
from arkml.training.actors import RolloutWorkers
from arkml.training.loop import TrainingLoop
from arkml.training.task_runner import make_runner
from arkml.training.tasks import find_task
from arkml.training.training_options import TrainingOptions
from arkml.workers.local import LocalPlacement

REACH = GUESTS / "c_reach.wasm"
SEEDED_REACH = GUESTS / "c_reach_seeded.wasm"
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}
WIDTHS = (4, 2)
LONG = 60.0
PROGRAM = "arkml.training.rollout_worker"
SEEDED = """
(memory (export "memory") 1)
(global $seed (mut i64) (i64.const 0))
(global $seen (mut i64) (i64.const -1))
(func (export "arkml_seed") (param i64) (global.set $seed (local.get 0)))
(func (export "ark_initialize") (global.set $seen (global.get $seed)))
(func (export "ark_applet_update"))
(func (export "seen") (result i64) (global.get $seen))
"""


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    with EmbeddedHive(tmp_path_factory.mktemp("hive"), {"spare": False}) as one:
        yield one


@pytest.fixture(scope="module")
def unused_run(hive):
    """A run that no worker gets to play in."""
    with HiveClient(hive.locate) as one:
        return create(one)


@pytest.fixture
def client(hive):
    with HiveClient(hive.locate) as one:
        yield one


@pytest.fixture
def placement():
    one = LocalPlacement()
    yield one
    one.close()


def create(client, name="a run of its own", widths=WIDTHS):
    settings = Settings(*widths, **QUICK)
    return client.create(RunRequest(name, "another game", settings)).result()


class Worker:
    """A worker program and the events that it has reported."""

    def __init__(self, placement, at, run, data=None, **changes):
        data = REACH.read_bytes() if data is None else data
        address = at.locate()
        host, port, token = address.host, address.port, address.token
        job = WorkerJob(
            run_id=run.id, name=run.name, game=run.game, hive=f"{host}:{port}", token=token,
            module_data=data, module_hash=hashlib.sha256(data).hexdigest(),
            module_name="guest.wasm", worker=1, seed=5,
        )  # fmt: skip
        self.program = placement.start(PROGRAM, {**job.as_json(), **changes}, "worker 1")
        self._events = []

    def events(self, kind):
        self._events += self.program.events()
        return [event for event in self._events if event["event"] == kind]

    def rows(self):
        return max((event["rows"] for event in self.events("progress")), default=0)

    def waits_for_rows(self, more_than=0):
        eventually(lambda: self.rows() > more_than, LONG)

    def ended(self):
        """Its exit status and the reason of its end."""
        assert self.program.wait(LONG)
        return self.program.status, self.events("ended")[-1]["reason"]


def test_a_worker_joins_the_run_of_its_job_whatever_its_guest_asks_for(hive, client, placement):
    run = create(client, "joined")
    before = len(client.runs().result())
    worker = Worker(placement, hive, run)
    worker.waits_for_rows()
    versions = eventually(lambda: worker.events("progress")[-1]["version"] > 1, LONG)
    worker.program.stop(LONG)

    assert worker.ended() == (0, "it was asked to end")
    assert versions
    assert len(client.runs().result()) == before
    assert client.run(run.id).result().rows == worker.rows() > 0
    assert len(worker.events("joined")) == 1


def test_a_worker_ends_with_its_run(hive, client, placement):
    run = create(client, "stopped")
    worker = Worker(placement, hive, run)
    worker.waits_for_rows()
    client.stop(run.id).result()

    assert worker.ended() == (0, "run 'stopped' is over")
    assert worker.program.reason == ""


def test_a_worker_does_not_resume_a_run_that_is_over(hive, client, placement):
    run = create(client, "over before")
    client.stop(run.id).result()
    eventually(lambda: client.run(run.id).result().ended_at)
    worker = Worker(placement, hive, run)

    assert worker.ended() == (0, "run 'over before' is over: it is stopped")
    assert client.run(run.id).result().sessions == 0


def test_a_worker_ends_after_its_minutes(hive, client, placement):
    worker = Worker(placement, hive, create(client, "timed"), minutes=0.001)

    assert worker.ended() == (0, "its 0.001 minutes are over")


def test_a_worker_that_is_killed_from_elsewhere_has_failed(hive, client, placement):
    worker = Worker(placement, hive, create(client, "killed"))
    worker.waits_for_rows()
    os.kill(worker.events("ready")[0]["pid"], signal.SIGTERM)

    assert worker.ended() == (1, "it was interrupted")
    assert worker.program.reason == "it was interrupted"


def test_a_worker_paces_its_frames(hive, client, placement):
    worker = Worker(placement, hive, create(client, "paced"), fps=20.0)
    began = time.monotonic()
    worker.waits_for_rows()
    eventually(lambda: worker.events("progress")[-1]["frames"] >= 40, LONG)
    frames = worker.events("progress")[-1]["frames"]
    seconds = time.monotonic() - began

    assert frames <= 20 * seconds + 1


LACKING = module(function("ark_applet_update", ""), imports=['(import "elsewhere" "thing" (func))'])
REFUSED = {
    "another version": ({"version": "9.9"}, None, "the job was made by arkml 9.9"),
    "another hash": ({"module_hash": "0" * 64}, None, "is to play 00000000"),
    "no wasm": ({}, b"no wasm", "guest.wasm"),
    "missing imports": ({}, LACKING, "elsewhere"),
    "another width": ({}, None, "has 5 features and 2 actions"),
    "a module that the hive lacks": ({"module_data": ""}, None, "cannot be downloaded"),
    "no such limit": ({"limits": {"module_bytes": -1}}, None, "Limits.module_bytes is -1"),
    "a field of a wrong type": ({"instances": 0}, None, "instances is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_worker_refuses_a_job_that_it_cannot_do_with_the_reason(
    hive, client, unused_run, placement, case
):
    changes, data, sentence = REFUSED[case]
    run = create(client, case, (5, 2)) if case == "another width" else unused_run
    status, reason = Worker(placement, hive, run, data, **changes).ended()

    assert status == 2
    assert sentence in reason


COMPILE = """
import sys
from arkml import Host
from arkml.hive.protocol.worker_jobs import WorkerJob
from arkml.training import worker_module

worker_module.COMPILE_SECONDS, worker_module.COMPILE_BYTES = map(int, sys.argv[1:])
data = sys.stdin.buffer.read()
job = WorkerJob(run_id="r", name="n", game="g", hive="h:1", module_hash="0" * 64,
                module_name="large.wasm", worker=0, seed=0)
with Host() as host:
    print("compiled", worker_module.compile_for(job, host, data).name)
"""
LARGE = module(*(function(f"f{n}", "(nop)" * 200) for n in range(2_000)))


@pytest.mark.parametrize(
    ("seconds", "size", "status", "text"),
    [
        (60, 4 << 30, 0, "compiled large.wasm"),
        (0, 4 << 30, -signal.SIGXCPU, ""),
        (60, 1 << 18, 1, "large.wasm takes more than 262,144 bytes to compile"),
    ],
    ids=["within", "time", "memory"],
)
def test_a_downloaded_module_is_compiled_within_limits(seconds, size, status, text):
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(seconds), str(size)],
        input=LARGE, capture_output=True, env=ENVIRONMENT, check=False,
    )  # fmt: skip

    assert done.returncode == status
    assert text in (done.stdout + done.stderr).decode()


def test_a_worker_whose_guest_fails_says_the_reason(hive, unused_run, placement):
    trapping = module(function("ark_applet_update", "(unreachable)"))
    status, reason = Worker(placement, hive, unused_run, trapping).ended()

    assert status == 1
    assert "unreachable" in reason


def test_a_worker_whose_hive_is_gone_at_its_start_has_failed(hive, unused_run, placement):
    status, reason = Worker(placement, hive, unused_run, hive="127.0.0.1:9").ended()

    assert status == 1
    assert "no hive answers at 127.0.0.1:9" in reason


@pytest.fixture
def joining(hive, client):
    """A run, and a guest of a host that may only join it."""
    run = create(client, "the one", widths=(3, 2))
    address = hive.locate()
    host, port, token = address.host, address.port, address.token
    with Host(hive=HiveGrant(f"{host}:{port}", token, join_run=run.id)) as made:
        yield run, TrainingGuest(made)


def sessions_of(client, run):
    return client.run(run.id).result().sessions


def test_a_guest_in_a_worker_starts_no_further_workers(client, joining):
    run, guest = joining
    asked = guest.handle(V2, "start_training", *LOCAL, "game", "name", 3, 2, 7, "")

    assert guest.joined(asked)
    assert sessions_of(client, run) == 1


@pytest.mark.parametrize("place", [("hive.example", 1), ("", 0)])
def test_a_guest_in_a_worker_means_its_run_by_any_address(client, joining, place):
    run, guest = joining
    asked = guest.handle(V2, "connect_to_experiment", *place, "some other run")

    assert guest.joined(asked)
    assert sessions_of(client, run) == 1


def test_a_guest_in_a_worker_joins_no_run_that_is_over(client, joining):
    run, guest = joining
    client.stop(run.id).result()
    eventually(lambda: client.run(run.id).result().ended_at)
    future = guest.handle(V2, "start_training", *LOCAL, "game", "name", 3, 2, 0, "")
    guest.wait("ark-ml-v1", "training_handle", future)
    code, _ = guest.take("ark-ml-v1", "training_handle", future, 8)

    assert code is ErrorCode.NOT_FOUND
    assert client.run(run.id).result().ended_at


def test_seeds_of_workers_differ_and_are_those_of_the_last_time():
    names = [(run, worker, life) for run in range(3) for worker in range(20) for life in range(3)]
    seeds = [environment_seed(*name) for name in names]

    assert len(set(seeds)) == len(seeds)
    assert seeds == [environment_seed(*name) for name in names]
    assert all(0 <= seed < 1 << 62 for seed in seeds)


@pytest.mark.parametrize("instances", [1, 3])
def test_the_seed_of_a_worker_reaches_each_guest_before_it_is_initialized(host, instances):
    compiled = host.compile(f"(module {SEEDED})".encode())
    task = find_task(compiled, seed=40)
    runner = make_runner(host, compiled, task, instances=instances, budget=None)
    runner.initialize(40)
    guests = getattr(runner.subject, "guests", [runner.subject])

    assert [guest.call("seen") for guest in guests] == list(range(40, 40 + instances))


def test_the_seed_of_a_worker_is_put_into_the_arguments_of_a_cmdlet(host):
    compiled = host.compile(GUESTS / "rust_cmdlet.wasm")

    assert find_task(compiled, "walk {seed} 3", 40).data == b"walk 40 3"
    assert find_task(compiled, "walk {seed} 3").data == b"walk {seed} 3"


@pytest.fixture
def until_all_play(monkeypatch):
    """A `progress` that has seen rows of all three workers before the last of 100 frames."""
    playing, all_play, take = set(), threading.Event(), TrainingLoop._take

    def look(state):
        playing.update(one.worker for one in state.workers if one.rows_per_second > 0)
        if len(playing) == 3:
            all_play.set()

    def take_in_time(self, step):
        assert self.frames < 99 or all_play.wait(300)
        return take(self, step)

    monkeypatch.setattr(TrainingLoop, "_take", take_in_time)
    return look


@pytest.mark.learns
def test_a_training_with_actors_counts_every_row_once(tmp_path, until_all_play):
    result = train(
        REACH, frames=100, actors=3, eval_every=None, settings=QUICK, progress=until_all_play,
        directory=tmp_path / "out",
    )  # fmt: skip
    rows = [one.rows for one in result.workers]
    data = tmp_path / "out" / "hive"
    with EmbeddedHive(data, {"spare": False}) as hive, HiveClient(hive.locate) as client:
        kept = client.run(result.run_id).result()

    assert [one.worker for one in result.workers] == [0, 1, 2]
    assert min(rows) > 0
    assert sum(rows) == result.rows == kept.rows
    assert kept.lost == 0
    assert result.end_reason == "frames"
    assert any("takes no seed" in warning for warning in result.warnings)


def first_features(out):
    """The features of the 64 points at the beginning of each session of a training, as bytes."""
    firsts = {}
    for record in stored_records(out / "hive"):
        rows = firsts.setdefault(record.session, [])
        rows.extend(record.columns.features[record.columns.step == 0])
    return {np.array(rows[:64]).tobytes() for rows in firsts.values()}


@pytest.mark.workers
def test_workers_of_a_training_play_different_episodes_and_those_of_the_last_time(tmp_path):
    def is_beginning(state):
        return len(state.workers) < 3 or min(worker.rows for worker in state.workers) < 64

    begun, warnings = [], []
    for name, seed in (("first", 7), ("again", 7), ("another", 8)):
        result = train(
            SEEDED_REACH, minutes=10, progress=is_beginning, actors=3, seed=seed, settings=QUICK,
            eval_every=None, directory=tmp_path / name,
        )  # fmt: skip
        warnings += result.warnings
        begun.append(first_features(tmp_path / name))

    assert [len(firsts) for firsts in begun] == [3, 3, 3]
    assert begun[0] == begun[1]
    assert not begun[0] & begun[2]
    assert warnings == []


@pytest.mark.workers
def test_a_training_is_resumed_with_actors(tmp_path):
    options = {"settings": QUICK, "directory": tmp_path / "out"}
    first = train(REACH, frames=30, **options)
    second = train(REACH, frames=60, actors=2, resume=True, **options)

    assert second.run_id == first.run_id
    assert second.rows - first.rows == sum(one.rows for one in second.workers)


@pytest.fixture
def actors(tmp_path):
    """A factory of trainings with actors, in processes of their own."""
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    started = []

    def begin(*words, **environment):
        started.append(
            Training(
                config, tmp_path / "out", "--minutes", "5", "--json", *words,
                env={**ENVIRONMENT, **environment},
            )
        )  # fmt: skip
        return started[-1]

    yield begin
    for one in started:
        one.close()


def programs_of(pid):
    """The process ids of the worker programs of a training."""
    found = []
    for child in children_of(pid):
        with suppress(OSError):
            if PROGRAM in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                found.append(child)
    return sorted(found)


def policies_of(training):
    """The files of policy versions of the hive in a training."""
    return {path.name for path in (training.out / "hive").glob("runs/*/policies/*")}


def audited(client, run_id):
    """The rows of each session in the log, once the learner has read all of it, and its audit."""
    client.join(run_id, *WIDTHS, on_policy=lambda *_: None).result()  # starts the learner again

    def complete():
        try:
            audit = client.memory(run_id).result()
        except HiveRefused:  # the learner begins
            return None
        return audit if audit.cursor == audit.committed else None

    audit = eventually(complete, LONG)
    return [counts.rows for counts in audit.sessions.values()], audit


def senders(client, run_id):
    """The number of sessions that have sent rows, as the hive has counted them."""
    sessions = client.memory(run_id).result().sessions.values()
    return sum(counts.rows > 0 for counts in sessions)


@pytest.mark.workers
def test_a_worker_that_is_killed_is_reported_and_replaced_and_no_row_is_lost(
    actors, tmp_path_factory
):
    with EmbeddedHive(tmp_path_factory.mktemp("audited")) as hive:
        address = hive.locate()
        host, port, token = address.host, address.port, address.token
        training = actors("--actors", "3", "--hive", f"{host}:{port}", ARKML_HIVE_TOKEN=token)
        training.wait_until_it_learns(hive.data)
        with HiveClient(hive.locate) as client:
            (run,) = client.runs().result()
            eventually(lambda: senders(client, run.id) == 3, LONG)
            first, _ = programs_of(training.process.pid)
            os.kill(first, signal.SIGKILL)
            training.says("was killed by SIGKILL; another one takes its place")
            eventually(lambda: senders(client, run.id) == 4, LONG)
            training.process.send_signal(signal.SIGINT)
            status, out = training.ended()
            rows, audit = audited(client, run.id)
            end = client.run(run.id).result()
    document = json.loads(out)

    assert status == 130, training.err
    assert sorted(one["replaced"] for one in document["workers"]) == [0, 0, 1]
    assert len(rows) == 4
    assert sum(rows) == end.rows == document["rows"] == audit.held + audit.overwritten
    assert end.lost == 0
    assert min(one["rows"] for one in document["workers"]) > 0
    assert sum(one["rows"] for one in document["workers"]) <= document["rows"]


@pytest.mark.workers
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_training_with_actors_leaves_no_process_however_it_ends(actors, number):
    training = actors("--actors", "3")
    training.wait_until_it_learns()
    eventually(lambda: len(programs_of(training.process.pid)) == 2)
    children = descendants_of(training.process.pid)
    training.process.send_signal(number)
    status, out = training.ended()
    eventually(lambda: not any(map(is_alive, children)))

    assert status == (-number if number == signal.SIGKILL else 128 + number), training.err
    assert len(children) >= 4
    if number != signal.SIGKILL:
        document = json.loads(out)
        assert sum(one["rows"] for one in document["workers"]) == document["rows"]


@pytest.mark.workers
def test_workers_of_a_training_outlive_a_hive_that_is_started_again(actors):
    training = actors("--actors", "2")
    training.wait_until_it_learns()
    (program,) = eventually(lambda: programs_of(training.process.pid))
    log = training.out / "hive" / "hive.log"
    eventually(lambda: " as session 1 (act)" in log.read_text(), LONG)  # the worker takes part
    (hive,) = set(children_of(training.process.pid)) - {program}
    os.kill(hive, signal.SIGKILL)
    eventually(lambda: not is_alive(hive))
    eventually(lambda: len(set(children_of(training.process.pid)) - {program}) == 1, LONG)
    seen = policies_of(training)
    eventually(lambda: len(policies_of(training) - seen) > 5, LONG)
    training.process.send_signal(signal.SIGINT)
    status, out = training.ended()
    document = json.loads(out)

    assert status == 130, training.err
    assert document["workers"][1]["replaced"] == 0, training.err
    assert sum(one["rows"] for one in document["workers"]) == document["rows"]


class DyingPlacement:
    """A placement whose workers are dead as soon as they are started."""

    def __init__(self, status=1):
        self.jobs = []
        self._status = status

    def start(self, _, job, name):
        self.jobs.append(job)
        return SimpleNamespace(
            name=name, is_alive=False, reason="it has died", status=self._status,
            events=list, stop=lambda _: None, kill=lambda: None,
        )  # fmt: skip

    def close(self, seconds=5.0):
        pass


def test_a_worker_is_replaced_at_most_five_times_in_a_minute(client, host, tmp_path):
    run, warnings, placement = create(client, "dying"), [], DyingPlacement()
    options = TrainingOptions("guest.wasm", tmp_path, actors=2)
    guest = host.load(REACH)
    with RolloutWorkers(b"", options, placement, guest, warnings.append) as workers:
        workers.begin(client, run)
        eventually(lambda: len(warnings) == 6)

    assert len(placement.jobs) == 6
    assert warnings[4] == "worker 1 died: it has died; another one takes its place"
    assert warnings[5].startswith("worker 1 died: it has died; another one starts in ")
    assert [job["incarnation"] for job in placement.jobs] == list(range(6))
    assert len({job["seed"] for job in placement.jobs}) == 6


def test_a_worker_that_refuses_its_job_is_reported_once(client, host, tmp_path):
    run, warnings, placement = create(client, "refused"), [], DyingPlacement(status=2)
    options = TrainingOptions("guest.wasm", tmp_path, actors=3)
    guest = host.load(REACH)
    with RolloutWorkers(b"", options, placement, guest, warnings.append) as workers:
        workers.begin(client, run)
        eventually(lambda: len(warnings) == 2)
        states = workers.progress(7)

    assert len(placement.jobs) == 2
    assert warnings == [f"worker {n} cannot take part: it has died" for n in (1, 2)]
    assert [(one.is_alive, one.incarnation) for one in states[1:]] == [(False, 0)] * 2


WRONG = {
    "no number": ({"actors": 0}, "actors is 0: it takes a whole number from 1"),
    "lockstep": ({"actors": 2, "settings": {"sync": True}}, "actors is 2 and sync is set"),
    "no runner": ({"actors": 2, "runner": "threads"}, "runner is 'threads'"),
    "a cluster without ray": ({"actors": 2, "ray_address": "a:1"}, "ray_address is 'a:1'"),
    "a runner of nothing": ({"runner": "ray"}, "it places actors, which are not given"),
    "a hive that no node reaches": (
        {"actors": 2, "runner": "ray", "ray_address": "10.1.2.3:6379"},
        "whose nodes cannot reach an embedded hive",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_rollout_workers_that_cannot_be_had_are_refused(tmp_path, case):
    values, sentence = WRONG[case]

    with pytest.raises(UsageError, match=sentence):
        train(REACH, frames=1, directory=tmp_path / "out", **values)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "ray://localhost:10001", "[::1]:6379"])
def test_a_cluster_of_this_machine_may_use_an_embedded_hive(tmp_path, address):
    options = TrainingOptions("guest", tmp_path, actors=2, runner="ray", ray_address=address)

    assert options.ray_address == address


def test_the_command_refuses_actors_in_lockstep(tmp_path):
    refused = arkml("train", REACH, "--actors", "2", "--sync", "--out", tmp_path / "out")

    assert refused.status == 2
    assert "actors is 2 and sync is set: in lockstep a learner has one host" in refused.err


@pytest.mark.workers
def test_the_command_shows_the_rows_of_each_worker(tmp_path):
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    shown = arkml(
        "train", REACH, "--actors", "2", "--frames", "60", "--config", config,
        "--out", tmp_path / "out",
    )  # fmt: skip

    assert shown.status == 0, shown.err
    assert "worker 0" in shown.out
    assert "worker 1" in shown.out
