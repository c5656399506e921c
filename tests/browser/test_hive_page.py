"""People look at the runs of a hive while they learn, and each figure is the API's."""

import dataclasses
import json
import re
import signal

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.browser.hives import GUESTS, LINK, command, serving, training
from tests.browser.nginx import behind_nginx
from tests.browser.people import asked_to_log_in, live, log_in, saved
from tests.browser.proxy import Proxy
from tests.integration.hive_service import Service, request, rows
from tests.unit.shown_replays import document, submit
from tests.waiting import eventually

from arkml.base.terminal import harmless
from arkml.hive.protocol.replay_messages import ReplayReport, ShownLine
from arkml.hive.protocol.rows import META

pytestmark = pytest.mark.browser

SHORT = ("--frames", 600, "--eval-every", 200, "--evaluate-episodes", 2)
LONG = ("--minutes", 30, "--fps", 60)
TOKEN = "a token of the test"
HOSTILE = '<img src=x onerror=alert(1)><b>bold</b>\u202egnp.exe &lt; %{y} "=1+1'
BANDS = {
    "eval/std_reward", "rollout/ep_rew_p10", "rollout/ep_rew_p90", "train/q_min", "train/q_max",
}  # fmt: skip
OWN_ADDRESSES = """() => performance.getEntriesByType("resource").every(
  (one) => one.name.includes("/lab/hive/") || one.name.startsWith("data:"))"""
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
DRAWN = """(name) => {
  const figure = document.querySelector(`figure[data-metric="${CSS.escape(name)}"]`);
  const plot = figure?.querySelector(".plot");
  return (plot?.data ?? []).map((trace) => ({
    name: trace.name, x: [...trace.x], y: [...trace.y],
  }));
}"""


@pytest.fixture
def hive(tmp_path):
    with serving(tmp_path / "hive") as hive:
        yield hive


def draw(person, name):
    """The traces of a chart, once it is in view and drawn."""
    chart = person.page.locator(f"figure[data-metric={json.dumps(name, ensure_ascii=False)}]")
    chart.scroll_into_view_if_needed()
    return eventually(lambda: person.page.evaluate(DRAWN, name) or None)


def figure(person, name):
    return person.page.locator(f'[data-figure="{name}"]')


def number(text):
    return int(text.replace(",", ""))


def test_each_figure_is_that_of_the_api(hive, looks, tmp_path):
    with training(hive, tmp_path / "out", *SHORT) as trained:
        run = hive.the_run()
        ann = live(looks(f"{hive.link}#runs={run}"))
        assert trained.wait() == 0, trained.said
    expect(ann.page.locator(".of-run .pill")).to_have_text("stopped")
    expect(figure(ann, "rows")).to_have_text(f"{hive.run(run)['rows']:,}")
    expect(figure(ann, "updates")).to_have_text(f"{hive.run(run)['n_opts']:,}")
    version = hive.run(run)["policy_version"]
    expect(figure(ann, "version")).to_have_text(f"{version:,}")
    metrics = hive.metrics(run)
    names = ann.page.eval_on_selector_all(
        ":is(.section > .charts) > figure[data-metric]:not([data-metric^='usage/'])",
        "all => all.map((one) => one.dataset.metric)",
    )

    assert {"rollout/ep_rew_mean", "eval/mean_reward", "train/critic_loss"} <= set(names)
    assert set(metrics) - set(names) <= BANDS
    for name in names:
        points = hive.curve(run, name)
        eventually(lambda: any(t["y"] == [p[1] for p in points] for t in draw(ann, name)))  # noqa: B023
        traces = draw(ann, name)
        line = next(trace for trace in traces if trace["y"] == [point[1] for point in points])
        assert line["x"] == [point[0] for point in points]
        shown = ann.page.locator(f'figure[data-metric="{name}"] .newest')
        assert float(shown.get_attribute("data-value")) == metrics[name]
    spread = hive.curve(run, "eval/std_reward")
    means = hive.curve(run, "eval/mean_reward")
    low, high, *_ = draw(ann, "eval/mean_reward")
    assert low["y"] == pytest.approx([m[1] - s[1] for m, s in zip(means, spread, strict=True)])
    assert high["y"] == pytest.approx([m[1] + s[1] for m, s in zip(means, spread, strict=True)])
    kinds = ann.page.locator(".events .kind").all_text_contents()
    events = hive.get(f"/runs/{run}/events")["events"]
    assert kinds == [event["kind"] for event in reversed(events)]
    gamma = ann.page.locator("[data-section=configuration] tr", has_text="gamma").first
    expect(gamma.locator("td").nth(2)).to_have_text(re.compile(r"^0\.98"))
    rated = ann.page.locator("[data-section=versions] tr", has_text="by evaluation")
    _, content = saved(ann.page, rated.get_by_role("button", name="Download"))
    best = hive.http.get(f"/runs/{run}/snapshot", params={"which": "best"}).content
    assert content == best


