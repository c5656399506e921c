"""The wait of tests for what another thread, process or task does."""

import asyncio
import os
import signal
import threading
import time

PATIENCE = 300.0
"""Seconds until a test has failed that waits for what does not come; plenty on a loaded machine."""


MOST_BETWEEN = 0.1
"""Seconds between two questions at most: to ask costs more than to wait."""


class NotInTime(AssertionError):
    """A condition that did not become true in time."""


def eventually(condition, timeout=PATIENCE, *, interval=None):
    """
    Return the first true value of `condition()`, which is asked every `interval` seconds.

    Without an interval it is asked after 10 ms, and less often what takes longer: after each tenth
    of the time that it has taken. Raise NotInTime after `timeout` seconds: a bound for what hangs.
    The condition is always asked once more after the time is up.
    """
    began = time.monotonic()
    deadline = began + timeout
    while not (value := condition()):
        if time.monotonic() >= deadline:
            if value := condition():
                break
            raise NotInTime(f"the condition was still {value!r} after {timeout:g} s")
        waited = time.monotonic() - began
        time.sleep(min(max(waited / 10, 0.01), MOST_BETWEEN) if interval is None else interval)
    return value


async def tasks_left(before, timeout=PATIENCE):
    """
    Return the other tasks than those of `before` that do not end within some seconds.

    What gRPC served may take some turns of the loop to end, after its server was closed.
    """
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    return (await asyncio.wait(left, timeout=timeout))[1] if left else left


def signal_in_call(guest, number=signal.SIGINT):
    """Send this process a signal from a thread, once a guest is in a call, and has run a little."""
    from arkml.guests.guest import calls_of  # tests of trials run without guests, too

    def send():
        while not calls_of(guest).is_in_call:
            time.sleep(0.001)
        time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
