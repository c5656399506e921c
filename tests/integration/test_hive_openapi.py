"""Real answers of a real hive, against the OpenAPI document."""

import hashlib
import json
import uuid

import numpy as np
import pytest
from tests.integration.hive_service import Service, request, rows, start_hive
from tests.unit.shown_replays import document as replayed
from tests.unit.shown_replays import submit
from tests.waiting import eventually
from tools.openapi import PATH, document

from arkml.hive.protocol.replay_messages import ReplayReport
from arkml.hive.protocol.rows import encode
from arkml.hive.protocol.runs import ModuleReply, Refusal
from arkml.hive.protocol.session_messages import OutOfTurn, RowsReply
from arkml.server.hive_app import OPERATIONS

EMPTY = b"\0asm\1\0\0\0"
"""A module with nothing in it."""
REACHED = {"wanted": 1.0, "mean_return": 2.0, "episodes": 3}
STRUCTS = {(f"/v1{one.path}", one.method.lower()): one.gives for one in OPERATIONS}


@pytest.fixture
def service(tmp_path):
    with start_hive(tmp_path / "data", workers={"total": 1}) as hive:
        made = Service(hive)
        yield made
        made.close()


def test_real_answers_are_what_the_document_says(service):
    answers = list(answers_of(service))
    described = document()["paths"]
    wrong = []
    for path, method, answer in answers:
        responses = described[path][method]["responses"]
        response = responses.get(str(answer.status_code)) or responses["default"]
        media = answer.headers.get("content-type", "").partition(";")[0]
        if [media] != list(response.get("content", {"": {}})):
            wrong.append((path, method, answer.status_code, media))
        elif media == "application/json":
            kind = struct_of(path, method, answer.status_code)
            again = kind.from_bytes(answer.content).as_bytes()
            if json.loads(again) != answer.json():
                wrong.append((path, method, answer.text))

    assert wrong == []
    assert {(path, method) for path, method, _ in answers} == {
        (path, method) for path, methods in described.items() for method in methods
    }
    assert {answer.status_code for *_, answer in answers} == {
        200, 201, 204, 400, 401, 404, 405, 409, 422,
    }  # fmt: skip


def struct_of(path, method, status):
    """The struct of an answer."""
    if status >= 400:
        return OutOfTurn if status == 409 and path.endswith("rows") else Refusal
    return {"put": ModuleReply}.get(method, STRUCTS.get((path, method), RowsReply))


