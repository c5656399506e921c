"""Rollout workers as a hive keeps them: how many, for how long, by what token, and their ends."""

import hashlib
import json
import os
import signal
from pathlib import Path

import httpx
import pytest
from tests.children import children_of
from tests.integration.command_line import ROOT, arkml
from tests.integration.command_line import start as command
from tests.integration.hive_service import ACTIONS, FEATURES, Service, request, rows, start_hive
from tests.integration.test_workers import is_running
from tests.waiting import eventually

from arkml.errors import HiveUnreachable

MODULE = b"\0asm\1\0\0\0"
HASH = hashlib.sha256(MODULE).hexdigest()


@pytest.fixture
def make_service(tmp_path, monkeypatch):
    """A factory of hives that start scripted workers and have a module, and their clients."""
    monkeypatch.chdir(ROOT)
    made = []

    def make(total=4, *, options=None, **workers):
        program = "tests.integration.scripted_worker"
        settings = {"total": total, "program": program, **workers}
        made.append(start_hive(tmp_path / "data", workers=settings, **(options or {})))
        made.append(Service(made[-1]))
        if total:
            assert made[-1].http.put(f"/modules/{HASH}", content=MODULE).status_code == 201
        return made[-1]

    yield make
    for one in reversed(made):
        one.close()


@pytest.fixture
def service(make_service):
    return make_service()


@pytest.fixture
def jobs(tmp_path):
    """The jobs that workers were started with, by number and incarnation."""
    folder = tmp_path / "jobs"
    folder.mkdir()

    def read(*names):
        paths = [folder / f"{name}.json" for name in names]
        eventually(lambda: all(path.exists() for path in paths))
        return [json.loads(path.read_text()) for path in paths]

    read.folder = folder
    return read


def ask(service, jobs, count, *, wish="wait", name="run", **fields):
    """Ask for a run with workers."""
    wanted = {"workers": count, "module": HASH, "module_name": "guest.wasm"}
    arguments = {"arguments": f"{wish} {jobs.folder}"}
    body = {**request(name), **wanted, **arguments, **fields}
    return service.post("/runs", body)


def start(service, jobs, count, **fields):
    """The id of a run with workers, which are alive."""
    answer = ask(service, jobs, count, **fields)
    assert answer.status_code in (200, 201), answer.text
    run_id = answer.json()["run"]["id"]
    service.wait_for_status(run_id, "running")
    eventually(lambda: service.run(run_id)["workers"] == count)
    return run_id


def refusal(answer):
    return answer.status_code, answer.json()["error"]


def workers_of(service, run_id):
    return service.get(f"/runs/{run_id}").json()["workers"]


def test_workers_get_the_run_the_module_and_seeds_of_their_own(service, jobs):
    run_id = start(service, jobs, 2, name="walk", configuration='{"level": 3}')
    first, second = jobs("0-0", "1-0")

    for job in (first, second):
        assert (job["run_id"], job["name"], job["game"]) == (run_id, "walk", "game")
        assert (job["module_hash"], job["module_name"]) == (HASH, "guest.wasm")
        assert f"http://{job['hive']}/v1" == service.base
        assert job["module_data"] == ""
    assert first["seed"] != second["seed"]
    assert service.token not in (first["token"], second["token"])


def test_a_run_is_shown_with_its_workers_and_the_module_id(service, jobs):
    run_id = start(service, jobs, 2, module_id="walkers")
    reported = {"rows": 7, "rows_per_second": 3.5, "policy_version": 2}
    eventually(lambda: all(one["rows"] for one in workers_of(service, run_id)))
    shown = service.get(f"/runs/{run_id}").json()
    address = service.base.removeprefix("http://").removesuffix("/v1")
    printed = arkml("hive", "show", run_id, "--hive", address, ARKML_HIVE_TOKEN=service.token)

    assert (shown["run"]["module_id"], shown["module"]) == ("walkers", HASH)
    assert shown["workers"] == [
        {"number": number, "incarnation": 0, "is_alive": True, "reason": "", **reported}
        for number in range(2)
    ]
    assert "2 workers" in printed.out
    assert "walkers" in printed.out


