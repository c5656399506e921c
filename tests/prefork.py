"""
Processes of Python that have imported the package already, which costs more than most of them do.

`Process` is a subprocess.Popen that has one process of this module fork, which imported what
commands and hives need (but onnxruntime, which starts a thread). It takes `-m MODULE` and
`-c SCRIPT` of this interpreter. It is a child of the process that starts it; that it is a fork
shows in /proc/PID/cmdline alone, and a test for which that matters starts an ordinary process.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import runpy
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PYTHON = sys.executable
PACKAGES = (
    "arkml",
    "arkml.cli",
    "arkml.host",
    "arkml.training",
    "arkml.demonstrations",
    "arkml.hive",
    "arkml.server",
)
MODULES = ("onnx", "httpx", "rich.table", "rich.progress")
READ_AT_START = ("PYTHON", "ARKML_PURE")  # beginnings of variables that are read at the start
WARNINGS = "error"
_STRICT = ("PYTHONWARNINGS", WARNINGS)
_MOST = 1 << 20  # bytes of a request
_STREAMS = 3
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_asking = threading.Lock()
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Process(subprocess.Popen):
    """A process of this Python, which starts as a fork."""

    def _execute_child(self, args, *given):
        _, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = given[:15]
        start_new_session = given[20]
        if preexec_fn or pass_fds or shell:
            raise ValueError("a fork takes no such option: start an ordinary process")
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        reader, writer = os.pipe()
        streams = [own if fd < 0 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        request = {
            "words": list(map(str, args[1:])),
            "cwd": str(cwd or Path.cwd()),
            "env": env,
            "session": start_new_session,
            "limits": {number: resource.getrlimit(number) for number in _LIMITS},
        }
        with _adopting(), os.fdopen(reader) as answer:
            try:
                _server().ask(request, [*streams, writer])
            finally:
                os.close(writer)
                self._close_pipe_fds(*pipes)
            line = answer.readline()
        if not line:
            raise RuntimeError("the process that forks has ended; what it said is on stderr")
        self.pid = int(line)
        self._child_created = True


def start(args, **options):
    """Start a process as subprocess.Popen does, as a fork where it may be one."""
    is_ours = args[0] == _PYTHON and args[1] in ("-m", "-c") and fits(options["env"])
    return (Process if is_ours else subprocess.Popen)(args, **options)


def run(*words, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT):
    """Run `-m MODULE` or `-c SCRIPT`, with more words, to its end, as subprocess.run does."""
    command = [sys.executable, *map(str, words)]
    with Process(
        command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env,
    ) as process:  # fmt: skip
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextlib.contextmanager
def _adopting():
    """Become the parent of the processes below this one whose own parent ends meanwhile."""
    prctl = ctypes.CDLL(None).prctl
    with _asking:
        prctl(_SUBREAPER, 1, 0, 0, 0)
        try:
            yield
        finally:
            prctl(_SUBREAPER, 0, 0, 0, 0)


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
        data, fds, _, _ = socket.recv_fds(link, _MOST, _STREAMS + 1)
        if not data:
            return None
        *streams, answer = fds
        between = os.fork()
        if between == 0 and _is_adopted(answer):
            link.close()
            os.close(answer)
            return _settle(json.loads(data), streams)
        for fd in fds:
            os.close(fd)
        os.waitpid(between, 0)


def _is_adopted(answer):
    """
    Fork, and return True in the fork once it is a child of the process that asked.

    That one adopts it when this process, which is between the two, ends: so it can be waited for.
    """
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.001)
    try:
        os.write(answer, b"%d\n" % os.getpid())
    except BrokenPipeError:  # who asked was interrupted
        os._exit(1)
    return True


def _settle(request, streams):
    """Give a fork the streams, folder, limits and variables of a request; return its words."""
    if request["session"]:
        os.setsid()
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
            if not module.name.startswith(("__", "hatch_")):  # which builds, by hatchling
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
