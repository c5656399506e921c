"""The hive over HTTP: runs, sessions, rows, policies, and what it does when things go wrong."""

import json
import os
import shutil
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from tests.integration.command_line import arkml
from tests.integration.hive_service import ACTIONS, FEATURES, Service, request, rows, start_hive
from tests.unit.shown_replays import document, submit
from tests.waiting import eventually

from arkml.errors import HiveUnreachable
from arkml.hive.client import HiveClient
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.replay_messages import ReplayReport
from arkml.hive.protocol.rows import (
    MAX_BODY,
    META,
    NO_ROW,
    RowColumns,
    encode,
    read_records,
    segment_name,
)
from arkml.server.upgrade import DATA_VERSION


@pytest.fixture
def make_service(tmp_path):
    """A factory of hives and clients that are closed at the end."""
    made = []

    def make(**settings):
        hive = start_hive(tmp_path / "data", **settings)
        made.append(hive)
        service = Service(hive)
        made.append(service)
        return service

    yield make
    for one in reversed(made):
        one.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A hive for all tests that leave it as it was, but for its runs."""
    with start_hive(tmp_path_factory.mktemp("shared") / "data") as hive:
        service = Service(hive)
        yield service
        service.close()


@pytest.fixture
def service(request):
    if request.node.get_closest_marker("own_hive") is not None:
        yield request.getfixturevalue("make_service")()
        return
    shared = request.getfixturevalue("shared")
    yield shared
    for run in shared.get("/runs").json()["runs"]:
        shared.http.delete(f"/runs/{run['id']}?force=1")


@pytest.fixture
def run_id(service):
    return service.create()


@pytest.fixture
def sid(service, run_id):
    return service.sid(run_id)


def directory(service, run_id):
    return service.hive.data / "runs" / run_id


def audit(service, run_id):
    """The audit of a learner that has read everything."""

    def read():
        found = service.get(f"/runs/{run_id}/memory")
        if found.status_code != 200:  # no learner listens just now
            return None
        told = found.json()
        return told if told["cursor"] == told["committed"] else None

    return eventually(read)


def kill(service):
    """Kill the server; its learners follow."""
    os.kill(service.hive.pid, signal.SIGKILL)
    eventually(lambda: service.hive.is_dead)


def revive(service):
    """Start the server again on the same directory."""
    service.close()
    service.connect()


def test_health_needs_no_token_and_everything_else_does(service):
    anybody = httpx.Client(base_url=service.base, trust_env=False)
    with anybody:
        health = anybody.get("/health")
        refused = [
            anybody.get("/runs"),
            anybody.get("/runs", headers={"authorization": "Bearer wrong"}),
            anybody.post("/sessions/x/rows", content=b""),
        ]

    assert (health.json()["service"], health.json()["protocol"]) == ("arkml-hive", 1)
    assert [answer.status_code for answer in refused] == [401, 401, 401]
    assert "token" in refused[0].json()["error"]


def statuses_for(service, *names, path="/runs"):
    """How requests for these names are answered."""
    return [service.get(path, headers={"host": name}).status_code for name in names]


def test_a_hive_on_loopback_answers_loopback_names_with_any_port_and_no_others(service):
    names = ("localhost", "LOCALHOST:1", "127.0.0.1:99999", "127.7.7.7", "[::1]", "[::1]:80")
    others = (
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:12356", "10.0.0.1",
        "[2001:db8::1]:80", "", "evil@localhost", "localhost/", "localhost:80:80", "::1",
    )  # fmt: skip
    told = service.get("/health", headers={"host": "evil.example:80"})

    assert statuses_for(service, *names) == [200] * len(names)
    assert statuses_for(service, *others) == [403] * len(others)
    assert told.status_code == 403
    assert "'evil.example:80'" in told.json()["error"]
    assert "--allow-host" in told.json()["error"]


def test_a_hive_answers_to_the_names_that_it_is_given(make_service):
    service = make_service(allow_hosts=["Hive.example", "other.example:443"])
    names = ("hive.example", "HIVE.example:80", "other.example", "127.0.0.1")

    assert statuses_for(service, *names) == [200] * len(names)
    assert statuses_for(service, "evil.example", "x.hive.example") == [403, 403]


def test_a_hive_for_others_answers_to_any_name_unless_it_is_given_some(make_service):
    any_name = make_service(host="0.0.0.0")
    before = statuses_for(any_name, "hive.example", "10.0.0.1:80")
    any_name.hive.close()
    given = make_service(host="0.0.0.0", allow_hosts=["hive.example"])

    assert before == [200, 200]
    assert statuses_for(given, "hive.example", "127.0.0.1", "evil.example") == [200, 200, 403]


def test_health_says_nothing_of_where_the_data_is(service):
    assert service.get("/health").json() == {"service": "arkml-hive", "protocol": 1}


def test_a_run_starts_and_publishes_a_policy(service, run_id):
    policy = service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    info = service.wait_for_status(run_id, "running")

    assert policy.status_code == 200
    assert policy.headers["x-arkml-version"] == "1"
    assert policy.content.startswith(b"policy")
    assert info


def test_a_poll_waits_for_a_newer_policy_and_gets_it(service, run_id, sid):
    service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    with ThreadPoolExecutor(1) as thread:
        poll = thread.submit(service.get, f"/runs/{run_id}/policy?after=1&wait=20")
        service.push(sid, rows(10), 1)
        newer = poll.result()
    quick = service.get(f"/runs/{run_id}/policy?after=99&wait=0.05")

    assert newer.headers["x-arkml-version"] == "2"
    assert (quick.status_code, quick.content) == (204, b"")


def test_the_configuration_comes_back_byte_for_byte(service):
    text = '{"a": 1,\r\n "arkml": {},  "ü": "\\u00fc"} '
    wish = request() | {"configuration": text}
    run_id = service.post("/runs", wish).json()["run"]["id"]

    assert service.get(f"/runs/{run_id}/config").content == text.encode()


def test_rows_are_acknowledged_once_and_never_out_of_turn(service, run_id, sid):
    first = service.push(sid, rows(10), 1)
    again = service.push(sid, rows(10), 1)
    gap = service.push(sid, rows(10, 20), 3)
    second = service.push(sid, rows(10, 10), 2)

    assert (first.json()["acked"], first.json()["accepted"]) == (1, 10)
    assert (again.json()["duplicate"], again.json()["acked"]) == (True, 1)
    assert (gap.status_code, gap.json()["expected"]) == (409, 2)
    assert second.json()["acked"] == 2
    assert audit(service, run_id)["held"] == 20


def test_the_same_body_sent_by_many_at_once_is_stored_once(service, run_id, sid):
    body = encode(rows(50), seq=1)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: service.send(sid, body).json(), range(16)))

    assert sum(not answer["duplicate"] for answer in answers) == 1
    assert audit(service, run_id)["held"] == 50


def test_the_audit_agrees_with_what_was_accepted(service, run_id, sid):
    other = service.join(run_id).json()
    sent = rows(100, agents=4)
    sent.features[7] = np.nan
    answer = service.push(sid, sent, 1, dropped=3).json()
    service.push(other["sid"], rows(30), 1)
    told = audit(service, run_id)

    keep = np.ones(100, bool)
    keep[7] = False
    expected = checksum(row_hashes(0, 0, sent.take(keep))) ^ checksum(row_hashes(1, 0, rows(30)))
    assert (answer["accepted"], answer["refused"], answer["refused_n"]) == (
        99,
        [[7, "not finite"]],
        1,
    )
    assert told["checksum"] == expected
    assert told["sessions"] == {
        "0": {"acked": 1, "rows": 99, "refused": 1, "dropped": 3},
        "1": {"acked": 1, "rows": 30, "refused": 0, "dropped": 0},
    }


def test_a_body_that_comes_again_has_the_same_refusals(service, sid):
    sent = rows(100, agents=4)
    sent.features[7] = np.nan
    first, again = (service.push(sid, sent, 1).json() for _ in range(2))

    assert again["duplicate"]
    assert again["accepted"] == 0
    assert (again["refused_n"], again["refused"]) == (first["refused_n"], first["refused"])


def test_bodies_that_are_no_rows_are_refused_and_change_nothing(service, sid):
    body = encode(rows(10), seq=1)
    wrong_width = rows(10)
    wrong_width.features = wrong_width.features[:, :2].copy()
    wrong_images = RowColumns.empty(10, FEATURES, ACTIONS, images=1)
    answers = {
        "short": service.send(sid, body[:-8]),
        "long": service.send(sid, body + bytes(8)),
        "no header": service.send(sid, b"x" * 10),
        "magic": service.send(sid, b"XXXX" + body[4:]),
        "checksum": service.send(sid, body[:-1] + b"\x01"),
        "width": service.send(sid, encode(wrong_width, seq=1)),
        "images": service.send(sid, encode(wrong_images, seq=1)),
        "number": service.send(sid, encode(rows(10), seq=0)),
        "type": service.send(sid, body, "application/json"),
        "nobody": service.send("nobody", body),
    }

    assert {name: answer.status_code for name, answer in answers.items()} == {
        "short": 400,
        "long": 400,
        "no header": 400,
        "magic": 422,
        "checksum": 422,
        "width": 422,
        "images": 422,
        "number": 422,
        "type": 415,
        "nobody": 404,
    }
    assert all(answer.json()["error"] for answer in answers.values())
    assert service.push(sid, rows(10), 1).json()["acked"] == 1


def test_a_body_that_is_too_large_is_refused(service, sid):
    declared = service.send(sid, bytes(MAX_BODY + 1))
    body = encode(rows(10), seq=1)
    parts = iter([body, *(bytes(1 << 20) for _ in range(4))])
    counted = service.http.post(
        f"/sessions/{sid}/rows",
        content=parts,
        headers={"content-type": "application/x-arkml-rows"},
    )

    assert declared.status_code == 413
    assert counted.status_code == 400
    assert service.push(sid, rows(10), 1).status_code == 200


def test_metric_names_get_numbers_that_stay(service, run_id, sid):
    first = service.post(f"/runs/{run_id}/names", {"names": ["a", "b", "a"]}).json()
    again = service.post(f"/runs/{run_id}/names", {"names": ["c", "b"]}).json()
    more = service.post(
        f"/runs/{run_id}/names",
        {"names": ["", "x" * 257, "x" * 256, *(f"n{i}" for i in range(254)), "a"]},
    ).json()
    known, unknown = rows(2), rows(2, 2)
    known.meta = np.array([(0, 2, 0.5), (NO_ROW, 2, 0.5)], META)
    unknown.meta = np.array([(0, 256, 0.5)], META)

    assert (first["ids"], again["ids"]) == ({"a": 0, "b": 1}, {"c": 2, "b": 1})
    assert set(more["refused"]) == {"", "x" * 257, "n252", "n253"}
    assert (more["ids"]["x" * 256], more["ids"]["n251"], more["ids"]["a"]) == (3, 255, 0)
    assert "1 to 256 letters" in more["refused"][""]
    assert "256 metrics already" in more["refused"]["n252"]
    assert service.push(sid, known, 1).status_code == 200
    assert service.push(sid, unknown, 2).status_code == 422


def test_more_names_at_once_than_any_host_has_are_refused_and_none_is_numbered(service, run_id):
    path = f"/runs/{run_id}/names"
    many = service.post(path, {"names": [str(i) for i in range(1_025)]})
    most = service.post(path, {"names": [str(i % 256) for i in range(1_024)]})

    assert (many.status_code, most.status_code) == (422, 200)
    assert "1025 names at once: 1024 at most" in many.json()["error"]
    assert most.json() == {"ids": {str(i): i for i in range(256)}, "refused": {}}


def test_the_same_name_started_ten_times_at_once_makes_ten_runs(service):
    with ThreadPoolExecutor(10) as threads:
        made = [
            f.json() for f in threads.map(lambda _: service.post("/runs", request()), range(10))
        ]

    assert len({answer["run"]["id"] for answer in made}) == 10
    assert {answer["run"]["name"] for answer in made} == {
        "run",
        *(f"run-{number}" for number in range(2, 11)),
    }


def test_the_same_name_joined_ten_times_at_once_makes_one_run(service):
    wish = request(on_conflict="join")
    with ThreadPoolExecutor(10) as threads:
        made = [f.json() for f in threads.map(lambda _: service.post("/runs", wish), range(10))]

    assert len({answer["run"]["id"] for answer in made}) == 1
    assert sum(answer["created"] for answer in made) == 1


def test_other_widths_join_neither_a_run_nor_a_session(service, run_id):
    run = service.post("/runs", request(features=9, on_conflict="join"))
    session = service.join(run_id, features=9)

    assert (run.status_code, session.status_code) == (409, 409)
    assert "9" in run.json()["error"]


def test_settings_that_make_no_sense_are_refused(service):
    wrong = request()
    wrong["settings"]["gamma"] = 7
    none = request() | {"settings": None}
    answers = [service.post("/runs", wish) for wish in (wrong, none, {})]
    half = service.http.post("/runs", content=json.dumps(request("\ud800")).encode())

    assert [answer.status_code for answer in (*answers, half)] == [422, 422, 422, 400]
    assert "gamma is 7" in answers[0].json()["error"]
    assert service.get("/runs").json() == {"runs": []}


def test_the_same_key_is_the_same_session(service, run_id):
    key = str(uuid.uuid4())
    first = service.join(run_id, key).json()
    service.push(first["sid"], rows(10), 1)
    again = service.join(run_id, key).json()

    assert (again["sid"], again["index"]) == (first["sid"], first["index"])
    assert (first["rejoin"], again["rejoin"], again["acked"]) == (False, True, 1)


def test_a_session_is_told_by_which_noise_its_agents_explore(service, run_id):
    white = service.create("white", settings={"noise": "white"})

    assert service.join(run_id).json()["is_pink"]
    assert not service.join(white).json()["is_pink"]


@pytest.mark.parametrize("key", [None, 7, "", "short", "x" * 129, ["a"]])
def test_a_key_that_is_none_joins_nothing(service, run_id, key):
    wish = {"join_key": key, "features": 3, "actions": 2}

    assert service.post(f"/runs/{run_id}/sessions", wish).status_code == 422


def test_the_last_session_that_leaves_stops_the_run_with_a_checkpoint(service, run_id):
    first, second = service.sid(run_id), service.sid(run_id)
    service.push(first, rows(10), 1)
    audit(service, run_id)
    service.post(f"/sessions/{first}/leave")
    between = service.run(run_id)["status"]
    service.post(f"/sessions/{second}/leave")

    assert between != "stopped"
    assert service.run(run_id)["status"] == "stopped"
    assert service.run(run_id)["ended_at"] > 0
    assert service.get(f"/runs/{run_id}/checkpoints").json()["checkpoints"] == [
        {"name": f"{run_id}@1", "n_opts": 1, "best": False}
    ]
    assert service.push(first, rows(10, 10), 2).status_code == 410


def test_who_left_may_come_back_and_the_run_goes_on(service, run_id):
    key = str(uuid.uuid4())
    sid = service.sid(run_id, key)
    service.push(sid, rows(10), 1)
    service.post(f"/sessions/{sid}/leave")
    again = service.join(run_id, key)
    more = service.push(sid, rows(10, 10), 2)

    assert (again.status_code, again.json()["acked"]) == (200, 1)
    assert more.json()["acked"] == 2
    assert audit(service, run_id)["held"] == 20


def test_stop_ends_the_run_for_all_but_newcomers(service, run_id):
    key = str(uuid.uuid4())
    sid, other = service.sid(run_id, key), service.sid(run_id)
    with ThreadPoolExecutor(1) as thread:
        poll = thread.submit(service.get, f"/runs/{run_id}/policy?after=99&wait=25")
        service.post(f"/sessions/{other}/leave", {"stop": True})
        ended = poll.result()
    old = [service.push(sid, rows(1), 1), service.join(run_id, key)]
    new = service.join(run_id)

    assert (ended.status_code, ended.headers["x-arkml-status"]) == (204, "terminating")
    assert [answer.status_code for answer in old] == [410, 410]
    assert new.status_code == 200
    service.wait_for_status(run_id, "running")


def test_only_a_run_that_is_over_is_deleted(service, run_id, sid):
    refused = service.http.delete(f"/runs/{run_id}")
    service.post(f"/runs/{run_id}/stop")
    deleted = service.http.delete(f"/runs/{run_id}")
    forced = service.http.delete(f"/runs/{service.create()}?force=1")

    assert [answer.status_code for answer in (refused, deleted, forced)] == [409, 200, 200]
    assert service.get("/runs").json() == {"runs": []}
    assert list((service.hive.data / "runs").iterdir()) == []
    assert service.push(sid, rows(1), 1).status_code == 404


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "..", "a/b", "a\0b", "%2e%2e%2f", "x" * 500, "", "💥", "\n"]
)
def test_no_text_of_a_guest_becomes_a_path(service, name):
    run_id = service.create(name)
    answers = [
        service.get(f"/runs/{quote(name, safe='')}"),
        service.post("/runs", request() | {"checkpoint": f"{name}@1"}),
        service.post(f"/runs/{run_id}/names", {"names": [name or "x"]}),
    ]

    assert run_id.isalnum()
    assert name == "" or answers[0].status_code == 404
    assert answers[1].status_code == 404
    assert [path.name for path in (service.hive.data / "runs").iterdir()] == [run_id]
    assert list(service.hive.data.parent.iterdir()) == [service.hive.data]


def test_a_run_starts_from_a_checkpoint_that_is_there(service, run_id, sid):
    service.push(sid, rows(10), 1)
    audit(service, run_id)
    name = service.post(f"/runs/{run_id}/checkpoints").json()["checkpoint"]
    found = service.post("/runs", request() | {"checkpoint": name})
    missing = service.post("/runs", request() | {"checkpoint": f"{run_id}@77"})

    assert name == f"{run_id}@1"
    assert (found.status_code, missing.status_code) == (201, 404)


def test_snapshots_are_of_now_or_the_latest_or_the_best(service, run_id):
    service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    none = service.get(f"/runs/{run_id}/snapshot?which=best")
    best = service.post(
        f"/runs/{run_id}/evaluations", {"version": 1, "returns": [1.0, 2.0], "lengths": [3, 5]}
    )
    worse = service.post(
        f"/runs/{run_id}/evaluations", {"version": 1, "returns": [1.0], "lengths": [3]}
    )
    found = {
        which: service.get(f"/runs/{run_id}/snapshot?which={which}")
        for which in ("now", "latest", "best", "other")
    }
    metrics = {
        name: value for name, value, _ in service.get(f"/runs/{run_id}/metrics").json()["metrics"]
    }

    assert (best.json(), worse.json()) == ({"best": True}, {"best": False})
    assert [answer.status_code for answer in (none, *found.values())] == [404, 200, 200, 200, 422]
    assert found["now"].content != found["latest"].content == found["best"].content
    assert (metrics["eval/mean_reward"], metrics["eval/mean_ep_length"]) == (1.0, 3.0)


def test_replays_of_evaluated_episodes_are_kept_and_go_with_their_run(service, run_id):
    shown = [document([submit(["1"], [score])]) for score in (1.0, 3.0, 2.0)]
    with HiveClient(service.hive.locate) as client:
        none = client.replays(run_id).result(60)
        for version, one in enumerate(shown):
            report = ReplayReport.of(version, one.frames[0].submits[0].rewards[0], one)
            kept = client.keep_replay(run_id, report).result(60)
        found = {one.kind: client.replay(run_id, one.kind).result(60) for one in kept}

    assert none == []
    assert {one.kind: (one.version, one.score) for one in kept} == {
        "best": (1, 3.0), "worst": (0, 1.0), "latest": (2, 2.0),
    }  # fmt: skip
    assert found == {"worst": shown[0], "best": shown[1], "latest": shown[2]}
    other = service.post(f"/runs/{run_id}/replays", {"version": 1, "score": 9, "document": "eA=="})
    assert (other.status_code, "a replay that is cut" in other.text) == (422, True)
    service.post(f"/runs/{run_id}/stop")
    assert service.http.delete(f"/runs/{run_id}").status_code == 200
    assert service.get(f"/runs/{run_id}/replay?which=best").status_code == 404


def test_evaluations_are_given_to_the_learner_to_record_and_wait_for_one(service, run_id):
    service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    os.kill(learner_of(service), signal.SIGKILL)
    service.wait_for_status(run_id, "unhealthy")
    service.post(f"/runs/{run_id}/evaluations", {"version": 1, "returns": [4.0], "lengths": [3]})
    service.post(f"/runs/{run_id}/evaluations", {"version": 1, "returns": [6.0], "lengths": [5]})
    recorded = service.hive.data / "runs" / run_id / "events" / "recorded.jsonl"

    def evaluations():
        lines = recorded.read_text().splitlines() if recorded.exists() else []
        return [line for line in lines if '"eval/' in line]

    lines = eventually(lambda: len(found := evaluations()) == 2 and found)

    assert [[tuple(point) for point in json.loads(line)] for line in lines] == [
        [
            ("eval/mean_reward", 0, 4.0),
            ("eval/std_reward", 0, 0.0),
            ("eval/mean_ep_length", 0, 3.0),
        ],
        [
            ("eval/mean_reward", 0, 6.0),
            ("eval/std_reward", 0, 0.0),
            ("eval/mean_ep_length", 0, 5.0),
        ],
    ]


def test_an_evaluation_is_recorded_at_its_rows_with_its_spread_and_its_successes(
    service, run_id, sid
):
    service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    service.push(sid, rows(10), 1)
    audit(service, run_id)
    played = {"version": 1, "returns": [1.0, 3.0], "lengths": [3, 5], "successes": [True, False]}
    for asked in (4, 99):
        service.post(f"/runs/{run_id}/evaluations", played | {"rows": asked})
    wrong = service.post(f"/runs/{run_id}/evaluations", played | {"successes": [True]})
    series = {
        name: service.get(f"/runs/{run_id}/series?name=eval/{name}").json()["series"]
        for name in ("mean_reward", "std_reward", "success_rate")
    }

    assert {name: [point[:2] for point in points] for name, points in series.items()} == {
        "mean_reward": [[4, 2.0], [10, 2.0]],
        "std_reward": [[4, 1.0], [10, 1.0]],
        "success_rate": [[4, 0.5], [10, 0.5]],
    }
    assert wrong.status_code == 422
    assert "as many returns as successes, not 2 and 1" in wrong.json()["error"]


def test_metrics_come_as_the_newest_values_and_as_series(service, run_id, sid):
    for seq in range(1, 4):
        service.push(sid, rows(1, seq), seq)
    path = f"/runs/{run_id}/series?name=rollout/ep_rew_mean"
    series = eventually(lambda: service.get(path).json()["series"])

    assert series[0][1] == 1.5
    assert service.get(path + "&since=100").json()["series"] == []
    assert service.run(run_id)["latest"]["rollout/ep_rew_mean"] == 1.5


def test_a_session_that_evaluates_sends_no_rows(service, run_id):
    sid = service.join(run_id, role="eval").json()["sid"]

    assert service.push(sid, rows(1), 1).status_code == 422


def test_a_run_that_nobody_takes_part_in_rests_and_then_stops(make_service):
    service = make_service(timeouts={"lease": 1.0, "pause": 1.0, "idle_stop": 6.0})
    run_id = service.create()
    sid = service.sid(run_id)
    service.wait_for_status(run_id, "paused")
    beat = service.post(f"/sessions/{sid}/beat")
    roused = service.run(run_id)["status"]
    service.wait_for_status(run_id, "stopped")

    assert (beat.status_code, roused) == (200, "running")
    assert service.post(f"/sessions/{sid}/beat").status_code == 410


def test_a_learner_that_is_killed_is_started_again_and_nothing_is_lost(service, run_id, sid):
    service.wait_for_status(run_id, "running")
    service.push(sid, rows(10), 1)
    version = service.run(run_id)["policy_version"]
    os.kill(learner_of(service), signal.SIGKILL)
    more = service.push(sid, rows(10, 10), 2)
    newer = eventually(
        lambda: service.get(f"/runs/{run_id}/policy?after={version + 1}&wait=20").status_code == 200
    )

    assert more.json()["acked"] == 2
    assert newer
    assert audit(service, run_id)["held"] == 20


def learner_of(service):
    def last():
        text = (service.hive.data / "hive.log").read_text()
        return text.rpartition("process ")[2].split()[0] if "process " in text else ""

    return int(eventually(last))


@pytest.mark.parametrize(
    ("misbehavior", "reason"),
    [("misconfigured", "that makes no sense"), ("diverge", "weights are not finite")],
)
def test_a_learner_that_cannot_learn_aborts_the_run(service, misbehavior, reason):
    run_id = service.create(misbehavior=misbehavior)
    service.wait_for_status(run_id, "aborted")

    assert reason in service.run(run_id)["reason"]
    assert service.join(run_id).status_code == 410


@pytest.mark.parametrize(
    ("misbehavior", "reason"),
    [
        ("import error", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("memory error", "MemoryError: there is no memory for 10 rows"),
        ("killed", "the learner was killed (SIGKILL), perhaps for want of memory"),
        ("crashed", "the learner was ended by SIGILL"),
        ("silent", "the learner ended with status 7: I say nothing of myself"),
    ],
)
def test_a_run_says_why_its_learner_ended(service, misbehavior, reason):
    run_id = service.create(misbehavior=misbehavior)
    service.wait_for_status(run_id, "unhealthy")
    address = service.base.removeprefix("http://").removesuffix("/v1")
    shown = arkml("hive", "show", run_id, "--hive", address, ARKML_HIVE_TOKEN=service.token)
    known = json.loads((directory(service, run_id) / "run.json").read_text())

    assert service.run(run_id)["reason"].endswith(reason)
    assert known["reason"].endswith(reason)
    assert shown.status == 0
    assert "".join(reason.split()) in "".join(shown.out.split())  # its column may be wrapped


def test_a_run_is_shown_with_the_parts_of_its_rows_in_words(service):
    parts = (Part("n", (FEATURES - 1,)), Part("board", (1, 1), "grid", 3))
    run_id = service.create(settings={"parts": parts})
    address = service.base.removeprefix("http://").removesuffix("/v1")
    shown = arkml(
        "hive", "show", run_id, "--hive", address, ARKML_HIVE_TOKEN=service.token, COLUMNS="200"
    )

    assert f"n [{FEATURES - 1}], board grid [1, 1] of 3 categories" in shown.out


def test_a_run_that_is_aborted_for_a_learner_that_never_begins_says_why(make_service):
    times = {"restart": 0.1}
    service = make_service(learner=["-c", "raise ImportError('no torch here')"], timeouts=times)
    run_id = service.create()
    eventually(lambda: service.run(run_id)["status"] == "aborted")

    assert service.run(run_id)["reason"].endswith("status 1: ImportError: no torch here")
    assert "ImportError: no torch here" in (service.hive.data / "learners.log").read_text()


@pytest.mark.own_hive
def test_a_run_that_was_aborted_stays_so_when_the_hive_is_opened_anew(service):
    run_id = service.create(misbehavior="misconfigured")
    path = directory(service, run_id) / "run.json"
    known = eventually(lambda: (one := json.loads(path.read_text()))["status"] == "aborted" and one)
    kill(service)
    revive(service)
    again = service.run(run_id)

    assert "that makes no sense" in known["reason"]
    assert known["ended_at"] > known["started_at"]
    assert (again["status"], again["reason"]) == ("aborted", known["reason"])
    assert service.join(run_id).status_code == 410


def test_a_learner_that_hangs_is_replaced(make_service):
    service = make_service(timeouts={"hang": 0.5, "restart": 0.1})
    service.create(misbehavior="hang")
    first = learner_of(service)
    eventually(lambda: learner_of(service) != first)

    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.own_hive
def test_what_was_acknowledged_outlives_the_server(service, run_id):
    key = str(uuid.uuid4())
    sid = service.sid(run_id, key)
    service.post(f"/runs/{run_id}/names", {"names": ["a"]})
    for seq in range(1, 6):
        service.push(sid, rows(10, 10 * (seq - 1)), seq)
    version = service.run(run_id)["policy_version"]
    kill(service)
    revive(service)
    duplicate = service.push(sid, rows(10, 40), 5)
    more = service.push(sid, rows(10, 50), 6)
    newest = service.get(f"/runs/{run_id}/policy?after={version}&wait=20")

    assert duplicate.json()["duplicate"]
    assert more.json()["acked"] == 6
    assert service.join(run_id, key).json()["sid"] == sid
    assert service.post(f"/runs/{run_id}/names", {"names": ["a"]}).json()["ids"] == {"a": 0}
    assert int(newest.headers["x-arkml-version"]) > version
    assert audit(service, run_id)["held"] == 60


@pytest.mark.own_hive
def test_the_server_may_die_at_any_moment_without_losing_or_doubling_a_row(service, run_id):
    key = str(uuid.uuid4())
    sid = service.sid(run_id, key)
    seq, expected = 0, 0
    for _ in range(4):
        killer = threading.Timer(0.05, os.kill, (service.hive.pid, signal.SIGKILL))
        killer.start()
        try:
            while True:
                columns = rows(200, 200 * seq)
                answer = service.push(sid, columns, seq + 1)
                assert answer.status_code == 200, answer.text
                seq += 1
                expected ^= checksum(row_hashes(0, 0, columns))
        except httpx.HTTPError:
            killer.join()
        eventually(lambda: service.hive.is_dead)
        service.close()
        service.connect()
        acked = service.join(run_id, key).json()["acked"]
        if acked == seq + 1:
            seq += 1
            expected ^= checksum(row_hashes(0, 0, columns))
        assert acked == seq
    told = audit(service, run_id)

    assert (told["held"], told["checksum"]) == (200 * seq, expected)


@pytest.mark.own_hive
def test_a_torn_segment_is_cut_and_the_sender_told_where_to_go_on(service, run_id):
    sid = service.sid(run_id)
    service.push(sid, rows(10), 1)
    service.push(sid, rows(10, 10), 2)
    eventually(lambda: audit(service, run_id)["held"] == 20)
    end = audit(service, run_id)["committed"]
    kill(service)
    segment = directory(service, run_id) / "rows" / segment_name(end[0])
    with segment.open("r+b") as file:
        file.seek(end[1] - 9)
        file.write(b"\xff" * 9)
    revive(service)
    gap = service.push(sid, rows(10, 20), 3)

    assert (gap.status_code, gap.json()["expected"]) == (409, 2)
    assert service.push(sid, rows(10, 10), 2).json()["acked"] == 2
    assert audit(service, run_id)["held"] == 20


def damage(service, run_id, number, at):
    """Flip a bit of the record of that number, of a hive that does not run."""
    path = min((directory(service, run_id) / "rows").glob("*.rows"))
    data = bytearray(path.read_bytes())
    record = list(read_records(memoryview(bytes(data)), 0, len(data)))[number]
    data[record.start + at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("at", [4, 48, 100], ids=["its length", "its rows", "its columns"])
def test_a_flipped_bit_costs_one_body_and_the_rows_after_it_are_learned_from(make_service, at):
    service = make_service(learner=["-m", "arkml.learning.worker"])
    run_id = service.create(settings={"algorithm": "drawn"})
    sid = service.sid(run_id)
    for seq in range(1, 6):
        service.push(sid, rows(100, 100 * (seq - 1)), seq)
    kill(service)
    damage(service, run_id, 1, at)
    revive(service)
    more = service.push(sid, rows(100, 500), 6)
    found = audit(service, run_id)
    expected = 0
    for seq in (1, 3, 4, 5, 6):
        expected ^= checksum(row_hashes(0, 0, rows(100, 100 * (seq - 1))))
    lost = eventually(lambda: service.run(run_id)["latest"].get("hive/lost"))

    assert more.json()["acked"] == 6
    assert (found["held"], found["overwritten"], found["checksum"]) == (500, 0, expected)
    assert (service.run(run_id)["rows"], service.run(run_id)["lost"], lost) == (600, 100, 100.0)
    assert "100 acknowledged rows are lost" in (service.hive.data / "hive.log").read_text()


@pytest.mark.own_hive
def test_metrics_are_there_after_a_hive_that_was_killed(service, run_id, sid):
    service.push(sid, rows(1), 1)
    path = f"/runs/{run_id}/series?name=rollout/ep_rew_mean"
    before = eventually(lambda: service.get(path).json()["series"])
    (service.hive.data / "index.sqlite").write_bytes(b"a copy that releases before kept")
    kill(service)
    revive(service)
    newest = service.get(f"/runs/{run_id}/metrics").json()["metrics"]

    assert service.get(path).json()["series"][: len(before)] == before
    assert "rollout/ep_rew_mean" in {name for name, *_ in newest}
    assert not (service.hive.data / "index.sqlite").exists()


@pytest.mark.own_hive
def test_a_run_whose_file_is_damaged_is_left_alone(service, run_id):
    other = service.create("other")
    kill(service)
    (directory(service, run_id) / "run.json").write_text('{"id": ')
    revive(service)

    assert [run["id"] for run in service.get("/runs").json()["runs"]] == [other]
    assert directory(service, run_id).exists()


@pytest.mark.own_hive
def test_a_run_whose_counts_are_beyond_reason_is_left_alone(service, run_id):
    other = service.create("other")
    kill(service)
    path = directory(service, run_id) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started_at": 10**30}))
    revive(service)

    assert [run["id"] for run in service.get("/runs").json()["runs"]] == [other]


@pytest.mark.own_hive
def test_a_run_of_a_newer_release_is_listed_with_the_reason_and_left_alone(service, run_id):
    kill(service)
    path = directory(service, run_id) / "run.json"
    content = json.dumps(json.loads(path.read_text()) | {"version": 7, "request": {"name": "run"}})
    path.write_text(content)
    revive(service)
    (listed,) = service.get("/runs").json()["runs"]
    shown = service.get(f"/runs/{run_id}")
    deleted = service.http.delete(f"/runs/{run_id}?force=1")

    assert (listed["id"], listed["name"], listed["status"]) == (run_id, "run", "aborted")
    assert (
        f"has data of version 7, and this release of arkml reads version {DATA_VERSION}"
        in (listed["reason"])
    )
    assert (shown.status_code, shown.json()["error"]) == (409, listed["reason"])
    assert deleted.status_code == 409
    assert path.read_text() == content


@pytest.mark.own_hive
def test_a_run_of_a_newer_release_is_neither_joined_by_name_nor_named_twice(service, run_id):
    kill(service)
    path = directory(service, run_id) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": DATA_VERSION + 1}))
    revive(service)
    joined = service.post("/runs", request() | {"on_conflict": "join"})
    created = service.post("/runs", request())

    assert joined.status_code == 409
    assert "newer" in joined.json()["error"]
    assert created.json()["run"]["name"] == "run-2"


FILES = (
    "run.json", "rows/tallies.json", "published/newest.json", "metrics.sqlite", "checkpoints/best",
    "best.onnx",
)  # fmt: skip
DAMAGES = {
    "empty": b"", "torn": None, "a list": b"[]", "an object": b"{}", "zeros": bytes(300),
    "bytes": bytes(range(256)), "deep": b"[" * 100_000, "infinite": b'{"version": Infinity}\n',
    "sessions": b'{"sessions": {"0": ["x", null, [], {}]}}', "a directory": None, "missing": None,
    "a pipe": None, "a link": None,
}  # fmt: skip


def put_damage(path, kind):
    """Damage a file of a run."""
    whole = path.read_bytes()
    path.unlink()
    if kind == "a directory":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link":
        moved = path.with_name("moved")
        moved.write_bytes(whole)
        path.symlink_to(moved)
    elif kind == "torn":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind != "missing":
        path.write_bytes(DAMAGES[kind])


@pytest.mark.own_hive
def test_no_damaged_file_of_a_run_keeps_the_hive_or_another_run_from_going_on(service, run_id):
    sid = service.sid(run_id)
    service.push(sid, rows(10), 1, dropped=1)
    service.get(f"/runs/{run_id}/policy?after=1&wait=20")
    eventually(lambda: service.get(f"/runs/{run_id}/metrics").json()["metrics"])
    service.post(f"/runs/{run_id}/evaluations", {"version": 1, "returns": [1], "lengths": [1]})
    service.post(f"/runs/{run_id}/stop")
    kill(service)
    whole = directory(service, run_id)
    (whole / "checkpoints" / "best").write_text("1")
    damaged = {}
    for number, (file, kind) in enumerate((f, k) for f in FILES for k in DAMAGES):
        name = f"{number:016x}"
        shutil.copytree(whole, whole.parent / name)
        text = (whole / "run.json").read_text()
        (whole.parent / name / "run.json").write_text(text.replace(run_id, name))
        put_damage(whole.parent / name / file, kind)
        damaged[name] = file, kind
    revive(service)
    listed = {run["id"] for run in service.get("/runs").json()["runs"]}
    codes = {
        (damaged[name], path): service.get(f"/runs/{name}{path}").status_code
        for name in damaged
        for path in ("", "/metrics", "/series?name=a", "/checkpoints", "/snapshot?which=latest",
                     "/snapshot?which=best", "/policy?after=0&wait=0", "/config")
    }  # fmt: skip
    joined = {
        (file, kind): service.push(service.sid(name), rows(10), 1).status_code
        for name, (file, kind) in damaged.items()
        if file in ("rows/tallies.json", "metrics.sqlite") and name in listed
    }
    unreadable = {
        (("best.onnx", kind), "/snapshot?which=best"): 503
        for kind in ("a directory", "a pipe", "a link")
    }

    assert {damaged[name] for name in set(damaged) - listed} == {
        ("run.json", kind) for kind in DAMAGES
    }
    assert {one: code for one, code in codes.items() if code >= 500} == unreadable
    assert set(joined.values()) == {200}
    assert service.get(f"/runs/{run_id}").status_code == 200


def test_a_full_disk_acknowledges_nothing_and_is_survived(make_service):
    service = make_service(segment_bytes=1 << 16)
    run_id = service.create()
    sid = service.sid(run_id)
    service.push(sid, rows(10), 1)
    service.wait_for_status(run_id, "running")
    limits = resource_limits(service.hive.pid, 1 << 12)
    full = [service.push(sid, rows(1_500, 10), 2) for _ in range(3)]
    resource_limits(service.hive.pid, limits)
    after = service.push(sid, rows(1_500, 10), 2)

    assert [answer.status_code for answer in full] == [507, 507, 507]
    assert "full" in full[0].json()["error"]
    assert (after.json()["acked"], after.json()["accepted"]) == (2, 1_500)
    assert audit(service, run_id)["held"] == 1_510


@pytest.mark.parametrize("what", ["data", "runs", "rows"])
@pytest.mark.own_hive
def test_nothing_is_acknowledged_once_the_data_directory_is_removed(service, run_id, sid, what):
    service.push(sid, rows(10), 1)
    found = {
        "data": service.hive.data,
        "runs": service.hive.data / "runs",
        "rows": directory(service, run_id) / "rows",
    }
    away = service.hive.data.with_name("away")
    found[what].rename(away)  # at once: what is written meanwhile would keep its directory
    shutil.rmtree(away)
    gone = [service.push(sid, rows(10, 10), 2) for _ in range(3)]
    others = [service.post("/runs", request("other")), service.join(run_id)]

    assert [answer.status_code for answer in gone] == [503] * 3
    assert "data directory" in gone[0].json()["error"]
    if what != "rows":
        assert [answer.status_code for answer in others] == [503] * 2


@pytest.mark.own_hive
def test_rows_are_taken_again_once_a_directory_that_was_away_is_back(service, run_id, sid):
    service.push(sid, rows(10), 1)
    audit(service, run_id)
    place, away = directory(service, run_id) / "rows", service.hive.data / "away"
    place.rename(away)
    gone = service.push(sid, rows(10, 10), 2)
    place.mkdir()
    (place / segment_name(1)).touch()
    replaced = service.push(sid, rows(10, 10), 2)
    shutil.rmtree(place)
    away.rename(place)
    back = service.push(sid, rows(10, 10), 2)

    assert [gone.status_code, replaced.status_code, back.status_code] == [503, 503, 200]
    assert audit(service, run_id)["held"] == 20


@pytest.mark.own_hive
def test_a_run_goes_on_whose_data_directory_was_away(service, run_id, sid):
    service.wait_for_status(run_id, "running")
    data, away = service.hive.data, service.hive.data.with_name("away")
    data.rename(away)
    gone = service.push(sid, rows(10), 1)
    meanwhile = service.run(run_id)["status"]
    away.rename(data)
    back = service.push(sid, rows(10), 1)

    assert [gone.status_code, meanwhile, back.status_code] == [503, "running", 200]
    directory(service, run_id).rename(away)
    assert service.run(run_id)["status"] == "not_found"


def resource_limits(pid, size):
    """Let a process write files of at most `size` bytes; what it was before."""
    import resource

    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(
        pid, resource.RLIMIT_FSIZE, (size if isinstance(size, int) else size[0], before[1])
    )
    return before


@pytest.mark.own_hive
def test_a_directory_has_one_hive(service):
    other = start_hive(service.hive.data, timeouts={"opening": 0.2})

    with other, pytest.raises(HiveUnreachable, match="in use"):
        other.locate()


def test_unknown_routes_and_bodies_that_are_no_objects_are_told_so(service, run_id):
    answers = [
        service.get("/nothing"),
        service.http.post("/runs", content=b"["),
        service.http.post("/runs", content=b"[]"),
        service.get(f"/runs/{run_id}/series"),
        service.get(f"/runs/{run_id}/policy?after=x"),
        service.http.put("/runs", content=b""),
    ]

    assert [answer.status_code for answer in answers] == [404, 400, 400, 422, 422, 405]
    assert all(json.loads(answer.content)["error"] for answer in answers)


@pytest.mark.own_hive
def test_an_end_in_order_does_not_wait_for_those_who_poll(service, run_id, sid):
    service.push(sid, rows(10), 1)
    audit(service, run_id)
    with ThreadPoolExecutor(1) as thread:
        poll = thread.submit(service.get, f"/runs/{run_id}/policy?after=99&wait=25")
        eventually(lambda: service.run(run_id)["status"] == "running")
        os.kill(service.hive.pid, signal.SIGTERM)
        eventually(lambda: service.hive.is_dead)
        answer = poll.result()

    assert answer.status_code == 204
    assert list((directory(service, run_id) / "checkpoints").iterdir())


NUMBERS = {
    "too large": "1" + 400 * "0",
    "far too large": 5_000 * "9",
    "negative": "-1" + 400 * "0",
    "too many digits": "1." + 500 * "3" + "e400",
    "infinite": "1e999",
    "none": "NaN",
    "Infinity": "-Infinity",
    "beyond 64 bits": str(1 << 70),
    "a float": "1e300",
    "true": "true",
    "a text": '"7"',
    "nothing": "null",
    "a list": "[1]",
    "an object": '{"a": 1}',
    "deep": 500 * "[" + 500 * "]",
    "too deep": 100_000 * "[" + 100_000 * "]",
}
HERE = "@"
BODIES = {
    "run": ("/runs", request() | {"seconds": HERE}),
    "name": ("/runs", request() | {"name": HERE}),
    "game": ("/runs", request() | {"game": HERE}),
    "conflict": ("/runs", request() | {"on_conflict": HERE}),
    "configuration": ("/runs", request() | {"configuration": HERE}),
    "checkpoint": ("/runs", request() | {"checkpoint": HERE}),
    "unknown": ("/runs", request() | {"unknown": HERE}),
    "settings": ("/runs", request() | {"settings": HERE}),
    **{
        name: ("/runs", request() | {"settings": request()["settings"] | {name: HERE}})
        for name in ("features", "seed", "alpha", "gamma", "hidden", "algorithm", "device", "sync",
                     "other", "unknown setting")
    },
    "session": ("/runs/{run}/sessions", {"join_key": "x" * 8, "features": HERE, "actions": 2}),
    "key": ("/runs/{run}/sessions", {"join_key": HERE, "features": 3, "actions": 2}),
    "role": ("/runs/{run}/sessions",
             {"join_key": "x" * 8, "features": 3, "actions": 2, "role": HERE}),
    "version": ("/runs/{run}/evaluations", {"version": HERE, "returns": [1], "lengths": [1]}),
    "returns": ("/runs/{run}/evaluations", {"version": 1, "returns": [HERE], "lengths": [1]}),
    "lengths": ("/runs/{run}/evaluations", {"version": 1, "returns": [1], "lengths": HERE}),
    "names": ("/runs/{run}/names", {"names": HERE}),
    "a name": ("/runs/{run}/names", {"names": [HERE]}),
    "beat": ("/sessions/{sid}/beat", {"x": HERE}),
}  # fmt: skip


def test_no_number_or_nesting_in_a_body_makes_the_hive_fail(service, run_id, sid):
    failed, refused = [], 0
    for what, (path, body) in BODIES.items():
        for name, text in NUMBERS.items():
            sent = json.dumps(body).replace(f'"{HERE}"', text).encode()
            answer = service.http.post(path.format(run=run_id, sid=sid), content=sent)
            refused += answer.status_code in range(400, 500)
            told = answer.json()
            if answer.status_code >= 500 or not (
                answer.is_success or 0 < len(told["error"]) < 1_100
            ):
                failed.append((what, name, answer.status_code, answer.text[:200]))
            if answer.status_code == 201:  # so that no learner is left that nobody looks at
                service.http.delete(f"/runs/{told['run']['id']}?force=1")

    assert failed == []
    assert refused > 250
    assert service.get("/runs").status_code == service.get(f"/runs/{run_id}").status_code == 200


@pytest.mark.parametrize("name", ["too large", "far too large", "infinite", "none", "deep"])
def test_a_number_that_cannot_be_told_again_is_named(service, name):
    told = {
        "too large": "100000000000000... of 401 digits is beyond what a float holds",
        "far too large": "beyond what a float holds",
        "infinite": "1e999 is beyond what a float holds",
        "none": "NaN is not a number in JSON",
        "deep": "deeper than 64 levels",
    }
    wish = json.dumps(request(something=HERE)).replace(f'"{HERE}"', NUMBERS[name])
    answer = service.http.post("/runs", content=wish.encode())

    assert answer.status_code == 400
    assert told[name][-30:] in answer.json()["error"]


def test_no_number_in_a_query_makes_the_hive_fail(service, run_id):
    service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    codes = {}
    for text in (*(text[:3_000] for text in NUMBERS.values()), "%00", "%ff", "%ed%a0%80", ""):
        for path in (
            f"/runs/{run_id}/policy?wait=0&after={text}",
            f"/runs/{run_id}/policy?after=0&wait={text}",
            f"/runs/{run_id}/series?name=a&since={text}",
            f"/runs/{run_id}/series?name={text}",
            f"/runs/{run_id}/snapshot?which={text}",
            f"/runs/{text}/metrics",
        ):
            codes[path[:200]] = service.get(path).status_code
        path = f"/runs/nobody?force={text}"
        codes[path[:200]] = service.http.delete(path).status_code

    assert {path: code for path, code in codes.items() if not 200 <= code < 500} == {}


def test_returns_whose_sum_is_beyond_a_float_have_a_mean(service, run_id):
    service.get(f"/runs/{run_id}/policy?after=0&wait=20")
    body = {"version": 1, "returns": [1.5e308] * 4, "lengths": [1] * 4}
    answer = service.post(f"/runs/{run_id}/evaluations", body)

    assert answer.json() == {"best": True}
    assert service.get(f"/runs/{run_id}").json()["best"]["score"] == pytest.approx(1.5e308)


@pytest.mark.own_hive
def test_a_run_with_sessions_goes_on_by_itself_after_the_server_died(service, run_id, sid):
    service.push(sid, rows(10), 1)
    version = service.run(run_id)["policy_version"]
    kill(service)
    revive(service)

    service.wait_for_status(run_id, "running")
    assert service.run(run_id)["policy_version"] > version


@pytest.mark.own_hive
def test_why_a_learner_ended_is_not_told_of_the_learners_of_the_next_hive(service, run_id):
    service.wait_for_status(run_id, "running")
    os.kill(learner_of(service), signal.SIGKILL)
    document = directory(service, run_id) / "run.json"
    eventually(lambda: "SIGKILL" in document.read_text())
    told = service.run(run_id)["reason"]
    kill(service)
    revive(service)

    assert "SIGKILL" in told
    assert service.run(run_id)["reason"] == ""


@pytest.mark.learns
def test_a_real_learner_holds_what_was_acknowledged_before_and_after_it_died(make_service):
    service = make_service(learner=["-m", "arkml.learning.worker"])
    run_id = service.create()
    sid = service.sid(run_id)
    service.wait_for_status(run_id, "running")
    service.push(sid, rows(50), 1)
    before = audit(service, run_id)
    os.kill(learner_of(service), signal.SIGKILL)
    service.push(sid, rows(50, 50), 2)
    after = audit(service, run_id)
    expected = [checksum(row_hashes(0, 0, rows(50, first))) for first in (0, 50)]

    assert (before["held"], before["checksum"]) == (50, expected[0])
    assert (after["held"], after["checksum"]) == (100, expected[0] ^ expected[1])
    assert service.get(f"/runs/{run_id}/snapshot?which=now").status_code == 200
