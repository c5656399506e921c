"""What a soak makes, uses, has fail, and drops: one function for each kind."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.conformance.models import linear
from tests.integration.guest_text import ACTOR, GUESTS, data, function, i32, module
from tests.integration.hive_service import Service
from tests.integration.training_guest import V1, TrainingGuest

from arkml import GuestEnv, HiveGrant, Host, Limits
from arkml.abi.codes import EpisodeState
from arkml.envs.core.fleet_env import FleetEnv
from arkml.errors import ArkmlError
from arkml.policies.cervo import AssetKind, unpack
from arkml.policies.nnef import NnefModel

ROOT = Path(__file__).parents[2]
APPLET, PENDULUM, CMDLET = (
    GUESTS / name for name in ("c_applet.wasm", "c_pendulum.wasm", "rust_cmdlet.wasm")
)
NNEF = ROOT / "fixtures" / "policies" / "cervo" / "plain.nnef.crvo"
_MOST_HELD = 6
_FAILURES = ("boom", "recurse", "push_then_boom")


@dataclass(slots=True)
class Stage:
    """The things that are alive, and the hive that runs are made on."""

    chance: random.Random
    service: Service | None = None
    held: list[Any] = field(default_factory=list)
    made: int = 0
    failed: int = 0

    def keep(self, thing: Any) -> None:
        """Hold a thing for a while; one that was held before is closed, or just dropped."""
        self.held.append(thing)
        self.made += 1
        if len(self.held) > _MOST_HELD:
            self.let_go(self.held.pop(self.chance.randrange(len(self.held))))

    def let_go(self, thing: Any) -> None:
        if self.chance.random() < 0.7:
            thing.close()

    def fail(self, act: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Do what must fail by one of our errors."""
        try:
            act(*arguments, **options)
        except ArkmlError:
            self.failed += 1
        else:
            raise AssertionError(f"{act} {arguments} did not fail")

    def clear(self) -> None:
        """Let go of everything, in any order."""
        self.chance.shuffle(self.held)
        while self.held:
            self.let_go(self.held.pop())


def guest(stage: Stage) -> None:
    host = Host()
    made = host.load(ACTOR)
    made.call("open")
    for _ in range(stage.chance.randrange(4)):
        made.call("step", stage.chance.randrange(1, 40))
    if stage.chance.random() < 0.3:
        stage.fail(made.call, stage.chance.choice(_FAILURES))
    elif stage.chance.random() < 0.2:
        stage.fail(made.call, "submit_for_ever", budget=0.01)
    stage.keep(made)
    if stage.chance.random() < 0.5:
        stage.keep(host)


def awaited(stage: Stage) -> None:
    host = Host()
    made = host.load(ACTOR)

    async def cancelled() -> None:
        task = asyncio.ensure_future(made.call_async("open_and_submit_for_ever", budget=None))
        await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    stage.failed += 1
    stage.keep(host)


def cmdlet(stage: Stage) -> None:
    host = Host(limits=Limits(wasm_stack=stage.chance.choice([512, 640, 768]) << 10))
    with contextlib.suppress(ArkmlError):
        host.load(CMDLET).run_cmdlet("")
    stage.keep(host)


def fleet(stage: Stage) -> None:
    host = Host()
    made = host.fleet(APPLET, stage.chance.randrange(1, 12))
    for _ in range(5):
        made.update()
    if stage.chance.random() < 0.5:
        made.guests[0].close()
        made.update()
    if stage.chance.random() < 0.5:
        made.join(2)
        made.update()
    for _ in range(stage.chance.randrange(40)):  # guests that come and go
        gone = stage.chance.choice(made.guests)
        act = stage.chance.choice(("replace", "remove", "close"))
        if act == "replace":
            made.replace(gone)
        elif act == "remove" and len(made) > 1:
            made.remove(gone)
        else:
            gone.close()
            made.join()
        made.update()
    stage.keep(made)


def modules(stage: Stage) -> None:
    """Compile modules that were never seen before, and some that are refused."""
    host = Host(limits=Limits(module_bytes=100_000))
    number = stage.chance.getrandbits(30)
    made = module(function("answer", i32(number), result="i32"), data(64, b"x" * 200))
    assert host.load(made).call("answer") == number
    stage.fail(host.compile, b"\0asm\1\0\0\0" + stage.chance.randbytes(40))
    stage.fail(host.compile, bytes(200_000))
    stage.fail(host.compile, b'(module (import "nowhere" "f" (func)))')
    stage.keep(host)


def models(stage: Stage) -> None:
    """Use models that were never seen before, one that is refused, and one in a child process."""
    weights = np.random.default_rng(stage.chance.getrandbits(30)).random((2, 1))
    policy = linear(weights)
    with Host(policy=policy) as host:
        made = host.load(ACTOR)
        made.call("open")
        made.call("step", 30)
    stage.fail(Host, policy=policy[:-9])
    if stage.chance.random() < 0.2:
        kind, archive = unpack(NNEF.read_bytes())
        assert kind is AssetKind.NNEF
        stage.keep(NnefModel(archive))


def environment(stage: Stage) -> None:
    env = GuestEnv(PENDULUM, configure=(2, "{seed}"))
    env.reset(stage.chance.getrandbits(16))
    for _ in range(10):
        env.step(np.zeros((2, 1), np.float32))
    if stage.chance.random() < 0.3:
        copy = pickle.loads(pickle.dumps(env))
        copy.reset(1)
        stage.keep(copy)
    for _ in range(stage.chance.randrange(3)):
        clone = env.clone()
        for _ in range(10):
            clone.step(np.zeros((2, 1), np.float32))
        stage.keep(env)
        env = clone
    stage.keep(env)


def environments(stage: Stage) -> None:
    env = FleetEnv(PENDULUM, 3, configure=(1, "{seed}"))
    env.reset(stage.chance.getrandbits(16))
    stage.keep(env)


def run(stage: Stage) -> None:
    """Train on the hive, and leave, drop or break the run."""
    service = stage.service
    assert service is not None
    address = service.base.removeprefix("http://").removesuffix("/v1")
    host = Host(hive=HiveGrant(hive=address, token=service.token))
    made = TrainingGuest(host)
    context = made.start(f"run{stage.made}")
    for step in range(5):
        state = EpisodeState.RUNNING if step else EpisodeState.INITIAL
        made.submit(context, [(agent, state, 0.5, 0.1) for agent in range(4)])
    if stage.chance.random() < 0.5:
        made.proxy.code(V1, "ml__stop_training", context)
    made.guest.close()
    stage.keep(host)
    for each in service.get("/runs").json()["runs"][2:]:
        service.post(f"/runs/{each['id']}/stop")
        service.http.delete(f"/runs/{each['id']}?force=1")


LIGHT: tuple[Callable[[Stage], None], ...] = (
    guest, guest, guest, awaited, cmdlet, fleet, fleet, modules, models, environment, environments,
)  # fmt: skip
"""What takes some milliseconds."""

WITH_HIVE: tuple[Callable[[Stage], None], ...] = (*LIGHT, *LIGHT, run)
"""What a round chooses from: a run starts a process for its learner."""
