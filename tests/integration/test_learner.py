"""A learner's process: what it is told, what it tells, what it leaves, and how it ends."""

import contextlib
import hashlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from msgspec.structs import replace
from tests.waiting import eventually

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import Place, RowColumns, RowKind, encode, frame, segment_name
from arkml.hive.protocol.runs import LEAST_AHEAD, MOST_AHEAD, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.hive.protocol.wire import Unpacker, pack
from arkml.learning.checkpoint_files import Checkpoint, Checkpoints, shaping_settings
from arkml.learning.learner import Learner
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac

pytestmark = pytest.mark.learns

MODULE = "arkml.learning.worker"
AGENTS = 16
LENGTH = 25
SETTINGS = Settings(
    2,
    1,
    hidden=32,
    batch_size=64,
    memory_min_size=200,
    memory_max_size=20_000,
    learning_rate_init=3e-3,
    learning_rate_end=3e-3,
    gamma=0.9,
)


class PointMass:
    """Agents on a line that are paid for being near 0, and end after LENGTH steps."""

    def __init__(self, seed=0):
        self._random = np.random.default_rng(seed)
        self._last_id = 0
        self._begin()

    def _begin(self):
        self.ids = np.arange(self._last_id + 1, self._last_id + AGENTS + 1)
        self._last_id += AGENTS
        self.step = 0
        self.places = self._random.uniform(-1, 1, (AGENTS, 2))
        self.reward = np.zeros(AGENTS)

    @property
    def state(self):
        if self.step == 0:
            return EpisodeState.INITIAL
        return EpisodeState.INTERRUPTED if self.step == LENGTH else EpisodeState.RUNNING

    @property
    def features(self):
        return self.places.astype(np.float32)

    def advance(self, actions):
        if self.step == LENGTH:
            self._begin()
            return
        place, speed = self.places.T
        speed = 0.8 * speed + 0.3 * actions[:, 0]
        place = np.clip(place + 0.3 * speed, -2, 2)
        self.places = np.stack([place, speed], axis=1)
        self.reward = -(place**2)
        self.step += 1


class Actor:
    """Plays the point mass with a policy and makes columns of it."""

    def __init__(self, seed=0):
        self._random = np.random.default_rng(seed + 1)
        self._game = PointMass(seed)
        self.returns = []
        self._return = 0.0

    def frames(self, count, session, version=1, *, greedy=False):
        rows = RowColumns.empty(count * AGENTS, 2, 1)
        for number in range(count):
            game, part = self._game, slice(number * AGENTS, (number + 1) * AGENTS)
            epsilon = self._random.standard_normal((AGENTS, 1)).astype(np.float32)
            given = {"observations": game.features, "epsilon": epsilon * (not greedy)}
            actions = session.run(["actions"], given)[0]
            rows.agent[part], rows.step[part], rows.state[part] = game.ids, game.step, game.state
            rows.version[part], rows.reward[part] = version, game.reward
            rows.features[part], rows.action[part] = game.features, actions
            self._return += float(game.reward.mean())
            if game.step == LENGTH:
                self.returns.append(self._return)
                self._return = 0.0
            game.advance(actions)
        return rows


def evaluate(model, episodes=3):
    actor = Actor(seed=99)
    actor.frames(episodes * (LENGTH + 1), session_of(model), greedy=True)
    return float(np.mean(actor.returns))


