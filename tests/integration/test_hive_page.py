"""What the page of a hive is served: its files, thinned curves, events, histories, logs."""

import json
import threading

import httpx
import pytest
from tests.integration.hive_service import Service, start_hive
from tests.waiting import eventually

from arkml.server.access.security_headers import PAGE

POLICY = dict(PAGE)[b"content-security-policy"].decode()

EVALUATION = {"version": 1, "returns": [1.0, 3.0], "lengths": [5.0, 5.0]}


@pytest.fixture
def service(tmp_path):
    with start_hive(tmp_path / "hive") as hive:
        service = Service(hive)
        yield service
        service.close()


@pytest.fixture
def site(service):
    """A browser that has not logged in."""
    with httpx.Client(base_url=service.base.removesuffix("/v1"), trust_env=False) as client:
        yield client


class Events:
    """The events of a stream, read by a thread."""

    def __init__(self, service, *, last=None, **parameters):
        self.found = []
        headers = {} if last is None else {"last-event-id": str(last)}
        timeout = httpx.Timeout(30.0)
        self._client = httpx.Client(
            headers={**service.http.headers, **headers}, timeout=timeout, trust_env=False
        )
        url = f"{service.base}/events"
        self._response = self._client.send(
            self._client.build_request("GET", url, params=parameters), stream=True
        )
        self.headers = self._response.headers
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        event = {}
        try:
            for line in self._response.iter_lines():
                if not line:
                    self.found.append(event)
                    event = {}
                else:
                    name, _, value = line.partition(": ")
                    event[name] = json.loads(value) if name == "data" else value
        except httpx.HTTPError:
            return

    def wait(self, kind, matches=lambda _: True):
        def look():
            return [
                one["data"]
                for one in self.found
                if one.get("event") == kind and matches(one["data"])
            ]

        eventually(lambda: bool(look()))
        return look()

    @property
    def is_over(self):
        return not self._thread.is_alive()

    def close(self):
        self._response.close()
        self._client.close()
        self._thread.join(300)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def evaluate(service, run, value):
    report = {"version": 1, "returns": [value], "lengths": [5.0]}
    assert service.post(f"/runs/{run}/evaluations", report).status_code == 200


def test_the_files_of_the_page_are_open_and_guarded(site):
    page = site.get("/")

    assert page.status_code == 200
    assert page.headers["content-security-policy"] == POLICY
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "unsafe-eval" not in POLICY
    assert "<script>" not in page.text
    assert "unsafe-inline" not in POLICY
    assert "{release}" not in page.text
    again = site.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("main.js", "page.css", "icon.svg"):
        assert site.get(f"/{path}").headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "path", ["/nothing.js", "/../files.py", "/%2e%2e/files.py", "/site/main.js", "//etc/passwd"]
)
def test_no_path_leads_out_of_the_site(site, path):
    answer = site.get(path)

    assert answer.status_code == 401  # as every path that is not one of the page's files
    assert "import" not in answer.text


def test_data_need_the_token(site):
    for path in ("runs", "settings", "usage", "whoami", "events", "runs/x/curves?names=a"):
        assert site.get(f"/v1/{path}").status_code == 401


def test_what_draws_charts_is_small_and_part_of_the_page(site):
    assert 'href="vendor/uplot/uPlot.min.css"' in site.get("/").text
    answer = site.get("/vendor/uplot/uPlot.esm.js")

    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 50_000
    plain = site.get("/vendor/uplot/uPlot.esm.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != answer.headers["etag"]
    assert site.get("/metrics.json").headers["content-type"] == "application/json"


def test_an_open_page_has_every_right_and_an_embedded_one_a_link_for_one_login(service, site):
    token = service.hive.page_link.partition("#token=")[2]

    def login(value, **headers):
        return site.post("/login", json={"token": value}, headers={"x-arkml": "1", **headers})

    assert login("wrong").status_code == 401
    assert login(token, **{"sec-fetch-site": "cross-site"}).status_code == 403
    assert login(token).status_code == 200
    assert site.get("/v1/whoami").json()["role"] == "admin"
    assert login(token).status_code == 401
    own = {"sec-fetch-site": "same-origin"}
    assert site.post("/v1/runs/x/stop", json={}, headers=own).status_code in (401, 403)
    own |= {"x-arkml": "1"}
    assert site.post("/v1/runs/x/stop", json={}, headers=own).status_code == 404
    assert site.post("/logout", json={}, headers=own).status_code == 204
    site.cookies.clear()
    assert site.get("/v1/whoami").status_code == 401


def test_curves_are_thinned_with_their_extremes_kept(service):
    run = service.create()
    for number in range(60):
        evaluate(service, run, {20: 500.0, 40: -500.0}.get(number, float(number)))
    names = "eval/mean_reward,nothing"
    whole = service.get(f"/runs/{run}/curves", params={"names": names}).json()["curves"]
    asked = {"names": '["eval/mean_reward"]', "points": 10, "x": "time"}
    [thin] = service.get(f"/runs/{run}/curves", params=asked).json()["curves"]
    series = service.get(f"/runs/{run}/series", params={"name": "eval/mean_reward"}).json()[
        "series"
    ]

    assert whole[0]["points"] == series
    assert whole[1] == {"name": "nothing", "points": [], "lowest": None, "highest": None}
    assert (thin["lowest"], thin["highest"]) == (-500.0, 500.0)
    assert len(thin["points"]) <= 10
    values = [point[1] for point in thin["points"]]
    assert {-500.0, 500.0} <= set(values)
    assert thin["points"][-1] == series[-1]
    assert all(point in series for point in thin["points"])
    since = {"names": "eval/mean_reward", "since": series[-3][2]}
    [late] = service.get(f"/runs/{run}/curves", params=since).json()["curves"]
    assert late["points"] == series[-2:]


def test_curves_of_several_runs_come_in_one_answer_and_a_wrong_run_has_a_reason(service):
    runs = [service.create(), service.create()]
    for run, value in zip(runs, (1.0, 2.0), strict=True):
        evaluate(service, run, value)
    asked = {"runs": f"{runs[1]},x,{runs[0]}", "names": '["eval/mean_reward", "none"]'}
    answer = service.get("/curves", params=asked)
    found = answer.json()["runs"]

    assert [one["run"] for one in found] == [runs[1], "x", runs[0]]
    for one, value in ((found[0], 2.0), (found[2], 1.0)):
        alone, none = one["curves"]
        assert (alone["highest"], none["points"], one["error"]) == (value, [], "")
        path = f"/runs/{one['run']}/curves"
        assert service.get(path, params={"names": asked["names"]}).json()["curves"] == one["curves"]
    assert (found[1]["curves"], found[1]["error"]) == ([], "there is no run 'x'")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("names=a", "runs"),
        ("runs=a&names=a&points=3", "points"),
        ("runs=a&names=[1", "names is '[1'"),
        (f"runs={'a,' * 65}&names=b", "65 runs at once: 64 at most"),
        (f"runs={'a,' * 64}&names={'b,' * 20}&points=1000", "1344000 points: 250000 at most"),
    ],
)
def test_more_curves_than_fit_into_one_answer_are_refused(service, query, sentence):
    answer = service.get(f"/curves?{query}")

    assert 400 <= answer.status_code < 500
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize(
    "query",
    ["names=[1]", "names=[", 'names=["\\ud800"]', "names=a&points=3", "names=a&x=age"],
)
def test_a_query_that_makes_no_sense_is_refused_with_a_sentence(service, query):
    answer = service.get(f"/runs/{service.create()}/curves?{query}")

    assert answer.status_code == 422
    assert "it takes" in answer.json()["error"]


