"""Who may see the page of a hive: sessions, tokens and their roles, and the pages of others."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect
from tests.browser.hives import arkml, serving, training
from tests.browser.people import asked_to_log_in, live, log_in

from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile

pytestmark = pytest.mark.browser

TOKEN = "a token of the test"
LONG = ("--minutes", 30, "--fps", 60)


def test_people_log_in_and_out_and_a_revoked_token_ends_their_streams(looks, tmp_path):
    data = tmp_path / "hive"
    with serving(data, token=TOKEN) as hive:
        made = arkml("hive", "token", "new", "--data", data, "--name", "bob", "--role", "read")
        ann = asked_to_log_in(looks(hive.link))
        log_in(ann, "wrong")
        expect(ann.page.locator("#login-trouble")).to_contain_text("missing or wrong")
        ann.complaints.clear()
        log_in(ann, TOKEN)
        expect(live(ann).page.locator("#who")).to_have_text("operator (admin)")
        ann.page.click("#logout")
        asked_to_log_in(ann)
        bob = asked_to_log_in(looks(hive.link))
        log_in(bob, made.strip())
        expect(live(bob).page.locator("#who")).to_have_text("bob (read)")
        arkml("hive", "token", "revoke", "bob", "--data", data)
        asked_to_log_in(bob)


def test_a_token_that_expires_ends_the_session_of_an_open_page(looks, tmp_path):
    data = tmp_path / "hive"
    with serving(data, token=TOKEN) as hive:
        _, token = TokenFile(data).add("guest", AccessRole.READ, 8)
        ann = asked_to_log_in(looks(hive.link))
        log_in(ann, token)
        expect(live(ann).page.locator("#who")).to_have_text("guest (read)")
        asked_to_log_in(ann)
        log_in(ann, token)
        trouble = ann.page.locator("#login-trouble")
        expect(trouble).to_contain_text("token 'guest' of the hive has expired")
        ann.complaints.clear()


FOREIGN = """async (address) => {
  const ask = (path, options) => fetch(address + path, { credentials: "include", ...options })
    .then((answer) => answer.status, () => "refused");
  const body = { method: "POST", headers: { "content-type": "application/json", "x-arkml": "1" } };
  const plain = { method: "POST", mode: "no-cors", body: "{}" };
  const stop = "v1/runs/RUN/stop";
  return Promise.all([ask("v1/runs"), ask(stop, body), ask("login", body), ask(stop, plain)]);
}"""


def test_a_page_of_others_gets_nothing_and_changes_nothing(looks, tmp_path):
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<!doctype html><title>others</title>")
    service = partial(SimpleHTTPRequestHandler, directory=tmp_path / "page")
    with (
        serving(tmp_path / "hive", token=TOKEN) as hive,
        training(hive, tmp_path / "out", *LONG),
        ThreadingHTTPServer(("127.0.0.1", 0), service) as others,
    ):
        run = hive.the_run()
        ann = asked_to_log_in(looks(hive.link))
        log_in(ann, TOKEN)
        live(ann)
        Thread(target=others.serve_forever).start()
        try:
            page = ann.context.new_page()
            page.goto(f"http://127.0.0.1:{others.server_port}/")
            found = page.evaluate(FOREIGN.replace("RUN", run), hive.link)
        finally:
            others.shutdown()
        status = hive.run(run)["status"]
        live(ann)

    assert found == ["refused"] * 4
    assert status in ("pending", "running")  # a learner may still start
