"""Lines of a hive's log about hosts that join and leave, and about its end."""

import asyncio
from contextlib import asynccontextmanager

from tests.integration.hive_service import request, rows
from tests.integration.test_access_table import KEY, bearer, client, opened

from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile
from arkml.server.serve_options import Timeouts

JSON = {"content-type": "application/json"}


def lines(caplog, word):
    return [text for text in caplog.messages if word in text]


async def until(caplog, word):
    async with asyncio.timeout(60):
        while not lines(caplog, word):
            await asyncio.sleep(0.01)


async def test_the_log_says_who_joins_who_leaves_and_what_is_saved(tmp_path, caplog):
    caplog.set_level("INFO", "arkml.server")
    _, token = TokenFile(tmp_path).add("ann", AccessRole.ACT, None)
    async with opened(tmp_path) as (_, app), client(app, **bearer(token)) as http:
        made = await http.post("/v1/runs", json=request("walk\x1b[2Jer"))
        run_id = made.json()["run"]["id"]
        join = {**KEY, "host": "bo\nx\u202e"}
        sid = (await http.post(f"/v1/runs/{run_id}/sessions", json=join)).json()["sid"]
        again = await http.post(f"/v1/runs/{run_id}/sessions", json={**KEY, "role": "act"})
        other = {**KEY, "join_key": "another key", "role": "eval"}
        await http.post(f"/v1/runs/{run_id}/sessions", json=other)
        sent = encode(rows(7), seq=1)
        headers = {"content-type": CONTENT_TYPE}
        pushed = await http.post(f"/v1/sessions/{sid}/rows", content=sent, headers=headers)
        for _ in range(2):
            await http.post(f"/v1/sessions/{sid}/leave", headers=JSON)
        title = f"{run_id} (walk\\x1b[2Jer)"

    assert (again.status_code, pushed.status_code) == (200, 200)
    assert lines(caplog, " joins run ") == [
        f"ann at bo x\\u202e joins run {title}, as session 0 (act)",
        f"ann joins run {title} again, as session 0 (act)",
        f"ann joins run {title}, as session 1 (eval)",
    ]
    assert lines(caplog, "leaves run") == [f"session 0 leaves run {title}, 7 rows are its"]
    [saved] = lines(caplog, "is saved")
    assert saved.startswith(f"run {title} is saved: 7 rows, and ")
    assert lines(caplog, "the hive ends") == [f"the hive ends, runs that are kept in {tmp_path}: 1"]


@asynccontextmanager
async def joined(path, lease):
    """The client of a hive, and a run that a host has joined."""
    async with opened(path, timeouts=Timeouts(lease=lease)) as (_, app), client(app) as http:
        run_id = (await http.post("/v1/runs", json=request())).json()["run"]["id"]
        await http.post(f"/v1/runs/{run_id}/sessions", json=KEY)
        yield http, run_id


async def test_the_log_says_once_that_a_host_has_fallen_silent(tmp_path, caplog):
    async with joined(tmp_path, 0.5) as (http, run_id):
        other = {**KEY, "join_key": "another key"}
        sid = (await http.post(f"/v1/runs/{run_id}/sessions", json=other)).json()["sid"]
        await http.post(f"/v1/sessions/{sid}/leave", headers=JSON)
        await until(caplog, "silent")

    assert lines(caplog, "silent") == [
        f"session 0 of run {run_id} (run) has been silent for 0.5 s, after 0 rows"
    ]


async def test_a_host_that_no_sweep_saw_alive_is_said_to_have_fallen_silent(tmp_path, caplog):
    """As on a machine so busy that the hive looks after its runs less often than a lease lasts."""
    async with joined(tmp_path, 0.01):
        await until(caplog, "silent")
        await asyncio.sleep(1.0)  # more looks

    assert len(lines(caplog, "silent")) == 1


async def test_a_host_with_a_name_that_is_too_long_is_refused(tmp_path):
    async with opened(tmp_path) as (_, app), client(app) as http:
        run_id = (await http.post("/v1/runs", json=request())).json()["run"]["id"]
        join = {**KEY, "host": "x" * 256}
        refused = await http.post(f"/v1/runs/{run_id}/sessions", json=join)

    assert refused.status_code == 422
    assert "host is" in refused.json()["error"]
