"""The page of a published guest: people watch, take over and hand back, and nothing leaves it."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.served import GUESTS
from tests.integration.duel_guest import duel
from tests.integration.guest_text import function, i32, module
from wasmtime import wat2wasm

import arkml
from arkml.policies.constant import zeros

pytestmark = pytest.mark.browser
POINTMASS = GUESTS / "policies/pointmass.onnx"


@pytest.fixture
def applet(tmp_path):
    """A site of eight point masses."""
    return arkml.publish(GUESTS / "c_applet.wasm", POINTMASS, tmp_path / "site", license="MIT")


def number_in(page, selector):
    """The number that an element shows, 0 for none."""
    try:
        return float(page.locator(selector).first.text_content())
    except ValueError:
        return 0.0


def until(page, holds):
    """Wait until a condition holds; the policy of the page keeps Playwright from waiting there."""
    for _ in range(600):
        if holds():
            return
        page.wait_for_timeout(50)
    pytest.fail("it never holds")


def runs(page, frames=5):
    until(page, lambda: number_in(page, "#tick") >= frames)
    return page


@pytest.mark.usefixtures("applet")
def test_a_person_takes_an_agent_over_and_hands_it_back(served, visited):
    page = runs(visited(f"{served}/site/index.html"))
    row = page.locator("#actors tr", has_text="agent 2")

    expect(page.locator("#part")).to_have_text("you watch")
    expect(row).to_contain_text("policy: pointmass")
    row.get_by_role("button", name="Take over").click()
    expect(page.locator("#part")).to_have_text("you play agent 2")
    expect(row).to_contain_text("person: you")
    page.keyboard.down("ArrowRight")
    expect(page.locator("#controls output")).to_have_text("1.00")
    # A force of one drives the mass beyond what the policy, which brings it back, lets it reach.
    until(page, lambda: number_in(page, "#values output") > 1.5)
    page.keyboard.up("ArrowRight")
    page.get_by_role("button", name="Hand back").click()
    expect(page.locator("#part")).to_have_text("you watch")
    expect(page.locator("#notice")).to_contain_text("You handed agent 2 back")
    until(page, lambda: abs(number_in(page, "#values output")) < 0.5)


def test_each_behavior_is_played_by_its_policy_and_a_person_may_play_either(
    tmp_path, served, visited
):
    for name, features in (("strong", 2), ("weak", 3)):
        (tmp_path / f"{name}.onnx").write_bytes(zeros(features, 1))
    arkml.publish(
        wat2wasm(duel("left", "right", rivals=True)), tmp_path / "strong.onnx", tmp_path / "site",
        others={"right": tmp_path / "weak.onnx"}, episodes=0,
    )  # fmt: skip
    page = runs(visited(f"{served}/site/index.html"))
    left = page.locator("#actors tr", has_text="left")
    right = page.locator("#actors tr", has_text="right")

    expect(left).to_contain_text("policy: strong")
    expect(right).to_contain_text("policy: weak")
    right.get_by_role("button", name="Take over").click()
    expect(right).to_contain_text("person: you")
    expect(left).to_contain_text("policy: strong")


@pytest.mark.usefixtures("applet")
def test_two_tabs_play_by_themselves(served, visited):
    pages = [runs(visited(f"{served}/site/index.html")) for _ in range(2)]
    pages[0].locator("#actors tr", has_text="agent 1").get_by_role("button").last.click()

    expect(pages[0].locator("#part")).to_have_text("you play agent 1")
    expect(pages[1].locator("#part")).to_have_text("you watch")


def test_a_page_from_a_disk_plays_as_well(applet, visited):
    runs(visited((applet.folder / "index.html").as_uri()))


@pytest.mark.usefixtures("applet")
def test_a_page_plays_in_a_frame_and_without_a_network(served, visited, tmp_path):
    (tmp_path / "blog.html").write_text(
        '<!doctype html><link rel="icon" href="data:,"><iframe src="site/index.html" title="game"'
        ' width="700" height="600"></iframe>'
    )
    page = visited(f"{served}/blog.html")
    tick = page.frame_locator("iframe").locator("#tick")

    expect(tick).to_have_text(re.compile(r"\d+"))
    page.context.set_offline(True)
    before = tick.text_content()
    expect(tick).not_to_have_text(before)


@pytest.mark.usefixtures("applet")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it(served, visited, scheme):
    options = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = runs(visited(f"{served}/site/index.html", color_scheme=scheme, **options))
    page.locator("#actors tr", has_text="agent 0").get_by_role("button", name="Take over").tap()
    slider = page.get_by_role("slider", name="Action 0")

    expect(slider).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert color == ("rgb(244, 245, 247)" if scheme == "light" else "rgb(20, 23, 27)")


@pytest.mark.usefixtures("applet")
def test_screen_readers_get_names_and_news(served, visited):
    page = runs(visited(f"{served}/site/index.html"))

    expect(page.get_by_role("heading", name="c_applet")).to_be_visible()
    expect(page.locator("[role=status]#notice")).to_contain_text("You watch.")
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_role("region", name="Agents", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="agent 0 observes")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on")).to_have_attribute("aria-pressed", "true")


def test_altered_weights_are_refused(applet, served, visited):
    path = applet.folder / "policy.wasm"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    page = visited(f"{served}/site/index.html")

    expect(page.locator("#notice")).to_contain_text("policy.wasm was altered on its way here")


ML = "ark-ml-v1.ml__"
SPEC = (
    b'{"observations":[{"name":"height","shape":[1],"low":0,"high":9}],"actions":{"continuous":1}}'
)
CLIMBER = module(
    "(global $frame (mut i32) (i32.const 0))",
    function(
        "ark_initialize",
        f"""(drop (call ${ML}start_inference {i32(1)} {i32(1)} {i32(0)} {i32(0)} {i32(0)} {i32(8)}))
        """,
    ),
    function(
        "ark_applet_update",
        f"""(global.set $frame (i32.add (global.get $frame) {i32(1)}))
        (if (i32.eq (global.get $frame) {i32(240)}) (then unreachable))
        (f32.store {i32(16)} (call $height (f32.convert_i32_u (global.get $frame)) {i32(24)}))
        (drop (call ${ML}push_inference_observation (i64.load {i32(8)}) (i64.const 1)
          (select {i32(3)} {i32(0)} (i32.eq (global.get $frame) {i32(1)})) (f32.const 1)
          {i32(16)} {i32(1)} (f32.const 0)))
        (drop (call ${ML}submit_inference_observations (i64.load {i32(8)})
          {i32(20)} {i32(1)} {i32(32)} {i32(1)}))""",
    ),
    uses=[f"{ML}{name}" for name in (
        "start_inference", "push_inference_observation", "submit_inference_observations"
    )],
    imports=['(import "game" "height" (func $height (param f32 i32) (result f32)))'],
)  # fmt: skip
GAME = """
export default (memory) => ({
  game: {
    height: (frame, pointer) => {
      memory.write(pointer, new Uint8Array([7]));
      return memory.read(pointer, 1)[0] + Math.sin(frame / 30);
    },
  },
});
"""


@pytest.fixture
def climber(tmp_path):
    """A site of a guest that asks its game for a height, and traps after four seconds."""
    name, guest = b"arkml.spec", wat2wasm(CLIMBER.decode())
    content = bytes([len(name)]) + name + SPEC
    (tmp_path / "climber.wasm").write_bytes(bytes(guest) + bytes([0, len(content)]) + content)
    (tmp_path / "my.js").write_text(GAME)
    options = {"imports": tmp_path / "my.js", "title": "A climber"}
    return arkml.publish(tmp_path / "climber.wasm", zeros(1, 1), tmp_path / "site", **options)


@pytest.mark.usefixtures("climber")
def test_a_guest_asks_a_module_of_its_author(served, visited):
    page = runs(visited(f"{served}/site/index.html"))

    expect(page.get_by_role("heading", name="A climber")).to_be_visible()
    until(page, lambda: number_in(page, "#values output") > 7)


@pytest.mark.usefixtures("climber")
def test_a_guest_that_traps_is_told_with_its_place_and_starts_again(served, visited):
    page = visited(f"{served}/site/index.html")

    expect(page.locator("#notice")).to_contain_text("The guest has failed: ark_applet_update")
    expect(page.locator("#notice")).to_contain_text("at 0x")
    page.locator("#notice").get_by_role("button", name="Start again").click()
    expect(page.locator("#notice")).to_contain_text("You watch.")


def test_a_replay_is_scrolled_through(tmp_path, served, visited):
    trace = tmp_path / "applet.trace"
    with arkml.Host(policy=POINTMASS, trace=trace) as host:
        guest = host.load(GUESTS / "c_applet.wasm")
        guest.initialize()
        for _ in range(20):
            guest.update()
    arkml.publish(GUESTS / "c_applet.wasm", None, tmp_path / "site", replay=trace)
    page = visited(f"{served}/site/index.html")

    expect(page.locator(".present strong")).to_contain_text("frame")
    page.keyboard.press("End")
    expect(page.locator(".present strong")).to_contain_text("of 2")
