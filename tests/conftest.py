"""
What all tests have in common: caches of compiled code, signals as at a terminal, clean ends.

What a failed test leaves running is killed, and so is everything at the end. The tests, and
processes that they start, find the learner of tests/drawn_learner, by the entry point of an
installed package.

Modules are compiled anew in each run of the tests. What JAX compiles is kept as learners keep it,
from one run to the next: most of what tests of updates cost is the compilation.
"""

import compileall
import gc
import os
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests import children

from arkml.base.loggers import forget_notices
from arkml.hive.protocol.audit import AUDIT
from arkml.learning.compilation_cache import open_cache

HAS_FAILED, BEGAN = pytest.StashKey(), pytest.StashKey()
PACKAGES = str(Path(__file__).with_name("drawn_learner"))
HOST = Path(__file__).parents[1] / "host"


class Variables:
    """Stands for JAX, whose configuration it keeps in the environment."""

    def __init__(self):
        self.config = self

    def update(self, name, value):
        os.environ[name.upper()] = str(value)


def pytest_configure(config):
    """Set the environment before any process starts; workers of pytest-xdist inherit it."""
    if find_spec("hypothesis") is not None:
        from hypothesis import settings

        settings.register_profile("arkml", deadline=None)  # as slow as the machine may be
        settings.load_profile("arkml")
    children.take_signals()
    os.environ[AUDIT] = "1"
    os.environ["OMP_WAIT_POLICY"] = "passive"  # of PyTorch's threads, which else wait by spinning
    os.environ["OPENBLAS_THREAD_TIMEOUT"] = "4"  # of NumPy's and SciPy's, for 16 cycles
    sys.path.append(PACKAGES)  # a worker's path is that of the start, whatever it inherits
    if not hasattr(config, "workerinput"):
        directory = tempfile.TemporaryDirectory(prefix="arkml-tests-")
        config.add_cleanup(directory.cleanup)
        os.environ["ARKML_CACHE"] = f"{directory.name}/modules"
        os.environ["XDG_STATE_HOME"] = f"{directory.name}/state"
        path = filter(None, (PACKAGES, os.environ.get("PYTHONPATH")))
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
        os.environ["SB3_LOGDIR"] = f"{directory.name}/sb3"  # which each training makes, and leaves
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{directory.name}/torch"
        if not sys.dont_write_bytecode:
            # Before a process does whose files may not grow: what it writes is cut off for good.
            compileall.compile_dir(HOST, quiet=2)
        if find_spec("jax") is not None:  # which environments of other libraries lack
            open_cache(Variables())
    warden = children.start_warden()
    config.add_cleanup(warden.communicate)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers():
    """Return three workers more than there are processors: many tests wait for processes."""
    return (yield) + 3


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Kill what a test that failed has left, after its fixtures had their turn."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    if report.when == "teardown" and HAS_FAILED in item.stash:
        children.kill_those_of(item.nodeid, item.stash[BEGAN])
    return report


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_timeout_set_timer(item):
    """End what a test waits for, once its time is over: to leave a `with` it may wait again."""
    answer = yield
    fail = signal.getsignal(signal.SIGALRM)

    def end(*given):
        children.kill_those_of(item.nodeid, item.stash[BEGAN])
        fail(*given)

    if callable(fail):  # and not the other method, a thread that ends the process
        signal.signal(signal.SIGALRM, end)
    return answer


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Let each test see the notices that a process logs once."""
    forget_notices()
    item.stash[BEGAN] = children.now()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """Tell what a test starts from what its fixtures have started, which others may share."""
    item.stash[BEGAN] = children.now()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without collections of garbage, of which there is none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """
    Spare tests full garbage collections of thousands of tests and their modules.

    Those of what came later are seldom: they look through all that JAX has compiled.
    """
    gc.freeze()
    youngest, young, _ = gc.get_threshold()
    gc.set_threshold(youngest, young, 100)