def session_of(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Log:
    """The log of a run, written as a server writes it."""

    def __init__(self, directory):
        self._directory = directory / "rows"
        self._directory.mkdir(parents=True, exist_ok=True)
        self.segment = self.rows = self.hashes = 0
        self.offset = 0
        self._seqs = {}

    def append(self, columns, *, session=0, kind=RowKind.TRAINING, dropped=0):
        """Returns the place after the record."""
        seq = self._seqs[session] = self._seqs.get(session, 0) + 1
        body = encode(columns, seq=seq, kind=kind, dropped=dropped)
        data = frame(body, session=session, first=self.rows)
        path = self._directory / segment_name(self.segment)
        with path.open("r+b" if path.exists() else "w+b") as file:
            if not self.offset:
                file.truncate(4 << 20)
            file.seek(self.offset)
            file.write(data)
        self.offset += len(data)
        self.rows += len(columns)
        self.hashes ^= checksum(row_hashes(session, kind, columns))
        return {"segment": self.segment, "offset": self.offset}

    def turn_over(self):
        self.segment, self.offset = self.segment + 1, 0


class Worker:
    """A learner's process, of which this test is the server."""

    def __init__(self, *arguments):
        self._unpacker = Unpacker()
        self.messages = []
        self.is_at_end = False
        self._place = 0
        self._ours, theirs = socket.socketpair()
        line, self._line = os.pipe()
        self.process = self._spawn(
            [sys.executable, "-m", MODULE, *map(str, arguments)], line, theirs
        )
        os.close(line)
        theirs.close()

    def _spawn(self, command, line, link):
        return subprocess.Popen(
            [sys.executable, "-c", PLACE, str(link.fileno()), *command],
            stdin=line,
            pass_fds=[link.fileno()],
            start_new_session=True,
        )

    def send(self, kind, **fields):
        self._ours.sendall(pack(kind, **fields))

    def wait(self, kind, fits=lambda _: True, seconds=300):
        """The next message of a kind that fits, after the one that was waited for last."""
        deadline = time.monotonic() + seconds
        while True:
            while self._place < len(self.messages):
                message = self.messages[self._place]
                self._place += 1
                if message["kind"] == kind and fits(message):
                    return message
            left = deadline - time.monotonic()
            if left <= 0 or not self._receive(left):
                raise AssertionError(f"no {kind} in {[m['kind'] for m in self.messages]}")

    def reply(self, req, seconds=300):
        """The answer to a request, whatever came before or after it."""
        deadline = time.monotonic() + seconds
        while True:
            for message in self.seen("reply"):
                if message["req"] == req:
                    return message
            assert self._receive(deadline - time.monotonic()), f"no reply to {req}"

    def _receive(self, seconds):
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            data = self._ours.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.is_at_end = not data
        self.messages += self._unpacker.feed(data)
        return bool(data)

    def seen(self, kind):
        return [message for message in self.messages if message["kind"] == kind]

    def stop(self, seconds=20):
        self.send("stop", deadline_s=seconds)
        return self.ended()

    def ended(self, seconds=300):
        """The status it ended with, after everything it had to say."""
        deadline = time.monotonic() + seconds
        while not self.is_at_end and self._ours.fileno() >= 0 and time.monotonic() < deadline:
            self._receive(deadline - time.monotonic())
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def cut_line(self):
        os.close(self._line)
        self._line = None

    def close_link(self):
        self._ours.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        self._ours.close()
        if self._line is not None:
            os.close(self._line)


class Grandchild(Worker):
    """A learner whose parent is a process of its own, while this test holds its life line."""

    def _spawn(self, command, line, link):
        return subprocess.Popen(
            [sys.executable, "-c", PARENT, str(link.fileno()), *command],
            stdin=line,
            pass_fds=[link.fileno()],
        )


PLACE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs a command with a file of this process as file 3."""

PARENT = """
import os, subprocess, sys
os.dup2(int(sys.argv[1]), 3)
subprocess.run(sys.argv[2:], pass_fds=[3], start_new_session=True)
"""


def cpu_seconds(worker):
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:

        def starting(*arguments, kind=Worker):
            worker = kind(*arguments)
            stack.callback(worker.close)
            return worker

        yield starting


def write_run(directory, settings=SETTINGS, **changes):
    directory.mkdir(parents=True, exist_ok=True)
    request = replace(RunRequest("point mass", "test", settings), **changes)
    values = {"id": directory.name, "request": request.as_json(), "names": ["distance"]}
    (directory / "run.json").write_text(json.dumps(values))
    return directory


def model_of(run, message):
    model = (run / message["file"]).read_bytes()
    assert hashlib.sha256(model).hexdigest() == message["sha256"]
    return model


def feed(worker, log, actor, session, *, frames=40, version=1):
    worker.send("rows", **log.append(actor.frames(frames, session, version)))


def learn_until(worker, n_opts, seconds=300):
    return worker.wait("progress", lambda m: m["n_opts"] >= n_opts, seconds)


FIRST_ROWS = Settings(2, 1).memory_min_size


@pytest.mark.parametrize(
    ("first_rows", "frames", "explores"),
    [(FIRST_ROWS, 80, True), (FIRST_ROWS, 625, False), (FIRST_ROWS - 1, 80, False)],
    ids=["no episode has ended", "after 10,000 rows", "as it is set"],
)
def test_sac_explores_by_its_first_policy(tmp_path, monkeypatch, first_rows, frames, explores):
    monkeypatch.setattr(sys.modules[__name__], "LENGTH", 1_000)
    run = write_run(tmp_path / "run", SETTINGS.changed({"memory_min_size": first_rows}))
    log, learner = Log(run), Learner.open(run)
    rows = Actor().frames(frames, session_of(learner.algorithm.policy().model))
    learner.commit(Place(**log.append(rows)))
    while learner.ingest():
        pass

    assert learner.rows == frames * AGENTS
    assert learner.is_exploring == explores


def test_what_sac_learns_is_published_once_an_episode_has_ended(tmp_path, start, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "LENGTH", 110)
    run = write_run(tmp_path / "run", SETTINGS.changed({"memory_min_size": FIRST_ROWS}))
    log, actor = Log(run), Actor()
    worker = start(run)
    session = session_of(model_of(run, worker.wait("policy")))
    feed(worker, log, actor, session, frames=100)
    learn_until(worker, 100 * AGENTS - FIRST_ROWS)

    assert len(worker.seen("policy")) == 1
    feed(worker, log, actor, session, frames=11)
    assert worker.wait("policy")["n_opts"] >= 100 * AGENTS - FIRST_ROWS


def test_a_policy_that_cannot_be_written_is_told_once(tmp_path, start, capfd):
    run = write_run(tmp_path / "run")
    log, actor = Log(run), Actor()
    worker = start(run)
    policies = run / "policies"
    said = ""

    def warns():
        nonlocal said
        said += capfd.readouterr().err
        return "the policy could not be written" in said

    session = session_of(model_of(run, worker.wait("policy")))
    shutil.rmtree(policies)
    policies.touch()
    feed(worker, log, actor, session)
    eventually(warns)
    for req in range(5):  # answered at the end of a turn, in which it is tried again
        worker.send("audit", req=req)
        worker.reply(req)
    policies.unlink()
    worker.wait("policy")
    worker.stop()
    warns()

    told = [line for line in said.splitlines() if "written" in line]
    assert [line.split(": ")[1] for line in told] == ["WARNING", "INFO"]
    assert told[1].endswith("the policy can be written again")


def test_a_learner_gets_better_at_a_point_mass(tmp_path, start):
    run = write_run(tmp_path / "run")
    log, actor = Log(run), Actor()
    worker = start(run)
    hello = worker.wait("hello")
    first = model_of(run, worker.wait("policy"))
    session, version = session_of(first), 1
    for _ in range(20):
        feed(worker, log, actor, session, version=version)
        learn_until(worker, 0.25 * log.rows)
        newest = worker.seen("policy")[-1]
        if newest["n_opts"] > 0:
            version += 1
            worker.send("version", version=version, n_opts=newest["n_opts"])
            session = session_of(model_of(run, newest))
    worker.wait("progress", lambda m: m["rows"] == log.rows)
    code = worker.stop()
    last = worker.seen("policy")[-1]
    progress = worker.seen("progress")[-1]

    assert code == 0
    assert (hello["n_opts"], hello["restored_from"], hello["device"]) == (0, None, "cpu")
    assert evaluate(model_of(run, last)) > -3.0 > 2 * evaluate(first)
    assert progress["rows"] == log.rows == last["rows_seen"]
    assert progress["n_opts"] == last["n_opts"] <= log.rows
    assert progress["cursor"] == [0, log.offset]
    assert progress["updates_per_row"] == pytest.approx(progress["n_opts"] / log.rows)
    assert progress["n_opts"] + LEAST_AHEAD <= progress["admits"] <= log.rows + MOST_AHEAD + 100
    assert len(list((run / "policies").iterdir())) <= 17


def test_a_learner_says_what_it_sees_and_goes_on_after_a_stop_and_a_kill(tmp_path, start):
    run = write_run(tmp_path / "run")
    log, actor = Log(run), Actor()
    worker = start(run)
    session = session_of(model_of(run, worker.wait("policy")))
    worker.send("version", version=1, n_opts=0)
    rows = actor.frames(52, session)
    rows.meta = np.array([(3, 0, 0.25), (4, 0, 0.75)], rows.meta.dtype)
    worker.send("rows", **log.append(rows, dropped=7))
    told = worker.wait("metrics", lambda m: any(p[0] == "train/n_updates" for p in m["points"]))
    worker.send("audit", req=5)
    worker.send("checkpoint", req=6, best=True)
    audit = worker.reply(5)
    saved = worker.reply(6)
    worker.send("export", req=7)
    exported = worker.reply(7)
    worker.send("pause")
    held = worker.wait("progress", lambda m: m["hold"])
    worker.send("audit", req=8)
    resting = worker.reply(8)
    worker.send("resume")
    worker.wait("progress", lambda m: not m["hold"])
    code = worker.stop()
    last = worker.seen("checkpoint")[-1]

    points = {
        tag: value for message in worker.seen("metrics") for tag, _, value in message["points"]
    }
    assert code == 0
    assert audit["held"] == 52 * AGENTS
    assert audit["overwritten"] == 0
    assert audit["checksum"] == log.hashes
    assert resting["checksum"] == log.hashes
    assert audit["sessions"] == {"0": {"rows": 52 * AGENTS, "checksum": log.hashes}}
    assert (run / saved["file"]).exists()
    assert (run / "checkpoints" / "best").read_text() == str(saved["n_opts"])
    assert exported["n_opts"] >= saved["n_opts"]
    assert model_of(run, exported)
    assert told["points"][0][1] == log.rows
    assert points["rollout/ep_len_mean"] == LENGTH
    assert points["rollout/ep_rew_mean"] == pytest.approx(np.mean(actor.returns), rel=1e-5)
    assert points["time/episodes"] == 2 * AGENTS
    assert points["time/total_timesteps"] == log.rows
    assert points["guest/distance"] == 0.5
    assert points["hive/dropped"] == 7
    assert points["hive/policy_age_versions"] == 0
    assert points["hive/update_ms"] > 0
    assert {
        "train/actor_loss",
        "train/critic_loss",
        "train/ent_coef",
        "train/ent_coef_loss",
    } <= set(points)
    assert {"train/learning_rate", "hive/stale_share"} <= set(points)
    assert points["hive/updates_per_row_wanted"] == 1.0 >= points["hive/updates_per_row"] > 0
    (recorded,) = (run / "events").iterdir()
    assert b"_hparams_/session_end_info" in recorded.read_bytes()
    assert held["n_opts"] <= last["n_opts"]

    worker = start(run)
    hello = worker.wait("hello")
    feed(worker, log, actor, session)
    learn_until(worker, hello["n_opts"] + 20)
    worker.send("checkpoint", req=1)
    newest = worker.reply(1)
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    data = (run / newest["file"]).read_bytes()
    (run / newest["file"]).write_bytes(data[: len(data) // 2])

    assert hello["restored_from"] == f"run@{last['n_opts']}"
    assert hello["n_opts"] == last["n_opts"]

    log.turn_over()
    worker = start(run)
    hello = worker.wait("hello")
    feed(worker, log, actor, session)
    learn_until(worker, hello["n_opts"] + 1)
    worker.send("audit", req=5)
    audit = worker.reply(5)
    told = worker.wait("metrics", lambda m: m["points"])

    assert hello["n_opts"] == last["n_opts"]
    assert audit["held"] == log.rows
    assert audit["checksum"] == log.hashes
    assert audit["cursor"] == [1, log.offset]
    points = {tag: value for tag, _, value in told["points"]}
    assert points["time/episodes"] == log.rows // AGENTS // (LENGTH + 1) * AGENTS
    assert points["hive/dropped"] == 7


def lockstep(run, start):
    log, actor = Log(run), Actor()
    worker = start(run)
    session = session_of(model_of(run, worker.wait("policy")))
    for _ in range(8):
        feed(worker, log, actor, session, frames=10)
        place = [0, log.offset]
        told = worker.wait("progress", lambda m, place=place: m["cursor"] == place)
        assert told["n_opts"] == max(0, log.rows - 200) // 8
        if len(worker.seen("policy")) > 1:
            session = session_of(model_of(run, worker.seen("policy")[-1]))
    assert worker.stop() == 0
    return worker, log


def test_lockstep_makes_the_same_policies_bit_for_bit(tmp_path, start):
    settings = replace(SETTINGS, sync=True, hidden=8, batch_size=16, updates_per_row=0.125, seed=4)
    first, log = lockstep(write_run(tmp_path / "first", settings), start)
    second, _ = lockstep(write_run(tmp_path / "second", settings), start)
    made, again = (
        [(m["n_opts"], m["sha256"], m["rows_seen"]) for m in worker.seen("policy")]
        for worker in (first, second)
    )

    assert made == again
    assert [n_opts for n_opts, _, _ in made] == [0, 15, 35, 55, 75, 95, 115, 135]
    assert made[-1][0] == (log.rows - 200) // 8


LONG = replace(
    SETTINGS, sync=True, hidden=128, batch_size=256, memory_min_size=160, updates_per_row=4.0
)
STEP = 640
"""Updates of the rows of 10 frames."""


def test_a_run_in_lockstep_makes_the_same_policies_after_restarts_within_steps(tmp_path, start):
    first, run = write_run(tmp_path / "first", LONG), write_run(tmp_path / "run", LONG)
    worker, log, actor = start(first), Log(first), Actor()
    session = session_of(model_of(first, worker.wait("policy")))
    played = [actor.frames(10, session) for _ in range(4)]
    for columns in played:
        worker.send("rows", **log.append(columns))
    worker.wait("progress", lambda m: m["cursor"] == [0, log.offset])
    wanted = {message["n_opts"]: message["sha256"] for message in worker.seen("policy")}

    def half_a_step(log, number):
        """Start the run, and wait until it is within a step."""
        worker = start(run)
        hello = worker.wait("hello")
        worker.send("rows", **log.append(played[number]))
        worker.wait("progress", lambda m: m["n_opts"] > (number - 1) * STEP + 100)
        return worker, hello

    log = Log(run)
    log.append(played[0])
    killed, _ = half_a_step(log, 1)
    killed.send("checkpoint", req=1)
    saved = killed.reply(1)
    killed.process.kill()
    killed.process.wait()
    stopped, after_kill = half_a_step(log, 2)
    stopped.stop()
    last = stopped.seen("checkpoint")[-1]
    worker = start(run)
    after_stop = worker.wait("hello")
    worker.send("rows", **log.append(played[3]))
    worker.wait("progress", lambda m: m["cursor"] == [0, log.offset])
    made = {m["n_opts"]: m["sha256"] for m in (*stopped.seen("policy"), *worker.seen("policy"))}

    assert list(wanted) == [0, STEP, 2 * STEP, 3 * STEP]
    assert after_kill["n_opts"] == saved["n_opts"]
    assert after_stop["n_opts"] == last["n_opts"]
    assert saved["n_opts"] % STEP
    assert last["n_opts"] % STEP
    assert {n: made[n] for n in made if n in wanted} == {
        n: wanted[n] for n in wanted if n > saved["n_opts"]
    }


def test_hosts_are_admitted_more_rows_while_those_they_sent_hold_no_transition(tmp_path, start):
    run = write_run(tmp_path / "run")
    log, worker = Log(run), start(run)
    columns = RowColumns.empty(3_000, 2, 1)
    columns.agent[:], columns.state[:] = np.arange(3_000), EpisodeState.INITIAL
    worker.send("rows", **log.append(columns))
    unlinked = worker.wait("progress", lambda m: m["rows"] == 3_000)
    columns.step[:], columns.state[:] = 1, EpisodeState.RUNNING
    worker.send("rows", **log.append(columns))

    assert unlinked["n_opts"] == 0
    assert unlinked["admits"] == 3_000 + LEAST_AHEAD
    assert learn_until(worker, 1)


def test_a_learner_whose_rows_stop_makes_their_updates_and_then_stands_still(tmp_path, start):
    run = write_run(tmp_path / "run", replace(SETTINGS, updates_per_row=0.5))
    log, actor = Log(run), Actor()
    worker = start(run)
    feed(worker, log, actor, session_of(model_of(run, worker.wait("policy"))))
    made = [learn_until(worker, 1)["n_opts"]]
    while len(made) < 4 or len({*made[-4:]}) > 1:
        made.append(worker.wait("progress")["n_opts"])
        assert made[-1] <= 320
    before = cpu_seconds(worker)
    worker.wait("progress")

    assert cpu_seconds(worker) - before < 0.5


def test_a_run_starts_from_a_checkpoint_of_another(tmp_path, start):
    source, log = write_run(tmp_path / "source"), None
    log, actor = Log(source), Actor()
    worker = start(source)
    session = session_of(model_of(source, worker.wait("policy")))
    feed(worker, log, actor, session)
    learn_until(worker, 20)
    worker.stop()
    n_opts = worker.seen("checkpoint")[-1]["n_opts"]
    last = model_of(source, worker.seen("policy")[-1])
    run = write_run(tmp_path / "run", checkpoint=f"source@{n_opts}")
    worker = start(run)
    hello = worker.wait("hello")
    first = model_of(run, worker.wait("policy"))
    feed(worker, Log(run), actor, session)
    progress = learn_until(worker, n_opts + 10)

    assert hello["restored_from"] == f"source@{n_opts}"
    assert hello["n_opts"] == n_opts
    assert evaluate(first, 1) == pytest.approx(evaluate(last, 1))
    assert progress["updates_per_row"] == pytest.approx((progress["n_opts"] - n_opts) / 640)


def save_untrained(run, settings):
    """A checkpoint after 5 updates, but for the learner's own facts."""
    algorithm = Sac(settings, Normalizer(settings.features, active=True))
    shaping = shaping_settings(settings)
    checkpoint = Checkpoint(run.name, shaping, 5, 0, Place(0, 0), algorithm.state(), {})
    Checkpoints(run / "checkpoints").save(checkpoint)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"checkpoint": "nobody@5"}, "nobody@5"),
        ({"checkpoint": "../../etc@5"}, "is not of the form RUN or RUN@UPDATES"),
        ({"checkpoint": "former"}, r"000000000005\.zip was written by arkml 0\.1"),
        ({"checkpoint": "former@5"}, r"000000000005\.zip was written by arkml 0\.1"),
        ({"checkpoint": "wide@5"}, "hidden is 32: the checkpoint wide@5 was learned with 64"),
        ({"checkpoint": "empty@5"}, "the checkpoint empty@5 has no usable facts: 'experience'"),
    ],
)
def test_what_cannot_work_ends_with_status_3(tmp_path, start, changes, reason):
    former = tmp_path / "former" / "checkpoints" / "000000000005.zip"
    former.parent.mkdir(parents=True)
    with zipfile.ZipFile(former, "w") as archive:
        archive.writestr("state.pt", b"")
    settings = {"wide": replace(SETTINGS, hidden=64), "empty": SETTINGS}
    for name, learned_with in settings.items():
        save_untrained(tmp_path / name, learned_with)
    worker = start(write_run(tmp_path / "run", **changes))
    fatal = worker.wait("fatal")

    assert worker.ended() == 3
    assert fatal["retry"] is False
    assert re.search(reason, fatal["reason"])


