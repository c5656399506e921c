"""People compare many runs: legends, filters, groups, columns, charts over settings."""

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.browser.hives import serving
from tests.browser.many_runs import GAMMAS, make_runs, ten_gammas
from tests.browser.people import live, saved
from tests.waiting import eventually

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror=alert(1)><b>b</b>\u202e%{y}"=1'
LOOKS = """(name) => {
  const plot = document.querySelector(`figure[data-metric="${CSS.escape(name)}"] .plot`);
  return (plot?.data ?? []).filter((one) => one.mode === "lines" && one.line.width > 0)
    .map((one) => [one.name, one.line.color, one.line.dash.join(), one.line.width]);
}"""
MEAN = "rollout/ep_rew_mean"


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    """A hive with 33 runs of ten gammas, and two of another game with hostile names."""
    data = tmp_path_factory.mktemp("many") / "hive"
    others = [
        {"name": HOSTILE, "game": HOSTILE, "height": 7.0, "other": {HOSTILE: HOSTILE}},
        {"name": "walk", "game": "walk", "height": 8.0},
    ]
    runs = make_runs(data, [*ten_gammas(), *others], points=100)
    with serving(data) as hive:
        hive.many, hive.others = runs[:33], runs[33:]
        yield hive


def overlay(hive, looks, more="", **options):
    return live(looks(f"{hive.link}#runs={','.join(hive.many)}{more}", **options))


def drawn(person, name, count):
    """The lines of a chart once it has `count`: it is drawn with the curves that are there."""
    chart = person.page.locator(f"figure[data-metric={json.dumps(name)}]")
    chart.scroll_into_view_if_needed()
    return eventually(
        lambda: found if len(found := person.page.evaluate(LOOKS, name)) == count else None
    )


def rows_of(person):
    return person.page.locator("table.runs tr[data-run]")


def test_the_legend_of_33_runs_names_their_gammas_and_charts_look_as_it_says(hive, looks):
    ann = overlay(hive, looks)
    entries = ann.page.locator(".legend li")
    seeds = ["0, 1, 2, 3"] * 3 + ["0, 1, 2"] * 7
    pairs = zip(GAMMAS, seeds, strict=True)
    texts = [f"gamma {gamma}, {len(of.split(','))} seeds: {of}" for gamma, of in pairs]
    expect(entries).to_have_text(texts)
    lines = drawn(ann, MEAN, 10)
    strokes = ann.page.eval_on_selector_all(
        ".legend line", "all => all.map((one) => one.getAttribute('stroke'))"
    )

    assert [line[0] for line in lines] == [text.split(":")[0] for text in entries.all_inner_texts()]
    assert [line[1] for line in lines] == strokes
    assert len({tuple(line[1:]) for line in lines}) == 10
    assert len({line[1] for line in lines}) == 8


def test_groups_are_chosen_by_keyboard_and_lie_in_the_address(hive, looks):
    ann = overlay(hive, looks)
    entries = ann.page.locator(".legend li")
    ann.page.keyboard.press("b")
    expect(entries).to_have_count(33)
    expect(entries.first).to_have_text("gamma 0.8, seed 0")
    expect(ann.page).to_have_url(re.compile("group=none"))
    ann.page.keyboard.press("g")
    expect(ann.page.locator("#group")).to_be_focused()
    ann.page.keyboard.type("game")
    expect(entries).to_have_text(["corridor, 33 runs: 0, 1, 2, 3"])
    bob = live(looks(ann.page.url))
    expect(bob.page.locator(".legend li")).to_have_count(1)
    bob.page.select_option("#group", "setting:gamma")
    expect(bob.page.locator(".legend li")).to_have_count(10)


def test_a_search_compares_and_says_what_is_wrong(hive, looks):
    ann = live(looks(hive.link))
    expect(rows_of(ann)).to_have_count(35)
    trouble = ann.page.locator("#filter-trouble")
    ann.page.keyboard.press("/")
    ann.page.keyboard.type("evaluation>850 gamma=0.99..0.995")
    expect(rows_of(ann)).to_have_count(6)
    expect(trouble).to_be_hidden()
    ann.page.keyboard.type(" gama=1")
    expect(trouble).to_contain_text('there is no "gama" to compare')
    expect(rows_of(ann)).to_have_count(0)
    bob = live(looks(f"{hive.link}#q={'x' * 10_000}&sort=<b>&group=setting:<b>&column=<b>&pin=["))
    expect(bob.page.locator("#filter-trouble")).to_have_text("a search takes 500 letters at most")


