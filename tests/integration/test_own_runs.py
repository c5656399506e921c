"""What a token of the role act may ask about the runs of another one: a decision for each route."""

import asyncio
import json

import pytest
from tests.integration.hive_service import request
from tests.integration.test_access_table import (
    BROWSER,
    bearer,
    client,
    cookie_of,
    opened,
    routes_in,
)

from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile
from arkml.server.hive_app import OPERATIONS

SHARED, OWN = "a host needs it that takes part", "its own runs alone"
DECIDED = {
    "/v1/runs/{run_id}": SHARED,
    "/v1/runs/{run_id}/config": SHARED,
    "/v1/runs/{run_id}/policy": SHARED,
    "/v1/runs/{run_id}/snapshot": SHARED,
    "/v1/runs/{run_id}/metrics": SHARED,
    "/v1/runs/{run_id}/series": SHARED,
    "/v1/runs/{run_id}/checkpoints": SHARED,
    "/v1/runs/{run_id}/histograms": OWN,
    "/v1/runs/{run_id}/replays": OWN,
    "/v1/runs/{run_id}/replay": OWN,
    "/v1/runs/{run_id}/memory": OWN,
    "/v1/runs/{run_id}/curves": OWN,
    "/v1/runs/{run_id}/events": SHARED,  # of which its command says the warnings
    "/v1/runs/{run_id}/versions": OWN,
    "/v1/runs/{run_id}/watch": OWN,
    "/v1/runs/{run_id}/log": OWN,
}
"""The routes of one run. A new one is missing here until it is decided."""

LISTS = {
    "/v1/runs", "/v1/settings", "/v1/usage", "/v1/events", "/v1/curves", "/v1/health", "/v1/whoami",
    "/v1/modules/{sha256}", "/healthz", "/readyz", "/metrics", "/{path:path}",
}  # fmt: skip
"""The other routes, with tests below and in test_access_table."""

QUERIES = {
    "series": {"name": "x"}, "curves": {"names": "x"}, "replay": {"which": "best"},
    "watch": {"version": "1"},
}  # fmt: skip


@pytest.fixture
def tokens(tmp_path):
    """Tokens of two who train, by their names."""
    return {name: TokenFile(tmp_path).add(name, AccessRole.ACT, None)[1] for name in ("ann", "bob")}


async def started(http, token):
    answer = await http.post("/v1/runs", json=request(), headers=bearer(token))
    return answer.json()["run"]["id"]


async def reading(app, token):
    """The headers of a page that has logged in."""
    return {**BROWSER, "cookie": await cookie_of(app, token)}


async def callers_of(app, token):
    return {"program": bearer(token), "page": await reading(app, token)}


async def test_every_route_of_a_run_is_decided_for_the_runs_of_others(tmp_path, tokens):
    found = {}
    async with opened(tmp_path) as (_, app), client(app) as http:
        run_id = await started(http, tokens["ann"])
        served = {path for method, path in routes_in(app) if method == "GET"}
        for name, token in tokens.items():
            for kind, headers in (await callers_of(app, token)).items():
                for path in DECIDED:
                    answer = await http.get(
                        path.format(run_id=run_id),
                        params=QUERIES.get(path.rpartition("/")[2], {}),
                        headers=headers,
                    )
                    found[name, kind, path] = answer.status_code == 403
                    assert answer.status_code != 500

    assert served == DECIDED.keys() | LISTS
    for (name, kind, path), is_refused in found.items():
        is_memory = path.endswith("/memory")  # which takes the role read
        is_foreign = name == "bob" and (kind == "page" or DECIDED[path] == OWN)
        assert is_refused == (is_memory or is_foreign), (name, kind, path)


async def test_curves_of_many_runs_are_those_of_own_runs(tmp_path, tokens):
    async with opened(tmp_path) as (hive, app), client(app) as http:
        own = {name: await started(http, token) for name, token in tokens.items()}
        for run in own.values():
            await hive.run(run).record([("m", 1, 1.0)])
        query = {"runs": ",".join(own.values()), "names": "m"}
        answer = await http.get("/v1/curves", params=query, headers=bearer(tokens["bob"]))

    of_ann, of_bob = answer.json()["runs"]
    assert of_ann["curves"] == []
    assert "was started by another one" in of_ann["error"]
    assert len(of_bob["curves"][0]["points"]) == 1


async def test_a_page_changes_no_run_of_others(tmp_path, tokens):
    async with opened(tmp_path) as (hive, app), client(app) as http:
        run_id = await started(http, tokens["ann"])
        headers = (await callers_of(app, tokens["bob"]))["page"]
        found = {}
        for operation in OPERATIONS:
            if operation.method == "GET" or "{run_id}" not in operation.path:
                continue
            answer = await http.request(
                operation.method,
                f"/v1{operation.path.format(run_id=run_id)}",
                json={
                    "join_key": "a key of bob", "features": 3, "actions": 2, "names": ["a"],
                    "version": 1, "returns": [1.0], "lengths": [1],
                } if operation.path.rpartition("/")[2] in ("sessions", "names") else {},
                headers=headers,
            )  # fmt: skip
            found[operation.method, operation.path] = answer.status_code
        sessions = list(hive.run(run_id).document.sessions)

    assert len(found) > 8
    assert sessions == []
    assert set(found.values()) <= {403, 422}, found