def test_more_workers_than_allowed_are_refused_with_the_numbers_and_leave_no_run(
    make_service, jobs
):
    service = make_service(3, per_run=2)
    a_run = ask(service, jobs, 3)
    start(service, jobs, 2, name="first")
    in_all = ask(service, jobs, 2, name="second")

    assert refusal(a_run) == (
        503,
        "3 remote workers were asked for, and a run of this hive may have 2 at most",
    )
    assert refusal(in_all) == (
        503,
        "2 remote workers were asked for, and 1 of the 3 of this hive are free",
    )
    assert [run["name"] for run in service.get("/runs").json()["runs"]] == ["first"]


def test_a_hive_without_workers_takes_modules_for_players_alone_and_starts_none(make_service, jobs):
    service = make_service(0)
    known = service.http.head(f"/modules/{HASH}?for_workers=1")
    service.http.put(f"/modules/{HASH}", content=MODULE).raise_for_status()
    _, reason = refusal(ask(service, jobs, 1))

    assert known.status_code == 503
    assert "arkml hive serve --workers N" in reason
    assert service.http.head(f"/modules/{HASH}").status_code == 200
    assert service.http.head(f"/modules/{HASH}?for_workers=1").status_code == 503
    assert service.get("/runs").json()["runs"] == []


def test_a_hive_that_plays_no_guests_takes_no_module(make_service, jobs):
    service = make_service(0, options={"watches": {"total": 0}})
    module = service.http.put(f"/modules/{HASH}", content=MODULE)
    known = service.http.head(f"/modules/{HASH}")

    assert refusal(ask(service, jobs, 1)) == refusal(module)
    assert module.status_code == known.status_code == 503
    assert "--watches N and --workers N allow them" in module.json()["error"]
    assert service.get("/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"module": "0" * 64}, 404, "upload it first"),
        ({"module": "x"}, 422, "64 digits"),
        ({"module": ""}, 422, "module is empty"),
        ({"workers": -1}, 422, "workers is -1"),
    ],
)
def test_workers_without_a_module_that_was_uploaded_are_refused(
    service, jobs, fields, status, words
):
    code, sentence = refusal(ask(service, jobs, 1, **fields))

    assert code == status
    assert words in sentence
    assert service.get("/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("wish", "told", "programs"),
    [
        ("refuse", "do not start: its module imports env.unknown", 0),
        ("compile", "do not start: its module takes too long to compile", 1),
        ("die", "it died 6 times within 60 s, the last time because: its guest trapped", 6),
    ],
)
def test_a_worker_that_cannot_start_fails_the_start_with_its_reason(
    service, jobs, wish, told, programs
):
    answer = ask(service, jobs, 1, wish=wish)

    code, sentence = refusal(answer)
    assert code == 503
    assert told in sentence
    assert len(list(jobs.folder.iterdir())) == programs
    for path in jobs.folder.iterdir():
        path.unlink()
    assert service.get("/runs").json()["runs"] == []
    start(service, jobs, 4)  # its places are free again


def test_workers_that_are_not_ready_in_time_fail_the_start_and_end(make_service, jobs):
    service = make_service(start=0.5)
    answers = [ask(service, jobs, 4, wish="silent") for _ in range(2)]  # their places are free

    for code, sentence in map(refusal, answers):
        assert code == 503
        assert "was ready within 0.5 s" in sentence
    assert service.get("/runs").json()["runs"] == []


def as_worker(service, job):
    """A client with the token of a worker."""
    return httpx.Client(
        base_url=service.base,
        headers={"authorization": f"Bearer {job['token']}"},
        trust_env=False,
    )


JOIN = {"join_key": "a worker's", "features": FEATURES, "actions": ACTIONS}