def test_a_torn_document_of_a_run_ends_with_status_3(tmp_path, start):
    run = write_run(tmp_path / "run")
    (run / "run.json").write_text((run / "run.json").read_text()[:100])
    worker = start(run)
    fatal = worker.wait("fatal")

    assert worker.ended() == 3
    assert re.search("run has no valid run.json: .*", fatal["reason"])


def test_an_error_in_the_loop_is_told_before_the_process_ends(tmp_path, start):
    worker = start(write_run(tmp_path / "run"))
    worker.wait("policy")
    worker.send("rows", segment=0)
    fatal = worker.wait("fatal")

    assert worker.ended() == 1
    assert fatal["reason"] == "KeyError: 'offset'"
    assert fatal["retry"] is True


def test_an_algorithm_that_cannot_be_made_is_told_by_the_first_line_of_its_error(tmp_path, start):
    worker = start(write_run(tmp_path / "run", replace(SETTINGS, algorithm="refusing")))
    fatal = worker.wait("fatal")

    assert worker.ended() == 1
    assert fatal["reason"] == "ValueError: 2 features are no good:"
    assert fatal["retry"] is True


WIDE = replace(SETTINGS, memory_max_size=1 << 32, features=4_096)


def wide_rows(count=1_000):
    columns = RowColumns.empty(count, WIDE.features, WIDE.actions)
    columns.step[:] = np.arange(count)
    return columns


