"""
The split of `make test` into tests that run side by side, and `serial` ones that run alone.

All of them, with the processes that they start, share a cache of compiled modules of their own.
What a failed test leaves running is killed, and so is everything at the end.
"""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from tests import children

INTEGRATION = Path(__file__).parent / "integration"
HAS_FAILED = pytest.StashKey()


def pytest_configure(config):
    """Set the environment before any process starts; workers of pytest-xdist inherit it."""
    children.take_signals()
    if not hasattr(config, "workerinput"):
        directory = tempfile.TemporaryDirectory(prefix="arkml-tests-")
        config.add_cleanup(directory.cleanup)
        os.environ["ARKML_CACHE"] = f"{directory.name}/modules"
        os.environ["XDG_STATE_HOME"] = f"{directory.name}/state"
    warden = children.start_warden()
    config.add_cleanup(warden.communicate)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Kill what a test that failed has left, after its fixtures had their turn."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    if report.when == "teardown" and HAS_FAILED in item.stash:
        children.kill_those_of(item.nodeid)
    return report


def pytest_report_header(config):
    if getattr(config.option, "numprocesses", None):
        return "tests marked serial are left out here: pytest -m serial tests/integration"
    return None


def pytest_collection_modifyitems(config, items):
    """Leave the `serial` tests out of the parts that pytest-xdist runs side by side."""
    serial = [item for item in items if item.get_closest_marker("serial") is not None]
    for item in serial:
        if INTEGRATION not in item.path.parents:
            raise pytest.UsageError(
                f"{item.nodeid} is marked serial: `make test` looks for such tests in"
                " tests/integration only"
            )
    if serial and hasattr(config, "workerinput"):  # a worker of pytest-xdist
        config.hook.pytest_deselected(items=serial)
        left_out = set(serial)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish():
    """Spare what tests time full garbage collections of thousands of tests and their modules."""
    gc.collect()
    gc.freeze()
