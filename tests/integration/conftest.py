import gc
import logging
import subprocess
import threading
import warnings
from types import SimpleNamespace

import pytest
from tests import prefork
from tests.integration.guest_text import ACTOR

from arkml import Host
from arkml.hive import embedded
from arkml.training import periodic_evaluation
from arkml.workers import process_group


@pytest.fixture(autouse=True, scope="module")
def forked_processes():
    """
    Embedded hives, evaluators and rollout workers are forks, which spares each its imports.

    So are those that a whole module shares: this comes before its other fixtures.
    """
    starting = SimpleNamespace(**vars(subprocess) | {"Popen": prefork.start})
    with pytest.MonkeyPatch.context() as patch:
        for starts in (embedded, periodic_evaluation, process_group):
            patch.setattr(starts, "subprocess", starting)
        yield


@pytest.fixture
def host():
    with Host() as made:
        yield made


@pytest.fixture
def make_host():
    """A factory of hosts that are closed at the end."""
    made = []

    def make(**options):
        made.append(Host(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def actor(host):
    """A guest of ACTOR whose session is open."""
    guest = host.load(ACTOR, name="actor")
    assert guest.call("open") == 0
    return guest


@pytest.fixture
def supersuit():
    """SuperSuit, where it can be had."""
    return pytest.importorskip("supersuit", reason="no wheel of tinyscaler for this Python")


@pytest.fixture
def forgotten():
    """Collect what other people's tests leave unclosed, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


class Saying(logging.Handler):
    """Calls a function for each line that a guest logs."""

    def __init__(self, heard):
        super().__init__()
        self._heard = heard

    def emit(self, record):
        self._heard(record)


@pytest.fixture
def on_log():
    """Call a function for each line that guests log from now on."""
    logger = logging.getLogger("arkml.guest")
    before, added = logger.level, []

    def listen(heard):
        logger.setLevel(logging.INFO)
        added.append(Saying(heard))
        logger.addHandler(added[-1])

    yield listen
    for handler in added:
        logger.removeHandler(handler)
    logger.setLevel(before)


class Running:
    """A guest call on another thread."""

    def __init__(self, work):
        self.outcome = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.outcome = self._work()
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.outcome = error

    def result(self):
        """What it returned, or the exception that it raised."""
        self._thread.join()
        return self.outcome


@pytest.fixture
def on_thread(on_log):
    """Start work on another thread; comes back when a guest says `running`, or at once."""
    threads = []

    def start(work, *, announced=False):
        said = threading.Event()
        on_log(lambda record: said.set() if record.getMessage() == "running" else None)
        threads.append(Running(work))
        assert not announced or said.wait(300)
        return threads[-1]

    yield start
    for thread in threads:
        thread.result()
