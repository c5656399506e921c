"""The wait of tests for what another thread or process does."""

import time


class NotInTime(AssertionError):
    """A condition that did not become true in time."""


def eventually(condition, timeout=30.0, *, interval=0.01):
    """
    Return the first true value of `condition()`, which is asked every `interval` seconds.

    Raise NotInTime after `timeout` seconds: a bound for what hangs, so a loaded machine gets
    plenty. The condition is always asked once more after the time is up.
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() >= deadline:
            if value := condition():
                break
            raise NotInTime(f"the condition was still {value!r} after {timeout:g} s")
        time.sleep(interval)
    return value
