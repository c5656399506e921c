"""People note things about runs on the page, each about those that they may change."""

import pytest
from playwright.sync_api import expect
from tests.browser.hives import serving
from tests.browser.people import asked_to_log_in, live, log_in
from tests.integration.hive_service import request
from tests.waiting import eventually

from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile

pytestmark = pytest.mark.browser

OPERATOR = "a token of the test"
CROSS = "\N{MULTIPLICATION SIGN}"
HOSTILE = "<img src=x onerror=alert(1)><b>"


@pytest.fixture
def hive(tmp_path):
    with serving(tmp_path / "hive", token=OPERATOR) as hive:
        yield hive


def started(hive, name="run", token=OPERATOR, **more):
    headers = {"authorization": f"Bearer {token}"}
    answer = hive.http.post("/runs", json={**request(name), **more}, headers=headers)
    return answer.json()["run"]["id"]


def token_of(hive, name, role):
    token = TokenFile(hive.data).add(name, AccessRole(role), None)[1]
    headers = {"authorization": f"Bearer {token}"}
    eventually(lambda: hive.http.get("/whoami", headers=headers).status_code == 200)
    return token


def come(looks, hive, token, run=""):
    someone = asked_to_log_in(looks(f"{hive.link}{run and f'#runs={run}'}"))
    log_in(someone, token)
    return live(someone).page


def test_a_run_is_labeled_by_the_keyboard_and_another_page_follows(hive, looks):
    run = started(hive)
    ann, bob = (come(looks, hive, OPERATOR, run) for _ in range(2))
    ann.bring_to_front()  # Firefox gives keys to the page in front
    ann.get_by_role("button", name="Rename").focus()
    ann.keyboard.press("Enter")
    expect(ann.locator("input:focus")).to_have_value("run")
    ann.keyboard.type(HOSTILE)
    ann.keyboard.press("Enter")
    expect(bob.locator("h1")).to_have_text(HOSTILE)
    expect(ann.get_by_role("button", name="Rename")).to_be_focused()
    ann.get_by_role("textbox", name="add a tag").focus()
    ann.keyboard.type("paper, ppo")
    ann.keyboard.press("Enter")
    expect(bob.locator("ul.tags li")).to_have_text(["paper" + CROSS, "ppo" + CROSS])
    bob.bring_to_front()
    bob.get_by_role("button", name="remove the tag paper").press("Enter")
    expect(ann.locator("ul.tags li")).to_have_text(["ppo" + CROSS])
    ann.bring_to_front()
    ann.get_by_role("button", name="star").press("Space")
    expect(bob.get_by_role("button", name="star")).to_have_attribute("aria-pressed", "true")
    ann.get_by_role("button", name="Archive").press("Enter")
    expect(bob.locator(".labels .pill").first).to_have_text("archived")
    bob.bring_to_front()
    bob.get_by_role("button", name="Restore").press("Enter")
    expect(ann.get_by_role("button", name="Archive")).to_be_visible()

    shown = hive.run(run)
    assert (shown["name"], shown["title"], shown["tags"]) == ("run", HOSTILE, ["ppo"])
    assert shown["starred"] is True
    assert "archived" not in shown


def test_runs_with_a_star_come_first_in_each_order_but_their_own(hive, looks):
    oldest, newest = started(hive, "oldest"), started(hive, "newest")
    ann = come(looks, hive, OPERATOR)

    def shows(*runs):
        found = ann.locator("tr[data-run]").evaluate_all("all => all.map((one) => one.dataset.run)")
        return found == list(runs)

    eventually(lambda: shows(newest, oldest))
    star = ann.get_by_label("star oldest")
    star.press("Enter")
    eventually(lambda: shows(oldest, newest))
    expect(star).to_be_focused()
    for column, wanted in (("name", (oldest, newest)), ("starred", (newest, oldest))):
        for end in ("descending", "ascending"):
            ann.locator(f"[data-sort={column}]").press("Enter")
            title = ann.locator("th", has=ann.locator(f"[data-sort={column}]"))
            expect(title).to_have_attribute("aria-sort", end)
        eventually(lambda wanted=wanted: shows(*wanted))


