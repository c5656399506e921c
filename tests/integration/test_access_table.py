"""Every route of a hive, and every kind of caller: who is answered, and who is refused."""

import hashlib
import itertools
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.integration.hive_service import FAKE, request, rows

from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.hive.protocol.runs import Role, RunRequest
from arkml.server.access import credentials
from arkml.server.access.callers import AccessRole, WorkerGrant
from arkml.server.access.token_file import TokenFile
from arkml.server.hive import Hive
from arkml.server.hive_app import make_app
from arkml.server.page.events import EVENTS_PATH, MAX_RUNS
from arkml.server.serve_options import ServeOptions, WorkerOptions

MODULE = b"\0asm\1\0\0\0"
SHA256 = hashlib.sha256(MODULE).hexdigest()
OPERATOR = "the operator's token"

ACT, READ, ADMIN, WORKER = "act", "read", "admin", "worker"
TRAINS = {ACT, READ, ADMIN}
TABLE = {
    ("GET", "/v1/health"): "all",
    ("GET", "/healthz"): "all",
    ("GET", "/readyz"): "all",
    ("GET", "/metrics"): {READ, ADMIN},
    ("POST", "/login"): "all",
    ("GET", "/v1/whoami"): TRAINS,
    ("POST", "/v1/one_time_tokens"): {ADMIN},
    ("GET", "/v1/runs"): TRAINS,
    ("POST", "/v1/runs"): {ACT, ADMIN},
    ("GET", "/v1/runs/{run_id}"): TRAINS | {WORKER},
    ("GET", "/v1/runs/{run_id}/config"): TRAINS | {WORKER},
    ("GET", "/v1/runs/{run_id}/policy"): TRAINS | {WORKER},
    ("GET", "/v1/runs/{run_id}/snapshot"): TRAINS | {WORKER},
    ("GET", "/v1/runs/{run_id}/metrics"): TRAINS | {WORKER},
    ("GET", "/v1/runs/{run_id}/series"): TRAINS,
    ("GET", "/v1/runs/{run_id}/histograms"): TRAINS,
    ("GET", "/v1/runs/{run_id}/checkpoints"): TRAINS,
    ("GET", "/v1/runs/{run_id}/replays"): TRAINS,
    ("GET", "/v1/runs/{run_id}/replay"): TRAINS,
    ("GET", "/v1/runs/{run_id}/memory"): {READ, ADMIN},
    ("GET", "/v1/settings"): TRAINS,
    ("GET", "/v1/usage"): TRAINS,
    ("GET", "/v1/events"): TRAINS,
    ("GET", "/v1/curves"): TRAINS,
    ("GET", "/v1/runs/{run_id}/curves"): TRAINS,
    ("GET", "/v1/runs/{run_id}/events"): TRAINS,
    ("GET", "/v1/runs/{run_id}/log"): TRAINS,
    ("GET", "/{path:path}"): "all",
    ("PATCH", "/v1/runs/{run_id}"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/sessions"): {ACT, ADMIN, WORKER},
    ("POST", "/v1/runs/{run_id}/names"): {ACT, ADMIN, WORKER},
    ("POST", "/v1/runs/{run_id}/evaluations"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/evaluations/begin"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/replays"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/events"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/goal"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/frames"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/checkpoints"): {ACT, ADMIN},
    ("POST", "/v1/runs/{run_id}/guest"): {ACT, ADMIN},
    ("GET", "/v1/runs/{run_id}/versions"): TRAINS,
    ("GET", "/v1/runs/{run_id}/watch"): TRAINS,  # act: its own
    ("POST", "/v1/runs/{run_id}/recordings"): {ACT, ADMIN},
    ("POST", "/v1/sessions/{sid}/rows"): {ACT, ADMIN, WORKER},
    ("POST", "/v1/sessions/{sid}/beat"): {ACT, ADMIN, WORKER},
    ("POST", "/v1/sessions/{sid}/leave"): {ACT, ADMIN, WORKER},
    ("POST", "/v1/runs/{run_id}/stop"): {ACT, ADMIN},
    ("DELETE", "/v1/runs/{run_id}"): {ACT, ADMIN},
    ("PUT", "/v1/modules/{sha256}"): {ACT, ADMIN},
    ("HEAD", "/v1/modules/{sha256}"): TRAINS | {WORKER},
    ("GET", "/v1/modules/{sha256}"): TRAINS | {WORKER},
    ("POST", "/logout"): TRAINS | {WORKER},  # it ends the session of the cookie, if there is one
}
"""
The callers that each route is for, in the order of a run's life.

A new route is missing here until it is decided who may ask for it. The run was started by the token
with the role act.
"""

REFUSED = {"no token": 401, "wrong": 401, "expired": 401, "revoked": 401}
BROWSER = {"sec-fetch-site": "same-origin", "x-arkml": "1"}


@asynccontextmanager
async def opened(data, **options):
    """A hive, and its application."""
    settings = {"spare": False, "learner": (FAKE,), "workers": WorkerOptions(total=1), **options}
    hive = await Hive.open(ServeOptions(data, **settings), "127.0.0.1:1")
    try:
        yield hive, make_app(hive)
    finally:
        await hive.close()


def client(app, **headers):
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False),
        base_url="http://localhost:12356",
        headers=headers,
    )


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def cookie_of(app, token):
    async with client(app, **BROWSER) as browser:
        answer = await browser.post("/login", json={"token": token})
        assert answer.status_code == 200, answer.text
        return answer.headers["set-cookie"].partition(";")[0]


