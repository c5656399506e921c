"""
The processes that tests start, which end with their test, and with the process of pytest.

Each process of pytest names itself in the environment of what it starts. A warden waits for its
end, however it ends, and kills what still bears its name. It is this file, run as a program.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STARTED_BY = "ARKML_TESTS_OF"
TEST = "PYTEST_CURRENT_TEST"  # set by pytest while a test runs
COMPANION = "companion"
"""The name, in /proc/PID/comm, of a process that forks for its parent (tests/prefork.py)."""


def start_warden():
    """Have what this process starts from now on killed when this one ends, or closes the pipe."""
    os.environ[STARTED_BY] = str(os.getpid())
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    environment = {key: value for key, value in os.environ.items() if key != STARTED_BY}
    pipe = subprocess.PIPE  # its end, however this process ends, is the warden's end of file
    return subprocess.Popen(command, stdin=pipe, env=environment, start_new_session=True)


def kill_bearing(variable, value):
    """Kill the processes that were started with a variable of that value."""
    wanted = f"{variable}={value}".encode()
    killed = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            entries = (directory / "environ").read_bytes().split(b"\0")
            if wanted in entries and int(directory.name) != os.getpid():
                os.kill(int(directory.name), signal.SIGKILL)
                killed.append(int(directory.name))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            pass  # it has ended, or is another user's
    return killed


def kill_those_of(test, began):
    """
    Kill what a test started in its own body, and left.

    Forks (tests/prefork.py) do not bear its name: they are known as descendants of this process
    that are younger than the `began` (`now`) of the body.
    """
    killed = kill_bearing(TEST, f"{test} (call)")
    parents, younger = [os.getpid()], []
    processes = list(_processes())
    for parent in parents:
        children = [(pid, start) for pid, of, start, _ in processes if of == parent]
        parents += [pid for pid, _ in children]
        younger += [pid for pid, start in children if start > began]
    for pid in younger:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return killed + younger


def now():
    """The time as /proc tells it of a process's start: in ticks since the system's."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def children_of(pid, module=None):
    """The ids of the processes that a process has started, or of its forks that run a module."""
    return [
        one
        for one, parent, _, name in _processes()
        if parent == pid and (name != COMPANION if module is None else name == module)
    ]


def _processes():
    """The id, the parent's, the start (`now`) and the name of each process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, rest = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = rest.split()  # from the third on
        yield int(path.parent.name), int(fields[1]), int(fields[19]), before.partition("(")[2]


def take_signals():
    """
    Handle the signals that `nohup` and a shell's `&` have ignored.

    What a process ignores is ignored by what it starts, and tests interrupt what they start; what
    it handles is not. A hangup still ends no tests.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: _do_nothing}
    for number, handler in handlers.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def _do_nothing(number, frame):
    pass


def main():
    sys.stdin.buffer.read()
    while kill_bearing(STARTED_BY, sys.argv[1]):
        pass  # one of them may have started another meanwhile


if __name__ == "__main__":
    main()
