"""What people note about runs: who may, what is refused, what outlives a restart."""

import asyncio
import json
import os
import tarfile

import pytest
from tests.integration.hive_service import request
from tests.integration.test_access_table import bearer, client, opened

from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile
from arkml.server.backup import write_backup
from arkml.server.labels import LABELS_NAME
from arkml.server.restore import restore_backup

TITLE = "the one with 4 layers"
ALL = {
    "title": TITLE, "note": "line 1\nline 2 é 👩‍👩‍👧", "tags": ["paper", "ppo"], "starred": True,
    "archived": True,
}  # fmt: skip


async def made(http, name="run"):
    """The address of a new run."""
    answer = await http.post("/v1/runs", json=request(name))
    return f"/v1/runs/{answer.json()['run']['id']}"


async def test_labels_are_kept_and_the_name_stays(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
        before = (await http.get(url)).json()
        changed = await http.patch(url, json=ALL)
        again = await http.patch(url, json={"tags": ["ppo", "ppo"], "starred": False})
        listed = (await http.get("/v1/runs")).json()["runs"][0]
    async with opened(tmp_path) as (_, app), client(app) as http:
        after = (await http.get(url)).json()

    assert {"title", "tags", "starred", "archived"}.isdisjoint(before["run"])
    assert (before["note"], before["note_revision"]) == ("", 0)
    assert changed.json()["note"] == after["note"] == ALL["note"]
    assert changed.json()["note_revision"] == after["note_revision"] == 1
    assert changed.json()["run"]["tags"] == ["paper", "ppo"]
    assert again.json()["run"]["tags"] == ["ppo"]
    assert listed["title"] == after["run"]["title"] == TITLE
    assert listed["name"] == after["run"]["name"] == "run"
    assert after["run"]["archived"] is True
    assert "starred" not in after["run"]


async def test_a_run_that_was_renamed_is_joined_by_its_name(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
        await http.patch(url, json={"title": "other"})
        joined = await http.post("/v1/runs", json=request("run", on_conflict="join"))
        new = await http.post("/v1/runs", json=request("other", on_conflict="join"))

    assert url.endswith(joined.json()["run"]["id"])
    assert new.json()["created"] is True


async def test_of_two_people_the_later_wins_a_field_and_not_the_note(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
        ann, bob = await asyncio.gather(
            http.patch(url, json={"title": "ann's", "note": "ann's", "note_revision": 0}),
            http.patch(url, json={"starred": True}),
        )
        late = await http.patch(url, json={"note": "bob's", "note_revision": 0, "tags": ["x"]})
        same = await http.patch(url, json={"note": "ann's", "note_revision": 0})
        shown = (await http.get(url)).json()
        then = await http.patch(url, json={"note": "both", "note_revision": 1})

    assert (ann.status_code, bob.status_code, same.status_code) == (200, 200, 200)
    assert late.status_code == 409
    assert "changed meanwhile, from revision 0 to 1: load it anew" in late.json()["error"]
    assert (shown["run"]["title"], shown["run"]["starred"], shown["note"]) == (
        "ann's", True, "ann's",
    )  # fmt: skip
    assert "tags" not in shown["run"]
    assert then.json()["note_revision"] == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"note": "x" * (1 << 20)}, "the note has 1048576 bytes: 65536 at most"),
        ({"note": "é" * 40_000}, "the note has 80000 bytes: 65536 at most"),
        ({"note": "a\x1b[2J"}, "the note has U+001B at 1"),
        ({"title": "x" * 201}, "of 201 letters: 200 at most"),
        ({"title": "a\nb"}, "leave out letters that are not printed"),
        ({"title": "a\u202egnp.exe"}, "leave out letters that are not printed"),
        ({"title": None}, "title is None: it takes a text"),
        ({"tags": ["x"] * 33}, "33 tags: a run has 32 at most"),
        ({"tags": ["x" * 65]}, "of 65 letters: 64 at most"),
        ({"tags": ["a,b"]}, "'a,b': it takes letters without commas"),
        ({"tags": [" a"]}, "without spaces at its ends"),
        ({"tags": [""]}, "without commas"),
        ({"tags": ["a\u200b"]}, "leave out letters that are not printed"),
        ({"tags": "abc"}, "it takes a list"),
        ({"tags": [1]}, "it takes a text"),
        ({"starred": 1}, "it takes true or false"),
        ({"note_revision": -1}, "it takes a whole number"),
        ({"name": "other"}, "name is unknown"),
    ],
)
async def test_what_cannot_be_a_label_is_refused_and_changes_nothing(tmp_path, change, sentence):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
        await http.patch(url, json={"title": TITLE})
        refused = await http.patch(url, json={"starred": True, **change})
        shown = (await http.get(url)).json()

    assert refused.status_code == 422
    assert sentence in refused.json()["error"]
    assert len(refused.json()["error"]) < 400
    assert shown["run"]["title"] == TITLE
    assert "starred" not in shown["run"]


