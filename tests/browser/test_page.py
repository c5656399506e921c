"""People play a guest on the page, and what each of them does is in that guest's rows."""

import itertools
import json
import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from tests.browser.proxy import Proxy
from tests.browser.served import (
    GUESTS,
    actions_of,
    assert_rows_have_actions,
    events_of,
    notes_of,
    playing,
    ticks_of,
    trials_of,
)

pytestmark = pytest.mark.browser
PENALTY = -8.0  # for a masked choice; drivers lose 2 at most for their place
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_each_action_of_two_people_is_in_the_rows_of_the_guest(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        bob = person(served.slot("red_1"), "Bob").plays("red_1")
        ann.holds("ArrowRight")
        ann.waits()
        bob.holds("KeyA")
        bob.waits()
        ann.holds("ArrowLeft")
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    assert actions_of(ticks, "red_0", "Ann") == [0.0, 1.0, 0.0, -1.0, 0.0]
    assert actions_of(ticks, "red_1", "Bob") == [0.0, -1.0, 0.0]
    assert_rows_have_actions(ticks, "red_0")
    assert_rows_have_actions(ticks, "red_1")


def test_arrows_drive_the_actor_again_once_a_slider_was_let_go(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        slider = ann.page.locator("#controls input[type=range]")
        box = slider.bounding_box()
        ann.page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
        ann.page.mouse.down()
        ann.waits()
        ann.page.mouse.up()
        ann.waits()
        ann.holds("ArrowLeft")
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)
    rest, slid, *after = actions_of(ticks, "red_0", "Ann")

    assert (rest, 0.5 < slid < 1.0, after) == (0.0, True, [0.0, -1.0, 0.0])


def test_no_key_that_is_pressed_and_released_between_two_ticks_is_lost(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        for _ in range(5):
            ann.page.keyboard.press("ArrowRight")
            ann.waits(3)
        served.end()
        ticks = ticks_of(served.data)

    assert actions_of(ticks, "red_0", "Ann") == [0.0, *[1.0, 0.0] * 5]


def test_a_slider_acts_while_it_is_held_and_then_springs_back(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        box = ann.page.get_by_role("slider").bounding_box()
        middle = box["y"] + box["height"] / 2
        ann.page.mouse.move(box["x"] + box["width"] / 2, middle)
        ann.page.mouse.down()
        ann.page.mouse.move(box["x"] + box["width"], middle)
        ann.waits()
        ann.page.mouse.up()
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    actions = actions_of(ticks, "red_0", "Ann")
    assert max(actions) == 1.0
    assert actions[-1] == 0.0
    assert_rows_have_actions(ticks, "red_0")


def test_choices_are_in_the_rows_and_masked_ones_are_never_made(tmp_path, person):
    guest = GUESTS / "c_choosers.wasm"
    numbers = ("--configure-numbers", "2,2")
    with playing(guest, tmp_path / "trials", *numbers) as served:
        ann = person(served.play, "Ann").plays("driver_0")
        ann.holds("Digit2", "KeyD", ticks=8)
        ann.holds("Digit3", "KeyD", ticks=40)
        ann.page.get_by_role("button", name=re.compile("^1")).click()
        ann.waits(8)
        served.end()
        ticks = ticks_of(served.data)

    chosen = set()
    for before, after in itertools.pairwise(ticks):
        row, following = before.rows["driver_0"], after.rows["driver_0"]
        action, _, origin = before.actions["driver_0"]
        choice = action.choices[0] if action.choices else 0
        made = 0 if choice == 2 and row.allowed[2:] == [False] else choice  # it came late
        if following.agent == row.agent:
            assert following.values[2] == made
        if origin == "Ann":
            chosen.add(choice)
    assert chosen == {0, 1, 2}
    assert min(tick.rewards.get("driver_0", 0.0) for tick in ticks[1:-1]) > PENALTY
    assert ticks[-2].actions["driver_0"].action.choices == [1]


def test_actions_and_choices_are_called_by_their_names(tmp_path, person):
    actions = {
        "continuous": 2, "discrete": [3], "names": ["east", "north", "gear"],
        "choices": [["low", "middle", "<b>high"]],
    }  # fmt: skip
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"behaviors": {"driver": {"actions": actions}}}))
    options = ("--configure-numbers", "2,2", "--spec", spec)
    with playing(GUESTS / "c_choosers.wasm", tmp_path / "trials", *options) as served:
        page = person(served.play, "Ann").plays("driver_0").page

        expect(page.locator(".slider .label")).to_have_text(["east", "north"])
        expect(page.get_by_role("slider", name="north")).to_be_visible()
        buttons = page.get_by_role("group", name="gear").get_by_role("button")
        expect(buttons).to_have_text(["low1", "middle2", "<b>high3"])
        served.end()