def test_groups_of_the_table_have_headings_and_boxes(hive, looks):
    ann = live(looks(f"{hive.link}#q=game:corridor"))
    ann.page.select_option("#group", "setting:gamma")
    headings = ann.page.locator("tr.group th")
    expect(headings).to_have_count(10)
    expect(headings.nth(1)).to_have_text("gamma 0.85, 4 seedsmedian return 200, best 200")
    box = ann.page.get_by_label("choose gamma 0.85, 4 seeds")
    box.focus()
    ann.page.keyboard.press("Space")
    expect(ann.page.locator("tr[data-run] input:checked")).to_have_count(4)
    ann.page.click("#compare")
    expect(ann.page.locator("h1")).to_have_text("4 runs of corridor")


def test_columns_are_chosen_and_a_view_is_saved_under_a_name(hive, looks):
    ann = live(looks(hive.link))
    expect(rows_of(ann)).to_have_count(35)
    ann.page.locator("#columns").focus()
    ann.page.keyboard.press("Enter")
    dialog = ann.page.get_by_role("dialog", name="Columns")
    dialog.get_by_label("Search columns").fill("train/n_up")
    dialog.get_by_label("train/n_updates").check()
    dialog.get_by_label("Search columns").fill("")
    dialog.get_by_label("started").uncheck()
    dialog.get_by_role("button", name="Show").click()
    heads = ann.page.locator("table.runs thead .sort")
    expect(heads.last).to_have_text("train/n_updates")
    expect(ann.page.locator('[data-sort="started_at"]')).to_have_count(0)
    expect(ann.page.locator('[data-column="metric:train/n_updates"]').first).to_have_text("12.5k")
    heads.last.click()
    expect(ann.page).to_have_url(re.compile("sort=-metric"))
    bob = live(looks(ann.page.url))
    expect(bob.page.locator("table.runs thead .sort").last).to_have_text("train/n_updates ▼")
    ann.page.click("#views")
    views = ann.page.get_by_role("dialog", name="Saved views")
    views.get_by_label("Name of the view").fill(HOSTILE)
    ann.page.keyboard.press("Enter")
    expect(views.locator("li button").first).to_contain_text("<img src=x")
    views.get_by_role("button", name="Close").click()
    ann.page.goto(f"{hive.link}#")
    expect(ann.page.locator('[data-sort="started_at"]')).to_have_count(1)
    ann.page.click("#views")
    views.locator("li button").first.click()
    expect(ann.page.locator('[data-sort="started_at"]')).to_have_count(0)
    ann.page.click("#views")
    views.get_by_role("button", name="delete").click()
    expect(views).to_contain_text("None is saved yet")


def test_titles_tags_and_stars_are_columns(hive, looks):
    """The hive's answers are changed on their way: another part of it keeps these labels."""
    ann = looks("about:blank")
    labels = {hive.many[0]: {"title": "<b>Best</b>", "tags": ["good", "<i>"], "starred": False}}
    asked = []

    def listed(route):
        runs = route.fetch().json()["runs"]
        route.fulfill(json={"runs": [run | labels.get(run["id"], {}) for run in runs]})

    def patched(route):
        if route.request.method != "PATCH":
            route.fallback()
            return
        asked.append(route.request.post_data_json)
        route.fulfill(json={})

    ann.page.route("**/v1/runs", listed)
    ann.page.route(f"**/v1/runs/{hive.many[0]}", patched)
    ann.page.goto(f"{hive.link}#q=tag:good")
    expect(rows_of(live(ann))).to_have_count(1)
    expect(ann.page.locator("td.name")).to_have_text("<b>Best</b>")
    expect(ann.page.locator("td.tags .pill")).to_have_text(["good", "<i>"])
    star = ann.page.get_by_label("star <b>Best</b>")
    star.focus()
    ann.page.keyboard.press("Enter")
    expect(star).to_have_attribute("aria-pressed", "true")
    assert asked == [{"starred": True}]


def test_returns_are_drawn_against_a_setting_and_ranges_leave_runs_out(hive, looks):
    ann = overlay(hive, looks)
    ann.page.locator("[data-section=sweep] summary").press("Enter")
    expect(ann.page.locator(".scatter circle")).to_have_count(33)
    middle = ann.page.locator(".scatter .medians").get_attribute("points")
    assert len(middle.split()) == 10
    expect(ann.page.locator(".parallel .within")).to_have_count(33)
    ann.page.get_by_label("lowest gamma").press_sequentially("0.98")
    ann.page.keyboard.press("Tab")
    expect(ann.page.locator(".parallel .within")).to_have_count(12)
    expect(ann.page.get_by_label("highest gamma")).to_be_focused()
    expect(ann.page.locator(".scatter circle")).to_have_count(12)
    expect(ann.page).to_have_url(re.compile("brush=0.98..:gamma|brush=0.98..%3Agamma"))
    bar = ann.page.locator("[data-section=sweep] .toolbar")
    _, content = saved(ann.page, bar.get_by_role("button", name="CSV"))
    header, *lines = content.decode().splitlines()
    assert header == "run,id,seed,gamma,best evaluation"
    assert len(lines) == 33
    assert any(line.endswith("0,0.8,100") for line in lines)
    ann.page.get_by_role("button", name="Lay these 12 runs over each other").click()
    expect(ann.page.locator(".legend li")).to_have_count(4)