def test_figures_stand_below_their_titles_whether_or_not_a_run_has_tags(hive, looks):
    runs = started(hive, "plain"), started(hive, "tagged")
    ann = come(looks, hive, OPERATOR)
    hive.http.patch(
        f"/runs/{runs[1]}", json={"tags": ["ppo"]}, headers={"authorization": f"Bearer {OPERATOR}"}
    ).raise_for_status()
    expect(ann.locator("td.tags .pill")).to_have_text(["ppo"])
    titles = ann.locator("table.runs thead th", has=ann.locator("[data-sort]"))
    names = titles.locator(".sort").evaluate_all("all => all.map((one) => one.dataset.sort)")
    assert "tags" in names
    for name in names:
        title = titles.locator(f"[data-sort='{name}']").locator("..").bounding_box()
        cells = ann.locator(f"tr[data-run] td[data-column='{name}']")
        boxes = [cell.bounding_box() for cell in cells.all()]
        assert [(box["x"], box["width"]) for box in boxes] == [(title["x"], title["width"])] * 2


def test_of_two_who_write_a_note_neither_overwrites_the_other_unseen(hive, looks):
    run = started(hive)
    ann, bob = (come(looks, hive, OPERATOR, run) for _ in range(2))
    for person, text in ((ann, "ann's"), (bob, "bob's")):
        person.locator("[data-section=note] summary").click()
        person.get_by_role("textbox", name="note").fill(text)
    ann.get_by_role("button", name="Save the note").click()
    expect(ann.locator(".note-panel [role=status]")).to_have_text("Saved.")
    expect(bob.locator(".conflict pre")).to_have_text("ann's")
    expect(bob.get_by_role("button", name="Save the note")).to_be_disabled()
    assert hive.get(f"/runs/{run}")["note"] == "ann's"
    bob.get_by_role("button", name="Replace it by mine").click()
    expect(bob.locator(".note-panel [role=status]")).to_have_text("Saved.")

    assert hive.get(f"/runs/{run}")["note"] == "bob's"


def test_what_the_hive_refuses_is_said(hive, looks):
    ann = looks(f"{hive.link}#runs={started(hive)}")
    log_in(asked_to_log_in(ann), OPERATOR)
    page = live(ann).page
    page.get_by_role("textbox", name="add a tag").fill("x" * 65)
    page.keyboard.press("Enter")
    expect(page.locator(".run > .trouble")).to_contain_text("of 65 letters: 64 at most")
    page.locator("[data-section=note] summary").click()
    page.get_by_role("textbox", name="note").fill("x" * 1_000_000)
    page.get_by_role("button", name="Save the note").click()
    expect(page.locator(".note-panel [role=status]")).to_contain_text("has 1000000 bytes")
    ann.complaints.clear()


def test_where_a_run_came_from_is_told(hive, looks):
    origin = {"command": f"arkml train npc.wasm {HOSTILE}", "git": "v1-dirty"}
    run = started(hive, origin=origin, goal={"seconds": 120})
    page = come(looks, hive, OPERATOR, run)

    table = page.locator("[data-section=origin] table")
    expect(table).to_contain_text(HOSTILE)
    expect(table).to_contain_text("v1-dirty")
    expect(table.locator("tbody tr").first).to_have_text("started byoperator")
    expect(page.locator("[data-figure=time]")).to_contain_text("of 2 min")


def test_those_who_act_see_their_own_runs_and_those_who_read_change_nothing(hive, looks):
    tokens = {name: token_of(hive, name, role) for name, role in (("ann", "act"), ("cid", "read"))}
    own, other = started(hive, "own", tokens["ann"]), started(hive, "other")
    hive.http.patch(f"/runs/{other}", json={"note": "secret", "tags": ["t"]})
    ann, cid = (come(looks, hive, token) for token in tokens.values())

    expect(ann.locator("#who")).to_have_text("ann (act)")
    expect(ann.locator("tr[data-run]")).to_have_count(1)
    expect(cid.locator("tr[data-run]")).to_have_count(2)
    ann.goto(f"{hive.link}#runs={own}")
    ann.get_by_role("button", name="star").click()
    expect(ann.get_by_role("button", name="star")).to_have_attribute("aria-pressed", "true")
    expect(ann.get_by_role("button", name="Stop")).to_be_visible()
    ann.goto(f"{hive.link}#runs={other}")
    expect(ann.locator(".empty")).to_contain_text("This run is not there")
    cid.goto(f"{hive.link}#runs={other}")
    expect(cid.locator(".note-text")).to_have_text("secret")
    expect(cid.locator("ul.tags li")).to_have_text(["t"])
    expect(cid.get_by_role("button", name="Rename")).to_have_count(0)
    expect(cid.get_by_role("button", name="Stop")).to_have_count(0)
