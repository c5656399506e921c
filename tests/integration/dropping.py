"""
A process that drops hosts and what they made, finalized in a forced order.

Usage: python -m tests.integration.dropping WHAT ... It prints each, with the number of orders that
it survived.
"""

import asyncio
import contextlib
import gc
import sys
import warnings
from collections import Counter
from types import FunctionType, ModuleType

import numpy as np
import wasmtime
from tests.integration.command_line import GUESTS
from tests.integration.guest_text import ACTOR

from arkml import GuestEnv, Host
from arkml.envs.core.fleet_env import FleetEnv
from arkml.errors import GuestFailed, UsageError
from arkml.guests.instance import Instance
from arkml.guests.loader import GuestLoader
from arkml.runtime.store import GuestStore

PENDULUM = GUESTS / "c_pendulum.wasm"
ONE_AGENT = {"configure": (1, "{seed}")}


def guest():
    host = Host()
    made = host.load(ACTOR)
    made.call("open")
    made.call("step", 3)
    return made, host


def fleet():
    host = Host()
    made = host.fleet(GUESTS / "c_applet.wasm", 3)
    made.update()
    return made, host


def environment():
    made = GuestEnv(PENDULUM, **ONE_AGENT)
    made.reset(1)
    return made


def environments_of_one_host():
    host = Host()
    made = [GuestEnv(PENDULUM, **ONE_AGENT, host=host) for _ in range(2)]
    for env in made:
        env.reset(1)
    return made


def fleet_environment():
    made = FleetEnv(PENDULUM, 3, **ONE_AGENT)
    made.reset(1)
    return made


def host():
    return Host()


def awaited_call():
    """A call that is suspended in the middle of the guest, in a coroutine."""
    host = Host()
    made = host.load(ACTOR)
    call = made.call_async("spin", budget=None)
    loop = asyncio.new_event_loop()
    task = loop.create_task(call)
    loop.run_until_complete(asyncio.sleep(0.05, None))
    task._log_destroy_pending = False
    loop.close()
    return task, call, made


class Wrapper:
    """An environment's wrapper that steps and closes it when it is dropped itself."""

    def __init__(self, env, actions):
        self.env = env
        self.actions = actions

    def __del__(self):
        with contextlib.suppress(GuestFailed, UsageError):
            self.env.step(*self.actions)
            self.env.step(*self.actions)
        self.env.close()
        warnings.warn("its wrapper closed it", ResourceWarning, source=self, stacklevel=1)


def wrapped_environment():
    return Wrapper(environment(), [[[0.0]]])


def wrapped_fleet_environment():
    env = fleet_environment()
    return Wrapper(env, (np.zeros((3, 1), np.float32), np.zeros((3, 3), np.float32)))


class Owner:
    """Holds a guest, and closes the host when it is dropped itself."""

    def __init__(self):
        self.guest, self.host = guest()

    def __del__(self):
        self.host.close()
        warnings.warn("its owner closed it", ResourceWarning, source=self, stacklevel=1)


def owned_guest():
    return Owner()


KINDS = (
    wasmtime.Store,
    wasmtime.SharedMemory,
    wasmtime.Managed,
    Instance,
    GuestLoader,
    Wrapper,
    Owner,
)
"""What has a finalizer; an object belongs to the first of these that it is an instance of."""


class Cycle:
    """Keeps itself alive, and what it holds."""

    def __init__(self, held):
        self.held = held
        self.itself = self


def finalized_in(order, garbage):
    """Call the finalizers of what is garbage, kind after kind."""
    for kind in order:
        for item in garbage:
            if next((k for k in KINDS if isinstance(item, k)), None) is kind:
                item.__del__()


def only_reachable_from(root):
    """What only `root` keeps alive, itself only kept alive by the caller: the garbage to be."""
    found = reachable(root)
    inner = Counter(id(part) for item in found for part in parts(item))
    (own,) = [sys.getrefcount(item) for item in [object()]]  # by list, variable and call
    kept = [item for item in found if sys.getrefcount(item) > inner[id(item)] + own]
    alive = {id(part) for item in kept if item is not root for part in reachable(item)}
    return [item for item in found if id(item) not in alive]


def reachable(root):
    """Every object that `root` refers to, and itself."""
    found, left = {}, [root]
    while left:
        item = left.pop()
        if id(item) not in found:
            found[id(item)] = item
            left += parts(item)
    return list(found.values())


def parts(item):
    """What an object refers to, apart from types, modules and their names."""
    if isinstance(item, FunctionType):
        return [*(item.__closure__ or ()), *(item.__defaults__ or ())]
    return [part for part in gc.get_referents(item) if not isinstance(part, type | ModuleType)]


def main(what):
    make = globals()[what]
    turned = [(*KINDS[first:], *KINDS[:first]) for first in range(len(KINDS))]
    orders = [(), *turned, KINDS[::-1]]  # the collector's own; each kind first once, and last
    gc.disable()
    for order in orders:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            cycle = Cycle(make())
            finalized_in(order, only_reachable_from(cycle))
            del cycle
            gc.collect()
        names = [str(w.message) for w in given if issubclass(w.category, ResourceWarning)]
        given.clear()
        gc.collect()
        assert names, f"{order}: dropped in silence"
        assert not GuestStore._open, f"{order}: a Store is left"
        assert not any(isinstance(item, Instance) for item in gc.get_objects()), "a guest is left"
        print(*names, sep=", ", file=sys.stderr)
    print(what, len(orders), flush=True)


if __name__ == "__main__":
    gc.freeze()  # what was imported is no garbage
    for one in sys.argv[1:]:
        main(one)