def test_an_axis_is_brushed_by_dragging(hive, looks):
    ann = overlay(hive, looks, "&against=gamma&of=evaluation")
    axis = ann.page.locator(".parallel .axis").last
    axis.scroll_into_view_if_needed()
    box = axis.bounding_box()
    ann.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 1)
    ann.page.mouse.down()
    ann.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    ann.page.mouse.up()
    expect(ann.page.locator(".parallel .within")).to_have_count(15)


def test_charts_are_pinned_and_made_of_several_metrics(hive, looks):
    ann = overlay(hive, looks)
    chart = ann.page.locator('figure[data-metric="train/entropy"]')
    chart.get_by_role("button", name="Pin").press("Enter")
    expect(ann.page.locator(".section").first).to_have_attribute("data-section", "pinned")
    expect(ann.page.locator("[data-section=pinned] figure")).to_have_count(1)
    expect(chart.get_by_role("button", name="Pin")).to_have_attribute("aria-pressed", "true")
    ann.page.click("#add-chart")
    dialog = ann.page.get_by_role("dialog", name="Metrics of one chart")
    dialog.get_by_role("button", name="Show").click()
    expect(dialog).to_contain_text("choose one at least")
    dialog.get_by_label("train/actor_loss").check()
    dialog.get_by_label("train/critic_loss").check()
    dialog.get_by_role("button", name="Show").click()
    name = 'chart/["train/actor_loss","train/critic_loss"]'
    lines = drawn(ann, name, 20)
    assert len({tuple(line[1:]) for line in lines}) == 20
    bob = live(looks(ann.page.url))
    expect(bob.page.locator("[data-section=pinned] figure")).to_have_count(1)
    drawn(bob, name, 20)
    added = bob.page.locator("[data-section=added] figure")
    added.get_by_role("button", name="Remove").click()
    expect(added).to_have_count(0)
    bob.page.locator("[data-section=pinned]").get_by_role("button", name="Pin").click()
    expect(bob.page.locator("[data-section=pinned]")).to_have_count(0)


def test_events_are_left_out_by_their_kind(hive, looks):
    ann = live(looks(f"{hive.link}#runs={','.join(hive.many[:3])}"))
    kinds = ann.page.locator(".kinds label")
    events = ann.page.locator(".events .kind")
    expect(kinds.filter(has_text="stopped")).to_have_text("stopped 3")
    expect(events.first).to_be_visible()
    before = events.count()
    box = kinds.filter(has_text="stopped").locator("input")
    box.focus()
    ann.page.keyboard.press("Space")
    expect(events).to_have_count(before - 3)
    expect(ann.page).to_have_url(re.compile("hide=stopped"))
    bob = live(looks(ann.page.url))
    expect(bob.page.locator(".events .kind")).to_have_count(before - 3)
    expect(bob.page.locator(".kinds input:checked")).to_have_count(kinds.count() - 1)


def test_markup_in_names_and_settings_of_others_is_only_text(hive, looks):
    shown = HOSTILE.replace("\u202e", "\\u202e")
    setting = quote(f"setting:other.{HOSTILE}", safe="")
    link = f"{hive.link}#runs={','.join(hive.others)}&group={setting}&against={setting}"
    ann = live(looks(link))
    expect(ann.page.locator(".legend")).to_contain_text(shown)
    expect(ann.page.locator(".scatter")).to_contain_text("<img src=x")
    drawn(ann, MEAN, 2)
    ann.page.goto(f"{hive.link}#group={setting}")
    expect(ann.page.locator("tr.group").first).to_be_visible()
    ann.page.click("#columns")
    expect(ann.page.get_by_role("dialog")).to_contain_text(shown)
    assert ann.page.locator("img, b, i").count() == 0


@pytest.mark.parametrize("view", ["#group=setting:gamma&against=gamma", "#runs={}&against=gamma"])
def test_a_narrow_screen_is_not_too_narrow_for_a_comparison(hive, looks, view):
    link = hive.link + view.format(",".join(hive.many))
    ann = live(looks(link, viewport={"width": 360, "height": 640}))
    expect(ann.page.locator(".scatter circle").first).to_be_attached()

    assert ann.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
