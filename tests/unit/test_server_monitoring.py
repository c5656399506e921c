"""Counts of requests, log lines and what they are about, without a process."""

import asyncio
import io
import json
import logging
import sys

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.integration.hive_service import rows

from arkml.errors import HiveRefused
from arkml.hive.protocol.rows import HEADER_SIZE, encode, parse_header
from arkml.server.access.callers import CALLER, Caller, WorkerGrant
from arkml.server.bodies import check_rows
from arkml.server.learner_log import relay_line
from arkml.server.monitoring.json_logs import JsonLine, TextLine, start_logs
from arkml.server.monitoring.prometheus import metrics_route
from arkml.server.request_context import (
    BOUNDS,
    UNROUTED,
    Durations,
    RequestCounts,
    begin_run,
    known_fields,
    note_session,
)

HOSTILE = 'two\nlines "and" \x1b[31m\u2028\u202e{}\ud800'


def ask(app, path="/", method="GET", headers=()):
    """The messages by which an application answers."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers),
             "query_string": b"", "root_path": ""}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return sent


@pytest.fixture
def counts():
    async def endpoint(_):
        note_session("r1", 3)
        return PlainTextResponse(json.dumps(known_fields()))

    async def failing(_):
        raise ZeroDivisionError

    return RequestCounts(
        Starlette(routes=[Route("/things/{name}", endpoint), Route("/failing", failing)])
    )


def test_a_request_counts_by_the_template_of_its_route(counts):
    for name in ("a", "b", "c"):
        ask(counts, f"/things/{name}")
    ask(counts, "/elsewhere")

    assert counts.requests == {("GET", "/things/{name}", 200): 3, ("GET", UNROUTED, 404): 1}
    assert sum(counts.durations["GET", "/things/{name}"].counts) == 3
    assert counts.in_flight == 0


def test_a_request_that_fails_counts_and_ends(counts):
    with pytest.raises(ZeroDivisionError):
        ask(counts, "/failing")

    assert counts.requests == {("GET", "/failing", 500): 1}
    assert counts.in_flight == 0


def test_a_method_that_is_not_known_makes_no_label(counts):
    for number in range(50):
        ask(counts, "/things/a", f"WORD{number}")

    assert counts.requests == {("other", "/things/{name}", 405): 50}


def test_the_lines_of_a_request_have_its_run_session_and_id_and_those_after_it_none(counts):
    (_, body) = ask(counts, "/things/a", headers=[(b"x-request-id", b"mine")])

    assert json.loads(body["body"]) == {"run": "r1", "session": 3, "request": "mine"}
    assert known_fields() == {}


def test_a_task_that_a_request_starts_does_not_keep_its_id():
    async def main():
        going, found = asyncio.Event(), []

        async def late():
            await going.wait()
            return known_fields()

        async def of_run():
            begin_run("r2")
            return await late()

        async def app(*_):
            found.extend([asyncio.create_task(late()), asyncio.create_task(of_run())])
            await asyncio.sleep(0)
            found.append(known_fields())

        scope = {"type": "http", "method": "GET", "headers": [(b"x-request-id", b"mine")]}
        await RequestCounts(app)(scope, None, None)
        going.set()
        *tasks, during = found
        return during, *await asyncio.gather(*tasks)

    assert asyncio.run(main()) == ({"request": "mine"}, {}, {"run": "r2"})


@pytest.mark.parametrize(
    ("seconds", "place"), [(0.0, 0), (0.001, 0), (0.0011, 1), (30.0, len(BOUNDS) - 1), (1e6, -1)]
)
def test_a_duration_counts_up_to_the_next_bound(seconds, place):
    durations = Durations()
    durations.add(seconds)

    assert durations.counts[place] == sum(durations.counts) == 1
    assert durations.seconds == seconds


def record(text, level=logging.INFO, exception=None, **about):
    made = logging.LogRecord("arkml.server.x", level, "", 0, "%s", (text,), exception)
    vars(made).update(about)
    return made


def test_a_line_of_json_is_one_line_of_ascii_whatever_it_says():
    line = JsonLine().format(record(HOSTILE, run=HOSTILE, session=0, worker="w"))
    read = json.loads(line)

    assert line.isascii()
    assert "\n" not in line
    assert (read["message"], read["run"], read["session"], read["worker"]) == (
        HOSTILE, HOSTILE, 0, "w",
    )  # fmt: skip
    assert (read["level"], read["logger"]) == ("info", "arkml.server.x")


def test_a_line_of_json_has_the_traceback():
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        line = JsonLine().format(record("failed", logging.ERROR, sys.exc_info()))

    assert "ZeroDivisionError" in json.loads(line)["exception"]


@pytest.mark.parametrize("tracebacks", [True, False])
def test_a_line_of_text_is_harmless(tracebacks):
    try:
        {}[HOSTILE]
    except KeyError:
        line = TextLine(tracebacks=tracebacks).format(
            record(HOSTILE, exception=sys.exc_info(), run="r")
        )
    first, *rest = line.split("\n")

    assert "\x1b" not in line
    assert first.endswith(" run=r")
    assert "two\\nlines" in first
    assert bool(rest) is tracebacks


@pytest.fixture
def quiet_logs():
    """The loggers as they were before."""
    root, own = logging.getLogger(), logging.getLogger("arkml")
    kept = root.handlers, own.handlers, root.level, own.level, own.propagate
    yield
    logging.captureWarnings(capture=False)
    root.handlers, own.handlers = kept[:2]
    root.setLevel(kept[2])
    own.setLevel(kept[3])
    own.propagate = kept[4]


@pytest.mark.usefixtures("quiet_logs")
def test_lines_of_learners_and_workers_are_those_of_their_run(monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    start_logs("json")
    relay_line("learner: WARNING: the disk is full", run="r1")
    relay_line("Traceback (most recent call last):", run="r1")
    relay_line("ERROR: arkml.guest: it trapped", run="r2", worker="worker 3")
    relay_line("", run="r1")
    logging.getLogger("uvicorn.error").warning("of another package")
    logging.getLogger("uvicorn.error").info("not shown")
    lines = [json.loads(line) for line in stderr.getvalue().splitlines()]

    assert [(line["level"], line["message"], line.get("run")) for line in lines] == [
        ("warning", "learner: the disk is full", "r1"),
        ("info", "learner: Traceback (most recent call last):", "r1"),
        ("error", "worker 3: arkml.guest: it trapped", "r2"),
        ("warning", "of another package", None),
    ]
    assert lines[2]["worker"] == "worker 3"


def test_a_rollout_worker_may_not_ask_for_metrics():
    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": []}
    scope[CALLER] = Caller(None, grant=WorkerGrant("r1", ""))

    async def main():
        await metrics_route(None).app(scope, None, None)

    with pytest.raises(HiveRefused, match="may not ask for GET /metrics"):
        asyncio.run(main())


def test_refused_rows_are_counted_by_their_first_reason():
    columns = rows(200)
    columns.features[:100] = float("nan")
    columns.state[50:150] = 9
    body = encode(columns, seq=1)
    checked = check_rows(parse_header(body[:HEADER_SIZE]), body, 0)

    assert checked.kinds == {"not finite": 100, "no such state": 50, "out of order": 0}
    assert checked.refused == sum(checked.kinds.values())