def test_replays_of_evaluated_episodes_are_drawn_beside_the_curve(hive, looks):
    run = hive.http.post("/runs", json=request()).json()["run"]["id"]
    ann = live(looks(f"{hive.link}#runs={run}"))
    section = ann.page.locator("[data-section=replays]")
    expect(section).to_be_hidden()
    for version, score in enumerate((1.0, 3.0, 2.0)):
        frames = ([submit(["1"], [score])], [submit(["1"], [score + 1])])
        lines = [ShownLine(1, "info", HOSTILE)]
        report = ReplayReport.of(version, score, document(*frames, lines=lines))
        hive.http.post(f"/runs/{run}/replays", json=report.as_json()).raise_for_status()
    expect(section).to_be_visible()
    section.scroll_into_view_if_needed()
    expect(section.get_by_text("Version 1, a return of 3")).to_be_visible()
    expect(section.locator(".present strong")).to_have_text("frame 1 of 2")
    expect(section.locator(".lines")).to_contain_text(harmless(HOSTILE))
    section.get_by_role("group").focus()
    ann.page.keyboard.press("ArrowRight")
    expect(section.locator(".present strong")).to_have_text("frame 2 of 2")
    expect(section.locator("tbody td.number").first).to_have_text("4.00")
    section.get_by_role("button", name="latest: 2").click()
    expect(section.get_by_text("Version 2, a return of 2")).to_be_visible()
    expect(section.locator(".present strong")).to_have_text("frame 1 of 2")


def test_the_axis_the_scale_and_the_zoom_lie_in_the_address(hive, looks, tmp_path):
    with training(hive, tmp_path / "out", *SHORT) as trained:
        run = hive.the_run()
        assert trained.wait() == 0, trained.said
    ann = live(looks(f"{hive.link}#runs={run}"))
    draw(ann, "train/critic_loss")
    ann.page.select_option("#axis", "updates")
    ann.page.check("#log")
    expect(ann.page).to_have_url(re.compile("x=updates&log=1"))
    updates = {point[2]: point[1] for point in hive.curve(run, "train/n_updates")}
    points = hive.curve(run, "train/critic_loss")
    wanted = [updates[at] for _, _, at in points if at in updates]
    eventually(lambda: draw(ann, "train/critic_loss")[0]["x"] == wanted)
    ann.page.select_option("#axis", "rows")
    places = [point[0] for point in points]
    eventually(lambda: draw(ann, "train/critic_loss")[0]["x"] == places)  # drawn anew
    box = ann.page.locator('figure[data-metric="train/critic_loss"] .u-over').bounding_box()
    ann.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    ann.page.mouse.down()
    ann.page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    ann.page.mouse.up()
    expect(ann.page).to_have_url(re.compile("zoom="))
    bob = live(looks(ann.page.url))
    draw(bob, "train/critic_loss")
    low, _ = (float(end) for end in re.search("zoom=([^&]*)", ann.page.url)[1].split(","))
    bob.page.locator('figure[data-metric="train/critic_loss"] .u-over').hover(
        position={"x": 1, "y": 50}
    )
    first = min(places, key=lambda place: abs(place - low))
    assert first > places[0]
    expect(bob.page.locator(".reading:visible .where")).to_have_text(f"{first:,.0f} rows")
    assert bob.page.is_checked("#log")
    bob.page.keyboard.press("z")
    expect(bob.page).not_to_have_url(re.compile("zoom="))
    bob.page.keyboard.press("Escape")
    expect(bob.page.locator("h1")).to_have_text("Runs")