@pytest.mark.parametrize("content", [b"{", b"[" * 10_000, b"x" * (2 << 20), b'{"tags": ["a,b"]}'])
async def test_a_damaged_file_leaves_the_run_without_labels(tmp_path, caplog, content):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
        await http.patch(url, json=ALL)
    (tmp_path / "runs" / url.rpartition("/")[2] / LABELS_NAME).write_bytes(content)
    async with opened(tmp_path) as (_, app), client(app) as http:
        shown = (await http.get(url)).json()
        again = await http.patch(url, json={"title": TITLE})

    assert shown["note"] == ""
    assert "title" not in shown["run"]
    assert f"{LABELS_NAME} is left out, as it cannot be read: " in caplog.text
    assert again.json()["run"]["title"] == TITLE


async def test_a_pipe_in_place_of_the_labels_holds_nothing_up(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
    path = tmp_path / "runs" / url.rpartition("/")[2] / LABELS_NAME
    os.mkfifo(path)
    async with opened(tmp_path) as (_, app), client(app) as http:
        assert (await http.get(url)).json()["note"] == ""


async def test_labels_are_in_a_backup_and_come_back(tmp_path):
    async with opened(tmp_path / "data") as (_, app), client(app) as http:
        url = await made(http)
        await http.patch(url, json=ALL)
        write_backup(tmp_path / "data", tmp_path / "runs.tar")
    with tarfile.open(tmp_path / "runs.tar") as archive:
        names = archive.getnames()
    restore_backup(tmp_path / "runs.tar", tmp_path / "restored")
    async with opened(tmp_path / "restored") as (_, app), client(app) as http:
        shown = (await http.get(url)).json()

    assert any(name.endswith(LABELS_NAME) for name in names)
    assert (shown["note"], shown["run"]["title"]) == (ALL["note"], TITLE)


async def test_roles_decide_who_labels_which_run(tmp_path):
    tokens = {}
    for name, role in (("ann", "act"), ("bob", "act"), ("cid", "read"), ("dan", "admin")):
        _, tokens[name] = TokenFile(tmp_path).add(name, AccessRole(role), None)
    found = {}
    async with opened(tmp_path) as (_, app), client(app) as http:
        answer = await http.post("/v1/runs", json=request(), headers=bearer(tokens["ann"]))
        url = f"/v1/runs/{answer.json()['run']['id']}"
        for name, token in tokens.items():
            change = {"title": name, "note": "secret"}
            found[name] = (await http.patch(url, json=change, headers=bearer(token))).status_code
        notes = {
            name: (await http.get(url, headers=bearer(token))).json()["note"]
            for name, token in tokens.items()
        }

    assert found == {"ann": 200, "bob": 403, "cid": 403, "dan": 200}
    assert notes == {"ann": "secret", "bob": "", "cid": "secret", "dan": "secret"}


async def test_a_full_disk_keeps_the_labels_of_before(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
        await http.patch(url, json={"title": TITLE})
        monkeypatch.setattr("arkml.server.labels.write_atomic", fail)
        refused = await http.patch(url, json={"title": "other"})
        shown = (await http.get(url)).json()

    assert refused.status_code == 507
    assert shown["run"]["title"] == TITLE


async def test_the_log_says_who_has_labeled_a_run(tmp_path, caplog):
    caplog.set_level("INFO", "arkml.server.routes")
    _, token = TokenFile(tmp_path).add("ann", AccessRole.ADMIN, None)
    async with opened(tmp_path) as (_, app), client(app, **bearer(token)) as http:
        url = await made(http)
        await http.patch(url, json={"starred": True})

    assert f"ann asks to label run {url.rpartition('/')[2]} (run)" in caplog.text


async def test_a_document_of_before_has_no_labels(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        url = await made(http)
    document = json.loads((tmp_path / "runs" / url.rpartition("/")[2] / "run.json").read_text())

    assert not {"origin", "goal", "title"} & {*document, *document["request"]}