def test_an_actor_is_handed_back_and_taken_over_by_another_person(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        bob = person(served.slot("red_0"), "Bob")
        bob.sees("#notice-text", "You cannot play red_0")
        bob.sees("#part", "you watch")
        expect(bob.row("red_0")).to_contain_text("person: Ann")
        ann.page.click("#leave")
        ann.sees("#notice-text", "You handed red_0 back")
        expect(ann.page.locator("#control-box")).to_be_hidden()
        expect(bob.row("red_0")).to_contain_text("default action")
        bob.take("red_0")
        bob.plays("red_0")
        bob.holds("ArrowLeft")
        bob.waits()  # a release that leaves together with him is never played
        expect(ann.row("red_0")).to_contain_text("person: Bob")
        bob.page.click("#leave")
        expect(ann.row("red_0")).to_contain_text("default action")
        ann.page.click("#notice-action")
        ann.plays("red_0")
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    people = [(note, origin) for note, origin in notes_of(ticks, "red_0") if note == "played"]
    assert people == [("played", "Ann"), ("played", "Bob"), ("played", "Ann")]
    assert len(events_of(ticks, "was taken over")) == 3
    assert len(events_of(ticks, "was handed back")) >= 2
    assert actions_of(ticks, "red_0", "Bob") == [0.0, -1.0, 0.0]
    assert_rows_have_actions(ticks, "red_0")


def test_of_two_people_who_take_one_actor_one_gets_it(walkers, person):
    with walkers() as served:
        people = [person(served.watch, name, part="watch") for name in ("Ann", "Bob")]
        for one in people:
            expect(one.row("red_1")).to_contain_text("default action")
        for one in people:
            one.take("red_1", at_once=True)
        for one in people:
            expect(one.page.locator("#notice-text")).to_contain_text(
                re.compile("You play red_1|You cannot play red_1")
            )
        parts = sorted(one.page.inner_text("#part") for one in people)
        served.end()

    assert parts == ["you play red_1", "you watch"]


def test_a_lost_connection_is_resumed_as_the_same_actor(walkers, person):
    with walkers() as served, Proxy(urlsplit(served.play).port) as proxy:
        link = served.play.replace(str(urlsplit(served.play).port), str(proxy.port))
        ann = person(link, "Ann").plays("red_0")
        watcher = person(served.watch, "Wim", part="watch")
        ann.holds("ArrowRight")
        ann.is_cut_off = True
        proxy.drop()
        ann.sees("#notice-text", "is not yours now")
        expect(watcher.row("red_0")).to_contain_text("default action")
        proxy.resume()
        ann.plays("red_0")
        ann.holds("ArrowLeft")
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    assert actions_of(ticks, "red_0", "Ann") == [0.0, 1.0, 0.0, -1.0, 0.0]
    assert [note for note, _ in notes_of(ticks, "red_0")].count("played") == 2
    assert_rows_have_actions(ticks, "red_0")


def test_a_hidden_tab_hands_its_actor_back_and_offers_it_again(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        ann.page.keyboard.down("ArrowRight")
        ann.waits()
        ann.page.evaluate(HIDE, True)
        ann.sees("#part", "you watch")
        ann.page.evaluate(HIDE, False)
        ann.sees("#notice-text", "because you left this tab")
        ann.page.click("#notice-action")
        ann.plays("red_0")
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    assert actions_of(ticks, "red_0", "Ann") == [0.0, 1.0, 0.0]
    assert [note for note, _ in notes_of(ticks, "red_0")].count("played") == 2


def test_lost_focus_releases_all_keys(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        ann.page.keyboard.down("ArrowRight")
        ann.waits()
        ann.looks_away()
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    assert actions_of(ticks, "red_0", "Ann") == [0.0, 1.0, 0.0]


def test_a_page_that_is_closed_hands_its_actor_back(walkers, person):
    with walkers() as served:
        watcher = person(served.watch, "Wim", part="watch")
        ann = person(served.play, "Ann").plays("red_0")
        ann.page.keyboard.down("ArrowRight")
        ann.waits()
        ann.page.close()
        expect(watcher.row("red_0")).to_contain_text("default action")
        watcher.waits()
        served.end()
        ticks = ticks_of(served.data)

    assert notes_of(ticks, "red_0")[-1] == ("default", "")
    assert_rows_have_actions(ticks, "red_0")


@pytest.mark.parametrize(("fault", "reason"), [("3", ""), ("2", "late enough")])
def test_the_next_trial_follows_when_one_has_ended(walkers, person, fault, reason):
    with walkers(numbers=f"2,0,1,{fault},240") as served:
        ann = person(served.play, "Ann").plays("red_0")
        ann.page.evaluate(
            "document.notices = [];"
            "new MutationObserver(() => document.notices.push("
            "  document.getElementById('notice-text').textContent"
            ")).observe(document.getElementById('notice-text'), {childList: true})"
        )
        ann.holds("ArrowRight")
        ann.page.wait_for_function("() => document.notices.some((one) => /has ended/.test(one))")
        ann.page.wait_for_function("() => document.notices.at(-1).startsWith('You play red_0')")
        ann.plays("red_0")
        ann.holds("ArrowLeft")
        ann.waits()
        [ended] = [one for one in ann.page.evaluate("document.notices") if "has ended" in one][:1]
        printed = served.end()
        trials = trials_of(served.data)  # the first may have ended before Ann came
        first, second = (one for one in trials if actions_of(one, "red_0", "Ann"))

    assert reason in ended
    assert reason in printed
    assert len(first) in (240, 241)  # the last submit has no actions
    assert actions_of(first, "red_0", "Ann") == [0.0, 1.0, 0.0]
    assert actions_of(second, "red_0", "Ann") == [0.0, -1.0, 0.0]


def test_a_person_rewards_the_actor_that_is_looked_at(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann").plays("red_0")
        ann.row("red_1").locator(".name").click()
        ann.sees("#looked-title", "red_1 observes")
        ann.page.click("#praise")
        ann.waits()
        ann.page.click("#blame")
        ann.waits()
        served.end()
        ticks = ticks_of(served.data)

    own = [-abs(tick.rows["red_1"].values[0]) for tick in ticks]
    rewards = [tick.rewards.get("red_1") for tick in ticks]
    differing = [value for value, by_guest in zip(rewards, own[1:], strict=False)
                 if value is not None and abs(value - by_guest) > 1e-6]  # fmt: skip
    assert len(differing) == 2


def test_names_are_text_and_links_lose_their_tokens(walkers, person):
    name = "<img src=x onerror=alert(1)> &amp; Łucja"
    with walkers(ARKML_TRIALS_TOKEN="all-of-it") as served:
        assert "all-of-it" not in served.play
        ann = person(served.play, name).plays("red_0")
        wim = person(served.watch, "Wim", part="watch")
        expect(wim.row("red_0")).to_contain_text(f"person: {name}")
        assert "token" in served.watch
        assert "token" not in wim.page.url
        assert "token" not in ann.page.url
        wim.take("red_1")
        wim.sees("#notice-text", "this token is good to watch alone")
        wim.page.reload()
        wim.begin("watch")
        expect(wim.row("red_0")).to_contain_text(f"person: {name}")
        assert wim.page.input_value("#name") == "Wim"
        served.end()


def test_the_dialog_says_what_is_recorded(walkers, person):
    with walkers() as served:
        ann = person(served.play, "Ann", begins=False)
        ann.sees("#recorded", "Recorded: what you observe and do")
        ann.sees("#learning", "Nothing is learned")
    with walkers("--no-record") as served:
        bob = person(served.play, "Bob", begins=False)
        bob.sees("#recorded", "Not recorded")


@pytest.mark.parametrize("width", [320, 390])
def test_nothing_is_cut_off_on_a_narrow_screen(walkers, person, width):
    with walkers() as served:
        ann = person(served.play, "Ann", viewport={"width": width, "height": 700}, has_touch=True)
        ann.plays("red_0")
        widest = ann.page.evaluate("document.documentElement.scrollWidth")
        leave = ann.page.get_by_role("button", name="Hand back")
        leave.tap()
        ann.sees("#part", "you watch")

    assert widest <= width


@pytest.mark.parametrize(
    ("guest", "label"),
    [
        ("c_gallery", "view: an image of 64 by 64 pixels, 3 channels"),
        ("c_minatar_breakout", "screen: a grid of 10 by 10 cells, 4 channels"),
    ],
)
def test_what_an_agent_sees_is_a_picture(guest, label, person, tmp_path):
    module, options = GUESTS / f"{guest}.wasm", ("--configure-numbers", "2,{seed}")
    with playing(module, tmp_path / "trials", *options) as served:
        ann = person(served.play, "Ann").plays(f"{guest.removeprefix('c_')}_0")

        expect(ann.page.get_by_role("img", name=label)).to_be_visible()
        expect(ann.page.locator("#values .bars")).to_have_count(0)
        served.end()


def test_entities_are_a_table_of_those_that_are_there(person, tmp_path):
    options = ("--configure-numbers", "2,{seed}")
    with playing(GUESTS / "c_sorter.wasm", tmp_path / "trials", *options) as served:
        ann = person(served.play, "Ann").plays("sorter_0")
        table = ann.page.get_by_role("table", name=re.compile(r"^tiles: \d+ of 20$"))

        expect(table).to_be_visible()
        count = int(re.search(r"\d+", table.locator("caption").inner_text())[0])
        expect(table.locator("tbody tr:visible")).to_have_count(count)
        served.end()