def test_stop_stops_and_remove_removes_once_they_were_asked_twice(hive, looks, tmp_path):
    with training(hive, tmp_path / "out", *LONG):
        run = hive.the_run()
        ann = live(looks(f"{hive.link}#runs={run}"))
        expect(ann.page.locator(".of-run .pill")).to_have_text("running")
        ann.page.click("text=Save a checkpoint")
        expect(ann.page.locator(".run > .trouble")).to_contain_text(f"saved {run}@")
        ann.page.get_by_role("button", name="Stop", exact=True).click()
        ann.page.get_by_role("button", name="Cancel").click()
        assert hive.run(run)["status"] == "running"
        ann.page.get_by_role("button", name="Stop", exact=True).click()
        ann.page.get_by_role("button", name="Stop…").click()
        ann.page.get_by_role("button", name="Stop it").click()
        expect(ann.page.locator(".of-run .pill")).to_have_text("stopped")
        assert hive.run(run)["status"] == "stopped"
    ann.page.get_by_role("button", name="Remove", exact=True).click()
    ann.page.get_by_role("button", name="Remove…").click()
    ann.page.get_by_role("button", name="Remove for good").click()
    expect(ann.page.locator(".empty")).to_contain_text("arkml train GUEST.wasm")
    assert hive.runs() == []
    assert any(f"asks to delete run {run} (pendulum)" in line for line in hive.process.said)


def test_sessions_and_resources_have_charts_that_are_files_too(hive, looks, tmp_path):
    with training(hive, tmp_path / "out", *LONG):
        run = hive.the_run()
        ann = live(looks(f"{hive.link}#runs={run}"))
        ann.page.locator(".sessions").scroll_into_view_if_needed()
        eventually(lambda: max(draw(ann, "sessions/accepted")[0]["y"]) > 0)
        [line] = draw(ann, "sessions/accepted")
        expect(ann.page.locator(".sessions th", has_text="policy age")).to_be_visible()
        used = ann.page.locator("[data-section=resources] figure")
        expect(used.locator(".title")).to_have_text([
            "Processors of the learner", "Memory of the learner", "Disk space of the run",
            "CPU, % of a core", "Memory, MiB", "Disk of the hive, MiB",
        ])  # fmt: skip
        disk = eventually(lambda: draw(ann, "usage/disk")[0]["y"])
        chart = used.filter(has_text="Disk of the hive")
        chart.hover()
        _, content = saved(ann.page, chart.get_by_role("button", name="CSV"))
    header, first, *_ = content.decode().splitlines()

    assert line["name"] == "session 0 (act)"
    assert header == "chart,title,line,time,value"
    assert first.startswith('usage/disk,"Disk of the hive, MiB",disk,20')
    assert float(first.rsplit(",", 1)[1]) == disk[0]


def test_eight_tabs_of_one_browser_are_all_live(hive, looks, tmp_path):
    with training(hive, tmp_path / "out", *LONG):
        run = hive.the_run()
        ann = live(looks(f"{hive.link}#runs={run}"))
        pages = [ann.page]
        for _ in range(7):
            pages[-1].evaluate(HIDE, True)
            pages.append(ann.context.new_page())
            pages[-1].goto(f"{hive.link}#runs={run}")
        shown = pages[-1]
        for page in (*pages, pages[0]):
            shown.evaluate(HIDE, True)
            page.evaluate(HIDE, False)
            shown = page
            expect(page.locator("#state")).to_have_attribute("data-state", "live")
            before = number(page.locator('[data-figure="rows"]').text_content())
            page.wait_for_function(
                "(last) => Number(document.querySelector('[data-figure=\"rows\"]').textContent"
                ".replaceAll(',', '')) > last",
                arg=before,
            )


