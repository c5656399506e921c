"""Traces of bodies of rows, received by a real receiver of OTLP from a real hive."""

import logging
import os
import signal
import sys
from itertools import pairwise

import pytest
from tests.integration.hive_service import Service, rows, start_hive
from tests.integration.scripted_hive import ScriptedHive, take
from tests.integration.test_hive_client import append, join, settled
from tests.otlp_receiver import OtlpReceiver
from tests.waiting import eventually

from arkml.hive import tracing as hive_tracing
from arkml.hive.client import HiveClient
from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
STAGES = ["append rows", "read rows", "update", "publish version", "deliver version"]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-1] + "0"


@pytest.fixture
def receiver():
    made = OtlpReceiver()
    yield made
    made.close()


@pytest.fixture
def traced(receiver, monkeypatch):
    """Traces of every body, exported at once."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    hive_tracing.tracing.cache_clear()
    yield receiver
    if (tracing := hive_tracing.tracing("arkml-host")) is not None:
        tracing.close()
    hive_tracing.tracing.cache_clear()


@pytest.fixture
def service(tmp_path):
    with start_hive(tmp_path / "data") as hive:
        made = Service(hive)
        yield made
        made.close()


def push(service, sid, seq, **headers):
    """Send a body with headers."""
    return service.http.post(
        f"/sessions/{sid}/rows",
        content=encode(rows(4, 4 * seq), seq=seq),
        headers={"content-type": CONTENT_TYPE, **headers},
    )


def whole(receiver, trace, names=STAGES):
    """The spans of a trace once it has all of them, by name."""

    def found():
        spans = receiver.traces().get(trace, {})
        return spans if set(names) <= spans.keys() else None

    return {name: spans[0] for name, spans in eventually(found).items()}


def test_a_body_is_one_trace_from_the_hive_over_the_learner_to_a_version(traced, service):
    run_id = service.create()
    sid = service.sid(run_id)
    service.wait_for_status(run_id, "running")
    push(service, sid, 1, traceparent=PARENT)
    push(service, sid, 2, traceparent=UNSAMPLED)  # the update that a fake learner makes of it
    after = eventually(lambda: service.run(run_id)["policy_version"] >= 3) and 1
    answer = service.get(f"/runs/{run_id}/policy?after={after}&wait=10")
    trace = PARENT.split("-")[1]
    spans = whole(traced, trace)
    ordered = [spans[name] for name in STAGES]

    assert {span.service for span in ordered} == {"arkml-hive"}
    assert ordered[0].parent == PARENT.split("-")[2]
    assert {span.parent for span in ordered[1:]} == {ordered[0].id}
    assert all(one.ended <= after.began for one, after in pairwise(ordered[1:]))
    assert ordered[0].attributes == {
        "arkml.run": run_id, "arkml.session": 0, "arkml.body": 1, "arkml.rows": 4,
    }  # fmt: skip
    version = int(answer.headers["x-arkml-version"])
    assert spans["deliver version"].attributes["arkml.policy_version"] == version
    assert answer.headers["traceparent"].split("-")[1:3] == [trace, spans["deliver version"].id]
    assert set(traced.traces()) == {trace}


def test_a_receiver_on_this_machine_is_asked_without_a_proxy(receiver, monkeypatch, request):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    request.getfixturevalue("traced")
    hive_tracing.tracing("arkml-host").start("a span").end()

    assert eventually(lambda: [one.name for one in receiver.spans]) == ["a span"]


def test_a_body_without_a_header_begins_a_trace_and_a_damaged_header_too(traced, service):
    sid = service.sid(service.create())
    push(service, sid, 1)
    push(service, sid, 2, traceparent="00-zz-1-01")
    traces = eventually(lambda: len(traced.traces()) == 2 and traced.traces())

    assert all("append rows" in spans for spans in traces.values())
    assert {spans["append rows"][0].parent for spans in traces.values()} == {""}


def test_a_trace_of_a_run_that_ends_says_so(traced, service):
    run_id = service.create()
    push(service, service.sid(run_id), 1, traceparent=PARENT)
    eventually(lambda: "read rows" in traced.traces().get(PARENT.split("-")[1], {}))
    service.post(f"/runs/{run_id}/stop")
    service.hive.close()  # which exports what is left
    spans = [
        span for spans in traced.traces().values() for found in spans.values() for span in found
    ]
    given_up = [span.attributes.get("arkml.given_up") for span in spans]

    assert [one for one in given_up if one] == ["the run has ended"]


def test_the_host_begins_the_trace_and_ends_it_with_the_version_that_it_receives(traced, tmp_path):
    names = {"send rows", *STAGES, "receive version"}
    versions, sent = [], iter(range(0, 4_000, 4))
    with start_hive(tmp_path / "data") as hive, HiveClient(hive.locate) as client:
        run = client.create(RunRequest("run", "game", Settings(3, 2))).result(300)
        session = client.join(
            run.id, 3, 2, on_policy=lambda version, _: versions.append(version), block=True
        ).result(300)

        def complete():
            append(session, next(sent), 4)
            eventually(lambda: settled(session))
            return [spans for spans in traced.traces().values() if spans.keys() == names]

        traces = eventually(complete)
        session.leave(stop=False).result(300)
    spans = {name: found[0] for name, found in traces[0].items()}

    assert spans["send rows"].parent == ""
    assert spans["append rows"].parent == spans["send rows"].id
    assert spans["receive version"].parent == spans["deliver version"].id
    assert spans["receive version"].service == spans["send rows"].service == "arkml-host"
    assert spans["receive version"].attributes["arkml.policy_version"] in versions
    assert spans["send rows"].attributes == {"arkml.run": run.id, "arkml.rows": 4}


@pytest.mark.parametrize("share", ["0", "1"])
def test_a_share_of_the_bodies_is_traced_and_the_header_says_which(traced, monkeypatch, share):
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    hive, headers = ScriptedHive(), []

    def note(hive, handler, body):
        headers.append(handler.headers["traceparent"])
        take(hive, handler, body)

    hive.scripts["rows"] = [note]
    with HiveClient(hive.locate) as client:
        session = join(client)
        append(session, 0, 4)
        eventually(lambda: settled(session))
    hive.close()
    hive_tracing.tracing("arkml-host").flush()

    assert [int(header[-2:], 16) & 1 for header in headers] == [int(share)]
    assert len(traced.traces()) == int(share)


def test_without_an_endpoint_there_is_no_header(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    hive_tracing.tracing.cache_clear()
    hive, headers = ScriptedHive(), []

    def note(hive, handler, body):
        headers.append(handler.headers["traceparent"])
        take(hive, handler, body)

    hive.scripts["rows"] = [note]
    with HiveClient(hive.locate) as client:
        session = join(client)
        append(session, 0, 4)
        eventually(lambda: settled(session))
    hive.close()

    assert headers == [None]


def test_a_hive_whose_receiver_is_gone_takes_rows_and_ends_in_time(traced, tmp_path):
    traced.close()
    with start_hive(tmp_path / "data") as hive:
        service = Service(hive)
        sid = service.sid(service.create())
        answers = [push(service, sid, seq).status_code for seq in range(1, 20)]
        service.close()
        process = hive._process
        os.kill(hive.pid, signal.SIGTERM)
        process.wait()

    assert set(answers) == {200}
    assert "exits now" not in (tmp_path / "data" / "hive.log").read_text()  # docker kills after ten


def test_traces_without_the_packages_are_one_sentence(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    hive_tracing.tracing.cache_clear()
    with caplog.at_level(logging.WARNING, logger="arkml"):
        found = [hive_tracing.tracing("arkml-host") for _ in range(2)]
    hive_tracing.tracing.cache_clear()

    assert found == [None, None]
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "OTEL_EXPORTER_OTLP_ENDPOINT is set and OpenTelemetry is not installed, so there are no"
        " traces: pip install 'arkml[otel]'"
    ]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_wanted_by_the_environment(environment, wanted):
    assert hive_tracing.is_wanted(environment) is wanted


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("share", ["2", "-0.1", "nan", "many"])
def test_a_share_that_is_none_is_a_warning_and_the_default(monkeypatch, caplog, share):
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    with caplog.at_level(logging.WARNING, logger="arkml"):
        assert hive_tracing.tracing("arkml-host") is not None

    assert f"OTEL_TRACES_SAMPLER_ARG is {share!r}" in caplog.text
