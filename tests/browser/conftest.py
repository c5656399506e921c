"""Browsers, in which each test is run, and real processes of `arkml trials play`."""

import functools
import http.server
import itertools
import threading

import pytest
from tests.browser.browsers import BROWSERS, launcher, reason_against
from tests.browser.people import Person, listen
from tests.browser.served import GUESTS, playing

LEFT_OUT = pytest.StashKey[dict]()


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that one of the browsers cannot be driven through."""
    left = {}
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        name = parameters.get("running", "chromium")
        if reason := reason_against(name, item.originalname, parameters):
            left[item] = reason
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))
    config.stash[LEFT_OUT] = {item.nodeid: reason for item, reason in left.items()}


def pytest_report_collectionfinish(config):
    """Say which tests are left out, and why."""
    return [f"left out: {name}: {reason}" for name, reason in config.stash[LEFT_OUT].items()]


@pytest.fixture(scope="session", params=BROWSERS)
def running(request):
    """Returns one browser for all tests, then the other."""
    with launcher(request.param) as running:
        yield running


@pytest.fixture
def browser(running):
    """The browser, which is started anew after a test that it ended in."""
    return running()


@pytest.fixture
def person(browser):
    """Opens links as people, who must not have seen an error at the end of the test."""
    people = []

    def come(link, name, **options):
        people.append(Person(browser, link, name, **options))
        return people[-1]

    yield come
    complaints = [(one.name, text) for one in people for text in one.complaints]
    for one in people:
        one.context.close()
    assert complaints == []


@pytest.fixture
def looks(person):
    """Opens links as people who look, and do not play."""
    numbers = itertools.count(1)

    def look(link, **options):
        return person(link, f"person {next(numbers)}", begins=False, **options)

    return look


@pytest.fixture
def visited(browser):
    """Opens pages, which must not complain, nor ask for anything outside of their folders."""
    complaints, contexts = [], []

    def visit(address, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        listen(page, complaints.append)
        root = address.rsplit("/", 1)[0]

        def require_within(request):
            if not request.url.startswith((root, "data:")):
                complaints.append(request.url)

        page.on("request", require_within)
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def walkers(tmp_path):
    """Starts trials of walkers that never end: an eighth of an action is added to a position."""

    def start(*options, numbers="2,0,1,0,0", **environment):
        given = ("--configure-numbers", numbers, *options)
        return playing(GUESTS / "c_walkers.wasm", tmp_path / "trials", *given, **environment)

    return start


@pytest.fixture
def served(tmp_path):
    """Serves the folder of a test, of which the sites are parts."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