def test_a_lost_server_is_shown_and_recovered_from(hive, looks, tmp_path):
    with training(hive, tmp_path / "out", *LONG), Proxy(hive.port) as proxy:
        run = hive.the_run()
        ann = live(looks(f"http://127.0.0.1:{proxy.port}/#runs={run}"))
        draw(ann, "rollout/ep_rew_mean")
        ann.is_cut_off = True
        proxy.drop()
        expect(ann.page.locator("#state")).to_have_attribute("data-state", "lost")
        expect(ann.page.locator("#state")).to_contain_text("last figures")
        known = number(figure(ann, "rows").text_content())
        assert known > 0
        eventually(lambda: hive.run(run)["rows"] > known + 1_000)
        proxy.resume()
        live(ann)
        eventually(lambda: number(figure(ann, "rows").text_content()) > known + 1_000)

        def is_whole():
            points = hive.curve(run, "rollout/ep_rew_mean")
            drawn = draw(ann, "rollout/ep_rew_mean")[0]
            return (
                drawn["x"][-1] >= known and drawn["x"] == [p[0] for p in points][: len(drawn["x"])]
            )

        eventually(is_whole)


def test_names_of_others_are_only_text(hive, looks):
    service = Service.__new__(Service)
    service.http, service.hive = hive.http, None
    wish = request(HOSTILE, other={HOSTILE: HOSTILE}) | {"game": HOSTILE}
    run = service.post("/runs", wish).json()["run"]["id"]
    sid = service.sid(run)
    [name] = service.post(f"/runs/{run}/names", {"names": [HOSTILE]}).json()["ids"].values()
    for body in range(1, 6):
        meta = np.array([(row, name, row) for row in range(0, 200, 10)], META)
        columns = dataclasses.replace(rows(200, 200 * (body - 1)), meta=meta)
        answer = service.push(sid, columns, body)
        assert answer.status_code == 200, answer.text
    eventually(lambda: f"guest/{HOSTILE}" in hive.metrics(run))
    directory = hive.data / "runs" / run
    with (directory / "learner.log").open("ab") as log:
        log.write(f"{HOSTILE}\n".encode())
    ann = live(looks(hive.link))
    shown = HOSTILE.replace("\u202e", "\\u202e")
    expect(ann.page.locator(".name a")).to_have_text(shown)
    ann.page.click(".name a")
    expect(ann.page.locator("h1")).to_have_text(shown)
    traces = draw(ann, f"guest/{HOSTILE}")
    assert traces[0]["name"] == shown
    ann.page.locator("[data-section=log] summary").click()
    expect(ann.page.locator(".log")).to_contain_text(shown)
    expect(ann.page.locator("[data-section=configuration]")).to_contain_text(shown)
    assert ann.page.locator("img").count() == 0
    assert ann.page.evaluate("document.querySelectorAll('.plot a, .plot b').length") == 0
    chart = ann.page.locator("figure.chart", has_text="bold")
    chart.hover()
    name, content = saved(ann.page, chart.get_by_role("button", name="CSV"))
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.csv", name)
    header, first, *_ = content.decode().split("\r\n")
    assert header == "run,id,metric,rows,time,value"
    assert '""=1+1' in first
    _, content = saved(ann.page, chart.get_by_role("button", name="PNG"))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_page_works_behind_a_prefix_with_tls(looks, tmp_path, unused_tcp_port):
    public = f"https://127.0.0.1:{unused_tcp_port}/lab/hive"
    behind = ("--public-url", public, "--trusted-proxy", "127.0.0.1")
    with (
        serving(tmp_path / "hive", *behind, token=TOKEN) as hive,
        training(hive, tmp_path / "out", *LONG),
        behind_nginx(hive, tmp_path, unused_tcp_port) as link,
    ):
        run = hive.the_run()
        ann = asked_to_log_in(looks(link, ignore_https_errors=True))
        log_in(ann, TOKEN)
        live(ann)
        [cookie] = ann.context.cookies()
        ann.page.click(".name a")
        expect(figure(ann, "rows")).not_to_have_text("0")
        assert draw(ann, "rollout/ep_rew_mean")
        assert ann.page.evaluate(OWN_ADDRESSES)
        ann.page.click("text=Save a checkpoint")
        start = ann.page.locator("[data-section=versions] code", has_text="--from")
        ann.page.locator("[data-section=versions]").scroll_into_view_if_needed()
        expect(start.first).to_contain_text(f"--hive {public} --from {run}@")
        ann.page.get_by_role("button", name="Stop", exact=True).click()
        ann.page.get_by_role("button", name="Stop…").click()
        ann.page.get_by_role("button", name="Stop it").click()
        expect(ann.page.locator(".of-run .pill")).to_have_text("stopped")
        assert hive.run(run)["status"] == "stopped"

    assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
    assert cookie["path"] == "/lab/hive"
    assert TOKEN not in cookie["value"]


