"""Games for people: they are played by keys, by touch and by a gamepad, and scores are kept."""

import json
import re

import pytest
from playwright.sync_api import expect
from tests.browser.people import listen
from tests.browser.served import GUESTS, playing
from tests.browser.test_published_page import number_in, runs, until

import arkml
from arkml.policies.constant import zeros

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
AHEAD = 60  # seconds that a clock leaps to pause: telling it takes a busy machine some time
TURN = 100  # milliseconds of a person, in which the page paints its numbers once
PAD = """
window.pad = {connected: true, mapping: "standard", axes: [0, 0, 0, 0], buttons: []};
navigator.getGamepads = () => [null, window.pad];
"""
SOUNDS = """
window.tones = 0;
window.AudioContext = class {
  currentTime = 0;
  destination = {};
  resume() {}
  createGain() {
    const gain = { setValueAtTime() {}, exponentialRampToValueAtTime() {} };
    return { gain, connect: (other) => other };
  }
  createOscillator() {
    const start = () => (window.tones += 1);
    return { frequency: {}, connect: (other) => other, start, stop() {} };
  }
};
"""
FLASHES = """
window.flashes = 0;
Element.prototype.animate = () => (window.flashes += 1);
"""
CUT = """
window.texts = window.cut = 0;
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const half = this.measureText(text).width / 2;
  window.texts += 1;
  window.cut += x - half < -0.01 || x + half > this.canvas.clientWidth + 0.01;
  fill.call(this, text, x, y);
};
"""
HOSTILE = "<img src=x onerror=alert(1)>"


def published(game, folder, *, policy=None, **options):
    return arkml.publish(
        GUESTS / f"c_play_{game}.wasm",
        policy or GUESTS / f"policies/play_{game}.onnx",
        folder / "site",
        license="MIT",
        episodes=0,
        **options,
    )