async def headers_of_callers(data, hive, app, run_id, tokens):
    """The headers by which each kind of caller asks."""
    found = {"no token": {}, "wrong": bearer("wrong")}
    for role in (ACT, READ, ADMIN):
        found[role] = bearer(tokens[role])
        found[f"cookie {role}"] = {**BROWSER, "cookie": await cookie_of(app, tokens[role])}
    found["operator"] = bearer(OPERATOR)
    for name in ("expired", "revoked"):
        _, token = TokenFile(data).add(name, AccessRole.ADMIN, 60)
        found[name] = bearer(token)
        found[f"cookie {name}"] = {**BROWSER, "cookie": await cookie_of(app, token)}
    TokenFile(data).revoke("revoked")
    grant = WorkerGrant(run_id, SHA256)
    found[WORKER] = bearer(hive.credentials._workers.issue(grant))
    return found


def expected(allowed, kind):
    """The status by which a kind of caller is refused, None if it is answered."""
    role = kind.removeprefix("cookie ")
    role = ADMIN if role == "operator" else role
    if allowed == "all" or role in allowed:
        return None
    return REFUSED.get(role, 403)


def call_for(method, path, run_id, sid):
    """The arguments of a request, which changes as little as possible."""
    if path == "/{path:path}":
        return "/", {}
    url = path.format(run_id=run_id, sid=sid, sha256=SHA256)
    if path == EVENTS_PATH:  # refused before a stream begins
        return url, {"params": {"runs": ",".join(map(str, range(MAX_RUNS + 1)))}}
    if path.endswith("/rows"):
        return url, {"content": encode(rows(4), seq=9), "headers": {"content-type": CONTENT_TYPE}}
    if method == "PUT":
        return url, {"content": MODULE, "headers": {"content-type": "application/json"}}
    if method in ("GET", "HEAD"):
        return url, {}
    body = {
        "/v1/runs": request(on_conflict="join"),
        "/login": {"token": "none"},
        "/v1/runs/{run_id}/sessions": {
            "join_key": "a key of the test", "features": 3, "actions": 2, "role": "act",
        },
        "/v1/runs/{run_id}/names": {"names": ["speed"]},
        "/v1/runs/{run_id}/evaluations": {"version": 1, "returns": [1.0], "lengths": [1]},
        "/v1/runs/{run_id}/evaluations/begin": {"version": 1},
        "/v1/runs/{run_id}/goal": {"wanted": 1.0, "mean_return": 2.0, "episodes": 3},
        "/v1/runs/{run_id}/frames": {"frames": 5},
        "/v1/runs/{run_id}/guest": {"module": "0" * 64, "name": "a.wasm", "behavior": "a"},
        "/v1/runs/{run_id}/recordings": {"version": "1"},
        "/v1/runs/{run_id}/events": {"before": "0" * 64, "after": "1" * 64, "state": "kept"},
    }.get(path, {})  # fmt: skip
    return url, {"json": body} if body else {"headers": {"content-type": "application/json"}}