def test_a_run_of_a_newer_release_leaves_the_page_and_the_others_as_they_are(looks, tmp_path):
    data = tmp_path / "hive"
    with serving(data) as hive, training(hive, tmp_path / "out", *SHORT) as trained:
        run = hive.the_run()
        assert trained.wait() == 0, trained.said
    document = data / "runs" / run / "run.json"
    document.write_text(json.dumps(json.loads(document.read_text()) | {"version": 99}))
    with serving(data) as hive:
        ann = looks(f"{hive.link}#runs={run}")
        expect(ann.page.locator(".refusal")).to_contain_text("data of version 99")
        live(ann)
        ann.page.click(".back")
        expect(ann.page.locator(".name a")).to_have_count(1)
        ann.page.click(".name a")
        expect(ann.page.locator(".refusal")).to_contain_text("data of version 99")
        live(ann).complaints.clear()  # the refusals, which browsers write to the console


def test_the_page_of_a_training_keeps_its_last_figures(looks, tmp_path):
    out = tmp_path / "out"
    guest = GUESTS / "c_pendulum.wasm"
    with command("train", guest, "--page", "--minutes", 30, "--fps", 60, "--out", out) as trained:
        link = trained.match(LINK)[1]
        ann = live(looks(link))
        assert "token" not in ann.page.url
        expect(ann.page).to_have_url(re.compile("#runs=[0-9a-f]{16}$"))  # it follows its run
        draw(ann, "rollout/ep_rew_mean")
        bob = looks(link)  # the link is good for one login
        expect(bob.page.locator("#login")).to_contain_text("used before")
        bob.complaints.clear()  # the refusals of the login, which browsers write to the console
        bob.page.goto("about:blank")
        ann.is_cut_off = True
        trained.process.send_signal(signal.SIGINT)
        trained.wait()
    expect(ann.page.locator("#state")).to_have_attribute("data-state", "ended")
    rows_shown = number(figure(ann, "rows").text_content())
    assert rows_shown > 0
    assert draw(ann, "rollout/ep_rew_mean")
    with serving(out / "hive") as later:
        [run] = later.runs()
        assert run["rows"] == rows_shown
        eve = live(looks(f"{later.link}#runs={run['id']}"))
        expect(figure(eve, "rows")).to_have_text(f"{run['rows']:,}")


def test_narrow_screens_and_keys(hive, looks):
    ann = live(looks(hive.link, viewport={"width": 360, "height": 640}))
    expect(ann.page.locator(".empty")).to_contain_text(f"--hive {hive.address}")
    ann.page.keyboard.press("?")
    expect(ann.page.locator("#keys")).to_be_visible()
    ann.page.keyboard.press("Escape")
    for theme in ("light", "dark"):
        ann.page.keyboard.press("d")
        expect(ann.page.locator("html")).to_have_attribute("data-theme", theme)
    assert ann.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