def test_the_token_of_a_worker_is_good_for_its_run_alone(service, jobs):
    run_id, other = start(service, jobs, 1), service.create("other")
    sid = service.sid(other)
    (job,) = jobs("0-0")
    with as_worker(service, job) as http:
        own = f"/runs/{run_id}"
        allowed = [
            http.get("/health"), http.get(own), http.get(f"{own}/config"),
            http.get(f"{own}/metrics"), http.get(f"/modules/{HASH}"),
            http.post(f"{own}/sessions", json=JOIN), http.post(f"{own}/names", json={"names": []}),
        ]  # fmt: skip
        session = allowed[5].json()["sid"]
        allowed.append(http.post(f"/sessions/{session}/beat", json={}))
        refused = [
            http.get("/runs"), http.post("/runs", json=request()), http.delete(own),
            http.post(f"{own}/stop", json={}), http.post(f"{own}/checkpoints", json={}),
            http.post(f"{own}/evaluations", json={}), http.get(f"{own}/memory"),
            http.get(f"/runs/{other}"), http.get(f"/runs/{other}/policy"),
            http.post(f"/runs/{other}/sessions", json=JOIN),
            http.post(f"/sessions/{sid}/beat", json={}), http.post(f"/sessions/{sid}/rows"),
            http.post(f"/sessions/{sid}/leave", json={"stop": True}),
            http.get(f"/modules/{'0' * 64}"), http.put(f"/modules/{HASH}", content=MODULE),
        ]  # fmt: skip

    assert [answer.status_code for answer in allowed] == [200] * len(allowed)
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert service.wait_for_status(other, "running")


def test_the_token_of_a_worker_ends_with_the_run(service, jobs):
    run_id = start(service, jobs, 1)
    (job,) = jobs("0-0")
    service.post(f"/runs/{run_id}/stop")
    with as_worker(service, job) as http:
        answer = http.get(f"/runs/{run_id}")

    assert answer.status_code == 401
    assert workers_of(service, run_id)[0]["is_alive"] is False
    assert not is_running(job["pid"])


def test_rows_of_a_worker_are_kept_and_it_cannot_stop_the_run(service, jobs):
    run_id = start(service, jobs, 1)
    host = service.sid(run_id)
    (job,) = jobs("0-0")
    with as_worker(service, job) as http:
        sid = http.post(f"/runs/{run_id}/sessions", json=JOIN).json()["sid"]
        worker = Service.__new__(Service)
        worker.http = http
        taken = worker.push(sid, rows(5), 1)
        left = http.post(f"/sessions/{sid}/leave", json={"stop": True})

    assert taken.json()["accepted"] == 5
    assert left.json()["status"] == "running"
    assert service.post(f"/sessions/{host}/beat").status_code == 200


def test_a_worker_that_is_killed_is_replaced_by_one_with_another_seed(service, jobs):
    run_id = start(service, jobs, 2)
    (before,) = jobs("1-0")
    os.kill(before["pid"], signal.SIGKILL)
    (after,) = jobs("1-1")
    eventually(lambda: service.run(run_id)["workers"] == 2)

    first, second = workers_of(service, run_id)
    assert (first["incarnation"], second["incarnation"]) == (0, 1)
    assert second["reason"].endswith("was killed by SIGKILL")
    assert after["seed"] != before["seed"]


def test_a_worker_that_dies_six_times_within_a_minute_is_given_up(service, jobs):
    run_id = start(service, jobs, 2)
    for incarnation in range(6):
        (job,) = jobs(f"0-{incarnation}")
        os.kill(job["pid"], signal.SIGKILL)
    eventually(lambda: "it died 6 times" in workers_of(service, run_id)[0]["reason"])

    assert service.run(run_id)["workers"] == 1
    assert not (jobs.folder / "0-6.json").exists()
    assert start(service, jobs, 3, name="other")  # its place is free again


def test_a_run_continues_while_it_has_workers_and_stops_when_they_have_ended(service, jobs):
    run_id = start(service, jobs, 2)
    left = service.post(f"/sessions/{service.sid(run_id)}/leave")
    (jobs.folder / "end-0-0").touch()
    eventually(lambda: service.run(run_id)["workers"] == 1)
    between = service.run(run_id)["status"]
    (jobs.folder / "end-1-0").touch()
    service.wait_for_status(run_id, "stopped")

    assert left.json()["status"] == between == "running"
    assert [one["reason"] for one in workers_of(service, run_id)] == ["it ran to its end"] * 2


def test_workers_that_have_ended_do_not_stop_the_run_of_a_host(service, jobs):
    run_id = start(service, jobs, 1)
    sid = service.sid(run_id)
    (jobs.folder / "end-0-0").touch()
    eventually(lambda: workers_of(service, run_id)[0]["reason"])

    assert service.post(f"/sessions/{sid}/beat").status_code == 200
    service.post(f"/sessions/{sid}/leave")
    assert service.wait_for_status(run_id, "stopped")


