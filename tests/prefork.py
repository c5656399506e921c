"""
Processes of Python that have imported the package already, which costs more than most of them do.

`Process` is a subprocess.Popen that has one process of this module fork, which imported what
commands, hives and learners need (but JAX and onnxruntime, which start threads). It takes
`-m MODULE` and `-c SCRIPT` of this interpreter. It is a child of the process that starts it; that
it is a fork shows in /proc/PID/cmdline, where all forks are alike, and in /proc/PID/comm, which is
the name of its module; a test for which that matters starts an ordinary process.

The hive, the learners and the evaluator that commands and hives start in their turn are forks as
well, and so are the fake learners of tests/integration: what is one of PARENTS has, from its start,
a child that forks for it, its `COMPANION`.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

from tests.children import COMPANION

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
    "arkml.async_trainer",
    "arkml.async_trainer.runners",
    "arkml.trials",
    "arkml.trial_commands",
    "arkml.envs.llapi",
)
MODULES = (
    "onnx", "httpx", "rich.table", "rich.progress", "arkml.training.evaluations",
    "arkml.training.rollout_worker", "arkml.learning.worker", "arkml.learning.learner",
    "arkml.learning.reporter",
)  # fmt: skip
PARENTS = ("arkml", "train"), ("arkml", "hive"), ("arkml.server", "--embedded")
OFFSPRING = (
    "arkml.server", "arkml.learning.worker", "arkml.training.evaluations",
    "arkml.training.rollout_worker",
)  # fmt: skip
FAKE_LEARNER = str(Path(__file__).parent / "integration" / "fake_learner.py")
READ_AT_START = ("PYTHON", "ARKML_PURE")  # beginnings of variables that are read at the start
WARNINGS = "error"
_STRICT = ("PYTHONWARNINGS", WARNINGS)
_MOST = 1 << 20  # bytes of a request
_DESCRIPTORS = 16  # of a process at most: its streams, and what it is given
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_NAME = 15  # PR_SET_NAME
_ORDINARY, _SPAWN = subprocess.Popen, os.posix_spawn
_asking = threading.Lock()
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Process(subprocess.Popen):
    """A process of this Python, which starts as a fork."""

    def _execute_child(self, args, *given):
        _, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = given[:15]
        start_new_session, process_group = given[20:]
        if preexec_fn or shell:
            raise ValueError("a fork takes no such option: start an ordinary process")
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        streams = enumerate((p2cread, c2pwrite, errwrite))
        files = {own: own if fd < 0 else fd for own, fd in streams} | {fd: fd for fd in pass_fds}
        try:
            own = _own(session=start_new_session, group=process_group)
            self.pid = _fork(args[1:], files, env, cwd=cwd, own=own)
        finally:
            self._close_pipe_fds(*pipes)
        self._child_created = True


def start(args, **options):
    """Start a process as subprocess.Popen does, as a fork where it may be one."""
    is_fork = _is_ours(args) and fits(options["env"])
    return (Process if is_fork else _ORDINARY)(args, **options)


def start_offspring(args, **options):
    """Start a process as subprocess.Popen does, as a fork if it is of OFFSPRING."""
    is_fork = _is_offspring(args) and fits(options["env"])
    return (Process if is_fork else _ORDINARY)(args, **options)


def spawn_offspring(path, arguments, environment, *, file_actions, setpgroup):
    """Start a process as os.posix_spawn does, as a fork if it is of OFFSPRING."""
    if not (_is_offspring(arguments) and fits(environment)):
        options = {"file_actions": file_actions, "setpgroup": setpgroup}
        return _SPAWN(path, arguments, environment, **options)
    files = {number: descriptor for _, descriptor, number in file_actions}
    own = _own(session=False, group=setpgroup)
    return _fork(arguments[1:], files, environment, cwd=None, own=own)


def _own(*, session, group):
    """Return the name of the function of `os` that gives a process its own session or group."""
    if session:
        return "setsid"
    if group not in (0, -1, None):
        raise ValueError(f"a fork joins no group that is there, such as {group}")
    return "setpgrp" if group == 0 else None


def _is_ours(arguments):
    """Return True for `-m MODULE` or `-c SCRIPT` of this Python."""
    return arguments[0] == _PYTHON and arguments[1] in ("-m", "-c")


def _is_offspring(arguments):
    kind, what, *_ = arguments[1:]
    return arguments[0] == _PYTHON and (
        kind == FAKE_LEARNER or (kind == "-m" and what in OFFSPRING)
    )


def _fork(words, files, environment, *, cwd, own):
    """Return the id of a child of this process, which has `files`: its number -> descriptor."""
    reader, writer = os.pipe()
    request = {
        "words": list(map(str, words)),
        "numbers": list(files),
        "cwd": str(cwd or Path.cwd()),
        "env": environment,
        "own": own,
        "nice": os.nice(0),
        "limits": {number: resource.getrlimit(number) for number in _LIMITS},
    }
    with _adopting(), os.fdopen(reader) as answer:
        try:
            _server().ask(request, [*files.values(), writer])
        finally:
            os.close(writer)
        line = answer.readline()
    if not line:
        raise RuntimeError("the process that forks has ended; what it said is on stderr")
    return int(line)


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
    with _asking:
        _call_prctl(_SUBREAPER, 1)
        try:
            yield
        finally:
            _call_prctl(_SUBREAPER, 0)


def _call_prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class _Forker:
    """A process that forks for its `owner`."""

    def serves(self, pid):
        return self.owner == pid

    def ask(self, request, fds):
        socket.send_fds(self._link, [json.dumps(request).encode()], fds)


class _Server(_Forker):
    """The process that forks for tests."""

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

    def serves(self, pid):
        return super().serves(pid) and self._process.poll() is None

    def close(self):
        if self.owner == os.getpid():
            self._link.close()
            self._process.wait()


class _Companion(_Forker):
    """The process that forks for a process that is a fork itself, of which it is one."""

    def __init__(self):
        self.owner = os.getpid()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.words = None  # of what runs: None in the process that asks
        if os.fork():
            theirs.close()
            return
        self._link.close()
        own = Path("/proc/self/comm").read_text().strip()
        _call_prctl(_NAME, COMPANION.encode())
        with Path(os.devnull).open("r+b") as nowhere:  # nobody waits for the end of its streams
            for number in range(3):
                os.dup2(nowhere.fileno(), number)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # which are for the one that asks
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
        self.words = _serve(theirs)
        if self.words is None:
            os._exit(0)
        _call_prctl(_NAME, own.encode())
        for number, handler in handlers.items():
            signal.signal(number, handler)


_started = []
_imported = {}  # name -> module, before any fork


def _server():
    if not _started or not _started[-1].serves(os.getpid()):
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
        data, fds, _, _ = socket.recv_fds(link, _MOST, _DESCRIPTORS + 1)
        if not data:
            return None
        *files, answer = fds
        request = json.loads(data)
        between = os.fork()
        if between == 0 and _is_adopted(answer, own=request["own"]):
            link.close()
            os.close(answer)
            return _settle(request, files)
        for fd in fds:
            os.close(fd)
        os.waitpid(between, 0)


def _is_adopted(answer, *, own):
    """
    Fork, and return True in the fork once it is a child of the process that asked.

    That one adopts it when this process, which is between the two, ends: so it can be waited for.
    It is told of the fork once that has its own session or group, if it is to have one: the group
    of a process may be killed as soon as its id is known.
    """
    between = os.getpid()
    if os.fork():
        os._exit(0)
    if own is not None:
        getattr(os, own)()
    while os.getppid() == between:
        time.sleep(0.001)
    try:
        os.write(answer, b"%d\n" % os.getpid())
    except BrokenPipeError:  # who asked was interrupted
        os._exit(1)
    return True


def _settle(request, files):
    """Give a fork the files, folder, limits and variables of a request; return its words."""
    os.nice(max(0, request["nice"] - os.nice(0)))
    numbers = request["numbers"]
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in files]
    for fd in files:
        os.close(fd)
    for number, fd in zip(numbers, above, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    _open_streams()
    os.chdir(request["cwd"])
    for number, limits in request["limits"].items():
        resource.setrlimit(int(number), limits)
    os.environ.clear()
    os.environ.update(request["env"])
    path = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [directory for directory in path if directory and directory not in sys.path]
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
    """Run `-m MODULE WORDS`, `-c SCRIPT WORDS` or `FILE WORDS` as the interpreter does."""
    kind, what, *more = words
    while kind == "-m" and (what, *more[:1]) in PARENTS:
        companion = _Companion()
        if companion.words is None:
            _started[:] = [companion]
            subprocess.Popen, os.posix_spawn = start_offspring, spawn_offspring
            break
        kind, what, *more = companion.words
    if kind == "-m":
        _call_prctl(_NAME, what.rpartition(".")[2].encode())  # which tells forks apart
        sys.argv = [what, *more]
        sys.modules.pop(what, None)  # which runs anew, as the main module
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind != "-c":
        sys.argv = [kind, what, *more]
        runpy.run_path(kind, run_name="__main__")
    else:
        sys.argv = ["-c", *more]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)


def _leave_imported():
    """
    Keep what was imported before the fork from being taken apart at the end.

    That would write to all of it, for which each page is copied, and costs more than most processes
    do. What a process has made and imported itself ends as ever.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_imported))  # for ever
    for name, module in _imported.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _import_all():
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            if not module.name.startswith(("__", "hatch_")):  # which builds, by hatchling
                importlib.import_module(f"{name}.{module.name}")
    for name in MODULES:
        importlib.import_module(name)
    _imported.update(sys.modules)
    for name in ("builtins", "sys", "warnings"):  # which the end itself wants
        del _imported[name]


if __name__ == "__main__":
    atexit.register(_leave_imported)  # before any other: it runs last
    _link = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    assert len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208  a fork has but one thread
    gc.collect()
    gc.freeze()
    _words = _serve(_link)
    if _words is not None:
        _run(_words)
