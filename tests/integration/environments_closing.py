"""
A process that makes, steps and closes environments, each with a host of its own.

Usage: python -m tests.integration.environments_closing COUNT. After 10 and after COUNT environments
it prints a line: KiB of address space and of resident memory, mappings, open descriptors, threads.
Every other one is dropped instead of closed.
"""

import gc
import sys
import threading
import warnings
from contextlib import suppress

from tests.integration.closing_counts import taken
from tests.integration.command_line import GUESTS
from tests.waiting import NotInTime, eventually

from arkml import GuestEnv


def use_an_environment(*, close):
    env = GuestEnv(GUESTS / "c_pendulum.wasm", configure=(1, "{seed}"))
    env.reset(1)
    env.step([[0.5]])
    if close:
        env.close()


def threads():
    """Return the number of threads, once those that no host needs any more have ended."""
    with suppress(NotInTime):
        eventually(lambda: threading.active_count() == 1, 10)
    return threading.active_count()


warnings.simplefilter("ignore", ResourceWarning)
for number in range(1, int(sys.argv[1]) + 1):
    use_an_environment(close=number % 2 == 0)
    if number in (10, int(sys.argv[1])):
        gc.collect()
        print(*taken(), threads())
