"""Clients of a hive that are slow, endless or many: each is refused, and no other one waits."""

import contextlib
import json
import socket
import time
from http.client import HTTPResponse
from pathlib import Path

import pytest
from tests.integration.hive_service import Service, request, start_hive
from tests.waiting import eventually

LIMITS = {
    "connections": 60,
    "header_seconds": 0.5,
    "header_bytes": 4_096,
    "body_seconds": 0.5,
    "body_rate": 1 << 20,
    "body_bytes": 8 << 20,
}
MIB = 1 << 20


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with start_hive(tmp_path_factory.mktemp("hive") / "data", limits=LIMITS) as hive:
        made = Service(hive)
        yield made
        made.close()


@pytest.fixture
def connect(service):
    """A factory of sockets to the hive that are closed at the end."""
    with contextlib.ExitStack() as opened:

        def make(*sent):
            address = service.hive.locate()
            host, port = address.host, address.port
            made = opened.enter_context(socket.create_connection((host, port), timeout=30))
            for data in sent:
                made.sendall(data)
            return made

        yield make


def header(service, size, path="/runs"):
    """The header of a POST with a body of that size."""
    return (
        f"POST /v1{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {service.token}\r\n"
        f"content-length: {size}\r\n\r\n"
    ).encode()


def answer(opened):
    """The status and the sentence that a connection ends with, None for no answer."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := opened.recv(1 << 16):
            data += part
    if not data:
        return None
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def whole_answer(opened):
    """
    The answer of a connection that may stay open, and its body.

    The time-out of the socket is that of the first byte.
    """
    opened.recv(1, socket.MSG_PEEK)
    opened.settimeout(30)
    with HTTPResponse(opened) as response:
        response.begin()
        return response, response.read()


def status_of(opened):
    """The status of an answer whose connection may stay open."""
    return whole_answer(opened)[0].status


def test_headers_that_never_end_are_refused_in_time_and_no_other_client_waits(service, connect):
    slow = [connect(b"GET /v1/health HTTP/1.1\r\nx-slow: ") for _ in range(20)]
    slow += [connect() for _ in range(10)]
    for one in slow[:20]:
        one.sendall(b"a")
    meanwhile = service.get("/health").status_code
    answers = [answer(one) for one in slow]

    assert meanwhile == 200
    assert {status for status, _ in answers} == {408}
    assert answers[0][1] == "the header of a request did not arrive within 0.5 s"


def test_empty_lines_do_not_keep_a_connection_that_sends_no_request(connect):
    opened = connect(b"\r\n")
    opened.settimeout(0.1)
    began = time.monotonic()
    ended = None
    while ended is None and time.monotonic() - began < 30:
        with contextlib.suppress(TimeoutError):
            ended = status_of(opened)
            break
        opened.sendall(b"\r\n")

    assert ended == 408


def test_a_header_that_is_too_large_is_refused(connect):
    head = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n"
    opened = connect(head, *[b"x-%d: %s\r\n" % (i, b"a" * 1_000) for i in range(5)])

    assert answer(opened) == (431, "the header of a request takes 4096 bytes at most")


def test_a_body_that_pauses_is_refused_with_a_sentence(service, connect):
    status, error = answer(connect(header(service, 1_000), b"{"))

    assert status == 408
    assert error.startswith("1 bytes of the body arrived within ")


def test_a_body_that_drips_is_refused_though_it_never_pauses(service, connect):
    opened = connect(header(service, 1_000_000))
    began = time.monotonic()
    opened.settimeout(0.05)
    status = None
    while status is None and time.monotonic() - began < 30:
        opened.sendall(b" ")
        with contextlib.suppress(TimeoutError):
            status = status_of(opened)

    assert status == 408


def test_bodies_beyond_what_the_hive_holds_are_refused_until_others_have_ended(service, connect):
    held = [connect(header(service, 8 * MIB), b" " * (3 * MIB)) for _ in range(4)]
    answers = [whole_answer(one) for one in held]
    statuses = sorted(one.status for one, _ in answers)
    others = service.get("/runs").status_code, service.post("/runs/x/stop").status_code
    for one in held:
        one.close()
    again = eventually(lambda: service.create("after"), 30)

    assert statuses[-1] == 503
    assert statuses[0] == 408
    refused, body = next(one for one in answers if one[0].status == 503)
    assert refused.headers["retry-after"] == "2"
    assert b"holds 8388608 at most" in body
    assert others == (200, 404)
    assert again


def test_a_body_that_was_answered_early_cannot_keep_its_connection(service, connect):
    head = header(service, 10 * MIB).replace(service.token.encode(), b"wrong")
    opened = connect(head)
    refused = status_of(opened)

    assert refused == 401
    assert answer(opened) is None


def is_open(opened):
    """Whether the hive has its end of a connection open."""
    port = f":{opened.getsockname()[1]:04X}"
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return any(words[2].endswith(port) and words[3] == "01" for words in lines)


def test_an_answer_that_is_not_taken_is_cut(service, connect):
    run = request("large") | {"configuration": "x" * MIB}
    path = f"/v1/runs/{service.post('/runs', run).json()['run']['id']}/config"
    ask = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n"
    ask += f"authorization: Bearer {service.token}\r\n\r\n"
    opened = connect(8 * ask.encode())  # more than the system holds for a connection
    opened.recv(1)

    assert is_open(opened)
    assert eventually(lambda: not is_open(opened), 30)


def test_connections_beyond_the_limit_are_refused_and_others_are_served(service, connect):
    many = [connect() for _ in range(LIMITS["connections"] + 1)]
    refused = answer(many[-1])
    served = service.get("/health").status_code

    assert refused == (503, "this hive has 60 connections already")
    assert served == 200
