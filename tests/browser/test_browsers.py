"""What both browsers tell of a page, and which tests one of them is spared."""

from pathlib import Path

import pytest
from tests.browser.browsers import CHROMIUM_ONLY
from tests.browser.people import listen

pytestmark = pytest.mark.browser
PAGE = """<!doctype html><title>x</title><link rel="icon" href="data:,">
<meta http-equiv="Content-Security-Policy" content="img-src 'self' data:">
<body><script>{}</script>"""


def test_a_browser_that_has_ended_is_started_anew(running):
    ended = running()
    ended.close()

    assert running() is not ended
    assert running().is_connected()


@pytest.mark.parametrize(
    ("script", "heard"),
    [
        ("console.error('a wrong turn')", "a wrong turn"),
        ("throw new Error('a wrong turn')", "a wrong turn"),
        ("Promise.reject(new Error('a wrong turn'))", "a wrong turn"),
        ("new Image().src = 'http://127.0.0.1:9/x.png'", "policy: img-src http://127.0.0.1:9/"),
        ("fetch('missing.json')", "/missing.json was answered by 404"),
    ],
)
def test_what_goes_wrong_in_a_page_is_heard(script, heard, tmp_path, browser, served):
    (tmp_path / "page.html").write_text(PAGE.format(script))
    complaints = []
    page = browser.new_page()
    listen(page, complaints.append)
    page.goto(f"{served}/page.html")
    while not any(heard in one for one in complaints):
        page.wait_for_timeout(50)  # it ends by the time limit of a test
    page.close()


def test_a_page_without_faults_is_silent(tmp_path, browser, served):
    (tmp_path / "page.html").write_text(PAGE.format("fetch('page.html')"))
    complaints = []
    page = browser.new_page()
    listen(page, complaints.append)
    page.goto(f"{served}/page.html")
    page.wait_for_load_state("networkidle")
    page.close()

    assert complaints == []


@pytest.mark.parametrize("name", CHROMIUM_ONLY)
def test_a_test_that_is_run_in_chromium_alone_is_there(name):
    sources = (path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert any(f"\ndef {name}(" in source for source in sources)
