"""Health, metrics and log lines of a real hive, over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.command_line import ROOT, start
from tests.integration.hive_service import Service, request, rows, start_hive
from tests.waiting import eventually

from arkml.hive.protocol.rows import encode
from arkml.server.access.security_headers import DATA
from arkml.workers.local import LocalPlacement

HOSTILE = 'a"b\\c\nd{run="x"} 1 <b>&\u202e\x1b[31m'
TOKEN = "a secret of the test"


@pytest.fixture
def service(tmp_path):
    with start_hive(tmp_path / "data") as hive:
        made = Service(hive)
        yield made
        made.close()


def root(service):
    return service.base.removesuffix("/v1")


def scrape(service, **headers):
    """All samples: by name, and by name and the values of their labels."""
    answer = service.http.get(root(service) + "/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert (sample.name, labels) not in found, "counted twice"
            found[sample.name, labels] = sample.value
    return found


def value(samples, name, **labels):
    return samples[name, frozenset(labels.items())]


def of_run(samples, name, run_id):
    """The value of a series of a run."""
    (found,) = [v for (n, labels), v in samples.items() if n == name and ("run", run_id) in labels]
    return found


def labels_of(samples, label):
    return {dict(labels)[label] for _, labels in samples if label in dict(labels)}


def test_health_is_open_and_says_nothing_else(service):
    with httpx.Client(trust_env=False) as anyone:
        answers = [anyone.get(root(service) + path) for path in ("/healthz", "/readyz")]
        refused = anyone.get(root(service) + "/metrics")
        posted = anyone.post(root(service) + "/healthz")

    assert [(one.status_code, one.text) for one in answers] == [(200, "ok\n")] * 2
    own = set(answers[0].headers) - {key.decode() for key in DATA}
    assert own == {"content-length", "content-type", "x-request-id"}
    assert refused.status_code == 401
    assert posted.status_code == 405


def test_a_hive_that_cannot_write_is_alive_and_not_ready(service):
    data, away = service.hive.data, service.hive.data.with_name("away")
    data.rename(away)
    unready = eventually(
        lambda: (found := service.http.get(root(service) + "/readyz")).status_code == 503 and found
    )
    alive = service.http.get(root(service) + "/healthz").status_code
    away.rename(data)

    assert unready.text == "not ready\n"
    assert alive == 200
    assert eventually(lambda: service.http.get(root(service) + "/readyz").status_code == 200)


def test_the_directory_is_tried_once_a_second_for_all_who_ask(service):
    with ThreadPoolExecutor(8) as pool:
        url = root(service) + "/readyz"
        answers = list(pool.map(lambda _: service.http.get(url).status_code, range(200)))

    assert set(answers) == {200}


def test_metrics_count_rows_refusals_versions_and_sessions(service):
    run_id = service.create("walker")
    sid, other = service.sid(run_id), service.sid(run_id)
    first, late = rows(5), rows(4, 5)
    first.features[1], first.state[2] = np.nan, 9
    service.send(sid, encode(first, seq=1, dropped=7))
    service.push(sid, late, 2)
    service.push(sid, late, 2)  # which the hive has already
    service.push(other, rows(3), 1)
    eventually(lambda: service.run(run_id)["n_opts"] >= 1)
    found = eventually(
        lambda: of_run(samples := scrape(service), "arkml_run_rows_unread", run_id) == 0 and samples
    )
    info = service.run(run_id)

    assert of_run(found, "arkml_run_rows_total", run_id) == info["rows"] == 10
    assert of_run(found, "arkml_run_rows_refused_total", run_id) == 2
    assert value(found, "arkml_rows_refused_total", kind="not finite") == 1
    assert value(found, "arkml_rows_refused_total", kind="no such state") == 1
    assert of_run(found, "arkml_run_rows_dropped_total", run_id) == 7
    assert of_run(found, "arkml_run_sessions", run_id) == value(found, "arkml_sessions") == 2
    assert of_run(found, "arkml_run_versions_published_total", run_id) == info["policy_version"]
    assert of_run(found, "arkml_run_updates", run_id) == info["n_opts"]
    assert of_run(found, "arkml_run_learner_running", run_id) == 1
    assert value(found, "arkml_learners_running") == 1
    assert value(found, "arkml_runs", status="running") == 1
    assert value(found, "arkml_disk_bytes") > 0
    assert value(found, "process_open_fds") > 5


def test_rows_that_a_learner_has_not_read_and_runs_that_wait_are_shown(tmp_path):
    with start_hive(tmp_path / "data", limits={"learners": 1}) as hive:
        service = Service(hive)
        first, second = service.create("first"), service.create("second")
        service.wait_for_status(first, "running")
        service.push(service.sid(second), rows(6), 1)
        found = scrape(service)
        service.close()

    assert of_run(found, "arkml_run_rows_unread", second) == 6
    assert [of_run(found, "arkml_run_place", run) for run in (first, second)] == [0, 1]
    assert value(found, "arkml_runs_pending") == 1
    assert value(found, "arkml_learners_limit") == 1


def test_a_learner_that_is_started_again_is_counted(service):
    run_id = service.create()
    service.wait_for_status(run_id, "running")
    log = (service.hive.data / "hive.log").read_text()
    os.kill(int(re.search(r"process (\d+)", log)[1]), signal.SIGKILL)
    eventually(lambda: of_run(scrape(service), "arkml_run_learner_restarts_total", run_id) == 1)
    service.wait_for_status(run_id, "running")
    found = scrape(service)

    assert of_run(found, "arkml_run_learner_running", run_id) == 1
    assert of_run(found, "arkml_run_learner_restarts_total", run_id) == 1


def test_only_live_runs_have_series(service):
    kept, stopped, deleted = (service.create(name) for name in ("kept", "stopped", "deleted"))
    before = labels_of(scrape(service), "run")
    service.post(f"/runs/{stopped}/stop")
    service.http.delete(f"/runs/{deleted}?force=1")
    after = scrape(service)

    assert before == {kept, stopped, deleted}
    assert labels_of(after, "run") == {kept}
    assert value(after, "arkml_runs", status="stopped") == 1


def test_hostile_names_are_labels_and_nothing_else(service):
    for name in (HOSTILE, "\u2028", "x" * 200):
        service.create(name)
    names = labels_of(scrape(service), "name")
    text = service.http.get(
        root(service) + "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}
    )
    families = list(open_families(text.text))

    assert {HOSTILE, "\u2028", "x" * 200} == names
    assert text.headers["content-type"].startswith("application/openmetrics-text")
    assert {"arkml_run_rows", "arkml_http_requests"} <= {family.name for family in families}


def test_half_a_surrogate_pair_in_a_name_breaks_no_scrape(service):
    body = json.dumps(request("half")).replace('"half"', '"\\ud800half"')
    made = service.http.post("/runs", content=body, headers={"content-type": "application/json"})

    assert made.status_code in (201, 400, 422)
    assert scrape(service)


def test_requests_are_counted_by_the_template_of_their_route(service):
    run_ids = [service.create(f"run {number}") for number in range(3)]
    for run_id in run_ids:
        service.get(f"/runs/{run_id}")
    for number in range(20):
        service.get(f"/{number}")
        service.http.get(root(service) + f"/nothing/{uuid.uuid4()}")
    service.get("/runs", headers={"authorization": "Bearer wrong"})
    service.http.request("PROPFIND", "/runs")
    found = scrape(service)
    routes = labels_of(found, "route")
    name = "arkml_http_requests_total"

    assert value(found, name, method="GET", route="/v1/runs/{run_id}", status="200") == 3
    assert value(found, name, method="POST", route="/v1/runs", status="201") == 3
    assert value(found, name, method="GET", route="/{path:path}", status="404") == 40
    assert value(found, name, method="GET", route="other", status="401") == 1
    assert value(found, name, method="other", route="/v1/runs", status="405") == 1
    assert not [route for route in routes if any(run_id in route for run_id in run_ids)]
    counted = value(found, "arkml_http_request_duration_seconds_count", method="GET", route="other")
    assert counted == 1
    assert value(found, "arkml_http_requests_in_flight") == 1


def test_a_request_has_the_id_that_it_gives_or_another_one(service):
    def answered(given):
        return service.get("/runs", headers={"x-request-id": given}).headers["x-request-id"]

    made = [service.get("/runs").headers["x-request-id"] for _ in range(3)]
    refused = service.get("/runs", headers={"authorization": "x", "x-request-id": "mine"})

    assert answered("abc-1.2_Z") == "abc-1.2_Z"
    assert refused.headers["x-request-id"] == "mine"
    assert len(set(made)) == 3
    for bad in ("", "a b", "x" * 65, 'a"b', "a;b"):
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", answered(bad))


def modules_imported(tmp_path, paths, **environment):
    """The modules that a hive has imported by its end, after GET requests of paths."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "arkml.server", "--data", tmp_path / "data",
         "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    with process, ThreadPoolExecutor(1) as pool:
        log = pool.submit(process.stderr.read)
        told = json.loads(process.stdout.readline())
        base = f"http://{told['host']}:{told['port']}"
        with httpx.Client(base_url=base, trust_env=False, timeout=300) as http:
            statuses = [http.get(path).status_code for path in paths]
        process.send_signal(signal.SIGTERM)
        names = {line.rsplit("|", 1)[-1].strip() for line in log.result(300).splitlines()}
    assert set(statuses) == {200}
    return {name.partition(".")[0] for name in names}


