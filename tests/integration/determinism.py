"""What fleets do after a snapshot, to be compared with what they do after a restore."""

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
from tests.integration.guest_text import GUESTS, ROOT

from arkml import FleetSnapshot, Host
from arkml.errors import GuestError
from arkml.guests.guest import SEED_EXPORT
from arkml.runtime.wasi.linking import WasiGrant

FIXTURES = [
    path
    for path in sorted(GUESTS.glob("*.wasm"))
    if b"ark_applet_update" in path.read_bytes()
    # They trap on purpose, ask for the time, or play in an environment only.
    and path.stem not in ("c_lines", "as_abort", "c_drift", "as_language")
    and not path.stem.startswith(("c_choosers", "c_curriculum", "c_listener", "c_walkers"))
]
_WARM = 20
_EVERY = 250  # frames between two looks at all memories


def differences(path, seeds, frames, folder):
    """
    Save a fleet after some frames, and return where it goes on otherwise than it did.

    It is restored in the same host, in another one with eight threads, and in another process.
    """
    file = folder / f"{path.stem}.state"
    with _host(1) as host:
        fleet = _begun(host, path, seeds)
        _played(fleet, _WARM)
        state = fleet.snapshot()
        state.save(file)
        expected = _played(fleet, frames)
        fleet.restore(state)
        found = {"the same fleet": _played(fleet, frames)}
        if SEED_EXPORT in fleet.guests[0].module.functions:
            assert len(set(expected[-1])) > len(seeds) / 2, "seeds make no difference"
    found["eight threads"] = _restored(path, file, frames, 8)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.determinism", path, file, str(frames)],
        capture_output=True, cwd=ROOT, check=True,
    )  # fmt: skip
    found["another process"] = json.loads(ended.stdout)
    return [name for name, seen in found.items() if seen != expected]


def _host(threads):
    return Host(threads=threads, seed=7, wasi=WasiGrant())


def _begun(host, path, seeds):
    """Return a fleet whose guests have these seeds, as far as they take one."""
    fleet = host.fleet(path, len(seeds))
    functions = fleet.guests[0].module.functions
    if SEED_EXPORT in functions:
        for guest, seed in zip(fleet.guests, seeds, strict=True):
            fleet.replace(guest, seed=seed)
    configure = functions.get("configure")  # of a game: agents, seed
    if configure is not None and SEED_EXPORT in functions and len(configure.params) == 2:
        fleet.call("configure", np.ones(len(seeds), np.int32), np.array(seeds, np.int32))
    return fleet


def _restored(path, file, frames, threads):
    with _host(threads) as host:
        state = FleetSnapshot.load(file)
        fleet = host.fleet(path, len(state))
        fleet.restore(state)
        return _played(fleet, frames)


def _played(fleet, frames):
    """Play frames, and return digests of all memories at some of them, and at the end."""
    found = []
    for frame in range(1, frames + 1):
        with suppress(GuestError):
            fleet.update()
        if frame % _EVERY == 0 or frame == frames:
            found.append([_digest(guest) for guest in fleet.guests])
    return found


def _digest(guest):
    if guest.failure is not None:
        return str(guest.failure)
    with guest.memory() as memory:
        return hashlib.sha256(memory).hexdigest()[:16]


if __name__ == "__main__":
    _path, _file, _frames = sys.argv[1:]
    json.dump(_restored(Path(_path), _file, int(_frames), 1), sys.stdout)
