"""The functions of ours that nine flows enter, and their files; run as a module for a table."""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np
from tests.benchmarks import stepping
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtMost, Row
from tests.benchmarks.subjects import FIXTURES
from tests.integration.hive_service import FAKE, request
from tests.integration.hive_service import rows as body_rows
from tests.integration.served_guest_trials import Seat, served, started
from tests.integration.test_learner import Actor as RowActor
from tests.integration.test_learner import Log as RowLog
from tests.integration.test_learner import session_of, write_run
from tests.waiting import eventually
from tools.houses import SOURCE_ROOTS

from arkml import Host
from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Layer
from arkml.learning.learner import Learner
from arkml.learning.learner_loop import Trainer
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import PolicyWeights, to_onnx
from arkml.learning.ppo import PpoWeights
from arkml.learning.reporter import Reporter
from arkml.learning.sac import SacWeights
from arkml.learning.server_connection import ServerConnection
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.training import TrainingPolicy
from arkml.server.hive_service import HiveService
from arkml.server.serve_options import ServeOptions

TOPIC = "walks"
GROWTH = 1.2
ROUNDS = 9
NOTE = (
    "Functions of arkml that one turn of a flow enters, warm, and their files: the"
    " median of nine turns, counted by Python's profiler in all threads. A generator counts each"
    " time that it continues. A flow that grows by a fifth fails."
)
WISH = {"join_key": "0" * 8, "features": 3, "actions": 2, "role": "act"}
_OURS = tuple(str(root) for root in SOURCE_ROOTS)


@dataclass(frozen=True, slots=True)
class Walk:
    """What one turn of a flow enters."""

    calls: int
    files: int


MEASURED: Mapping[str, Walk] = {
    "vector step, agents of one guest": Walk(42, 14),
    "single Gymnasium step": Walk(40, 14),
    "POST of rows at the server": Walk(89, 16),
    "tick of a trial with a person": Walk(110, 20),
    "policy version reaching a host": Walk(193, 16),
    "policy version with choices": Walk(203, 16),
    "step of a learner": Walk(355, 33),
    "guest.update": Walk(8, 5),
    "fleet.update": Walk(34, 10),
}
"""The walks when this table was last changed; a change that folds a flow lowers them."""


@dataclass(slots=True)
class Counter:
    """Counts the functions of ours that are entered while it `is_on`."""

    is_on: bool = False
    calls: int = 0
    files: dict[str, int] = field(default_factory=dict)  # the calls in each

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Note an event of the profiler."""
        if self.is_on and event == "call":
            name = frame.f_code.co_filename
            if name.startswith(_OURS):
                self.calls += 1
                self.files[name] = self.files.get(name, 0) + 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count in this thread, and in those that are started meanwhile."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def walk(self, turn: Callable[[], object]) -> Walk:
        """Return the median walk of a turn, after some that warm it."""
        for _ in range(3):
            turn()
        found = []
        for _ in range(ROUNDS):
            self.calls, self.files = 0, {}
            self.is_on = True
            turn()
            self.is_on = False
            found.append(Walk(self.calls, len(self.files)))
        return Walk(
            round(statistics.median(one.calls for one in found)),
            round(statistics.median(one.files for one in found)),
        )


def _update(counter: Counter) -> Walk:
    with Host() as host:
        guest = host.load(FIXTURES / "guests" / "c_applet.wasm")
        return counter.walk(guest.update)


def _fleet_update(counter: Counter) -> Walk:
    with Host() as host:
        fleet = host.fleet(FIXTURES / "guests" / "c_applet.wasm", 64)
        return counter.walk(fleet.update)


def _vector_step(counter: Counter) -> Walk:
    with ExitStack() as stack:
        return counter.walk(stepping.vector(stack, "pendulum", 64))


def _gymnasium_step(counter: Counter) -> Walk:
    from arkml.envs.gymnasium_env import GuestGymEnv

    with GuestGymEnv(stepping.path("pendulum"), configure=(1, "{seed}")) as env:
        env.reset(seed=1)
        action = np.zeros(env.action_space.shape, np.float32)
        return counter.walk(lambda: env.step(action))


_SCALING = Scaling(np.zeros(3, np.float32), np.ones(3, np.float32), 1.0)


def _version(counter: Counter) -> Walk:
    """A version of SAC, as the learner exports it."""
    return _loaded(
        counter,
        lambda layers: SacWeights(
            _SCALING, layers((3,), 64, 64, 4), layers((2, 5), 64, 64, 1)
        ),
    )  # fmt: skip


def _version_with_choices(counter: Counter) -> Walk:
    """A version of PPO with a continuous action, a branch of three choices and their masks."""
    return _loaded(
        counter,
        lambda layers: PpoWeights(
            _SCALING,
            tuple(layers((3,), 64, 64, 4)),
            tuple(layers((3,), 64, 64, 1)),
            np.zeros(1, np.float32),
            (3,),
        ),
        (3,),
    )


def _loaded(
    counter: Counter, make: Callable[..., PolicyWeights], branches: tuple[int, ...] = ()
) -> Walk:
    """Versions of two actions, whose weights alone differ from those of the one before."""
    random = np.random.default_rng(0)

    def layers(inputs: tuple[int, ...], *widths: int) -> list[Layer]:
        *side_by_side, first = inputs
        return [
            Layer(
                random.standard_normal((*side_by_side, *shape)).astype(np.float32),
                random.standard_normal((*side_by_side, shape[-1])).astype(np.float32),
            )
            for shape in pairwise((first, *widths))
        ]

    library = PolicyLibrary(ModelCache())
    policy = TrainingPolicy(
        "run", 3, 2, sink=None, seed=3, workspace=library.workspace, branches=branches
    )
    versions = iter([to_onnx(make(layers)) for _ in range(ROUNDS + 3)])
    return counter.walk(lambda: library.load_version(next(versions), policy))


def _learner_step(counter: Counter) -> Walk:
    """A step in lockstep: a record of the log is read, updates are made, a policy is published."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings = Settings(2, 1, batch_size=64, memory_min_size=16, sync=True)
        run = write_run(Path(folder) / "run", settings)
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        told = threading.Thread(target=lambda: list(iter(lambda: theirs.recv(1 << 16), b"")))
        told.start()
        stack.callback(told.join)
        stack.callback(ours.shutdown, socket.SHUT_WR)
        learner, server = Learner.open(run), ServerConnection(ours)
        trainer = Trainer(learner, server, Reporter(learner, server))
        log, actor = RowLog(run), RowActor()
        session = session_of(learner.algorithm.policy().model)
        places = iter([log.append(actor.frames(1, session)) for _ in range(ROUNDS + 4)])

        def step() -> None:
            trainer._rows(next(places))
            trainer._turn()

        step()  # the first rows allow no update
        return counter.walk(step)