def test_what_only_scrapes_and_traces_need_is_imported_by_them_alone(tmp_path):
    plain = modules_imported(tmp_path, ["/v1/runs", "/healthz", "/readyz"])
    scraped = modules_imported(tmp_path, ["/metrics"])

    assert "arkml" in plain
    assert {"prometheus_client", "opentelemetry", "requests"} & plain == set()
    assert "prometheus_client" in scraped
    assert "opentelemetry" not in scraped


def test_lines_of_a_learner_are_relayed(service):
    service.create(misbehavior="silent")
    log = service.hive.data / "hive.log"

    assert eventually(lambda: "hive: learner: I say nothing of myself" in log.read_text())


def test_lines_of_a_worker_are_handed_on():
    lines = []
    with LocalPlacement(on_line=lambda name, line: lines.append((name, line))) as placement:
        worker = placement.start("no.such.module", {}, "worker 1 of run x")
        assert worker.wait(300)

    assert {name for name, _ in lines} == {"worker 1 of run x"}
    assert "no.such" in lines[-1][1]


def served(data, *words, **environment):
    return start("hive", "serve", "--port", "0", "--data", data, *words, **environment)


def test_json_logs_are_objects_with_run_session_request_and_trace(tmp_path):
    process = served(tmp_path / "data", "--log-format", "json", ARKML_HIVE_TOKEN=TOKEN)
    first = json.loads(process.stderr.readline())
    base = re.search(r"http://\S+", first["message"])[0]
    with httpx.Client(
        base_url=base + "/v1", headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False,
        timeout=300,
    ) as http:  # fmt: skip
        made = http.post("/runs", json=request(HOSTILE)).json()["run"]
        sid = http.post(
            f"/runs/{made['id']}/sessions",
            json={"join_key": "k" * 8, "features": 3, "actions": 2, "role": "act"},
        ).json()["sid"]
        log = tmp_path / "data" / "runs" / made["id"]
        eventually(lambda: http.get(f"/runs/{made['id']}").json()["run"]["status"] == "running")
        (log / "rows").rename(log / "gone")
        failed = eventually(
            lambda: (
                (
                    answer := http.post(
                        f"/sessions/{sid}/rows",
                        content=encode(rows(4), seq=1),
                        headers={
                            "content-type": "application/x-arkml-rows",
                            "x-request-id": "mine-1",
                        },
                    )
                ).status_code
                == 503
                and answer
            )
        )
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    lines = [first, *map(json.loads, err.splitlines())]
    about = [line for line in lines if line.get("request") == "mine-1"]

    assert failed.headers["x-request-id"] == "mine-1"
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", line["time"]) for line in lines)
    assert about[0]["run"] == made["id"]
    assert about[0]["session"] == 0
    assert about[0]["level"] == "error"
    assert [line for line in lines if line.get("run") == made["id"] and "request" not in line]