@pytest.fixture
def opens(browser, served):
    """Opens the published page in a browser of its own, which must not complain."""
    complaints, contexts = [], []

    def open_page(*scripts, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        listen(page, complaints.append)
        for script in scripts:
            page.add_init_script(script)
        page.clock.install()
        page.goto(f"{served}/site/index.html")
        return runs(page)

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def take_over(page):
    page.locator("#actors tr").first.get_by_role("button", name="Take over").click()
    expect(page.locator("#control-box")).to_be_visible()


def observed(page):
    """The numbers that the page shows of my agent's observation."""
    return [float(text) for text in page.locator("#values output").all_text_contents()]


def score(page, field):
    """A number of the board of scores, None while there is none."""
    entry = page.locator(".scores div", has=page.locator("dt", has_text=re.compile(f"^{field}$")))
    found = re.search(r"-?\d+(\.\d+)?", entry.locator("dd").text_content())
    return None if found is None else float(found[0])


def plays(page, act, *, seconds=45):
    """
    Let `act` act on what the page shows until an episode of mine counts; return its score.

    The clock of the page stands still while `act` looks and acts, so that a busy machine plays as
    well as another one.
    """
    take_over(page)
    page.clock.pause_at(page.evaluate("Date.now() / 1_000") + AHEAD)
    for _ in range(seconds * 1_000 // TURN):
        if page.locator(".finish").is_hidden():
            act(observed(page))
        if (counted := score(page, "your last")) is not None:
            return counted
        page.clock.run_for(TURN)
    return pytest.fail("no episode has ended")


class Keyboard:
    """Holds the keys down for two actions: less and more of each."""

    KEYS = (("ArrowLeft", "ArrowRight"), ("ArrowDown", "ArrowUp"))

    def __init__(self, page):
        self.page = page
        self.down = set()

    def push(self, *ways):
        wanted = {keys[way > 0] for keys, way in zip(self.KEYS, ways, strict=True) if way}
        for key in self.down - wanted:
            self.page.keyboard.up(key)
        for key in wanted - self.down:
            self.page.keyboard.down(key)
        self.down = wanted


class Finger:
    """Holds a finger on the plane, some pixels away from my agent."""

    def __init__(self, page):
        self.page = page
        self.session = page.context.new_cdp_session(page)
        self.is_down = False

    def push(self, place, *ways):
        box = self.page.locator("#plane").bounding_box()
        inner = 0.86 * min(box["width"], box["height"])
        x = box["x"] + box["width"] / 2 + place[0] * inner / 2 + 90 * ways[0]
        y = box["y"] + box["height"] / 2 - place[1] * inner / 2 - 90 * ways[1]
        x = min(max(x, box["x"] + 1), box["x"] + box["width"] - 1)
        self._send("touchMove" if self.is_down else "touchStart", [{"x": x, "y": y}])
        self.is_down = True

    def lift(self):
        self._send("touchEnd", [])
        self.is_down = False

    def _send(self, kind, points):
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def test_a_lander_is_set_down_by_the_keyboard(tmp_path, opens):
    published("lander", tmp_path)
    page = opens()
    keys = Keyboard(page)

    def act(seen):
        _, height, across, up, pad, _ = seen
        wanted = max(-0.3, min(0.3, pad))
        side = 0 if abs(wanted - across) < 0.05 else wanted - across
        keys.push(side, max(0, -0.12 - 0.45 * height - up))

    assert plays(page, act) >= 50
    assert score(page, "your best today") == score(page, "your last")


def test_a_corridor_is_run_through_by_a_finger_on_the_plane(tmp_path, opens):
    published("corridor", tmp_path)
    page = opens(**PHONE)
    finger = Finger(page)

    def act(seen):
        finger.push(seen[:2], 1, max(-1, min(1, 4 * seen[5])))

    def is_let_go():
        page.clock.run_for(TURN)
        return all(number_in(page, f".slider:nth-child({place}) output") == 0 for place in (1, 2))

    assert plays(page, act) < 20
    finger.lift()
    until(page, is_let_go)


def test_a_hare_is_caught_with_a_gamepad(tmp_path, opens):
    published("chase", tmp_path, policy=zeros(6, 2))
    page = opens(PAD, FLASHES)

    def act(seen):
        size = max(0.1, *map(abs, seen[:2]))
        page.evaluate("(axes) => (window.pad.axes = axes)", [seen[0] / size, -seen[1] / size])

    assert plays(page, act) >= 2
    assert score(page, "the policy here") == 0
    assert page.evaluate("window.flashes") >= 2


@pytest.fixture
def falling(tmp_path):
    """A lander that nobody steers: it falls within four seconds."""
    return published("lander", tmp_path, policy=zeros(6, 2))


@pytest.mark.usefixtures("falling")
def test_the_guest_waits_when_my_episode_has_ended_and_counts_down(opens):
    page = opens()
    take_over(page)
    finish = page.locator(".finish")
    expect(finish).to_be_visible()

    expect(finish).to_contain_text("The episode is over, points: 0, which does not count")
    expect(finish).to_contain_text("The next episode begins in 1 s")
    frame = number_in(page, "#tick")  # which is shown ten times a second
    page.wait_for_timeout(300)
    assert number_in(page, "#tick") == frame
    expect(page.get_by_role("status").filter(has_text="points: 0")).to_have_count(1)
    expect(finish).to_be_hidden()
    until(page, lambda: number_in(page, "#tick") > frame)
    expect(finish).to_be_visible()
    expect(finish.locator("strong")).to_have_text(
        "The episode is over, points: 0: the goal says what counts"
    )


@pytest.mark.usefixtures("falling")
def test_that_a_page_trains_nothing_is_news_and_no_fault(opens):
    page = opens()

    line = page.locator("#log li", has_text="ml__start_training")
    expect(line).to_contain_text("a page trains nothing, like a host without a hive: ")
    expect(line).to_have_class("debug")
    expect(page.locator("#log .warning, #log .error")).to_have_count(0)


@pytest.mark.usefixtures("falling")
def test_nobody_waits_where_nobody_plays(opens):
    page = opens()
    until(page, lambda: score(page, "the policy here") is not None)

    expect(page.locator(".finish")).to_have_count(0)


@pytest.mark.usefixtures("falling")
def test_the_best_of_today_outlives_the_page(opens):
    page = opens()
    take_over(page)
    until(page, lambda: score(page, "your best today") is not None)
    page.reload()
    runs(page)

    until(page, lambda: score(page, "your best today") == 0)
    assert score(page, "your last") is None


@pytest.mark.usefixtures("falling")
def test_sounds_are_off_until_a_person_turns_them_on(opens):
    page = opens(SOUNDS)
    take_over(page)
    expect(page.locator(".finish")).to_be_visible()
    button = page.get_by_role("button", name="Sound is off")

    assert page.evaluate("window.tones") == 0
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".finish")).to_be_hidden()
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sound is on")).to_have_attribute("aria-pressed", "true")
    turned_on = page.evaluate("window.tones")
    expect(page.locator(".finish")).to_be_visible()
    assert page.evaluate("window.tones") > turned_on