def test_a_learner_begins_though_all_rows_that_may_come_would_not_fit(tmp_path, start):
    run = write_run(tmp_path / "run", WIDE)
    worker = start(run)
    worker.wait("hello")
    worker.send("rows", **Log(run).append(wide_rows()))

    assert worker.wait("progress", lambda told: told["rows"] == 1_000)
    assert learn_until(worker, 1)


def test_a_learner_for_whose_rows_there_is_no_memory_says_so(tmp_path, start):
    run = write_run(tmp_path / "run", WIDE)
    log, worker = Log(run), start(run)
    worker.wait("hello")
    worker.send("rows", **log.append(wide_rows()))
    worker.wait("progress", lambda told: told["n_opts"] > 0)  # nothing is compiled from here on
    pages = int(Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1])
    limit = pages * resource.getpagesize() + (160 << 20)
    resource.prlimit(worker.process.pid, resource.RLIMIT_RSS, (limit, limit))
    with contextlib.suppress(BrokenPipeError):  # it may have ended before the last of them
        for _ in range(9):  # 16 MB each
            log.turn_over()
            worker.send("rows", **log.append(wide_rows()))
    fatal = worker.wait("fatal")

    assert worker.ended() == 3
    assert fatal["retry"] is False
    assert re.search("rows of 16,4.. bytes: set a smaller memory_max_size", fatal["reason"])