def test_settings_are_shown_against_the_defaults(service):
    changed = service.create("changed")
    reply = service.get("/settings").json()

    assert reply["defaults"]["memory_min_size"] == 1_000
    assert reply["runs"][changed] == {"memory_min_size": 100}


def test_a_stream_has_what_is_new_and_resumes_where_it_was(service):
    run = service.create()
    service.join(run)
    with Events(service, runs=run) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        assert events.headers["x-accel-buffering"] == "no"
        assert events.headers["cache-control"] == "no-store"
        assert "content-encoding" not in events.headers
        events.wait("open")
        evaluate(service, run, 7.0)
        events.wait("usage")
        [metrics] = events.wait("metrics", lambda data: "eval/mean_reward" in str(data))
        assert metrics["run"] == run
        assert ["eval/mean_reward", 0, 7.0] in [point[:3] for point in metrics["points"]]
        numbers = [int(one["id"]) for one in events.found if "id" in one]
        assert numbers == sorted(numbers)
        last = numbers[-1]
    evaluate(service, run, 8.0)
    with Events(service, last=last, runs=run) as events:
        resumed = events.wait("metrics", lambda data: "8.0" in str(data))
        assert len(resumed) == 1
        assert next(one["event"] for one in events.found if "event" in one) == "open"
    other = service.create("other")
    with Events(service, last=3, runs=other) as events:
        events.wait("reset")
        evaluate(service, run, 9.0)
        events.wait("runs", lambda data: any(one["id"] == run for one in data["runs"]))
        assert not [one for one in events.found if one.get("event") == "metrics"]


def test_streams_tell_of_events_of_new_runs_and_of_removed_ones(service):
    with Events(service) as events:
        events.wait("open")
        run = service.create()
        [created] = events.wait("runs", lambda data: data["runs"] and data["runs"][0]["id"] == run)[
            :1
        ]
        assert created["runs"][0]["name"] == "run"
        assert service.http.delete(f"/runs/{run}", params={"force": 1}).status_code == 200
        events.wait("runs", lambda data: data["removed"] == [run])


def test_what_happens_to_a_run_is_kept(service):
    run = service.create()
    service.join(run)
    service.wait_for_status(run, "running", "starting")

    def kinds():
        return [one["kind"] for one in service.get(f"/runs/{run}/events").json()["events"]]

    eventually(lambda: "started" in kinds())
    service.post(f"/runs/{run}/stop")
    assert kinds()[0] == "started"
    assert "stopped" in kinds()
    before = service.get(f"/runs/{run}/events").json()["events"]
    data = service.hive.data
    service.hive.close()
    with start_hive(data) as hive:
        again = Service(hive)
        assert again.get(f"/runs/{run}/events").json()["events"][: len(before)] == before
        again.close()


def test_a_stream_ends_with_its_hive(service):
    run = service.create()
    events = Events(service, runs=run)
    events.wait("open")
    service.hive.close()
    events.wait("ended")

    assert eventually(lambda: events.is_over)
    events.close()


def test_the_log_of_a_run_has_what_its_learner_printed(service):
    run = service.create()
    service.join(run)
    service.wait_for_status(run, "running", "starting")
    path = service.hive.data / "runs" / run / "learner.log"
    with path.open("ab") as file:
        file.write(b"one\n\x1b[31mtwo <b>\n")
    reply = service.get(f"/runs/{run}/log", params={"lines": 1}).json()

    assert reply["lines"] == ["\\x1b[31mtwo <b>"]
    assert service.get(f"/runs/{run}/log", params={"lines": 5_000}).json()["is_whole"]