async def test_lists_are_of_own_runs_on_the_page_and_of_all_for_programs(tmp_path, tokens):
    found = {}
    async with opened(tmp_path) as (_, app), client(app) as http:
        own = {name: await started(http, token) for name, token in tokens.items()}
        for name, token in tokens.items():
            for kind, headers in (await callers_of(app, token)).items():
                runs = (await http.get("/v1/runs", headers=headers)).json()["runs"]
                settings = (await http.get("/v1/settings", headers=headers)).json()["runs"]
                found[name, kind] = {run["id"] for run in runs}
                assert set(settings) == {own[name]}

    for name in tokens:
        assert found[name, "page"] == {own[name]}
        assert found[name, "program"] == set(own.values())


async def test_note_and_origin_are_for_those_who_see_the_run(tmp_path, tokens):
    origin = {"command": "arkml train secret.wasm", "host": "box", "guest_file": "secret.wasm"}
    async with opened(tmp_path) as (_, app), client(app) as http:
        wanted = {**request(), "origin": origin}
        made = await http.post("/v1/runs", json=wanted, headers=bearer(tokens["ann"]))
        url = f"/v1/runs/{made.json()['run']['id']}"
        await http.patch(url, json={"note": "mine"}, headers=bearer(tokens["ann"]))
        shown = {
            name: (await http.get(url, headers=bearer(token))).json()
            for name, token in tokens.items()
        }

    assert shown["ann"]["note"] == "mine"
    assert shown["ann"]["origin"]["command"] == origin["command"]
    assert shown["ann"]["owner_name"] == shown["bob"]["owner_name"] == "ann"
    assert (shown["bob"]["note"], shown["bob"]["origin"]) == ("", None)
    assert "secret" not in json.dumps(shown["bob"])


async def test_usage_has_the_learners_of_own_runs_alone(tmp_path, tokens):
    async with opened(tmp_path) as (hive, app), client(app) as http:
        own = {name: await started(http, token) for name, token in tokens.items()}
        learners = {run: hive.run(run).lifecycle.supervisor.place.pid or 1 for run in own.values()}
        await hive.resources.measure(learners, 0)
        [entry] = (await http.get("/v1/usage", headers=bearer(tokens["bob"]))).json()["usage"]

    assert {one["run"] for one in entry["processes"]} == {"", own["bob"]}


class Listener:
    """A stream of events that a caller reads; `text` is all of it so far."""

    def __init__(self, app, headers, runs):
        self.text = ""
        self._news, self._ended = asyncio.Event(), asyncio.Event()
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "method": "GET", "path": "/v1/events", "raw_path": b"/v1/events",
            "query_string": f"runs={','.join(runs)}".encode(), "root_path": "",
            "headers": [(b"host", b"localhost:12356"), *given], "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 12356), "scheme": "http", "http_version": "1.1",
        }  # fmt: skip
        self._task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        await self._ended.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.text += message.get("body", b"").decode()
        self._news.set()

    async def until(self, word):
        async with asyncio.timeout(60):
            while word not in self.text:
                self._news.clear()
                await self._news.wait()

    async def end(self):
        self._ended.set()
        await self._task


async def test_a_stream_has_the_events_of_own_runs_alone(tmp_path, tokens):
    _, reader = TokenFile(tmp_path).add("cid", AccessRole.READ, None)
    async with opened(tmp_path, token="operator") as (hive, app), client(app) as http:
        own = {name: await started(http, token) for name, token in tokens.items()}
        page = (await callers_of(app, tokens["bob"]))["page"]
        listeners = [Listener(app, one, own.values()) for one in (page, await reading(app, reader))]
        for listener in listeners:
            await listener.until("event: open")
        for name in ("ann", "bob"):
            change = {"title": f"of {name}"}
            await http.patch(f"/v1/runs/{own[name]}", json=change, headers=bearer(tokens[name]))
            await hive.run(own[name]).record([("m", 1, 1.0)])
            hive.run(own[name]).lifecycle.history.add("best", f"best of {name}")
        for listener in listeners:
            await listener.until('"title":"of bob"')
        await http.delete(f"/v1/runs/{own['ann']}?force=1", headers=bearer(tokens["ann"]))
        await listeners[1].until(f'"removed":["{own["ann"]}"]')
        hive.run(own["bob"]).lifecycle.history.add("best", "the last")
        for listener in listeners:
            await listener.until("the last")
            await listener.end()
    mine, all_of_it = (listener.text for listener in listeners)

    for word in (own["ann"], "of ann", "best of ann"):
        assert word in all_of_it
        assert word not in mine
    assert "best of bob" in mine
