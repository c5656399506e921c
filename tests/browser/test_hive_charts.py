"""People read the charts of a hive's page: by keyboard, as a table, on a phone, in a report."""

import io
import math
import re
from contextlib import closing

import pytest
from PIL import Image
from playwright.sync_api import expect
from tests.browser.hives import arkml, serving
from tests.browser.people import live, saved
from tests.integration.hive_service import Service, request

from arkml.hive.protocol.reports import SECOND
from arkml.server.metrics_store import MetricsStore

pytestmark = pytest.mark.browser

BEGAN = 1_700_000_000 * SECOND
RETURN = "rollout/ep_rew_mean"
POINTS = [(200 * step, -1310.0 + 50 * step) for step in range(1, 25)]
EXTREME = {
    "huge": [1e300, 2e300], "span": [-1.7e308, 1.7e308], "tiny": [1e-300, 3e-300],
    "close": [1e20, 1e20 + 65_536], "zero": [0.0, 0.0], "below": [-1.0, -2.0],
    "smallest": [5e-324, 1e-323], "wide": [1e-40, 1e38],
}  # fmt: skip


def written(data, curves, **settings):
    """A run of a hive that is down, with curves [(rows, value)] by their names; its id."""
    with serving(data) as hive:
        service = Service.__new__(Service)
        service.http, service.hive = hive.http, None
        run = service.post("/runs", request(settings=settings)).json()["run"]["id"]
    with closing(MetricsStore(data / "runs" / run)) as store:
        for name, points in curves.items():
            store.add(
                (BEGAN + at * SECOND, [(name, rows, value)])
                for at, (rows, value) in enumerate(points)
            )
    return run


def chart(person, name):
    one = person.page.locator(f'figure[data-metric="{name}"]')
    one.scroll_into_view_if_needed()
    expect(one.locator("canvas")).to_be_visible()
    return one


def test_a_chart_is_read_and_zoomed_by_keys(looks, tmp_path):
    run = written(tmp_path / "hive", {RETURN: POINTS})
    with serving(tmp_path / "hive") as hive:
        ann = live(looks(f"{hive.link}#runs={run}"))
        one = chart(ann, RETURN)
        expect(one).to_have_accessible_name("Return of training")
        expect(one).to_have_accessible_description(
            "Mean return of the last 100 training episodes. Higher is better. Return of training:"
            " from -1,260 at 200 rows to -110 at 4,800 rows, best -110 at 4,800 rows."
        )
        expect(one.locator(".title")).to_have_attribute("title", re.compile("Higher is better"))
        values = one.get_by_role("slider", name="values of Return of training")
        for key, text in (
            ("Home", "200 rows: -1,260"), ("ArrowRight", "400 rows: -1,210"),
            ("PageDown", "2,400 rows: -710"), ("ArrowLeft", "2,200 rows: -760"),
            ("End", "4,800 rows: -110"), ("ArrowRight", "4,800 rows: -110"),
        ):  # fmt: skip
            values.press(key)
            expect(values).to_have_attribute("aria-valuetext", text)
        expect(one.locator(".reading b")).to_have_text("-110")
        values.press("+")
        expect(ann.page).to_have_url(re.compile(r"zoom=2500\b.*4800"))
        values.press("-")
        values.press("-")
        expect(ann.page).not_to_have_url(re.compile("zoom="))


def test_the_numbers_of_a_chart_are_a_table(looks, tmp_path):
    run = written(tmp_path / "hive", {RETURN: POINTS, "train/loss": [(n, n) for n in range(999)]})
    with serving(tmp_path / "hive") as hive:
        ann = live(looks(f"{hive.link}#runs={run}"))
        one = chart(ann, RETURN)
        turn = one.get_by_role("button", name="table of Return of training")
        turn.press("Enter")
        expect(one.locator("tbody tr")).to_have_count(len(POINTS))
        first = one.locator("tbody tr").first.locator("td").all_text_contents()
        expect(one.locator("canvas")).to_be_hidden()
        expect(turn).to_have_attribute("aria-pressed", "true")
        turn.press("Enter")
        expect(one.locator("canvas")).to_be_visible()
        many = chart(ann, "train/loss")
        many.get_by_role("button", name="table of Loss").press("Enter")
        expect(many.locator("tbody tr")).to_have_count(60)
        expect(many.locator(".numbers p")).to_have_text("939 more: see its CSV.")

    assert first == ["200 rows", "-1,260"]