def test_losses_that_are_no_numbers_are_never_exported_and_end_with_status_4(tmp_path, start):
    run = write_run(tmp_path / "run", replace(SETTINGS, normalize=False))
    log, actor = Log(run), Actor()
    worker = start(run)
    first = worker.wait("policy")
    rows = actor.frames(40, session_of(model_of(run, first)))
    rows.reward[:] = 3e38
    worker.send("rows", **log.append(rows))
    fatal = worker.wait("fatal")
    code = worker.ended()

    assert code == 4
    assert fatal["retry"] is True
    assert "loss" in fatal["reason"]
    assert [m["n_opts"] for m in worker.seen("policy")] == [0]
    assert not worker.seen("checkpoint")


def test_a_learner_is_small_and_leaves_other_libraries_alone(tmp_path, start):
    worker = start(write_run(tmp_path / "run"))
    actor, log = Actor(), Log(tmp_path / "run")
    first = worker.wait("policy")
    worker.send(
        "rows", **log.append(actor.frames(100, session_of(model_of(tmp_path / "run", first))))
    )
    learn_until(worker, 20)
    mapped = Path(f"/proc/{worker.process.pid}/maps").read_text()
    resident = int(Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1])

    assert "jaxlib" in mapped
    assert "torch" not in mapped
    assert resident * resource.getpagesize() < 400 << 20


