"""Plays a published site in wasmtime, by the kernel of its policy, and hashes memories."""

import hashlib
import logging

from arkml import Host, WasiGrant
from arkml.envs.core.world import Pace, SeededWorld
from arkml.guests.guest import SEED_EXPORT, Guest, seeded_initializers
from arkml.host import loader_of
from arkml.runs.evaluation_guests import PolicyEvaluation

LEVELS = {logging.ERROR: "error", logging.WARNING: "warning", logging.INFO: "info",
          logging.DEBUG: "debug", 5: "trace"}  # fmt: skip


def played_in_wasmtime(
    module, policy, frames, every, *, seed, deterministic=False, trains=False, others=None
):
    """What the guest does in a host, as `published_frames.js` tells it."""
    hashes, lines = [], []
    grant = WasiGrant(stdout=lambda _: None, stderr=lambda _: None)
    options = {"seed": seed, "deterministic": deterministic, "backend": "wasm", "wasi": grant}
    with Host(policy=policy, policies=others, **options) as host:
        compiled = host.compile(module)
        library = loader_of(host).library()
        gateway = None
        if trains:
            gateway = PolicyEvaluation(library, others=others or (), spec=compiled.info.spec)
        world = SeededWorld(seed, Pace())
        shared = loader_of(host).shared(gateway=gateway, library=library, world=world)
        guest = Guest(loader_of(host).load(compiled, compiled.name, shared))
        log = guest._instance.services.log
        log.on_line = lambda level, text: lines.append([LEVELS[level], text])
        guest._instance.hear_all()
        for name in seeded_initializers(compiled, "ark_applet_update"):
            world.tick()
            guest.call(name, *((seed,) if name == SEED_EXPORT else ()))
        for frame in range(1, frames + 1):
            world.tick()
            guest.update()
            if frame % every == 0:
                with guest.memory() as memory:
                    hashes.append(hashlib.sha256(memory).hexdigest())
    return {"hashes": hashes, "lines": lines}