def test_texts_of_a_game_are_text(tmp_path, opens):
    spec = json.loads((GUESTS / "c/play_lander.json").read_text())
    [behavior] = spec["behaviors"].values()
    named = {"name": HOSTILE}
    behavior |= {"title": HOSTILE, "goal": HOSTILE, "score": named}
    behavior["targets"][0] |= named
    behavior["actions"]["names"] = [HOSTILE, "engine"]
    published("lander", tmp_path, spec=spec)
    page = opens()

    expect(page.locator("h1")).to_have_text(HOSTILE)
    expect(page.locator("#goal")).to_have_text(HOSTILE)
    expect(page.locator("#score-box h2")).to_have_text(f"Score: {HOSTILE}")
    take_over(page)
    expect(page.locator(".slider .label").first).to_have_text(HOSTILE)
    expect(page.get_by_role("slider", name="engine")).to_be_visible()
    expect(page.locator("img")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_a_game(tmp_path, opens, scheme):
    published("corridor", tmp_path)
    page = opens(**PHONE, color_scheme=scheme)
    take_over(page)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    score_box, plane = (page.locator(name).bounding_box() for name in ("#score-box", "#plane"))
    assert score_box["y"] >= 0
    assert score_box["y"] + score_box["height"] <= plane["y"]
    assert plane["y"] + plane["height"] <= PHONE["viewport"]["height"]


@pytest.mark.usefixtures("falling")
def test_on_a_phone_score_and_countdown_stay_in_view(opens):
    page = opens(**PHONE)
    take_over(page)
    page.evaluate("scrollTo(0, document.getElementById('control-box').offsetTop)")
    finish = page.locator(".finish")
    expect(finish).to_be_visible()

    counted, told = page.locator("#score-box").bounding_box(), finish.bounding_box()
    assert counted["y"] >= 0
    assert counted["y"] + counted["height"] <= told["y"]
    assert told["y"] + told["height"] <= PHONE["viewport"]["height"]


def test_the_plane_stays_where_it_is_when_the_policy_has_a_score(tmp_path, opens):
    published("lander", tmp_path)
    page = opens(viewport={"width": 1_000, "height": 800})
    take_over(page)
    page.evaluate("scrollTo(0, 0)")
    assert score(page, "the policy here") is None
    before = page.locator("#plane").bounding_box()
    until(page, lambda: score(page, "the policy here") is not None)

    assert page.locator("#plane").bounding_box() == before


def test_names_at_the_edge_of_the_plane_are_not_cut_off(tmp_path, opens):
    published("corridor", tmp_path)  # whose runners begin at the edge
    page = opens(CUT, **PHONE)
    take_over(page)
    until(page, lambda: page.evaluate("window.texts") > 100)

    assert page.evaluate("window.cut") == 0


def test_people_in_a_trial_see_the_goal_the_scores_and_how_an_episode_ended(tmp_path, person):
    guest = GUESTS / "c_play_lander.wasm"
    options = ("--policy", GUESTS / "policies/play_lander.onnx", "--tick-rate", 60)
    with playing(guest, tmp_path / "trials", *options) as served:
        ann = person(served.play, "Ann", begins=False)
        ann.sees("#welcome-title", "Play Moon lander")
        ann.sees("#welcome-goal", "Set the craft down on the pad")
        ann.begin()
        ann.plays("lander_0")
        ann.sees("#goal", "Set the craft down on the pad")
        finish = ann.page.locator(".finish")
        expect(finish).to_be_visible()
        tick = ann.page.text_content("#tick")
        expect(finish).to_contain_text("The next episode begins in 1 s")
        assert ann.page.text_content("#tick") == tick
        expect(finish).to_be_hidden()
        ann.waits()
        until(ann.page, lambda: score(ann.page, "your last") == 0)
        until(ann.page, lambda: (score(ann.page, "the policy here") or 0) > 50)


def test_the_page_explains_what_held_means(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        bob = person(served.watch, "Bob", part="watch")
        expect(bob.row("red_0")).to_contain_text("person: Ann")
        expect(bob.page.locator("#away")).to_be_hidden()
        ann.page.evaluate(
            "{ const began = performance.now(); while (performance.now() < began + 1e3); }"
        )

        expect(bob.page.locator("#held")).to_be_visible()
        bob.sees("#held", "no new action came from this player, so the one before was repeated")