def test_a_spare_adopts_a_run_at_once_and_waits_without_work(tmp_path, start):
    run = write_run(tmp_path / "run")
    spare = start("--spare")
    warm = start(write_run(tmp_path / "other"))
    warm.wait("policy")

    def is_idle():
        before = cpu_seconds(warm)
        warm.wait("progress")
        warm.wait("progress")
        return cpu_seconds(warm) - before < 0.5

    eventually(is_idle)  # once its updates are compiled
    warm.close_link()
    code = warm.ended()
    spare.send("adopt", run_dir=str(run))
    spare.wait("policy")

    assert code == 0


BIG = replace(SETTINGS, hidden=512, batch_size=4_000, memory_min_size=100)


def busy(run, start):
    """A learner in an update that takes seconds."""
    log, actor = Log(run), Actor()
    worker = start(run)
    session = session_of(model_of(run, worker.wait("policy")))
    feed(worker, log, actor, session)
    learn_until(worker, 1)
    return worker


def test_a_busy_learner_tells_of_itself_and_ends_with_its_life_line(tmp_path, start):
    worker = busy(write_run(tmp_path / "run", BIG), start)
    for _ in range(2):
        worker.wait("progress")
    worker.cut_line()

    assert worker.ended() == 0


def test_a_busy_learner_ends_with_its_parent_though_others_hold_its_life_line(tmp_path, start):
    worker = busy(write_run(tmp_path / "run", BIG), partial(start, kind=Grandchild))
    worker.process.kill()
    worker.process.wait()
    worker.ended()

    assert worker.is_at_end
