"""Chromium, driven by Playwright, and real processes of `arkml trials play` for its tests."""

import functools
import http.server
import itertools
import shutil
import threading

import pytest
from playwright.sync_api import sync_playwright
from tests.browser.people import REPORT, Person
from tests.browser.served import GUESTS, playing


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests; each person has a context of their own."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.fail("there is no program chromium: install Debian's package of that name")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def person(chromium):
    """Opens links as people, who must not have seen an error at the end of the test."""
    people = []

    def come(link, name, **options):
        people.append(Person(chromium, link, name, **options))
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
def visited(chromium):
    """Opens pages, which must not complain, nor ask for anything outside of their folders."""
    complaints, contexts = [], []

    def visit(address, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.add_init_script(REPORT)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
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