def test_workers_outlive_the_last_host_by_the_minutes_of_the_hive_at_most(make_service, jobs):
    service = make_service(minutes=0.02)
    run_id = start(service, jobs, 2)
    sid = service.sid(run_id)
    service.post(f"/sessions/{sid}/beat")
    service.post(f"/sessions/{sid}/leave")
    service.wait_for_status(run_id, "stopped")

    assert not any(is_running(job["pid"]) for job in jobs("0-0", "1-0"))


def test_workers_end_when_the_time_of_their_run_is_over(service, jobs):
    run_id = start(service, jobs, 1, seconds=4)
    service.wait_for_status(run_id, "stopped")

    assert not is_running(jobs("0-0")[0]["pid"])


def test_workers_end_with_the_experiment_that_a_host_stops(service, jobs):
    run_id = start(service, jobs, 1)
    left = service.post(f"/sessions/{service.sid(run_id)}/leave", {"stop": True})

    assert left.json()["status"] == "stopped"
    assert not is_running(jobs("0-0")[0]["pid"])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_hive(service, jobs, end):
    start(service, jobs, 2)
    pids = [job["pid"] for job in jobs("0-0", "1-0")]
    os.kill(service.hive.pid, end)

    assert eventually(lambda: not any(is_running(pid) for pid in pids))


def test_a_hive_that_is_started_again_starts_the_workers_of_a_run_that_is_in_use(service, jobs):
    run_id = start(service, jobs, 1)
    service.sid(run_id)
    (before,) = jobs("0-0")
    (jobs.folder / "0-0.json").unlink()
    os.kill(service.hive.pid, signal.SIGKILL)
    eventually(lambda: service.hive.is_dead)
    service.close()
    service.connect()

    (after,) = jobs("0-0")
    assert (after["run_id"], after["seed"]) == (before["run_id"], before["seed"])
    assert after["token"] != before["token"]


def test_a_request_that_joins_a_run_brings_the_workers_that_it_lacks(service, jobs):
    run_id = start(service, jobs, 1)
    joined = start(service, jobs, 3, on_conflict="join")
    start(service, jobs, 3, on_conflict="join")

    assert joined == run_id
    assert [one["number"] for one in workers_of(service, run_id)] == [0, 1, 2]


def test_a_stopped_run_is_resumed_with_its_workers_or_stays_stopped(service, jobs):
    run_id = start(service, jobs, 1)
    service.post(f"/runs/{run_id}/stop")
    refused = ask(service, jobs, 2, wish="refuse", on_conflict="join")
    between = service.run(run_id)
    start(service, jobs, 2, on_conflict="join")

    assert refused.status_code == 503
    assert (between["status"], between["workers"]) == ("stopped", 0)
    assert [one["is_alive"] for one in workers_of(service, run_id)] == [True, True]


def test_a_hive_that_workers_of_a_ray_cluster_cannot_reach_does_not_start(tmp_path):
    workers = {"total": 1, "runner": "ray", "ray_address": "10.1.2.3:6379"}
    hive = start_hive(tmp_path / "data", workers=workers)

    with hive, pytest.raises(HiveUnreachable, match="give --host the address"):
        hive.locate()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workers-a-run", "3", "--workers", "2"), "--workers-a-run 3: it is above --workers 2"),
        (("--runner", "threads"), "--runner threads: it takes one of processes, ray"),
        (("--ray-address", "x:1"), "--ray-address x:1: it takes --runner ray"),
        (("--worker-minutes", "nan"), "--worker-minutes nan"),
    ],
)
def test_options_of_workers_that_are_out_of_range_are_refused_by_name(tmp_path, words, told):
    ended = arkml("hive", "serve", "--data", tmp_path, *words)

    assert ended.status == 2
    assert told in ended.err
    assert list(tmp_path.iterdir()) == []


def test_the_token_of_a_hive_is_not_in_the_environment_of_its_processes(tmp_path):
    words, given = ("--data", tmp_path, "--port", "0"), {"ARKML_HIVE_TOKEN": "secret"}
    given["PYTHONNOUSERSITE"] = "1"  # no fork, as which a learner shows no environment of its own
    with command("hive", "serve", *words, **given) as process:
        assert "with the token" in process.stderr.readline()
        learners = eventually(lambda: children_of(process.pid))
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in learners]
        process.terminate()
        process.communicate(timeout=300)

    assert environments
    assert not any(b"ARKML_HIVE_TOKEN" in environment for environment in environments)