def test_the_return_is_on_the_first_screen_of_a_phone(looks, tmp_path):
    run = written(tmp_path / "hive", {RETURN: POINTS})
    with serving(tmp_path / "hive") as hive:
        ann = live(looks(f"{hive.link}#runs={run}", viewport={"width": 375, "height": 667}))
        one = ann.page.locator(f'figure[data-metric="{RETURN}"]')
        expect(one.locator("canvas")).to_be_visible()
        box = one.bounding_box()
        expect(ann.page.locator(".figures")).to_be_hidden()
        brief = ann.page.locator(".facts > summary")
        expect(brief).to_have_text(re.compile("^mean return -110 .* rows 0$"))
        brief.click()
        expect(ann.page.locator('[data-figure="version"]')).to_be_visible()
        sideways = ann.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    assert box["y"] + box["height"] <= 667
    assert sideways <= 0  # Firefox has scroll bars here, which the width of the window counts


def test_a_picture_has_the_chart_and_the_names_of_its_lines(looks, tmp_path):
    data = tmp_path / "hive"
    runs = [written(data, {RETURN: POINTS}, seed=seed) for seed in (1, 2)]
    with serving(data) as hive:
        ann = live(looks(f"{hive.link}#runs={','.join(runs)}&band=0", color_scheme="light"))
        one = chart(ann, RETURN)
        # It is drawn with the curves that are there: the other run's may come later.
        expect(one).to_have_accessible_description(re.compile(" from -1,260 .* from -1,260 "))
        one.hover()
        button = one.get_by_role("button", name="PNG of Return of training")
        _, content = saved(ann.page, button)
        image = Image.open(io.BytesIO(content)).convert("RGB")

    colors = {color for _, color in image.getcolors(1 << 16)}
    assert image.size == (1_000, 530)
    assert {(255, 255, 255), (31, 111, 196), (196, 81, 31)} <= colors


@pytest.mark.parametrize("view", ["", "&log=1", "&x=time", "&smooth=0.9"])
def test_any_finite_values_are_drawn(looks, tmp_path, view):
    curves = {name: list(enumerate(values)) for name, values in EXTREME.items()}
    run = written(tmp_path / "hive", {**curves, "one": [(0, 5.0)]})
    with serving(tmp_path / "hive") as hive:
        ann = live(looks(f"{hive.link}#runs={run}{view}"))
        for name in (*EXTREME, "one"):
            if "log" in view and name in ("zero", "below"):
                continue
            one = chart(ann, name)
            one.get_by_role("slider").press("End")
            expect(one.locator(".reading .where")).to_be_visible()


def test_a_chart_says_that_a_logarithmic_scale_shows_nothing_of_it(looks, tmp_path):
    run = written(tmp_path / "hive", {RETURN: POINTS})
    with serving(tmp_path / "hive") as hive:
        ann = live(looks(f"{hive.link}#runs={run}"))
        one = chart(ann, RETURN)
        ann.page.keyboard.press("l")
        expect(one.locator(".note")).to_have_text("no values above 0, as a log scale has them")
        expect(one.locator("canvas")).to_be_hidden()
        ann.page.keyboard.press("l")
        expect(one.locator("canvas")).to_be_visible()
        expect(one.locator(".note")).to_be_hidden()


def test_what_a_report_draws_is_read_and_switched_off(looks, tmp_path):
    data = tmp_path / "hive"
    for seed in (1, 2):
        written(data, {RETURN: [(at, value * seed) for at, value in POINTS]}, seed=seed)
    waves = {RETURN: [(100 * at, 900 * math.sin(at)) for at in range(90)]}
    written(data, waves, hidden=32)
    arkml("report", "--data", data, "-o", tmp_path / "report.html")
    ann = looks((tmp_path / "report.html").as_uri())
    values = ann.page.get_by_role("slider", name=f"values of {RETURN}")
    values.press("Home")
    values.press("ArrowRight")
    values.press("ArrowRight")
    read = values.get_attribute("aria-valuetext")
    area = values.bounding_box()
    ann.page.mouse.move(area["x"] + area["width"] / 2, area["y"] + 60)
    expect(ann.page.locator(".reading .where")).to_have_text(re.compile("rows"))
    expect(ann.page.get_by_role("figure", name=RETURN)).to_be_visible()
    legend = ann.page.locator(".legend button")
    legend.first.press("Enter")
    expect(ann.page.locator("svg [data-group='0'] path.line")).to_be_hidden()
    expect(ann.page.locator("svg [data-group='1'] path.line")).to_be_visible()
    expect(legend.first).to_have_attribute("aria-pressed", "false")

    assert read.startswith("200 rows: ")
    assert "-1,890 (-2,520 to -1,260)" in read


def test_a_report_has_its_curves_without_scripts(looks, tmp_path):
    written(tmp_path / "hive", {RETURN: POINTS})
    arkml("report", "--data", tmp_path / "hive", "-o", tmp_path / "report.html")
    ann = looks((tmp_path / "report.html").as_uri(), java_script_enabled=False)

    expect(ann.page.locator("svg path.line")).to_be_visible()
    expect(ann.page.get_by_role("heading", name="Best policies")).to_be_visible()