def routes_in(app):
    """Every method and path that an application serves."""
    starlette = app
    while not hasattr(starlette, "routes"):
        starlette = starlette._app
    return [
        (method, route.path)
        for route in starlette.routes
        for method in route.methods - ({"HEAD"} if "GET" in route.methods else set())  # added
    ]


async def test_every_route_answers_those_that_the_table_names_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "_LOOK_EVERY", 0.0)
    tokens, entries = {}, {}
    for role in AccessRole:
        entries[role], tokens[role] = TokenFile(tmp_path).add(role, role, None)
    async with opened(tmp_path, token=OPERATOR) as (hive, app):
        wanted = RunRequest.from_json(request())
        run, _ = await hive.create(wanted, owner=entries[ACT].id)
        run_id = run.document.id
        callers = await headers_of_callers(tmp_path, hive, app, run_id, tokens)
        session = hive.run(run_id)
        joined, _ = await session.join("another key", 3, 2, Role.ACT)
        now = credentials.time.time()
        monkeypatch.setattr(credentials.time, "time", lambda: now + 61)
        found = {}
        for method, path in TABLE:
            for kind, headers in callers.items():
                url, options = call_for(method, path, run_id, joined.sid)
                own = {**options.pop("headers", {}), **headers}
                if kind.startswith("cookie") and method not in ("GET", "HEAD"):
                    own["content-type"] = "application/json"
                async with client(app) as http:
                    answer = await http.request(method, url, headers=own, **options)
                status = answer.status_code if answer.status_code in (401, 403) else None
                found[method, path, kind] = status if path != "/login" else None
                assert answer.status_code != 500, (method, path, kind)
                caching = "no-cache" if url == "/" else "no-store"
                assert answer.headers["cache-control"] == caching
        served = routes_in(app)

    assert sorted(served) == sorted(TABLE)
    assert found == {
        (method, path, kind): expected(allowed, kind)
        for (method, path), allowed in TABLE.items()
        for kind in callers
    }


OWN = [
    ("POST", "/v1/runs/{run_id}/stop", None),
    ("POST", "/v1/runs/{run_id}/checkpoints", None),
    ("PATCH", "/v1/runs/{run_id}", None),
    ("POST", "/v1/runs/{run_id}/guest", {"module": "0" * 64, "name": "a", "behavior": "a"}),
    ("POST", "/v1/runs/{run_id}/recordings", {"version": "1"}),
    ("GET", "/v1/runs/{run_id}/watch", {}),
    ("DELETE", "/v1/runs/{run_id}", None),
    ("DELETE", "/v1/runs/{run_id}?force=1", None),
    ("POST", "/v1/sessions/{sid}/leave", {"stop": True}),
]


