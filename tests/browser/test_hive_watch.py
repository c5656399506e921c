"""People watch versions of a run on its page: side by side, recorded, and by keyboard alone."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.hives import serving, training
from tests.browser.people import live
from tests.integration.command_line import GUESTS
from tests.integration.watched_runs import watched_hive, with_section
from tests.waiting import eventually

pytestmark = pytest.mark.browser

SPEC = {
    "behaviors": {
        "reach": {
            "observations": [{"name": "target", "shape": [2]}, {"name": "speed", "shape": [2]}],
            "positions": [0, 1],
        }
    }
}
WATCHES = re.compile(r"watches version (\d+)$")
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
INK = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture
def hive(tmp_path):
    with watched_hive(tmp_path) as made:
        yield made


@pytest.fixture
def reach(hive):
    """A run of a guest with positions, whose second version of three is the best."""
    run = hive.train("c_reach", versions=3)
    module = with_section((GUESTS / "c_reach.wasm").read_bytes(), SPEC)
    hive.keep(run, module, behavior="reach").raise_for_status()
    rated = {"version": 2, "returns": [5.0], "lengths": [5]}
    hive.post(f"/runs/{run}/evaluations", rated).raise_for_status()
    return run


def watching(looks, hive, run):
    """One who looks at the panel of a run."""
    address = hive.hive.page_link.replace("#", f"#runs={run}&")
    ann = live(looks(address))
    section = ann.page.locator("[data-section=watch]")
    section.scroll_into_view_if_needed()
    return ann, section


def frame_of(stage):
    return int(stage.get_attribute("data-frame") or 0)


def test_best_and_latest_play_side_by_side_until_nobody_looks(hive, reach, looks):
    ann, section = watching(looks, hive, reach)
    section.get_by_label("Watch version").select_option("best")
    section.get_by_label("beside").select_option("latest")
    section.get_by_role("button", name="Watch", exact=True).click()
    stages = section.locator(".stage")
    expect(stages).to_have_count(2)
    titles = stages.locator("h3").filter(has_text="Version")
    expect(titles).to_have_text(["Version 2", "Version 3"])
    for stage in stages.all():
        eventually(lambda: frame_of(stage) > 10)  # noqa: B023
        assert stage.locator("canvas.plane").evaluate(INK) > 10
        expect(stage.get_by_text("target 0")).to_be_visible()
        expect(stage.get_by_text("action 1")).to_be_visible()
        expect(stage.get_by_text("This policy gives no values.")).to_be_visible()
    name = stages.first.locator("tbody button").nth(3).element_handle()
    before = frame_of(stages.first)
    eventually(lambda: frame_of(stages.first) > before + 30)
    assert name.evaluate("(one) => one.isConnected")  # or a press on it would be lost
    name.click()
    expect(stages.first.locator("tr.looked")).to_have_count(1)

    ann.page.evaluate(HIDE, True)
    expect(stages).to_have_count(0)
    ann.page.evaluate(HIDE, False)
    expect(stages).to_have_count(2)
    section.get_by_role("button", name="Stop watching").click()
    expect(stages).to_have_count(0)


def test_a_version_is_chosen_on_the_strip_by_keys_and_by_click(hive, reach, looks):
    ann, section = watching(looks, hive, reach)
    choice = section.get_by_label("Watch version")
    slider = section.get_by_label("kept version")
    choice.select_option("1")
    expect(slider).to_have_attribute("aria-valuetext", "version 1")
    slider.focus()
    ann.page.keyboard.press("ArrowRight")
    expect(choice).to_have_value("2")
    ann.page.keyboard.press("End")
    expect(choice).to_have_value("3")
    section.locator(".strip svg").click(position={"x": 1, "y": 20})

    expect(choice).to_have_value("1")
    expect(section.get_by_role("button", name="Worst")).to_be_disabled()
    for number, score in ((1, -3.0), (2, 5.0)):
        body = {"version": number, "returns": [score], "lengths": [9]}
        hive.post(f"/runs/{reach}/evaluations", body).raise_for_status()
    section.get_by_role("button", name="Worst").click(timeout=60_000)  # at the next look
    expect(section.locator(".stage h3").filter(has_text="Version")).to_have_text(["Version 1"])
    section.get_by_role("button", name="Latest", exact=True).click()
    expect(section.locator(".stage h3").filter(has_text="Version")).to_have_text(["Version 3"])
    section.get_by_role("button", name="Before and after").focus()
    ann.page.keyboard.press("Enter")
    expect(section.locator(".stage h3").filter(has_text="Version")).to_have_text(
        ["Version 1", "Version 3"]
    )


def test_a_version_is_watched_from_the_chart_of_returns(looks, tmp_path):
    options = ("--frames", 900, "--eval-every", 200, "--evaluate-episodes", 2, "--keep-module")
    with serving(tmp_path / "hive") as hive:
        with training(hive, tmp_path / "out", *options, guest="c_cartpole") as trained:
            assert trained.wait() == 0, trained.said
        run = hive.the_run()
        kept = [one["version"] for one in hive.get(f"/runs/{run}/versions")["versions"]]
        ann = live(looks(f"{hive.link}#runs={run}"))
        one = ann.page.locator("figure[data-metric='rollout/ep_rew_mean']")
        values = one.get_by_role("slider")
        watched = ann.page.locator("[data-section=watch] .stage h3").filter(has_text="Version")
        named = []
        for key in ("End", "Home"):
            values.press(key)
            expect(values).to_have_attribute("aria-valuetext", WATCHES)
            named.append(int(WATCHES.search(values.get_attribute("aria-valuetext"))[1]))
            values.press("Enter")
            expect(watched).to_have_text(f"Version {named[-1]:,}")
        area = one.locator(".u-over")
        size = area.bounding_box()
        area.click(position={"x": size["width"] - 2, "y": size["height"] - 4})
        expect(watched).to_have_text(re.compile(rf"^Version (?!{named[-1]:,}$)"))
        clicked = watched.inner_text()
        area.click(position={"x": 2, "y": 20})  # not at the axis
        expect(one.locator(".reading")).to_contain_text("watches version")

        assert {*named, int(re.sub(r"\D", "", clicked))} <= set(kept)
        assert named[0] > named[1]
        expect(watched).to_have_text(clicked)


def test_an_episode_is_recorded_and_opens_below(hive, reach, looks):
    ann, section = watching(looks, hive, reach)
    section.get_by_label("Watch version").select_option("3")
    section.get_by_role("button", name="Record an episode").click()
    replays = ann.page.locator("[data-section=replays]")

    expect(replays.get_by_text("Version 3, a return of")).to_be_visible(timeout=120_000)
    expect(replays.get_by_role("button", name="recorded 3")).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(replays.locator(".present strong")).to_contain_text("frame 1 of")


def test_a_version_that_is_not_kept_any_more_plays_on_and_the_page_says_so(hive, reach, looks):
    _, section = watching(looks, hive, reach)
    section.get_by_label("Watch version").select_option("1")
    section.get_by_role("button", name="Watch", exact=True).click()
    stage = section.locator(".stage")
    eventually(lambda: frame_of(stage) > 0)
    hive.published(reach, 1).unlink()

    expect(stage.get_by_text("does not keep this version any more")).to_be_visible(timeout=60_000)
    before = frame_of(stage)
    eventually(lambda: frame_of(stage) > before)


def test_a_guest_that_traps_is_shown_with_the_place(hive, looks):
    from wasmtime import wat2wasm

    run = hive.train()
    text = """(module (memory (export "memory") 1)
      (func $sink unreachable) (func (export "ark_applet_update") (call $sink)))"""
    hive.keep(run, bytes(wat2wasm(text))).raise_for_status()
    _, section = watching(looks, hive, run)
    section.get_by_role("button", name="Watch", exact=True).click()

    expect(section.locator(".stage .trouble")).to_contain_text("unreachable", timeout=60_000)
    expect(section.locator(".stage .calls")).to_contain_text("sink (guest")
    expect(section.get_by_role("button", name="Watch again")).to_be_visible()


def test_a_run_without_a_guest_says_how_to_keep_one(hive, looks):
    _, section = watching(looks, hive, hive.train())

    expect(section.get_by_text("arkml train --keep-module")).to_be_visible()
    expect(section.get_by_role("button")).to_have_count(0)
