"""Nothing on our pages is a serious barrier, by axe-core, light and dark."""

import pytest
from tests.browser.accessibility import barriers, prepare
from tests.browser.hives import GUESTS, arkml, serving, training
from tests.browser.people import PATIENCE, asked_to_log_in

import arkml as package

pytestmark = pytest.mark.browser

SHORT = ("--frames", 600, "--eval-every", 200, "--evaluate-episodes", 2)
SCHEMES = ("light", "dark")
DRAWN = "document.querySelectorAll('.chart canvas').length >= 2"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """A hive with two runs that have ended."""
    folder = tmp_path_factory.mktemp("seeds")
    with serving(folder / "hive", "--max-learners", 2) as hive:
        for seed in (1, 2):
            out = folder / str(seed)
            with training(hive, out, "--seed", seed, *SHORT, guest="c_cartpole") as one:
                assert one.wait() == 0, one.said
        yield hive


@pytest.fixture
def checked(browser):
    """Opens addresses and returns the barriers there, once what it waits for is there."""
    contexts = []

    def check(address, scheme, wait, act=lambda _: None):
        contexts.append(browser.new_context(color_scheme=scheme))
        page = contexts[-1].new_page()
        prepare(page)
        page.goto(address)
        page.wait_for_function(f"() => {wait}", timeout=PATIENCE)
        act(page)
        return barriers(page)

    yield check
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_of_a_hive_has_no_barriers(seeds, checked, scheme):
    first, second = (run["id"] for run in seeds.runs())
    table = "document.querySelectorAll('table.runs tbody tr').length === 2"

    assert checked(seeds.link, scheme, table) == []
    assert checked(f"{seeds.link}#runs={first}", scheme, DRAWN) == []
    assert checked(f"{seeds.link}#runs={first},{second}", scheme, DRAWN) == []

    def turn(page):
        page.get_by_role("button", name="table of Return of training").press("Enter")
        page.wait_for_selector(".numbers table")
        page.keyboard.press("?")
        page.wait_for_selector("#keys[open]")

    assert checked(f"{seeds.link}#runs={first}", scheme, DRAWN, turn) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_form_of_a_login_has_no_barriers(looks, tmp_path, scheme):
    with serving(tmp_path / "hive", token="a token of the test") as hive:
        ann = looks("about:blank", color_scheme=scheme)
        prepare(ann.page)
        ann.page.goto(hive.link)
        asked_to_log_in(ann)

        assert barriers(ann.page) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_report_has_no_barriers(seeds, checked, tmp_path, scheme):
    arkml("report", "--data", seeds.data, "-o", tmp_path / "report.html")
    address = (tmp_path / "report.html").as_uri()

    assert checked(address, scheme, "document.querySelector('.area[role=slider]')") == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_of_trials_has_no_barriers(walkers, checked, scheme):
    begin = "document.getElementById('begin').disabled === false"

    def play(page):
        assert barriers(page) == []
        page.fill("#name", "Ann")
        page.click("#begin")
        page.wait_for_function("() => Number(document.getElementById('tick').textContent) > 3")

    with walkers() as served:
        assert checked(served.play, scheme, begin, play) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_of_a_published_guest_has_no_barriers(served, checked, tmp_path, scheme):
    policy = GUESTS / "policies/pointmass.onnx"
    package.publish(GUESTS / "c_applet.wasm", policy, tmp_path / "site", license="MIT")
    playing = "Number(document.getElementById('tick').textContent) > 3"

    assert checked(f"{served}/site/index.html", scheme, playing) == []


def test_a_barrier_is_found(checked, served, tmp_path):
    page = "<!doctype html><html lang='en'><title>x</title><button></button></html>"
    (tmp_path / "page.html").write_text(page)

    [found] = checked(f"{served}/page.html", "light", "document.querySelector('button')")
    assert found.startswith("button-name: ")