@pytest.mark.parametrize(("method", "path", "body"), OWN)
async def test_the_role_act_is_enough_for_the_runs_that_its_token_started(
    tmp_path, caplog, method, path, body
):
    caplog.set_level("INFO", "arkml.server.routes")
    alice, token = TokenFile(tmp_path).add("alice", AccessRole.ACT, None)
    _, other = TokenFile(tmp_path).add("bob", AccessRole.ACT, None)
    _, admin = TokenFile(tmp_path).add("carol", AccessRole.ADMIN, None)
    async with opened(tmp_path) as (hive, app), client(app) as http:
        made = await http.post("/v1/runs", json=request(), headers=bearer(token))
        run_id = made.json()["run"]["id"]
        joined, _ = await hive.run(run_id).join("a key of the test", 3, 2, Role.ACT)
        url = path.format(run_id=run_id, sid=joined.sid)
        shown = await http.get(f"/v1/runs/{run_id}", headers=bearer(other))
        refused = await http.request(method, url, json=body, headers=bearer(other))
        stays = hive.run(run_id).document.is_over
        answers = [
            await http.request(method, url, json=body, headers=bearer(one))
            for one in (token, admin)
        ]

    if body is None:
        assert (
            f"alice asks to {refused.json()['error'].split(' may ')[1].split()[0]}" in caplog.text
        )
        assert "bob asks" not in caplog.text
    assert shown.json()["owner"] == alice.id
    assert refused.status_code == 403
    assert "the runs alone that it started" in refused.json()["error"]
    assert not stays
    assert not {answer.status_code for answer in answers} & {401, 403}


async def test_a_session_is_left_without_stopping_the_run_of_another_token(tmp_path):
    _, token = TokenFile(tmp_path).add("alice", AccessRole.ACT, None)
    _, other = TokenFile(tmp_path).add("bob", AccessRole.ACT, None)
    async with opened(tmp_path) as (_, app), client(app) as http:
        made = await http.post("/v1/runs", json=request(), headers=bearer(token))
        run_id = made.json()["run"]["id"]
        key = {"join_key": "a key of the test", "features": 3, "actions": 2, "role": "act"}
        joined = await http.post(f"/v1/runs/{run_id}/sessions", json=key, headers=bearer(other))
        leave = f"/v1/sessions/{joined.json()['sid']}/leave"
        left = await http.post(leave, json={}, headers=bearer(other))

    assert (joined.status_code, left.status_code) == (200, 200)


KEY = {"join_key": "a key of the test", "features": 3, "actions": 2, "role": "act"}
RIGHTS = {
    ("join", "own"): True,
    ("join", "other"): True,
    ("join", "admin"): True,
    ("resume by a join", "own"): True,
    ("resume by a join", "other"): True,
    ("resume by a join", "admin"): True,
    ("resume by a start", "own"): True,
    ("resume by a start", "other"): True,
    ("resume by a start", "admin"): True,
    ("stop", "own"): True,
    ("stop", "other"): False,
    ("stop", "admin"): True,
    ("leave as the last", "own"): True,
    ("leave as the last", "other"): False,
    ("leave as the last", "admin"): True,
    ("leave beside one that is silent", "own"): False,
    ("leave beside one that is silent", "other"): False,
    ("leave beside one that is silent", "admin"): False,
    ("delete", "own"): True,
    ("delete", "other"): False,
    ("delete", "admin"): True,
}
"""Whether a caller may do something to a run of its own token, or of another one."""


@pytest.mark.parametrize("who", ["own", "other", "admin"])
async def test_who_may_join_resume_and_end_whose_run(tmp_path, who):
    tokens = {}
    for name, role in (("own", ACT), ("other", ACT), ("admin", ADMIN)):
        _, tokens[name] = TokenFile(tmp_path).add(name, AccessRole(role), None)
    own, headers = bearer(tokens["own"]), bearer(tokens[who])
    found = {}
    async with opened(tmp_path) as (hive, app), client(app) as http:
        made = await http.post("/v1/runs", json=request(), headers=own)
        run_id = made.json()["run"]["id"]
        url = f"/v1/runs/{run_id}"
        run = hive.run(run_id)

        async def join(key="a key of the caller"):
            return await http.post(
                f"{url}/sessions", json={**KEY, "join_key": key}, headers=headers
            )

        async def leave(joined):
            left = await http.post(
                f"/v1/sessions/{joined.json()['sid']}/leave", json={}, headers=headers
            )
            assert left.status_code == 200
            return run.document.is_over

        silent = await http.post(f"{url}/sessions", json=KEY, headers=own)
        joined = await join()
        found["join"] = joined.is_success
        hive.session(silent.json()["sid"])[1].seen = float("-inf")  # its lease is over
        found["leave beside one that is silent"] = await leave(joined)
        back = await http.post(f"/v1/sessions/{silent.json()['sid']}/beat", headers={
            **own, "content-type": "application/json",
        })  # fmt: skip
        assert back.status_code == 200
        hive.session(silent.json()["sid"])[1].left = True
        found["leave as the last"] = await leave(await join())
        await run.stop()
        found["resume by a join"] = (await join("another key")).is_success
        await run.stop()
        again = await http.post("/v1/runs", json=request(on_conflict="join"), headers=headers)
        assert again.json()["run"]["id"] == run_id
        found["resume by a start"] = (await join("a third key")).is_success
        for action, method, path in (("stop", "POST", f"{url}/stop"), ("delete", "DELETE", url)):
            asked = await http.request(
                method, path, headers={**headers, "content-type": "application/json"}
            )
            found[action] = asked.is_success
            assert asked.status_code in (200, 403)
            if action == "stop":
                await run.stop()

    assert found == {action: is_so for (action, one), is_so in RIGHTS.items() if one == who}