def _post(counter: Counter) -> Walk:
    """A body of a hundred rows, from the socket to its answer; the learner is busy meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        options = ServeOptions(Path(folder), port=0, token="t", spare=False, learner=(FAKE,))
        service = HiveService(options)
        told: list[tuple[int, asyncio.AbstractEventLoop]] = []
        served = threading.Event()

        def announce(_: str, port: int, __: str) -> None:
            told.append((port, asyncio.get_running_loop()))
            served.set()

        thread = threading.Thread(target=lambda: asyncio.run(service.run(announce)))
        thread.start()
        served.wait()
        port, loop = told[0]
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers={"authorization": "Bearer t"}
            ) as client:
                run = client.post("/v1/runs", json=request(misbehavior="hang")).json()["run"]
                url = f"/v1/runs/{run['id']}/sessions"
                sid = client.post(url, json=WISH).json()["sid"]
                info = f"/v1/runs/{run['id']}"  # until its learner is told of rows
                eventually(lambda: client.get(info).json()["run"]["status"] != "pending")
                bodies = iter(
                    [
                        encode(body_rows(100, number * 100), seq=number + 1)
                        for number in range(ROUNDS + 3)
                    ]
                )

                def post() -> None:
                    answer = client.post(
                        f"/v1/sessions/{sid}/rows",
                        content=next(bodies), headers={"content-type": CONTENT_TYPE},
                    )  # fmt: skip
                    assert answer.status_code == 200, answer.text

                return counter.walk(post)
        finally:
            loop.call_soon_threadsafe(lambda: service.end(hurry=True))
            thread.join()


def _tick(counter: Counter) -> Walk:
    """A tick of a trial in which a person plays one actor, and a policy stands in for another."""

    async def played() -> Walk:
        module = FIXTURES / "guests" / "c_walkers_seeded.wasm"
        async with served(module, tick_rate=0.0) as server:
            trial = await started(server, configure_numbers=(2, 0, 1, 0, 0))
            seat = await Seat("ann", lambda _: [1.0]).take_over(server, trial, "red_0")
            ticks = 200
            await seat.until(lambda one: len(one.observations) > 20)
            counter.calls, counter.files, counter.is_on = 0, {}, True
            first = len(seat.observations)
            await seat.until(lambda one: len(one.observations) >= first + ticks)
            counter.is_on = False
            made = len(seat.observations) - first
            # Not the files of what happens now and then: a clock is read, a guest's call ends.
            usual = [count for count in counter.files.values() if 2 * count > made]
            return Walk(round(counter.calls / made), len(usual))

    return asyncio.run(played())


FLOWS: Mapping[str, Callable[[Counter], Walk]] = {
    "vector step, agents of one guest": _vector_step,
    "single Gymnasium step": _gymnasium_step,
    "POST of rows at the server": _post,
    "tick of a trial with a person": _tick,
    "policy version reaching a host": _version,
    "policy version with choices": _version_with_choices,
    "step of a learner": _learner_step,
    "guest.update": _update,
    "fleet.update": _fleet_update,
}


def walks() -> Iterator[tuple[str, Walk]]:
    """Yield the walk of each flow."""
    for name, measure in FLOWS.items():
        counter = Counter()
        with counter.watching():
            yield name, measure(counter)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(TOPIC, NOTE)
    for name, walk in walks():
        bench.say(name)
        before = MEASURED[name]
        for what, now, then in (
            ("calls", walk.calls, before.calls),
            ("files", walk.files, before.files),
        ):
            yield Row(TOPIC, name, what, Spread(now, now, now), AtMost(GROWTH * then))


if __name__ == "__main__":
    for name, walk in walks():
        print(f"{name:36} {walk.calls:6,} calls {walk.files:4} files")