def test_text_logs_have_time_level_message_and_what_they_are_about(tmp_path):
    process = served(tmp_path / "data")
    address = re.search(r"http://(\S+)", process.stderr.readline())[0]
    with httpx.Client(base_url=address, trust_env=False, timeout=300) as http:
        run_id = http.post("/v1/runs", json=request()).json()["run"]["id"]
        eventually(lambda: http.get(f"/v1/runs/{run_id}").json()["run"]["status"] == "running")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    line = next(line for line in err.splitlines() if "learns on" in line)

    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z INFO +run \w+ learns on cpu", line)
    assert line.endswith(f" run={run_id}")


def test_a_hive_that_cannot_begin_says_so_as_json(tmp_path):
    (tmp_path / "file").write_text("")
    process = served(tmp_path / "file", "--log-format", "json")
    _, err = process.communicate(timeout=300)
    (line,) = map(json.loads, err.splitlines())

    assert process.returncode == 2
    assert line["level"] == "critical"
    assert str(tmp_path / "file") in line["message"]


def test_an_unknown_format_of_logs_is_refused(tmp_path):
    process = served(tmp_path, "--log-format", "xml")
    _, err = process.communicate(timeout=300)

    assert process.returncode == 2
    assert "--log-format xml: it takes one of text, json" in err