async def test_what_a_token_has_made_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "_LOOK_EVERY", 0.0)
    file = TokenFile(tmp_path)
    entry, token = file.add("carol", AccessRole.ADMIN, None)
    async with opened(tmp_path, token=OPERATOR) as (hive, app), client(app) as http:
        links = [
            (await http.post("/v1/one_time_tokens", json={}, headers=bearer(one))).json()["token"]
            for one in (token, token, OPERATOR)
        ]
        session = {**BROWSER, "cookie": await cookie_of(app, links[0])}
        before = await http.get("/v1/whoami", headers=session)
        run, _ = await hive.create(RunRequest.from_json(request()), owner=entry.id)
        grant = WorkerGrant(run.document.id, SHA256, entry.id)
        worker = bearer(hive.credentials._workers.issue(grant))
        url = f"/v1/runs/{run.document.id}"
        worked = await http.get(url, headers=worker)
        file.revoke("carol")
        after = await http.get("/v1/whoami", headers=session)
        late = await http.post("/login", json={"token": links[1]}, headers=BROWSER)
        others = await http.post("/login", json={"token": links[2]}, headers=BROWSER)
        works = await http.get(url, headers=worker)

    assert before.json()["name"] == "carol"
    assert (worked.status_code, works.status_code) == (200, 401)
    assert (after.status_code, late.status_code, others.status_code) == (401, 401, 200)
    assert others.json()["name"] == "operator"


