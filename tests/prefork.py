"""
Processes of Python that have imported the package already, which costs more than most of them do.

`Process` is a subprocess.Popen that has one process of this module fork, which imported what
commands need (but onnxruntime, which starts a thread). It takes `-m MODULE` and `-c SCRIPT` of this
interpreter. That it is a fork shows in its parent and in /proc/PID/cmdline alone; a test for which
these matter starts an ordinary process.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "arkml",
    "arkml.cli",
    "arkml.host",
    "arkml.training",
    "arkml.demonstrations",
    "arkml.hive",
)
MODULES = ("onnx", "httpx", "rich.table", "rich.progress")
READ_AT_START = "PYTHON"  # the beginning of the variables that the interpreter itself reads
WARNINGS = "error"
_STRICT = ("PYTHONWARNINGS", WARNINGS)
_MOST = 1 << 20  # bytes of a request
_STREAMS = 3
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Process(subprocess.Popen):
    """A process of this Python, which starts as a fork."""

    def _execute_child(self, args, *given):
        _, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = given[:15]
        start_new_session = given[20]
        if preexec_fn or pass_fds or shell or start_new_session:
            raise ValueError("a fork takes no such option: start an ordinary process")
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        reader, writer = os.pipe()
        streams = [own if fd < 0 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        request = {
            "words": list(map(str, args[1:])),
            "cwd": str(cwd or Path.cwd()),
            "env": env,
            "limits": {number: resource.getrlimit(number) for number in _LIMITS},
        }
        try:
            _server().ask(request, [*streams, writer])
        finally:
            os.close(writer)
            self._close_pipe_fds(*pipes)
        self._status = os.fdopen(reader)
        self.pid = int(self._status.readline())
        self._child_created = True

    def _internal_poll(self, **_):
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags):
        is_over = select.select([self._status], [], [], 0 if wait_flags & os.WNOHANG else None)[0]
        if not is_over:
            return 0, 0
        with self._status:
            line = self._status.readline()
        return self.pid, int(line or signal.SIGKILL)  # nothing if its own parent was killed


def run(*words, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT):
    """Run `-m MODULE` or `-c SCRIPT`, with more words, to its end, as subprocess.run does."""
    command = [sys.executable, *map(str, words)]
    with Process(
        command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env,
    ) as process:  # fmt: skip
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class _Server:
    """The process that forks."""

    def __init__(self):
        self.owner = os.getpid()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"} | {
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT / 'host'}{os.pathsep}{ROOT}",
            "PYTHONWARNINGS": WARNINGS,
        }
        command = [sys.executable, "-m", "tests.prefork", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        atexit.register(self.close)

    def ask(self, request, fds):
        socket.send_fds(self._link, [json.dumps(request).encode()], fds)

    def close(self):
        if self.owner == os.getpid():
            self._link.close()
            self._process.wait()


_started = []


def _server():
    if not _started or _started[-1].owner != os.getpid():
        _started.append(_Server())
    return _started[-1]


def fits(environment):
    """Return True if a process may start as a fork with that environment."""
    return all(
        os.environ.get(key) == value or key == "PYTHONPATH" or (key, value) == _STRICT
        for key, value in environment.items()
        if key.startswith(READ_AT_START)
    )


def _serve(link):
    """Fork for each request; return in the fork what it is to run, and None at the end."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        data, fds, _, _ = socket.recv_fds(link, _MOST, _STREAMS + 1)
        if not data:
            return None
        if os.fork() == 0:
            link.close()
            return _forked(json.loads(data), fds)
        for fd in fds:
            os.close(fd)


def _forked(request, fds):
    *streams, status = fds
    child = os.fork()
    if child:  # this process waits for it, and tells how it ended
        os.write(status, b"%d\n" % child)
        for fd in streams:
            os.close(fd)
        os.close(0), os.close(1), os.close(2)
        _, code = os.waitpid(child, 0)
        os.write(status, b"%d\n" % code)
        os._exit(0)
    os.close(status)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in streams:
        os.close(fd)
    _open_streams()
    os.chdir(request["cwd"])
    for number, limits in request["limits"].items():
        resource.setrlimit(int(number), limits)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["env"].get("PYTHONWARNINGS") != WARNINGS:
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
    random.seed()
    return request["words"]


def _open_streams():
    """Open the standard streams as the interpreter does: they are other files now."""
    like = sys.stdout.encoding, sys.stdout.errors
    for name, number, mode, (encoding, errors) in (
        ("stdin", 0, "r", like), ("stdout", 1, "w", like),
        ("stderr", 2, "w", (like[0], "backslashreplace")),
    ):  # fmt: skip
        stream = open(number, mode, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
        if number == 2 or (mode == "w" and stream.isatty()):
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(words):
    """Run `-m MODULE WORDS` or `-c SCRIPT WORDS` as the interpreter does."""
    kind, what, *more = words
    if kind == "-m":
        sys.argv = [what, *more]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *more]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)


def _import_all():
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            if not module.name.startswith("__"):
                importlib.import_module(f"{name}.{module.name}")
    for name in MODULES:
        importlib.import_module(name)


if __name__ == "__main__":
    _link = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    assert len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208  a fork has but one thread
    gc.collect()
    gc.freeze()
    _words = _serve(_link)
    if _words is not None:
        _run(_words)