def answers_of(service):
    """Ask everything of a hive: path in the document, method, answer."""
    run, sid = "/v1/runs/{run_id}", "/v1/sessions/{sid}"
    made = service.post("/runs", request())
    run_id = made.json()["run"]["id"]
    at = f"/runs/{run_id}"
    yield "/v1/runs", "post", made
    yield "/v1/runs", "post", service.post("/runs", request(on_conflict="join"))
    yield "/v1/runs", "post", service.http.post("/runs", content=b"[")
    yield "/v1/runs", "post", service.post("/runs", {})
    yield "/v1/runs", "get", service.get("/runs")
    yield "/v1/runs", "get", service.get("/runs", headers={"authorization": "Bearer wrong"})
    yield "/v1/health", "get", service.get("/health")
    yield "/v1/whoami", "get", service.get("/whoami")
    yield "/v1/one_time_tokens", "post", service.post("/one_time_tokens")
    for plain in ("/healthz", "/readyz", "/metrics"):
        yield plain, "get", service.http.get(service.base.removesuffix("/v1") + plain)
    joined = service.join(run_id)
    yield f"{run}/sessions", "post", joined
    yield f"{run}/sessions", "post", service.join(run_id, features=9)
    session = joined.json()["sid"]
    yield f"{sid}/beat", "post", service.post(f"/sessions/{session}/beat")
    yield f"{run}/names", "post", service.post(f"{at}/names", {"names": ["speed", ""]})
    refused = rows(4)
    refused.features[1] = np.nan
    yield f"{sid}/rows", "post", service.push(session, refused, 1)
    yield f"{sid}/rows", "post", service.push(session, refused, 1)
    yield f"{sid}/rows", "post", service.push(session, rows(4, 4), 7)
    yield f"{sid}/rows", "post", service.send(session, encode(rows(4), seq=2)[:-8])
    eventually(lambda: service.get(f"{at}/metrics").json()["metrics"])
    yield f"{run}/policy", "get", service.get(f"{at}/policy?after=0&wait=20")
    yield f"{run}/policy", "get", service.get(f"{at}/policy?after=99")
    yield f"{run}/policy", "get", service.get(f"{at}/policy?after=x")
    played = {"version": 1, "returns": [1.5, 2.0], "lengths": [3, 4]}
    begin = "evaluations/begin"
    yield f"{run}/{begin}", "post", service.post(f"{at}/{begin}", {"version": 1})
    yield f"{run}/evaluations", "post", service.post(f"{at}/evaluations", played)
    for which in ("now", "best", "latest", "other"):
        yield f"{run}/snapshot", "get", service.get(f"{at}/snapshot?which={which}")
    report = ReplayReport.of(1, 1.5, replayed([submit(["1"], [1])])).as_json()
    yield f"{run}/replay", "get", service.get(f"{at}/replay?which=best")
    yield f"{run}/replays", "post", service.post(f"{at}/replays", report)
    yield f"{run}/replays", "post", service.post(f"{at}/replays", {**report, "document": "x"})
    for which in ("best", "other"):
        yield f"{run}/replay", "get", service.get(f"{at}/replay?which={which}")
    changed = {"before": "0" * 64, "after": "1" * 64, "state": "kept"}
    yield f"{run}/events", "post", service.post(f"{at}/events", changed)
    yield f"{run}/events", "post", service.post(f"{at}/events", {**changed, "after": "x"})
    yield f"{run}/goal", "post", service.post(f"{at}/goal", REACHED)
    yield f"{run}/frames", "post", service.post(f"{at}/frames", {"frames": 5})
    yield f"{run}/frames", "post", service.post(f"{at}/frames", {"frames": -1})
    yield f"{run}/replays", "get", service.get(f"{at}/replays")
    yield f"{run}/metrics", "get", service.get(f"{at}/metrics")
    yield f"{run}/histograms", "get", service.get(f"{at}/histograms")
    yield f"{run}/series", "get", service.get(f"{at}/series?name=eval/mean_reward")
    module = "/v1/modules/{sha256}"
    known = f"/modules/{hashlib.sha256(EMPTY).hexdigest()}"
    yield module, "put", service.http.put(known, content=EMPTY)
    yield module, "put", service.http.put(known, content=EMPTY)
    yield module, "put", service.http.put(known, content=EMPTY + b"\0\1\0")
    yield module, "head", service.http.head(known)
    yield module, "get", service.get(known)
    yield module, "get", service.get("/modules/0")
    guest = {"module": hashlib.sha256(EMPTY).hexdigest(), "name": "a.wasm", "behavior": "run"}
    yield f"{run}/guest", "post", service.post(f"{at}/guest", guest)
    yield f"{run}/guest", "post", service.post(f"{at}/guest", {**guest, "module": "x"})
    yield f"{run}/versions", "get", service.get(f"{at}/versions")
    yield f"{run}/watch", "get", service.get(f"{at}/watch?version=1")  # which has no frames
    yield f"{run}/watch", "get", service.get(f"{at}/watch?version=99")
    yield f"{run}/recordings", "post", service.post(f"{at}/recordings", {"version": "99"})
    yield f"{run}/checkpoints", "post", service.post(f"{at}/checkpoints")
    yield f"{run}/checkpoints", "get", service.get(f"{at}/checkpoints")
    yield f"{run}/memory", "get", service.get(f"{at}/memory")
    yield f"{run}/curves", "get", service.get(f"{at}/curves?names=eval/mean_reward")
    curves = f"/curves?runs={run_id},x&names=eval/mean_reward"
    yield "/v1/curves", "get", service.get(curves)
    yield "/v1/curves", "get", service.get(f"{curves}&points=3")
    yield f"{run}/events", "get", service.get(f"{at}/events")
    yield f"{run}/goal", "post", service.post(f"{at}/goal", REACHED)
    yield f"{run}/goal", "post", service.post(f"{at}/goal", {"wanted": "x"})
    yield f"{run}/log", "get", service.get(f"{at}/log")
    for path in ("/v1/whoami", "/v1/settings", "/v1/usage"):
        yield path, "get", service.get(path.removeprefix("/v1"))
    yield f"{run}/config", "get", service.get(f"{at}/config")
    yield run, "get", service.get(at)
    yield run, "get", service.get(f"/runs/{uuid.uuid4()}")
    yield run, "get", service.http.put(at)
    yield run, "patch", service.http.patch(at, json={"title": "t", "tags": ["a"], "note": "n"})
    yield run, "patch", service.http.patch(at, json={"note": "m", "note_revision": 0})
    yield run, "patch", service.http.patch(at, json={"tags": [","]})
    yield run, "delete", service.http.delete(at)
    yield f"{sid}/leave", "post", service.post(f"/sessions/{session}/leave", {"stop": True})
    yield f"{run}/stop", "post", service.post(f"{at}/stop")
    yield run, "delete", service.http.delete(f"{at}?force=1")


def test_a_hive_does_not_serve_the_document(service):
    answers = [service.get(path) for path in ("/openapi.json", "/docs", f"/{PATH}")]

    assert [answer.status_code for answer in answers] == [404, 404, 404]