async def test_a_hive_without_tokens_answers_programs_and_its_own_page(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        statuses = {}
        for name, headers in {
            "program": {},
            "page": {**BROWSER, "content-type": "application/json"},
            "form": {"sec-fetch-site": "same-origin"},
            "other page": {"sec-fetch-site": "same-site", "x-arkml": "1"},
            "foreign page": {"origin": "http://localhost:1"},
            "proxy": {"x-forwarded-for": "192.0.2.1"},
            "wrong token": bearer("wrong"),
        }.items():
            statuses[name] = [
                (await http.get("/v1/runs", headers=headers)).status_code,
                (await http.post("/v1/runs/none/stop", headers=headers)).status_code,
            ]
        caller = await http.get("/v1/whoami")
        login = await http.post("/login", json={"token": "any"}, headers=BROWSER)
        linked = await http.post("/v1/one_time_tokens", json={})

    assert statuses == {
        "program": [200, 404],
        "page": [200, 404],
        "form": [200, 403],
        "other page": [403, 403],
        "foreign page": [403, 403],
        "proxy": [403, 403],
        "wrong token": [200, 404],
    }
    assert caller.json() == {"name": "", "role": "admin", "owner": "", "needs_token": False}
    assert login.json() == caller.json()
    assert "set-cookie" not in login.headers
    assert linked.status_code == 409


@pytest.mark.parametrize("path", ["/v1/health", "/login", "/", "/page.js", "/v1/runs"])
async def test_a_foreign_page_is_refused_everywhere_also_with_a_token(tmp_path, path):
    async with opened(tmp_path, token=OPERATOR) as (_, app), client(app) as http:
        for origin in ("http://evil.example", "null", "http://localhost:1"):
            headers = {**bearer(OPERATOR), "origin": origin}
            for method in ("GET", "POST", "OPTIONS"):
                answer = await http.request(method, path, headers=headers)
                assert answer.status_code == 403
                assert "access-control-allow-origin" not in answer.headers


async def test_every_answer_has_headers_for_browsers(tmp_path):
    async with opened(tmp_path, token=OPERATOR) as (_, app), client(app) as http:
        data = [
            await http.get("/v1/runs", headers=bearer(OPERATOR)),
            await http.get("/v1/runs"),
            await http.get("/v1/runs", headers={"origin": "null"}),
            await http.get("/v1/health"),
            await http.get("/v1/none"),
            await http.post("/login"),
            await http.get("/metrics"),
        ]
        pages = [await http.get("/"), await http.get("/login.js"), await http.post("/")]

    assert [answer.status_code for answer in data] == [200, 401, 403, 200, 401, 400, 401]
    assert [answer.status_code for answer in pages] == [200, 200, 401]
    for answer in (*data, *pages):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    for answer in data:
        assert answer.headers["cache-control"] == "no-store"
        csp = answer.headers["content-security-policy"]
        assert csp == "default-src 'none'; frame-ancestors 'none'"
    for answer in pages:
        policy = dict(
            part.strip().split(" ", 1)
            for part in answer.headers["content-security-policy"].split(";")
        )
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "img-src": "'self' data: blob:",
            "connect-src": "'self'",
            "style-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'self'",
            "frame-ancestors": "'none'",
        }


async def test_a_prefix_that_a_proxy_leaves_in_the_path_is_taken_off(tmp_path):
    public = "https://hive.example/arkml"
    headers = {"host": "hive.example", **bearer(OPERATOR)}
    async with (
        opened(tmp_path, token=OPERATOR, public_url=public) as (_, app),
        client(app, **headers) as http,
    ):
        left = await http.get("/arkml/v1/runs")
        taken = await http.get("/v1/runs")
        other = await http.get("/arkmlx/v1/runs")
        bare = await http.get("/arkml")

    assert [one.status_code for one in (left, taken, other)] == [200, 200, 404]
    assert (bare.status_code, bare.headers["location"]) == (308, "/arkml/")


WRONG_FORMS = [(b"a=\xff", b"localhost"), (b"&" * 5_000, b"["), (b"a=%ff", b"[::1")]
"""Queries, and the Host headers that they come with."""


async def test_a_wrong_form_of_a_request_is_not_a_bug_of_the_hive(tmp_path):
    found = {}

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async with opened(tmp_path, host="0.0.0.0", token=OPERATOR) as (_, app):
        for case in itertools.product(
            ["GET", "POST", "DELETE"],
            ["/", "/v1/runs", "/v1/runs/", "/v1/runs/x/series", "/v1/none/"],
            WRONG_FORMS,
        ):
            method, path, (query, host) = case
            sent = found[case] = []

            async def send(message, sent=sent):
                sent.append(message.get("status"))

            scope = {
                "type": "http", "method": method, "path": path, "raw_path": path.encode(),
                "query_string": query, "headers": [(b"host", host), (b"cookie", b"=;a=\xff;;"),
                (b"authorization", f"Bearer {OPERATOR}".encode())], "client": ("192.0.2.1", 1),
                "server": ("0.0.0.0", 80), "scheme": "http", "root_path": "",
                "http_version": "1.1",
            }  # fmt: skip
            await app(scope, receive, send)

    assert {case: sent for case, sent in found.items() if sent[0] >= 500} == {}
    assert {sent[0] for (_, _, form), sent in found.items() if form is WRONG_FORMS[0]} == {400}
